"""Pools of edge values hold what breaks compilers, in both signs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.backends.testing.values import (
    STYLES,
    cast_drops_digits,
    draw_array,
    draw_near_cast_ties_or_over_integer_range,
    edge_bits,
    from_bits,
    special_bits_for_operand_pairs,
)
from uops.fuzz.generate.draw import SeededDraw
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


@pytest.mark.parametrize("style", STYLES)
def test_index_values_are_drawn_in_every_style(style: str) -> None:
    assert draw_array(SeededDraw(0), dt.index, (5,), style).dtype == np.int64


@pytest.mark.parametrize("d", dt.INTS, ids=lambda d: d.short)
def test_spread_integers_have_every_magnitude(d: DType) -> None:
    magnitudes = {abs(int(x)).bit_length() for x in draw_array(SeededDraw(0), d, (20000,), "spread")}
    assert magnitudes == {*range(1, d.bits - d.is_signed + 1)}


@pytest.mark.parametrize("d", dt.FLOATS, ids=lambda d: d.short)
def test_spread_floats_are_numbers(d: DType) -> None:
    assert np.isfinite(draw_array(SeededDraw(0), d, (20000,), "spread").astype(np.float64)).all()


FLOAT_CASTS = [(s, t) for s in dt.FLOATS for t in dt.FLOATS if cast_drops_digits(s, t)]


@pytest.mark.parametrize(("source", "target"), FLOAT_CASTS, ids=lambda d: d.short)
def test_floats_near_ties_are_at_most_one_ulp_from_halfway_between_two_neighbours(source: DType, target: DType) -> None:
    drawn = draw_near_cast_ties_or_over_integer_range(SeededDraw(0), source, target, (2000,))
    bits = np.abs(drawn).view(f"u{source.itemsize}").astype(np.uint64)
    is_near = np.zeros(drawn.shape, bool)
    for moved in (bits, bits - np.uint64(1), bits + np.uint64(1)):
        middle = from_bits(moved, source).astype(np.float64)
        nearest = middle.astype(STORAGE[target]).view(f"u{target.itemsize}").astype(np.int64)
        rounded = from_bits(nearest.astype(np.uint64), target).astype(np.float64)
        neighbour = from_bits((nearest + np.sign(middle - rounded).astype(np.int64)).astype(np.uint64), target)
        is_near |= (rounded != middle) & ((rounded + neighbour.astype(np.float64)) / 2 == middle)
    assert is_near.all()
