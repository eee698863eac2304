"""R17: atanh(x) is x for a small x. TVM gives 0 for 1e-8 in float32, and loses the sign of -0.0."""

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


x = np.array([1e-8, 1e-4, -0.0], np.float32)
expected, got = np.arctanh(x).tolist(), run(relax.op.atanh, x).tolist()
print(f"expected {expected}, got {got}; asinh gives {run(relax.op.asinh, x).tolist()}")
sys.exit(not np.allclose(got, expected, rtol=1e-5, atol=0) or not np.signbit(got[2]))
