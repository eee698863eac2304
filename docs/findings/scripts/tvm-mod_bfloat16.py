"""R16: a remainder has the dtype of its operands. TVM does not compile mod of bfloat16; its floor_mod works."""

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


a, b = np.array([5], ml_dtypes.bfloat16), np.array([3], ml_dtypes.bfloat16)
try:
    got = float(run(relax.op.mod, a, b)[0])
except Exception as e:
    got = str(e).strip().splitlines()[-1]
print(f"expected 2.0, got {got}; floor_mod gives {float(run(relax.op.floor_mod, a, b)[0])}")
sys.exit(got != 2.0)
