"""R18: Pow is within 2 ulp. 2.5**6 and 6.0**5 are exact in float32."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
expected, got = [244.140625, 7776.0], (Tensor([2.5, 6.0]) ** Tensor([6.0, 5.0])).tolist()
spacing = [2**-16, 2**-11]
print(f"expected {expected} within 2 ulp, got {got}")
sys.exit(any(abs(g - e) > 2 * s for g, e, s in zip(got, expected, spacing)))
