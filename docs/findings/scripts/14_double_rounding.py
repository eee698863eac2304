"""R15: one rounding, to nearest even, from the float64; both values are just above halfway."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
values = [(1 + 2**-8 + 2**-52, dtypes.bfloat16), (1 + 2**-11 + 2**-52, dtypes.float16)]
expected = ["0x3f81", "0x3c01"]
got = [hex(Tensor([v], dtype=dtypes.float64).cast(d).realize().bitcast(dtypes.uint16).item()) for v, d in values]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
