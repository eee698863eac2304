"""R54: a Store reads what it needs before it writes: b stored into its own Flip is b reversed."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
b = Tensor([1, 2, 3, 4, 5]).contiguous().realize()
b.flip(0).assign(b).realize()
expected, got = [5, 4, 3, 2, 1], b.tolist()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
