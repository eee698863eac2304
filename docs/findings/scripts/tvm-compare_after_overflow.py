"""R05: integers wrap. TVM's sum of int32 does, but a comparison of it is compiled as if it did not; int8 is right."""

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


x = np.arange(10, dtype=np.int32)
const = relax.const(2**31 - 6, "int32"), relax.const(-(2**31), "int32")
total = run(lambda a: relax.op.add(a, const[0]), x)
got = run(lambda a: relax.op.less_equal(relax.op.add(a, const[0]), const[1]), x).tolist()
narrow = relax.const(127 - 5, "int8"), relax.const(-128, "int8")
right = run(lambda a: relax.op.less_equal(relax.op.add(a, narrow[0]), narrow[1]), x.astype(np.int8)).tolist()
expected = (total <= -(2**31)).tolist()
print(f"sum {total.tolist()}, expected {expected}, got {got}; int8 gives {right}")
sys.exit(got != expected)
