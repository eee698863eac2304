"""R16: the reciprocal of a product is that of its rounded value, of NaN it is NaN."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
x = Tensor([0.0, 1.0]).realize()
expected, got = [float("nan"), -0.0], (x * float("-inf")).reciprocal().tolist()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
