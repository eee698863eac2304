"""Index values are computed in a machine integer that holds every one of them (R08)."""

import pytest

from uops.compiler.passes.select.index_widths import lower_index_arithmetic
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

SIZE = 3_000_000_000


@pytest.mark.parametrize(("mask", "width"), [(99, dt.int32), (SIZE, dt.int64), (SIZE + 1, dt.int64)])
def test_the_size_of_a_param_needs_a_width_only_if_it_is_computed_with(mask: int, width: dt.DType) -> None:
    i = b.range_(100, 0)
    place = b.at(b.param(0, (SIZE,), dt.int8), UOp(Op.AND, (i, b.index(mask))))
    lowered = lower_index_arithmetic(b.sink(b.end(b.store(place, b.const(1, dt.int8)), i), name="k"))
    (masked,) = [u for u in toposort(lowered) if u.op is Op.AND]
    assert masked.dtype is width and masked.rhs.dtype is width
