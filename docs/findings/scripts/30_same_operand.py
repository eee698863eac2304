"""R03, R16: 0 Idiv 0 is 0; x Div x, x Mul 0 and x Sub x are NaN for an infinity and for NaN, and 0 Div 0 is NaN."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
nan = float("nan")
zero, x, y = Tensor([0]), Tensor([float("inf"), nan]), Tensor([0.0, nan])
expected, got = [[0]] + [[nan, nan]] * 4, [t.tolist() for t in (zero // zero, x / x, y / y, x * 0, x - x)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
