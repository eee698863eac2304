"""R02: a - b * floor(a / b) of exact numbers. TVM rounds the quotient first: 5 mod inf is NaN, and 1 // 0.1 is 10."""

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


a, b = np.array([5.0, 1.0]), np.array([np.inf, 0.1])
got = [run(relax.op.floor_mod, a, b).tolist(), run(relax.op.floor_divide, a, b).tolist()]
expected = [np.remainder(a, b).tolist(), np.floor_divide(a, b).tolist()]
print(f"expected {expected}, got {got}; mod gives {run(relax.op.mod, a, b).tolist()}")
sys.exit(not np.allclose(got, expected))
