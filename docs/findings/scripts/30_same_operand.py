"""R03, R16: 0 Idiv 0 is 0; x Div x, x Mul 0 and x Sub x are NaN for an infinity and for NaN. No cell of the suite asks this."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
nan = float("nan")
zero, x = Tensor([0]), Tensor([float("inf"), nan])
expected, got = [[0]] + [[nan, nan]] * 3, [t.tolist() for t in (zero // zero, x / x, x * 0, x - x)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
