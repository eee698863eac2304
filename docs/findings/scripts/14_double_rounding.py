"""R15: one rounding, to nearest even, from the float64 or the integer; all values are just above halfway."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def bits(value: float, source: DType, to: DType) -> str:
    word = {2: dtypes.uint16, 4: dtypes.uint32}[to.itemsize]
    return hex(int(Tensor([value], dtype=source).cast(to).realize().bitcast(word).item()))


expected = ["0x3f81", "0x3c01", "0x4e81", "0x5e800001"]
got = [
    bits(1 + 2**-8 + 2**-52, dtypes.float64, dtypes.bfloat16),
    bits(1 + 2**-11 + 2**-52, dtypes.float64, dtypes.float16),
    bits(2**30 + 2**22 + 1, dtypes.int32, dtypes.bfloat16),
    bits(2**62 + 2**38 + 1, dtypes.int64, dtypes.float32),
]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
