"""Pools of edge values hold what breaks compilers, in both signs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uops.backends.testing.values import edge_bits, from_bits, special_bits_for_operand_pairs
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

#: NumPy warns of signalling NaNs that are cast.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
Pool = Callable[[DType], tuple[int, ...]]
POOLS = pytest.mark.parametrize("pool", [edge_bits, special_bits_for_operand_pairs])


@POOLS
@pytest.mark.parametrize("d", dt.STORABLE, ids=lambda d: d.short)
def test_a_pool_has_patterns_of_the_width_of_its_dtype(d: DType, pool: Pool) -> None:
    assert pool(d) and all(0 <= v < 1 << d.bits for v in pool(d))
    assert len(set(pool(d))) == len(pool(d))


@POOLS
@pytest.mark.parametrize("d", dt.FLOATS, ids=lambda d: d.short)
def test_a_pool_of_floats_has_both_signs_of_zero_one_infinity_and_the_ends_of_the_range(d: DType, pool: Pool) -> None:
    bits = np.array(pool(d), np.uint64)
    values, signs = from_bits(bits, d).astype(np.float64), bits >> np.uint64(d.bits - 1)
    ends = [d.smallest_subnormal, 2.0**d.min_exponent, d.max_finite]
    for magnitude in (0, 1, *ends, *([np.inf] if d.has_inf else [])):
        assert set(signs[np.abs(values) == magnitude]) == {0, 1}, magnitude
    assert np.isnan(values).any()


@pytest.mark.parametrize("d", [d for d in dt.FLOATS if d.has_inf], ids=lambda d: d.short)
def test_edge_values_have_quiet_and_signalling_nans(d: DType) -> None:
    bits = np.array(edge_bits(d), np.uint64)
    nans = bits[np.isnan(from_bits(bits, d).astype(np.float64))]
    assert set(nans >> np.uint64(d.man_bits - 1) & np.uint64(1)) == {0, 1}


@POOLS
@pytest.mark.parametrize("d", dt.INTS, ids=lambda d: d.short)
def test_a_pool_of_integers_has_the_ends_of_the_range_the_divisors_and_the_width(d: DType, pool: Pool) -> None:
    numbers = set(from_bits(np.array(pool(d), np.uint64), d).tolist())
    assert {0, 1, 2, d.bits - 1, d.bits, int(d.min), int(d.max), *([-1] if d.is_signed else [])} <= numbers
