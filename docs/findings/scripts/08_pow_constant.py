"""R18: powers of constants: 1e20 to the power of 1e20 is an infinity, -65504 to the power of 100.5 is NaN."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV
from tinygrad.uop.ops import Ops, UOp

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def power(base: float, exponent: float) -> object:
    value = UOp.const(base, dtypes.float32).alu(Ops.POW, UOp.const(exponent, dtypes.float32))
    try:
        return Tensor.empty(1).assign(Tensor(value.reshape((1,)))).item()
    except OverflowError as e:
        return f"OverflowError: {e}"


expected = [float("inf"), float("nan")]
got = [power(1e20, 1e20), power(-65504.0, 100.5)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
