"""R32: sums and products of integers are exact modulo 2^n. ONNX Runtime computes them in float64 and saturates."""

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


got = [
    run("ReduceSum", np.array([[2**53 + 1]]), TensorProto.INT64),
    run("ReduceSum", np.array([[2**31 - 1, 1]], np.int32), TensorProto.INT32),
    run("ReduceProd", np.array([[94906267, 94906265]]), TensorProto.INT64),
    run("ReduceProd", np.array([[65536, 65536]], np.int32), TensorProto.INT32),
]
expected = [[2**53 + 1], [-(2**31)], [94906267 * 94906265], [0]]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
