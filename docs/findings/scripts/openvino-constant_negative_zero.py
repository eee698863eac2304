"""R23: a constant keeps its bits. Beside a subnormal, which OpenVINO flushes, its constants of -0.0 become 0.0."""

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


got = [fold("Identity", [np.array([-0.0, x], np.float32)], TensorProto.FLOAT)[0] for x in (1.5, 1e-40)]
print(f"expected [-0.0, -0.0], got {got}")
sys.exit(str(got) != "[-0.0, -0.0]")
