"""R32: the maximum of -inf alone is -inf. TVM starts at the least finite number, and its min at the greatest."""

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


x = np.array([-np.inf, -np.inf], np.float32)
expected, got = [-np.inf, np.inf], [float(run(lambda a: relax.op.max(a), x)), float(run(lambda a: relax.op.min(a), -x))]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
