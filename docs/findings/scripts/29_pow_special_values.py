"""R18: IEEE pow of signed zeros, of a negative base to an infinite power, and of 1 to the power of NaN."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(x: float, y: float) -> object:
    try:
        return (Tensor([x]) ** Tensor([y])).item()
    except (OverflowError, ValueError) as e:
        return type(e).__name__


inf, nan = float("inf"), float("nan")
cases = [(-0.0, 5.0), (-0.0, -1.0), (-2.0, inf), (-2.0, -inf), (1.0, nan)]
expected, got = [-0.0, -inf, inf, 0.0, 1.0], [run(x, y) for x, y in cases]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
