"""R16: Div is rounded once."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
expected, got = 1.6666666269302368, (Tensor([5.0]) / Tensor([3.0])).item()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
