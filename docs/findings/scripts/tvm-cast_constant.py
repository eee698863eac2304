"""R15: a Cast of an integer wraps. TVM raises for a scalar constant out of range, and wraps the same input at run time."""

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


x = np.array(200)
try:
    got = run(lambda: relax.op.astype(relax.const(200, "int64"), "int8")).tolist()
except Exception as e:
    got = str(e).strip().splitlines()[-1]
expected = run(lambda a: relax.op.astype(a, "int8"), x).tolist()
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
