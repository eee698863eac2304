"""Answers: membership, width, hulls (R20, R30, R31)."""

import pytest

from uops.interp.exact import FORMATS, AnswerSet, bits_of
from uops.interp.exact.answers import (
    any_nan,
    anything,
    float_result,
    floats_between,
    floats_within_ulps,
    one_of,
    unite_in_float_hull,
)
from uops.spec.ir.dtypes import float16, float32, fp8e4m3, int8

F16 = FORMATS[float16]


def test_an_exact_answer_is_one_pattern():
    a = AnswerSet(int8, 5)
    assert a.is_exact and a.value_count_nans_as_one == 1 and a.contains(5) and not a.contains(6)
    z = AnswerSet(float16, 0)
    assert z.is_exact and not z.contains(0x8000)


def test_r20_every_nan_is_in_the_class():
    a = any_nan(F16)
    assert (
        all(a.contains(b) for b in (0x7E00, 0x7C01, 0xFFFF))
        and not a.contains(0x7C00)
        and a.value_count_nans_as_one == 1
        and not a.is_exact
    )
    assert float_result(F16, 0x7C00) == AnswerSet(float16, 0x7C00)
    assert float_result(F16, 0x7C01).contains(0xFE00)


def test_a_few_points():
    a = one_of(int8, 1, 2, 1)
    assert a.value_count_nans_as_one == 2 and a.contains(2) and not a.contains(3) and not a.is_exact
    b = one_of(float16, 0x3C00, 0x7E00)
    assert b.contains(0xFE55) and b.value_count_nans_as_one == 2


def test_anything_holds_every_pattern():
    assert (
        anything(float16, 0).contains(0x7E01)
        and anything(float16, 0).value_count_nans_as_one is None
        and not anything(float16, 0).is_exact
    )


def test_a_zero_in_an_interval_means_both():
    a = floats_within_ulps(F16, 0, 0, F16.unit, 2)
    assert [b for b in range(1 << 16) if a.contains(b)] == [0, 1, 2, 0x8000, 0x8001, 0x8002] and a.value_count_nans_as_one == 6


@pytest.mark.parametrize(
    ("low", "high", "inside"),
    [((1, 0), (3, -1), [0x3C00, 0x3E00]), ((-3, -1), (-1, 0), [0xBC00, 0xBE00]), ((1023, 6), (1, 60), [0x7BF0, 0x7C00])],
)
def test_bounded_is_inclusive_and_reaches_infinity(low, high, inside):
    a = floats_between(F16, inside[0], low, high)
    assert all(a.contains(b) for b in inside)
    keys = sorted(map(F16.key, inside))
    assert not a.contains(F16.from_key(keys[0] - 1)) and (keys[1] == F16.inf_mag or not a.contains(F16.from_key(keys[1] + 1)))


def test_bounded_without_infinity_reaches_nan_instead():
    fmt = FORMATS[fp8e4m3]
    a = floats_between(fmt, fmt.max_mag, (440, 0), (480, 0))
    assert a.contains(0x7E) and a.contains(0x7F) and a.contains(0xFF) and not a.contains(0x7D)
    assert not floats_between(fmt, fmt.max_mag, (440, 0), (479, 0)).contains(0x7F)


def test_near_counts_infinity_as_the_next_power_of_two():
    top = floats_within_ulps(F16, 0, (1 << 11) - 1, 5, 1)
    assert top.best == 0x7BFF and top.contains(0x7C00) and top.contains(0x7BFE) and not top.contains(0x7BFD)
    beyond = floats_within_ulps(F16, 0, 1 << 10, 6, 1)
    assert beyond.best == 0x7C00 and beyond.contains(0x7BFF) and not beyond.contains(0x7BFE)
    far = floats_within_ulps(F16, 1, 1 << 10, 9, 2)
    assert far.best == 0xFC00 and not far.contains(0xFBFF)


def test_hull_joins_intervals_points_and_nan():
    one, two = bits_of(float32, 1.0), bits_of(float32, 2.0)
    joined = unite_in_float_hull(AnswerSet(float32, two), AnswerSet(float32, one))
    assert joined.best == two and joined.contains(one + 5) and not joined.contains(one - 1) and not joined.contains(0x7FC00000)
    assert unite_in_float_hull(joined, any_nan(FORMATS[float32])).contains(0x7FC00000)
    assert unite_in_float_hull(AnswerSet(float32, one), anything(float32, 0)).anything
