"""R13: NaN >= 1 and NaN <= 1 are false."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
nan, one = Tensor([float("nan")]), Tensor([1.0])
expected, got = [False, False], [(nan >= one).item(), (nan <= one).item()]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
