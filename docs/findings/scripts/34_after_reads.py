"""R59: After orders what follows behind a read, which has no effect of its own."""

import sys
from collections.abc import Callable

from tinygrad import Tensor
from tinygrad.helpers import DEV
from tinygrad.uop.ops import Ops

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(make: Callable[[], Tensor]) -> object:
    try:
        return make().tolist()
    except RuntimeError as e:
        return f"RuntimeError: {str(e)[:40]}..."


def after_copy() -> Tensor:
    """What is stored follows a copy of the old contents."""
    b = Tensor([1, 2]).realize().uop
    return Tensor(b.after(b.after(b.clone()).store(b)))


def after_sum() -> Tensor:
    b = Tensor([1, 2]).realize().uop
    total = b.alu(Ops.ADD, b)
    return Tensor.stack(Tensor(total), Tensor(b.after(total)))


def after_two() -> Tensor:
    b = Tensor([[1, 2], [3, 4]]).realize().uop
    return Tensor(b.after(b.permute((1, 0)).contiguous(), b.shrink(((0, 1), (0, 2))).clone()))


def after_reduce() -> Tensor:
    """The value is of other memory."""
    return Tensor(Tensor([1, 2]).realize().uop.after(Tensor([[3, 4]]).realize().sum(axis=1).uop))


expected = [[1, 2], [[2, 4], [1, 2]], [[1, 2], [3, 4]], [1, 2]]
got = [run(f) for f in (after_copy, after_sum, after_two, after_reduce)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
