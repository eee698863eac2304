"""R15: a conversion rounds once. ONNX Runtime rounds float64 to float32 before float16; NumPy rounds once."""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1])
graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16)], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
value = np.array([1 + 2**-11 + 2**-30])
(got,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": value})
print(f"expected {value.astype(np.float16).tolist()}, got {got.tolist()}")
sys.exit(bool(got[0] != value.astype(np.float16)[0]))
