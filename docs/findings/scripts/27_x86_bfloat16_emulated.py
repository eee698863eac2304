"""R16, R19, R28: subnormals are kept, also by Bitcast and Cast; every op is rounded to bfloat16. On CPU:X86, which needs clang."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"
moved = Tensor(b"\x05\x00", dtype=dtypes.uint16).bitcast(dtypes.bfloat16).contiguous().realize().bitcast(dtypes.uint16).item()
widened = Tensor(b"\x01\x00", dtype=dtypes.bfloat16).cast(dtypes.float32).realize().bitcast(dtypes.uint32).item()
added = (Tensor([256.0], dtype=dtypes.bfloat16) + Tensor([1.0], dtype=dtypes.bfloat16)).cast(dtypes.float32).item()
expected, got = ["0x5", "0x10000", 256.0], [hex(moved), hex(widened), added]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
