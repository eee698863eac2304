"""R11: a maximum with a NaN is NaN. In OpenVINO it depends on the place of the NaN, in Max and in ReduceMax."""

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


nan, kind = float("nan"), TensorProto.FLOAT
a, b = np.array([nan, 5], np.float32), np.array([5, nan], np.float32)
got = [run("Max", [a, b], kind, kind), run("ReduceMax", [a], kind, kind, keepdims=0), run("ReduceMax", [b], kind, kind, keepdims=0)]
print(f"expected [[nan, nan], nan, nan], got {got}")
sys.exit(str(got) != "[[nan, nan], nan, nan]")
