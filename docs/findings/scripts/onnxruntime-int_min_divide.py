"""R04: INT_MIN / -1 wraps. ONNX Runtime's Div of int32 and int64 ends the process with SIGFPE."""

import subprocess
import sys

PROGRAM = """
import numpy as np, onnxruntime
from onnx import TensorProto, helper
values = [helper.make_tensor_value_info(name, TensorProto.{0}, [1]) for name in "abc"]
graph = helper.make_graph([helper.make_node("Div", ["a", "b"], ["c"])], "g", values[:2], values[2:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())
least, one = np.array([np.iinfo(np.{1}).min]), np.array([-1])
print(session.run(None, {{"a": least.astype(np.{1}), "b": one.astype(np.{1})}})[0][0])
"""
runs = {
    name: subprocess.run([sys.executable, "-c", PROGRAM.format(name, name.lower())], capture_output=True, text=True)
    for name in ("INT32", "INT64")
}
print("expected the least integer, got", {name: r.stdout.strip() or f"status {r.returncode}" for name, r in runs.items()})
sys.exit(any(r.returncode for r in runs.values()))
