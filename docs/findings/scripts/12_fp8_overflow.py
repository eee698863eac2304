"""R15: fp8e4m3 has no infinity, so overflow is NaN; fp8e5m2 overflows to an infinity."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
nan, inf = float("nan"), float("inf")
expected = [nan, nan, inf]
results = [
    Tensor([1000.0]).cast(dtypes.fp8e4m3),
    Tensor([448.0], dtype=dtypes.fp8e4m3) * Tensor([2.0], dtype=dtypes.fp8e4m3),
    Tensor([1e6]).cast(dtypes.fp8e5m2),
]
got = [t.realize().cast(dtypes.float32).item() for t in results]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
