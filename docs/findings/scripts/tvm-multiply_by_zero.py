"""R16: NaN and infinity times 0 are NaN. TVM folds a product with a constant 0 to 0, and x + 0 to x for -0.0."""

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


x, zero = np.array([np.nan, np.inf, -0.0], np.float32), relax.const(0.0, "float32")
got = [run(lambda a: relax.op.multiply(a, zero), x).tolist(), run(lambda a: relax.op.add(a, zero), x).tolist()]
zeros = np.zeros(3, np.float32)
expected = [run(relax.op.multiply, x, zeros).tolist(), run(relax.op.add, x, zeros).tolist()]
print(f"expected {expected}, as with zeros that are no constants, got {got}")
sys.exit(str(got) != str(expected))
