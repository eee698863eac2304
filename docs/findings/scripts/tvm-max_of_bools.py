"""R32: the maximum of bools is their disjunction. TVM has no least bool to start from; its sum of bools works."""

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


x = np.array([True, False])
try:
    got = run(lambda a: relax.op.max(a), x).tolist()
except Exception as e:
    got = str(e).strip().splitlines()[-1]
print(f"expected True, got {got}; sum gives {run(lambda a: relax.op.sum(a), x).tolist()}")
sys.exit(got is not True)
