"""R70: rounding down and up gives a value of the dtype, also beyond its finite range."""

import math

import pytest

from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.exact import round_down, round_up
from uops.spec.ir.dtypes import DType


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_beyond_the_finite_range_is_an_infinity_or_the_last_finite_value(d: DType) -> None:
    assert [round_down(d, math.inf), round_up(d, -math.inf)] == [d.max, d.min]
    assert [round_down(d, -math.inf), round_up(d, math.inf)] == [d.min, d.max]


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize("x", [math.inf, -math.inf, 1e300])
def test_the_bounds_of_a_cast_are_in_order(d: DType, x: float) -> None:
    bounds = B.cast(B.const(x, dt.float64), d).min_max
    assert bounds is not None and d.min <= bounds[0] <= bounds[1] <= d.max
