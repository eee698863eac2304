"""Distances between values of a dtype."""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp.allowed.layout import LAYOUT, from_order_keys, ulp_distance
from uops.spec.ir import dtypes as dt


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize("scalars", [False, True])
def test_steps_are_counted_across_all_of_a_dtype_without_an_overflow(d, scalars):
    f = LAYOUT[d]
    far = (1 << f.shift) - 1
    first, last = (from_order_keys(f, np.array([k], f.ints)) for k in (-far - 1, far))
    with np.errstate(all="raise"):
        found = ulp_distance(f, first[0], last[0]) if scalars else ulp_distance(f, first, last)
    assert found == 2 * far + 1
