"""R32: the identity of Max in fp8e4m3, which has no infinity, is -448."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(t: Tensor) -> object:
    try:
        return Tensor.empty(1, dtype=dtypes.fp8e4m3).assign(t.max().reshape(1)).realize().cast(dtypes.float32).item()
    except RuntimeError as e:  # another finding, on CPU:X86
        return f"RuntimeError: {str(e)[:40]}..."


empty, long = Tensor.empty(0, dtype=dtypes.fp8e4m3), Tensor([float(k) for k in range(33)], dtype=dtypes.fp8e4m3)
expected, got = [-448.0, 32.0], [run(empty), run(long)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
