"""R63: an argument of a Call may be any value, a constant too."""

import sys
from collections.abc import Callable

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV
from tinygrad.uop.ops import UOp

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(make: Callable[[], Tensor]) -> object:
    try:
        return make().tolist()
    except RuntimeError as e:
        return f"RuntimeError: {str(e)[:40]}..."


def call() -> Tensor:
    b = Tensor([3, 4]).realize().uop
    to, value = UOp.param(0, dtypes.int, (2,), b.device), UOp.param(1, dtypes.int, (2,), b.device)
    seven = UOp.const(7, dtypes.int).reshape((1,)).expand((2,)).contiguous()
    return Tensor(b.after(UOp.sink(to.after(to.store(value))).call(b, seven)))


expected, got = [7, 7], run(call)
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
