"""R18: 1e20 to the power of 1e20 overflows to an infinity, also when both are constants."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV
from tinygrad.uop.ops import Ops, UOp

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
power = UOp.const(1e20, dtypes.float32).alu(Ops.POW, UOp.const(1e20, dtypes.float32))
expected = float("inf")
try:
    got = Tensor.empty(1).assign(Tensor(power.reshape((1,)))).item()
except OverflowError as e:
    got = f"OverflowError: {e}"
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
