"""R11: Max and Min compare whole integers. On int64, ONNX Runtime takes the wrong operand beyond 32 bits."""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(op: str, a: list[int], b: list[int]) -> list[int]:
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, [len(a)]) for name in "abc"]
    graph = helper.make_graph([helper.make_node(op, ["a", "b"], ["c"])], "g", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"a": np.array(a, np.int64), "b": np.array(b, np.int64)})[0].tolist()


got = [run("Max", [0, 1], [2**31, 2**31]), run("Min", [0, 1], [2**31, 2**31])]
expected = [[2**31, 2**31], [0, 1]]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
