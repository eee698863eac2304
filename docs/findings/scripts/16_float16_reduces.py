"""R32: two Reduces of float16 in one kernel are reduced like one. Only where float16 is emulated: PYTHON before Python 3.12."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
x, y = (Tensor([1.0, 2.0, 3.0, 4.0], dtype=dtypes.float16).realize() for _ in range(2))
out = Tensor.empty(2, dtype=dtypes.float16)
expected = [4.0, 4.0]
try:
    got = out.assign(Tensor.stack(x.max(), y.max())).realize().tolist()
except RuntimeError as e:
    got = f"RuntimeError: {e}"
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
