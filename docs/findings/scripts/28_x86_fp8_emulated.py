"""R15, R19: infinities and subnormals are kept. On CPU:X86, which needs clang."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"
zero = Tensor(b"\x00", dtype=dtypes.fp8e5m2)
sums = [Tensor(bits, dtype=dtypes.fp8e5m2) + zero for bits in (b"\x7c", b"\x01")]
expected, got = ["0x7c", "0x1"], [hex(t.realize().bitcast(dtypes.uint8).item()) for t in sums]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
