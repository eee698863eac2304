"""R191: a remainder of integers is exact. With fmod=1, ONNX Runtime's Mod of int64 is computed in float64."""

import math
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

values = [helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in "abc"]
graph = helper.make_graph([helper.make_node("Mod", ["a", "b"], ["c"], fmod=1)], "g", values[:2], values[2:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())
a, b = np.array([2**53 + 1, 4611686293305294847]), np.array([2**60, 255])
expected, got = np.fmod(a, b).tolist(), session.run(None, {"a": a, "b": b})[0].tolist()
print(f"expected {expected}, got {got}; in float64 {[int(math.fmod(x, y)) for x, y in zip(a, b, strict=True)]}")
sys.exit(got != expected)
