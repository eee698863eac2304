"""R17: Sin is within 2 ulp over the whole range. On CPU:X86, which needs clang."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"
expected, got = 0.1934756487607956, Tensor([2.1362303856027054e24]).sin().item()
print(f"expected {expected} within 2 ulp (2^-25), got {got}")
sys.exit(abs(got - expected) > 2**-25)
