"""R16: Mulacc is rounded once: (1 + 2^-30) * (1 - 2^-30) - 1 is -2^-60 in float64."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
a, b, c = (Tensor([v], dtype=dtypes.float64) for v in (1 + 2**-30, 1 - 2**-30, -1.0))
expected, got = -(2**-60), (a * b + c).item()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
