"""R41: Expand gives the extents that it names, 0 too. With optimizations, ONNX Runtime leaves a folded constant as it was."""

import sys

import onnxruntime
from onnx import TensorProto, helper

constants = [
    helper.make_tensor("c", TensorProto.FLOAT, [], [1.0]),
    helper.make_tensor("one", TensorProto.INT64, [1], [1]),
    helper.make_tensor("none", TensorProto.INT64, [1], [0]),
]
nodes = [
    helper.make_node("Reshape", ["c", "one"], ["r"]),
    helper.make_node("Expand", ["r", "none"], ["e"]),
    helper.make_node("Neg", ["e"], ["y"]),
]
graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [0])], constants)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
got = {}
for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC"):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = getattr(onnxruntime.GraphOptimizationLevel, level), 4
    got[level] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {})[0].shape
print(f"expected (0,) twice, got {got}")
sys.exit(any(shape != (0,) for shape in got.values()))
