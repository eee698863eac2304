"""R16: a float divided by 0 is infinite or NaN. TVM does not compile a division by a constant 0."""

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


x = np.array([1, -1, 0], np.float32)
try:
    got = run(lambda a: relax.op.divide(a, relax.const(0.0, "float32")), x).tolist()
except Exception as e:
    got = str(e).strip().splitlines()[-1]
expected = run(relax.op.divide, x, np.zeros(3, np.float32)).tolist()
print(f"expected {expected}, as with zeros that are no constants, got {got}")
sys.exit(str(got) != str(expected))
