"""R06: a count of at least the width gives 0."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
expected = 0
try:
    got = (Tensor([1], dtype=dtypes.uint64) << Tensor([2**60], dtype=dtypes.uint64)).item()
except (MemoryError, OverflowError) as e:
    got = type(e).__name__
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
