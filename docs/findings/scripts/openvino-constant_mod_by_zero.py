"""R03: a remainder by zero does not trap. Folding one of constants ends the process of OpenVINO; at run time it gives a value."""

import subprocess
import sys

PROGRAM = """
import io, numpy, openvino
from onnx import TensorProto, helper
names, constants = ("a", "b"), [helper.make_tensor(n, TensorProto.UINT8, [1], [k]) for n, k in (("a", 7), ("b", 0))]
inputs = [] if {fold} else [helper.make_tensor_value_info(n, TensorProto.UINT8, [1]) for n in names]
output = helper.make_tensor_value_info("y", TensorProto.UINT8, [1])
graph = helper.make_graph([helper.make_node("Mod", names, ["y"])], "g", inputs, [output], constants if {fold} else [])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
core = openvino.Core()
compiled = core.compile_model(core.read_model(io.BytesIO(model.SerializeToString())), "CPU")
print(compiled({{}} if {fold} else {{"a": numpy.array([7], "u1"), "b": numpy.array([0], "u1")}})[0])
"""
run = [subprocess.run([sys.executable, "-c", PROGRAM.format(fold=f)], capture_output=True).returncode for f in (False, True)]
print(f"expected status 0 twice, got {run[0]} at run time, {run[1]} while folding")
sys.exit(run[1] != 0)
