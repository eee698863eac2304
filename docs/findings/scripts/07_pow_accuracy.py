"""R18: Pow is within 2 ulp. 2.5**6 and 6.0**5 are exact in float32; got differs by 6 and 8 ulp."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
expected, got = [244.140625, 7776.0], (Tensor([2.5, 6.0]) ** Tensor([6.0, 5.0])).tolist()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
