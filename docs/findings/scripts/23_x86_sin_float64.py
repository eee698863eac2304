"""R17: Sin is within 2 ulp over the whole range. On CPU:X86, which needs clang."""

import math
import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"
x = [1e4, 1e15, 1.7976931348623157e308]
expected, got = [math.sin(v) for v in x], Tensor(x, dtype=dtypes.float64).sin().tolist()
print(f"expected {expected} within 2 ulp, got {got}")
sys.exit(any(abs(g - e) > 2 * math.ulp(e) for g, e in zip(got, expected)))
