"""R15: a Cast from uint64 rounds once, to nearest even. On CPU:X86, which needs clang."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"
expected, got = (
    [33554436.0, 18014398509481988.0],
    [Tensor([v], dtype=dtypes.uint64).cast(d).item() for v, d in ((2**25 + 3, dtypes.float32), (2**54 + 3, dtypes.float64))],
)
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
