"""R12: comparisons of integers compare all bits. OpenVINO compares int32 in float32."""

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


a, b = np.array([2**24 + 1, 2**24], np.int32), np.array([2**24, 2**24 + 1], np.int32)
got = [run(op, [a, b], TensorProto.INT32, TensorProto.BOOL) for op in ("Equal", "Less")]
print(f"expected [[False, False], [False, True]], got {got}")
sys.exit(got != [[False, False], [False, True]])
