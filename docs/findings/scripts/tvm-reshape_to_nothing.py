"""R41: an extent of 0 is one. TVM's reshape takes it for the operand's extent on that axis, which it documents nowhere."""

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


got = []
for old, new in (((0,), (1, 0)), ((2, 0), (0, 3))):
    try:
        got.append(run(lambda a, shape=new: relax.op.reshape(a, shape), np.ones(old, np.float32)).shape)
    except Exception as e:
        got.append(str(e).strip().splitlines()[-1])
print(f"expected [(1, 0), (0, 3)], got {got}")
sys.exit(got != [(1, 0), (0, 3)])
