"""R192: a sorted vector has its elements in order. TVM's sort of bfloat16 gives other numbers; of float16 it is right."""

import sys

import ml_dtypes
import numpy as np
import tvm
from tvm import relax


def sort(a: np.ndarray) -> list[float]:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(a.shape, a.dtype.name))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.sort(x, axis=0))
        builder.emit_func_output(result)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(a)).numpy().tolist()


numbers = [3.0, -1.0, 2.0, 0.5]
got = [sort(np.array(numbers, d)) for d in (np.float16, ml_dtypes.bfloat16)]
print(f"expected {sorted(numbers)} twice, got {got}")
sys.exit(got[1] != sorted(numbers))
