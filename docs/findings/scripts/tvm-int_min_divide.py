"""R04: INT_MIN / -1 wraps. TVM's compiled code ends with SIGFPE; with a constant -1 it is compiled and gives INT_MIN."""

import subprocess
import sys

PROGRAM = """
import numpy as np, tvm
from tvm import relax
x = relax.Var("x", relax.TensorType((1,), "{0}")); y = relax.Var("y", relax.TensorType((1,), "{0}"))
builder = relax.BlockBuilder()
with builder.function("main", [x, y]):
    builder.emit_func_output(builder.emit({1}))
machine = relax.VirtualMachine(tvm.compile(builder.finalize(), "llvm"), tvm.cpu())
print(machine["main"](*(tvm.runtime.tensor(np.array([n], "{0}")) for n in (np.iinfo("{0}").min, -1))).numpy()[0])
"""
ops = ["relax.op.floor_divide(x, y)", "relax.op.floor_mod(x, y)", "relax.op.floor_divide(x, relax.const(-1, '{}'))"]
cases = [(d, op.format(d)) for d in ("int8", "int32") for op in ops]
runs = {c: subprocess.run([sys.executable, "-c", PROGRAM.format(*c)], capture_output=True, text=True) for c in cases}
print(f"expected the least integer or 0, got { {k: r.stdout.strip() or f'status {r.returncode}' for k, r in runs.items()} }")
sys.exit(any(r.returncode for r in runs.values()))
