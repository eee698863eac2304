"""R12: bools compare as 0 and 1. TVM's code for them takes bools as floats, which LLVM or TVM itself then refuses."""

import sys

import numpy as np
import tvm
from tvm import relax


def run(op, *arrays: np.ndarray) -> np.ndarray:
    builder = relax.BlockBuilder()
    xs = [relax.Var(f"x{k}", relax.TensorType(a.shape, str(a.dtype))) for k, a in enumerate(arrays)]
    with builder.function("main", xs):
        builder.emit_func_output(builder.emit(op(*xs)))
    machine = relax.VirtualMachine(tvm.compile(builder.finalize(), "llvm"), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


a, b = np.array([True, False]), np.array([False, False])
names = ("equal", "not_equal", "less", "greater_equal", "maximum")
got = []
for name in names:
    try:
        got.append(run(getattr(relax.op, name), a, b).tolist())
    except Exception as e:
        got.append(str(e).strip().splitlines()[-1])
expected = [[False, True], [True, False], [False, False], [True, True], [True, False]]
print(
    f"expected {expected}, got {got}; uint8 gives {[run(getattr(relax.op, n), a.view('u1'), b.view('u1')).tolist() for n in names]}"
)
sys.exit(got != expected)
