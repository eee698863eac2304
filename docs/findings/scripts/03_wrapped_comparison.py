"""R05, R70: 200..209 as int8 are negative; of uint8 250..259, four wrap below 5; four int32 multiples of 2^30 are negative."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
signed = (Tensor.arange(200, 210).cast(dtypes.int8) < 0).sum()
unsigned = ((Tensor.arange(10, dtype=dtypes.uint8) + 250) < 5).sum()
product = ((Tensor.arange(10, dtype=dtypes.int32) * 2**30) < 0).sum()
expected, got = [10, 4, 4], [Tensor.empty(1, dtype=t.dtype).assign(t.reshape(1)).item() for t in (signed, unsigned, product)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
