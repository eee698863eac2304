"""R05: a product of uint32 wraps. TVM's simplifier cancels the factor in (x * 2) // 2 of a tensor expression."""

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


two = tvm.tirx.const(2, "uint32")
x = np.array([2**31, 5], np.uint32)


def double_and_halve(a):
    return relax.BlockBuilder.current().call_te(lambda t: tvm.te.compute(t.shape, lambda i: t(i) * two // two), a)


c = np.array([2, 2], np.uint32)
expected, got = (
    run(lambda a, b: relax.op.floor_divide(relax.op.multiply(a, b), b), x, c).tolist(),
    run(double_and_halve, x).tolist(),
)
print(f"expected {expected}, as Relax with an input 2 gives, got {got}")
sys.exit(got != expected)
