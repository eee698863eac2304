"""R16: a quotient is rounded once. A third of OpenVINO's quotients by 3 are not, in float32."""

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


x, divisor = np.arange(1, 1000, dtype=np.float32), np.full(999, 3, np.float32)
quotients = np.array(run("Div", [x, divisor], TensorProto.FLOAT, TensorProto.FLOAT), np.float32)
wrong = int((quotients != x / divisor).sum())
print(f"expected 0 wrong quotients of 999, got {wrong}")
sys.exit(wrong > 0)
