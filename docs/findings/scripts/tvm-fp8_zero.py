"""R15: a zero, a NaN and an infinity of fp8 are converted as such. TVM reads them as numbers, such as 2**-7 for 0."""

import sys

import ml_dtypes
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


x = np.array([0, 448, np.nan], ml_dtypes.float8_e4m3fn), np.array([0, 1, np.inf], ml_dtypes.float8_e5m2)
y = np.array([-0.0, 1, np.inf, 500], np.float32)
got = [run(lambda a: relax.op.astype(a, "float32"), a).tolist() for a in x]
got.append(run(lambda a: relax.op.astype(a, "float8_e4m3fn"), y).astype(np.float32).tolist())
expected = [[0.0, 448.0, np.nan], [0.0, 1.0, np.inf], [-0.0, 1.0, np.nan, np.nan]]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
