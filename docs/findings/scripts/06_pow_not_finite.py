"""R18: IEEE pow has a result for infinite and NaN exponents."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(x: float, y: float) -> object:
    try:
        return (Tensor([x]) ** Tensor([y])).item()
    except (OverflowError, ValueError) as e:
        return f"{type(e).__name__}: {e}"


inf, nan = float("inf"), float("nan")
expected, got = [inf, 0.0, nan, 1.0], [run(2.0, inf), run(2.0, -inf), run(2.0, nan), run(1.0, nan)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
