"""Greatest extents."""

from uops.compiler.ir.extents import max_extent
from uops.spec.ir import build as b


def test_an_extent_is_not_negative():
    assert max_extent(b.sub(b.variable("n", 0, 3), 10)) == 0
