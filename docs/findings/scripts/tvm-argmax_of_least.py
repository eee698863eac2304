"""R32: a position of a reduction is one of the array. TVM's argmax of elements that are all the least gives -1."""

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


arrays = np.array([-np.inf] * 2, np.float32), np.array([-(2**31)] * 2, np.int32)
got = [int(run(lambda a: relax.op.argmax(a), x)) for x in arrays] + [int(run(lambda a: relax.op.argmin(a), -arrays[0]))]
print(f"expected [0, 0, 0], got {got}")
sys.exit(got != [0, 0, 0])
