"""R42: a Reduce by Mul of bools is a bool, and Or takes it."""

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


one, other = Tensor([True, False]), Tensor([[1, 2], [3, 4]])
expected, got = [True, True], run(lambda: one | (other <= other).prod(axis=0))
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
