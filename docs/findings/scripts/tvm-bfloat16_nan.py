"""R15: a NaN stays a NaN. TVM converts a float32 NaN with a low payload to an infinite bfloat16."""

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


x = np.array([0x7F800001, 0xFF800001, 0x7FC00000], np.uint32).view(np.float32)
got = run(lambda a: relax.op.astype(a, "bfloat16"), x).astype(np.float32).tolist()
print(f"expected {[float('nan')] * 3}, got {got}; float16 gives {run(lambda a: relax.op.astype(a, 'float16'), x).tolist()}")
sys.exit(not np.isnan(got).all())
