"""R02: a remainder of integers is exact. OpenVINO computes that of int32 in float32."""

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


a, b = np.array([2**24 + 1, 1487276933], np.int32), np.array([10, 1356426074], np.int32)
got, expected = run("Mod", [a, b], TensorProto.INT32, TensorProto.INT32), (a % b).tolist()
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
