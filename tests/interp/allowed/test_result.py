"""What `AllowedSet` says about itself: membership by bits, kinds, widths and words (R20, R30, R31)."""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp import run
from uops.interp.allowed import AllowedSet, compute_allowed_sets
from uops.interp.allowed.layout import LAYOUT, from_order_keys, to_order_keys
from uops.interp.allowed.value import ANY, NAN, NINF, PINF, SetArray, from_points_widening_to_hull_or_any
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

F32 = LAYOUT[dt.float32]


def _interval(lo, best, hi, flags=0):
    rows = np.array([[lo], [best], [hi]], np.float32)
    return AllowedSet(dt.float32, SetArray(F32, rows, np.array([flags], np.uint8) if flags else None))


def _holds(found, *values):
    return [bool(found.contains(np.array([v], np.float32))[0]) for v in values]


def test_r20_every_nan_is_the_nan_and_zeros_differ():
    found = AllowedSet(dt.float32, np.array([np.nan, 0.0, -0.0], np.float32))
    other = np.array([0x7FC12345, 0x80000000, 0x80000000], np.uint32).view(np.float32)
    assert found.contains(other).tolist() == [True, False, True]


def test_an_interval_holds_its_ends_and_the_zeros_between_them():
    assert _holds(_interval(-1, 0.5, 2), -1, 2, 2.5, -1.5, -0.0, 0.0, np.nan, np.inf) == [
        True,
        True,
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert _holds(_interval(0.0, 0.5, 2), 0.0, -0.0) == [True, False]
    assert _holds(_interval(-2, -1, -0.0), 0.0, -0.0) == [False, True]
    assert _holds(_interval(1, 2, 3, NAN | NINF), np.nan, -np.inf, np.inf, 0.0) == [True, True, False, False]
    assert _holds(_interval(1, 2, np.inf), np.inf, 3e38, np.nan) == [True, True, False]
    assert _holds(_interval(np.nan, np.nan, np.nan, PINF), np.nan, np.inf, 1.0) == [True, True, False]
    assert all(_holds(_interval(1, 2, 3, ANY), np.nan, -7, 0))


def test_points_hold_what_they_list():
    v = from_points_widening_to_hull_or_any(F32, np.array([[1.0], [-0.0], [np.nan]], np.float32))
    found = AllowedSet(dt.float32, v)
    assert _holds(found, 1, -0.0, 0.0, 0.5, np.nan) == [True, True, False, False, True]
    assert found.kinds() == {"exact": 0, "points": 1, "interval": 0, "any": 0}


def test_r30_more_than_eight_points_make_a_hull_of_floats_and_any_of_integers():
    for n, kind in ((8, "points"), (9, "interval")):
        v = from_points_widening_to_hull_or_any(F32, np.arange(n, dtype=np.float32)[:, None].repeat(2, 1))
        assert AllowedSet(dt.float32, v).kinds()[kind] == 2
        assert AllowedSet(dt.float32, v).contains(np.array([n - 1, 0], np.float32)).all()
    for n, kind in ((8, "points"), (9, "any")):
        v = from_points_widening_to_hull_or_any(LAYOUT[dt.int8], np.arange(n, dtype=np.int8)[:, None])
        assert AllowedSet(dt.int8, v).kinds()[kind] == 1
    mixed = np.stack([np.arange(12), np.arange(12) % 8, np.zeros(12)], axis=1).astype(np.int8)
    found = AllowedSet(dt.int8, from_points_widening_to_hull_or_any(LAYOUT[dt.int8], mixed))
    assert found.kinds() == {"exact": 1, "points": 1, "interval": 0, "any": 1}
    assert all(found.contains(np.array([99, k, 0], np.int8)).all() for k in range(8))
    assert not found.contains(np.array([0, 8, 1], np.int8))[1:].any()


def test_kinds_counts_a_part_of_the_flattened_elements():
    x = np.array([[0.0, 1.0], [2.5, np.inf]], np.float32)
    found = compute_allowed_sets(b.exp2(b.param(0, (2, 2), dt.float32)), {"p0": x}).values[0]
    assert found.kinds() == {"exact": 3, "points": 0, "interval": 1, "any": 0}
    assert found.kinds(slice(2, 3)) == {"exact": 0, "points": 0, "interval": 1, "any": 0}
    assert found.shape == (2, 2) and found.dtype is dt.float32 and found.best.dtype == np.float32


def test_width_counts_steps():
    assert _interval(1, 1, 1 + 2**-22).measure_width_in_ulps_or_points_less_one().tolist() == [2.0]
    assert _interval(1, 1, 2, ANY).measure_width_in_ulps_or_points_less_one().tolist() == [np.inf]
    assert AllowedSet(
        dt.float32, from_points_widening_to_hull_or_any(F32, np.array([[1.0], [9.0]], np.float32))
    ).measure_width_in_ulps_or_points_less_one().tolist() == [1.0]
    assert AllowedSet(dt.int32, np.array([3], np.int32)).measure_width_in_ulps_or_points_less_one().tolist() == [0.0]


def test_describe_says_the_set_in_words():
    assert _interval(1, 2, 3, NAN).describe(0) == "[1.0, 3.0] around 2.0 or nan"
    assert _interval(1, 2, 3, ANY).describe(0) == "any value"
    assert (
        AllowedSet(dt.bool_, from_points_widening_to_hull_or_any(LAYOUT[dt.bool_], np.array([[True], [False]]))).describe(0)
        == "one of True, False"
    )
    assert AllowedSet(dt.int8, np.array([5], np.int8)).describe(0) == "5"


def test_another_dtype_or_shape_is_refused():
    found = AllowedSet(dt.float32, np.zeros(3, np.float32))
    for wrong in (np.zeros(3), np.zeros(4, np.float32)):
        with pytest.raises(ValueError, match="expected float32 of shape"):
            found.contains(wrong)


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_keys_are_the_order_of_the_values_and_come_back(d):
    f = LAYOUT[d]
    x = np.array([-np.inf, -1.5, -f.eta, -0.0, 0.0, f.eta, 1.5, f.max]).astype(np.float64)
    x = (x[1:] if not d.has_inf else x).astype(np.float32 if d.bits < 64 else np.float64).astype(f.np)
    k = to_order_keys(f, x).astype(np.int64)
    assert (np.diff(k) > 0).all() and k[-1] == f.key_max and k[list(x.view(f.ints)).index(0)] == 0
    assert (from_order_keys(f, k).view(f.ints) == x.view(f.ints)).all()


def test_allowed_gives_what_run_gives_as_best():
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    p = b.param(0, (3, 4), dt.float32)
    graph = b.sink(b.store(b.reshape(b.buffer(12, dt.float32, unique=3), (3, 4)), b.sin(p)), b.reduce(p, Op.ADD, (0,)), b.neg(p))
    got, found = run(graph, {"p0": x}), compute_allowed_sets(graph, {"p0": x})
    assert len(got.values) == len(found.values) and got.buffers.keys() == found.buffers.keys()
    for value, allowed_set in zip((*got.values, *got.buffers.values()), (*found.values, *found.buffers.values()), strict=True):
        assert (allowed_set.best == value).all() and allowed_set.contains(value).all()


@pytest.mark.filterwarnings("error")
def test_judging_a_signalling_nan_warns_of_nothing():
    x = np.array([0x7FA00000, 0x3F000000], np.uint32).view(np.float32)
    with np.errstate(all="warn"):
        found = compute_allowed_sets(
            b.where(b.param(1, (2,), dt.bool_), b.param(0, (2,), dt.float32), b.sin(b.param(2, (2,), dt.float32))),
            {"p0": x, "p1": np.array([True, False]), "p2": np.array([0.5, 0.25], np.float32)},
        ).values[0]
        assert found.contains(found.best).all() and found.kinds()["interval"] == 1
        assert found.measure_width_in_ulps_or_points_less_one()[0] == 0 and found.describe(0) == "nan"
