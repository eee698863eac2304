"""R03: a Idiv 0 is 0 and a Mod 0 is a."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
a, zero = Tensor([-8, 8]), Tensor([0, 0])
expected, got = [[0, 0], [-8, 8]], [(a // zero).tolist(), (a % zero).tolist()]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
