"""R11: a maximum with a NaN is NaN, as ONNX Runtime's own Max has it. ReduceMax depends on where the NaN stands."""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(op: str, rows: np.ndarray, elem_type: int) -> list:
    x, y = helper.make_tensor_value_info("x", elem_type, rows.shape), helper.make_tensor_value_info("y", elem_type, None)
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    graph = helper.make_graph([helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)], "g", [x], [y], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": rows})[0].tolist()


nan = float("nan")
got = [run(op, np.array([[nan, 5], [5, nan]], np.float32), TensorProto.FLOAT) for op in ("ReduceMax", "ReduceMin")]
print(f"expected [[nan, nan], [nan, nan]], got {got}")
sys.exit(str(got) != str([[nan, nan], [nan, nan]]))
