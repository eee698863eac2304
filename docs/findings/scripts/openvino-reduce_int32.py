"""R32: sums and maxima of integers are exact. OpenVINO reduces int32 in float32."""

import io
import sys

import numpy as np
import openvino
from onnx import TensorProto, helper


def run(op: str, arrays: list, elem_type: int, result_type: int, **attributes: int) -> list:
    names = [f"x{k}" for k in range(len(arrays))]
    inputs = [helper.make_tensor_value_info(n, elem_type, a.shape) for n, a in zip(names, arrays, strict=True)]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", result_type, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(io.BytesIO(model)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled(dict(zip(names, arrays, strict=True)))[0].tolist()


x = np.array([2**24 + 1, 0], np.int32)
got = [run(op, [x], TensorProto.INT32, TensorProto.INT32, keepdims=0) for op in ("ReduceSum", "ReduceMax")]
print(f"expected {[2**24 + 1] * 2}, got {got}; Add gives {run('Add', [x[:1], x[1:]], TensorProto.INT32, TensorProto.INT32)}")
sys.exit(got != [2**24 + 1] * 2)
