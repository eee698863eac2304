"""Greatest extents."""

from uops.compiler.ir.extents import finite_bounds, max_extent
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt


def test_an_extent_is_not_negative():
    assert max_extent(b.sub(b.variable("n", 0, 3), 10)) == 0


def test_a_float_cast_to_index_has_no_finite_bounds():
    n = b.variable("n", 2, 5)
    number = b.cast(b.param(0, (), dt.float32), dt.index)
    assert finite_bounds(n) == (2, 5)
    assert finite_bounds(number) is None
    assert finite_bounds(b.maximum(number, n)) is None
    assert finite_bounds(b.sub(0, b.maximum(number, n))) is None
