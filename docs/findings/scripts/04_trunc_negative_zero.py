"""R16: Trunc keeps the sign of its operand, as IEEE roundToIntegralTowardZero does."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
expected, got = [-0.0, -0.0], Tensor([-0.5, -0.0]).trunc().tolist()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
