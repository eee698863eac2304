"""R46: a part of memory that is read as of a narrower dtype may begin and end anywhere."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def copied(begin: int, end: int) -> object:
    """These bytes of four integers, made contiguous."""
    b = Tensor([0x0201, 0x0403, 0x0605, 0x0807], dtype=dtypes.uint16).contiguous().realize()
    try:
        return b.bitcast(dtypes.uint8)[begin:end].contiguous().tolist()
    except ValueError as e:
        return f"ValueError: {e}"


expected = [3, 4, 5, 6], [2, 3, 4, 5, 6], [4]
got = copied(2, 6), copied(1, 6), copied(3, 4)
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
