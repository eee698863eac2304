"""R32: two Reduces in one kernel fail where the device lacks the dtype: float16 on PYTHON before Python 3.12, others on CPU:X86."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(dtype: object) -> object:
    x, y = (Tensor([1.0, 2.0, 3.0, 4.0], dtype=dtype).realize() for _ in range(2))
    try:
        return Tensor.empty(2, dtype=dtype).assign(Tensor.stack(x.max(), y.max())).realize().tolist()
    except RuntimeError as e:
        return f"RuntimeError: {str(e)[:40]}..."


kinds = dtypes.float16, dtypes.bfloat16, dtypes.fp8e5m2
expected, got = [[4.0, 4.0]] * 3, [run(d) for d in kinds]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
