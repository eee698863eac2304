"""R11: the maximum is NaN if either operand is, in Max and in a Reduce."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
nan = float("nan")
expected = [nan, nan, nan, nan]
pairs = (6.0, nan), (nan, 6.0)
got = [Tensor([a]).maximum(Tensor([b])).item() for a, b in pairs] + [Tensor([a, b]).max().item() for a, b in pairs]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
