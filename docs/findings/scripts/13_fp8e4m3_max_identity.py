"""R32: the identity of Max in fp8e4m3, which has no infinity, is -448."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
empty = Tensor.empty(1, 0, dtype=dtypes.fp8e4m3).max(axis=1)
long = Tensor([float(k) for k in range(33)], dtype=dtypes.fp8e4m3).max()
stored = [Tensor.empty(1, dtype=dtypes.fp8e4m3).assign(t.reshape(1)).realize() for t in (empty, long)]
expected, got = [-448.0, 32.0], [t.cast(dtypes.float32).item() for t in stored]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
