"""R11: an order has the numbers in order. TVM's sort leaves the numbers beside a NaN unsorted."""

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


x = np.array([3, np.nan, 1, -1, 0], np.float32)
expected, got = np.sort(x).tolist(), run(relax.op.sort, x).tolist()
print(f"expected {expected}, got {got}")
sys.exit([v for v in got if v == v] != expected[:4])
