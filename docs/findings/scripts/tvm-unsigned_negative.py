"""R05: unsigned integers wrap. TVM does not compile negative and sign of unsigned integers: it makes a constant of -1."""

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


x = np.array([3, 0], np.uint32)
got = []
for op in (relax.op.negative, relax.op.sign):
    try:
        got.append(run(op, x).tolist())
    except Exception as e:
        got.append(str(e).strip().splitlines()[-1])
expected = [[2**32 - 3, 0], [1, 0]]
print(f"expected {expected}, got {got}; 0 - x gives {run(relax.op.subtract, np.zeros(2, np.uint32), x).tolist()}")
sys.exit(got != expected)
