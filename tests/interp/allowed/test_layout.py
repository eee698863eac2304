"""Distances between values of a dtype."""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp.allowed.layout import LAYOUT, from_order_keys, ulp, ulp_distance
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize("scalars", [False, True])
def test_steps_are_counted_across_all_of_a_dtype_without_an_overflow(d, scalars):
    f = LAYOUT[d]
    far = (1 << f.shift) - 1
    first, last = (from_order_keys(f, np.array([k], f.ints)) for k in (-far - 1, far))
    with np.errstate(all="raise"):
        found = ulp_distance(f, first[0], last[0]) if scalars else ulp_distance(f, first, last)
    assert found == 2 * far + 1


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32, dt.float64], ids=lambda d: d.name)
def test_the_spacing_of_the_greatest_number_is_finite(d: DType) -> None:
    f = LAYOUT[d]
    greatest = np.array([d.max_finite, -d.max_finite]).astype(f.np)
    np.testing.assert_array_equal(ulp(f, greatest), 2.0 ** (d.bias - d.man_bits))
