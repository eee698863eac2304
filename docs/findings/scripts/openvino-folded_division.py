"""R01: ONNX truncates a quotient of integers. OpenVINO rounds one of uint8 constants; at run time it truncates."""

import io
import sys

import numpy as np
import openvino
from onnx import TensorProto, helper, numpy_helper


def fold(op: str, arrays: list, elem_type: int) -> list:
    constants = [numpy_helper.from_array(a, f"x{k}") for k, a in enumerate(arrays)]
    output = helper.make_tensor_value_info("y", elem_type, arrays[0].shape)
    graph = helper.make_graph([helper.make_node(op, [c.name for c in constants], ["y"])], "g", [], [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
    core = openvino.Core()
    return core.compile_model(core.read_model(io.BytesIO(model)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})({})[0].tolist()


got = fold("Div", [np.array([3, 7], np.uint8), np.array([2, 4], np.uint8)], TensorProto.UINT8)
print(f"expected [1, 1], got {got}")
sys.exit(got != [1, 1])
