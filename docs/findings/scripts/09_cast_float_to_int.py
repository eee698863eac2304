"""R15: a float beyond the range of an integer dtype saturates, and NaN gives 0."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(x: float, dtype: object) -> object:
    try:
        return Tensor([x]).cast(dtype).item()
    except (OverflowError, ValueError) as e:
        return f"{type(e).__name__}: {e}"


inf, nan, i32 = float("inf"), float("nan"), dtypes.int32
cases = [(300.0, dtypes.int8), (-3.0, dtypes.uint8), (3e9, i32), (inf, i32), (nan, i32)]
expected, got = [127, 0, 2**31 - 1, 2**31 - 1, 0], [run(x, d) for x, d in cases]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
