"""R15: a conversion rounds once. TVM rounds float64 and int32 to float32 first on the way to bfloat16."""

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


x, n = np.array([1 + 2**-8 + 2**-30]), np.array([0x40400001], np.int32)
got = [float(run(lambda a: relax.op.astype(a, "bfloat16"), a)[0]) for a in (x, n)]
half = run(lambda a: relax.op.astype(a, "float16"), np.array([1 + 2**-11 + 2**-30]))
expected = [1 + 2**-7, float(0x40800000)]
print(f"expected {expected}, got {got}; float16, which is rounded once, gives {half.tolist()}")
sys.exit(got != expected)
