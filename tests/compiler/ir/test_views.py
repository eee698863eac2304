"""Views of memory that passes build."""

import pytest

from uops.compiler.ir.views import view_front_of_memory
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim
from uops.spec.verify.verifier import verify

N = b.variable("n", 1, 6)


@pytest.mark.parametrize("shape", [(12,), (3, 4), (3, 2), (5,), (), (2, N), (0, 3)])
@pytest.mark.parametrize("size", [12, 20])
def test_the_front_of_a_memory_has_the_shape_whatever_the_memory_s_size(shape: tuple[Dim, ...], size: int) -> None:
    memory = b.buffer(size, dt.int32, unique=1)
    front = view_front_of_memory(memory, shape)
    verify(front)
    assert front.shape == shape
    assert (front is memory) == (shape == (size,))
