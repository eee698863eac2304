"""R06: a count of at least the width gives 0, or the sign fill. On CPU:X86, which needs clang."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"
x, count = Tensor([1, -8], dtype=dtypes.int32), Tensor([33, 33], dtype=dtypes.int32)
expected, got = [[0, 0], [0, -1]], [(x << count).tolist(), (x >> count).tolist()]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
