"""R16, R19: subnormals are kept and every op is rounded to float16. Only before Python 3.12, where PYTHON has no float16."""

import struct
import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV
from tinygrad.uop.ops import Ops

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def half(*bits: int) -> Tensor:
    return Tensor(struct.pack(f"{len(bits)}H", *bits), dtype=dtypes.float16)


negated = half(0x0001).alu(Ops.NEG).realize().bitcast(dtypes.uint16).item()  # -2^-24
near_top = (half(0x7BFF) + half(0x3C08)).realize().bitcast(dtypes.uint16).item()  # 65504 + 1.0078125 rounds to 65504
kept = (half(0x7BFF) + half(0x3C00)).cast(dtypes.float32).item()  # likewise, read as float32 in the same kernel
expected, got = ["0x8001", "0x7bff", 65504.0], [hex(negated), hex(near_top), kept]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
