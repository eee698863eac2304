"""R28: Where keeps every bit. ONNX Runtime adds the two selected halves, so -0.0 becomes 0.0."""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

types = {"c": TensorProto.BOOL, "a": TensorProto.FLOAT, "b": TensorProto.FLOAT, "o": TensorProto.FLOAT}
values = [helper.make_tensor_value_info(name, t, [1]) for name, t in types.items()]
graph = helper.make_graph([helper.make_node("Where", ["c", "a", "b"], ["o"])], "g", values[:3], values[3:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())
(got,) = session.run(None, {"c": np.array([True]), "a": np.array([-0.0], np.float32), "b": np.array([1.0], np.float32)})
print(f"expected [-0.0], got {got.tolist()}")
sys.exit(not bool(np.signbit(got[0])))
