"""R11: a maximum with a NaN is NaN. TVM's maximum and minimum lose a NaN that is the first operand."""

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


nan, one = np.array([np.nan]), np.array([1.0])
orders = [(a.astype(d), b.astype(d)) for d in ("float32", "float64") for a, b in ((nan, one), (one, nan))]
got = [float(run(op, a, b)[0]) for op in (relax.op.maximum, relax.op.minimum) for a, b in orders]
print(f"expected {[float('nan')] * 8}, got {got}")
sys.exit(not np.isnan(got).all())
