"""R17: Log2 of a negative number is NaN, of a subnormal one too. On CPU:X86, which needs clang."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"
expected, got = [float("nan")] * 2, Tensor([-1e-45, -1.0]).log2().tolist()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
