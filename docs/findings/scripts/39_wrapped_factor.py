"""R05: a factor that makes an unsigned product wrap is no factor of the greatest product: 2 * -2 is greater than 3 * -2."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
x = Tensor([2, 3], dtype=dtypes.uint32)
expected, got = 2**32 - 4, (x * (2**32 - 2)).max().item()
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
