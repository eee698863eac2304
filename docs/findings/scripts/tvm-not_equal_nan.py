"""R12: NaN differs from every number. TVM's not_equal is False for it, in every float dtype."""

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


arrays = [(np.array([np.nan, 1, 2], d), np.array([1, np.nan, 3], d)) for d in ("float16", "float32", "float64")]
expected, got = [[True] * 3] * 3, [run(relax.op.not_equal, a, b).tolist() for a, b in arrays]
print(f"expected {expected}, got {got}; equal gives {run(relax.op.equal, *arrays[1]).tolist()}")
sys.exit(got != expected)
