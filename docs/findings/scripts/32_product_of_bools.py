"""R42: a Reduce by Mul of bools is a bool; Or takes it, and Where as its condition."""

import sys
from collections.abc import Callable

from tinygrad import Tensor
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(make: Callable[[], Tensor]) -> object:
    try:
        return make().tolist()
    except RuntimeError as e:
        return f"RuntimeError: {str(e)[:40]}..."


one, other, column = Tensor([True, False]), Tensor([[1, 2], [3, 4]]), Tensor([[False], [True]])
expected = [True, True], [2, 1]
got = (
    run(lambda: one | (other <= other).prod(axis=0)),
    run(lambda: column.expand(2, 3).prod(axis=1).where(1, 2)),
)
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
