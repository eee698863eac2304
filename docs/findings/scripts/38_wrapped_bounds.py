"""R05, R70: Max, Idiv and Mod of uint8 that wrap: 100 + 200 is 44, and 250 + r wraps to 0..3 for r above 5."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
r = Tensor.arange(10, dtype=dtypes.uint8) + 250
greater = (Tensor([100], dtype=dtypes.uint8) + 200).maximum(100)
above, quotients = (t.cast(dtypes.int32).sum() for t in (r.maximum(200), r // 250))
expected, got = [100, 2315, 6], [t.item() for t in (greater, above, quotients)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
