"""R16: -0.0 + 0.0 is 0.0."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
expected, got = [0.0, 1.0], (Tensor([-0.0, 1.0]).realize() + 0.0).tolist()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
