"""R18: IEEE pow of signed zeros, of a negative base to an infinite or a very large power, and of 1 to the power of NaN."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(x: float, y: float, dtype: object = dtypes.float32) -> object:
    try:
        power = (Tensor([x], dtype=dtype) ** Tensor([y], dtype=dtype)).realize()
        return power.cast(dtypes.float32).item()
    except (OverflowError, ValueError) as e:
        return type(e).__name__


inf, nan = float("inf"), float("nan")
cases = [(-0.0, 5.0), (-0.0, -1.0), (-2.0, inf), (-2.0, -inf), (1.0, nan), (-2.0, 2.0**100), (0.0, 1.5, dtypes.fp8e4m3)]
expected, got = [-0.0, -inf, inf, 0.0, 1.0, inf, 0.0], [run(*case) for case in cases]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
