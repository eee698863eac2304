"""R32 judged: no valid order of a reduction is flagged, a dropped element is seen, and what overflow and zeros allow is allowed."""

from __future__ import annotations

import functools
import math

import ml_dtypes
import numpy as np
import pytest

from uops.interp.allowed import compute_allowed_sets
from uops.interp.allowed.layout import LAYOUT
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

WIDE = {dt.float64: np.longdouble, dt.float32: np.float64, dt.float16: np.float32, dt.bfloat16: np.float32}
NARROW = (dt.float16, dt.bfloat16, dt.float32, dt.float64)


def _sets(x, d, op=Op.ADD):
    return compute_allowed_sets(b.reduce(b.param(0, x.shape, d), op, (x.ndim - 1,)), {"p0": x}).values[0]


def _data(rng, d, rows, n, kind):
    """Normal, cancelling (about half: x and a shuffled -x with one odd term), or of many magnitudes."""
    x = rng.standard_normal((rows, n))
    if kind == "cancelling":
        half = x[:, : n // 2]
        x[:, n - n // 2 :] = -rng.permuted(half, axis=1)
    elif kind == "magnitudes":
        x *= 2.0 ** rng.integers(-8, 8, (rows, n))
    return x.astype(np.float32).astype(LAYOUT[d].np) if d is dt.bfloat16 else x.astype(LAYOUT[d].np)


def _sequential(x):
    total = x[:, 0].copy()
    for k in range(1, x.shape[1]):
        total = total + x[:, k]
    return total


def _pairwise(x):
    while x.shape[1] > 1:
        even = x[:, 0 : x.shape[1] // 2 * 2 : 2] + x[:, 1::2]
        x = np.concatenate([even, x[:, -1:]], axis=1) if x.shape[1] % 2 else even
    return x[:, 0]


def _blocked(x, size=8):
    parts = [_sequential(x[:, at : at + size]) for at in range(0, x.shape[1], size)]
    return _sequential(np.stack(parts, axis=1))


def _lanes(x, lanes=4):
    return _pairwise(np.stack([_sequential(x[:, k::lanes]) for k in range(lanes)], axis=1))


def _wide(x, d):
    return _sequential(x.astype(WIDE[d])).astype(x.dtype)


def _orders(rng, x, d):
    yield "sequential", _sequential(x)
    yield "reversed", _sequential(x[:, ::-1])
    yield "pairwise", _pairwise(x)
    yield "blocked", _blocked(x)
    if x.shape[1] >= 4:
        yield "lanes", _lanes(x)
    yield "permuted", _sequential(rng.permuted(x, axis=1))
    yield "ascending", _sequential(np.take_along_axis(x, np.argsort(np.abs(x.astype(np.float64)), axis=1), 1))
    yield "descending", _sequential(np.take_along_axis(x, np.argsort(-np.abs(x.astype(np.float64)), axis=1), 1))
    yield "by sign", _sequential(np.sort(x.astype(np.float64), axis=1).astype(x.dtype))
    yield "wider", _wide(x, d)


@pytest.mark.parametrize("kind", ["normal", "cancelling", "magnitudes"])
@pytest.mark.parametrize("d", NARROW, ids=str)
def test_r32_no_valid_order_of_a_sum_is_flagged(d, kind):
    rng, rows, seen = np.random.default_rng(d.bits), 60, 0
    for n in (2, 3, 5, 17, 64, 257):
        x = _data(rng, d, rows, n, kind)
        found = _sets(x, d)
        for name, total in _orders(rng, x, d):
            inside = found.contains(total[:, None])
            assert inside.all(), (name, n, found.describe(int(np.flatnonzero(~inside)[0])))
            seen += rows
    assert seen > 3000


@pytest.mark.parametrize("kind", ["normal", "cancelling"])
@pytest.mark.parametrize("d", NARROW, ids=str)
def test_r32_no_valid_order_of_a_dot_product_is_flagged(d, kind):
    rng, rows = np.random.default_rng(d.bits + 1), 60
    from uops.interp.ops.elementwise import KERNELS

    fma = KERNELS[Op.MULACC][d]
    for n in (1, 2, 3, 17, 64):
        x, y = _data(rng, d, rows, n, kind), _data(rng, d, rows, n, "normal")
        if kind == "cancelling":
            y[:, n - n // 2 :] = y[:, : n // 2]
        product = b.mul(b.param(0, x.shape, d), b.param(1, x.shape, d))
        found = compute_allowed_sets(b.reduce(product, Op.ADD, (1,)), {"p0": x, "p1": y}).values[0]
        fused = functools.reduce(lambda s, k: np.asarray(fma(x[:, k], y[:, k], s)), range(n), np.zeros(rows, x.dtype))
        wide = _sequential(x.astype(WIDE[d]) * y.astype(WIDE[d])).astype(x.dtype)
        totals = {"fused": fused, "wide": wide, **dict(_orders(rng, x * y, d))}
        for name, total in totals.items():
            assert found.contains(total[:, None]).all(), (name, n)


@pytest.mark.parametrize(("d", "longest"), [(dt.float64, 1000), (dt.float32, 1000), (dt.float16, 12), (dt.bfloat16, 4)], ids=str)
def test_a_dropped_element_is_caught_in_95_percent(d, longest):
    """Beyond `longest` the freedom of R32 in that dtype is itself greater than most elements: (n-1) u sum|x| passes 0.06 of an
    element's size, below which 5% of normal elements lie."""
    rng, caught, seen = np.random.default_rng(3), 0, 0
    for _ in range(150):
        n = int(rng.integers(2, longest + 1))
        x = _data(rng, d, 8, n, "normal")
        gone = x.copy()
        gone[np.arange(8), rng.integers(0, n, 8)] = 0
        found = _sets(x, d)
        for total in (_sequential(gone), _pairwise(gone)):
            caught += int((~found.contains(total[:, None])).sum())
            seen += 8
    assert caught / seen >= 0.95, caught / seen


@pytest.mark.parametrize("d", NARROW, ids=str)
def test_integers_make_a_sum_exact(d):
    x = np.random.default_rng(5).integers(-3, 4, (50, 40)).astype(np.float32).astype(LAYOUT[d].np)
    found = _sets(x, d)
    total = x.astype(np.float64).sum(1, keepdims=True)
    assert found.measure_width_in_ulps_or_points_less_one()[total[:, 0] != 0].max() == 0
    assert found.contains(-np.abs(total).astype(x.dtype) * 0).tolist() == (total == 0).tolist()  # the sign of zero is free


def test_additions_of_zero_round_nothing():
    x = np.zeros((3, 1000), np.float32)
    x[0, 17], x[1, 3], x[1, 999] = 0.1, 1e10, 0.3
    found = _sets(x, dt.float32)
    assert found.kinds()["exact"] == 1 and found.describe(0) == str(float(np.float32(0.1)))
    assert found.measure_width_in_ulps_or_points_less_one()[1, 0] <= 3
    assert found.contains(np.array([[0.1], [1e10], [-0.0]], np.float32)).all()


def test_r32_an_order_that_overflows_allows_infinity_and_nan():
    big = 3e38
    found = _sets(np.array([[big, big, -big, 1.0], [big, big, -big, -big], [1, 2, 3, 4]], np.float32), dt.float32)
    ask = lambda v: found.contains(np.full((3, 1), v, np.float32))[:, 0].tolist()  # noqa: E731
    assert ask(np.inf) == [True, True, False]
    assert ask(-np.inf) == [False, True, False]
    assert ask(np.nan) == [False, True, False]
    assert found.contains(np.array([[big], [0], [10]], np.float32)).all()


@pytest.mark.parametrize("d", NARROW, ids=str)
def test_r32_infinities_and_nan_among_the_terms_decide(d):
    x = np.array([[np.inf, 1, 2], [-np.inf, 1, 2], [np.inf, -np.inf, 0], [np.nan, 1, 2]]).astype(np.float32).astype(LAYOUT[d].np)
    found = _sets(x, d)
    assert found.kinds()["exact"] == 4
    want = np.array([[np.inf], [-np.inf], [np.nan], [np.nan]]).astype(np.float32).astype(x.dtype)
    assert found.contains(want).all()


def test_r32_e4m3_overflow_is_nan_and_does_not_saturate_when_it_is_sure():
    x = np.array([[448, 448, 448], [448, 448, -448]]).astype(ml_dtypes.float8_e4m3fn)
    found = _sets(x, dt.fp8e4m3)
    nan, top = np.full((2, 1), np.nan).astype(x.dtype), np.full((2, 1), 448).astype(x.dtype)
    assert found.contains(nan).tolist() == [[True], [True]]
    assert found.contains(top).tolist() == [[False], [True]]


def _times(x):
    return functools.reduce(lambda p, k: p * x[:, k], range(1, x.shape[1]), x[:, 0].copy())


@pytest.mark.parametrize("d", NARROW, ids=str)
def test_r32_no_valid_order_of_a_product_is_flagged(d):
    rng = np.random.default_rng(d.bits + 2)
    for n, spread in ((2, 4), (3, 8), (9, 3), (33, 1), (7, LAYOUT[d].emin // -3)):
        x = (rng.choice([-1, 1], (80, n)) * 2.0 ** rng.uniform(-spread, spread, (80, n))).astype(np.float32).astype(LAYOUT[d].np)
        found = _sets(x, d, Op.MUL)
        for name, p in (
            ("sequential", _times(x)),
            ("reversed", _times(x[:, ::-1])),
            ("permuted", _times(rng.permuted(x, axis=1))),
            ("ascending", _times(np.take_along_axis(x, np.argsort(np.abs(x.astype(float)), axis=1), 1))),
            ("wider", _times(x.astype(WIDE[d])).astype(x.dtype)),
        ):
            inside = found.contains(p[:, None])
            assert inside.all(), (name, n, spread, found.describe(int(np.flatnonzero(~inside)[0])))


def test_r32_a_product_that_may_overflow_and_underflow_may_be_nan():
    x = np.array([[1e30, 1e30, 1e-30, 1e-30], [1e30, 1e30, 1e-30, 1.0], [1e-30, 1e-30, 1e30, 1.0], [np.inf, 0, 1, 1]], np.float32)
    found = _sets(x, dt.float32, Op.MUL)
    ask = lambda v: found.contains(np.full((4, 1), v, np.float32))[:, 0].tolist()  # noqa: E731
    assert ask(np.nan) == [True, False, False, True]
    assert ask(np.inf) == [True, True, False, False]
    assert ask(0.0) == [True, False, True, False]
    assert ask(1.0) == [True, False, False, False]


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r11_max_is_exact_but_for_the_sign_of_zero(d):
    x = np.array([[0.0, -0.0, -3], [-0.0, -0.0, -1], [1, np.nan, 2], [1, 2, -5]]).astype(np.float32).astype(LAYOUT[d].np)
    found = _sets(x, d, Op.MAX)
    assert found.contains(np.array([[0.0], [-0.0], [np.nan], [2]]).astype(np.float32).astype(x.dtype)).all()
    assert found.contains(np.array([[-0.0], [0.0], [2], [1]]).astype(np.float32).astype(x.dtype)).tolist() == [
        [True],
        [False],
        [False],
        [False],
    ]


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX], ids=lambda op: op.name)
@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r32_empty_gives_the_identity(d, op):
    found = _sets(np.zeros((2, 0), LAYOUT[d].np), d, op)
    assert found.is_exact and found.best.astype(float).tolist() == [[{Op.ADD: 0.0, Op.MUL: 1.0, Op.MAX: d.min}[op]]] * 2


def test_r50_a_gather_by_a_mask_is_exact():
    from uops.spec.rows.compositions import gather

    t, idx = np.random.default_rng(1).normal(size=50).astype(np.float32), np.array([3, 49, 7, 50], np.int32)
    found = compute_allowed_sets(gather(b.param(0, (50,), dt.float32), b.param(1, (4,), dt.int32)), {"p0": t, "p1": idx}).values[0]
    assert found.contains(np.array([t[3], t[49], t[7], -0.0], np.float32)).all()
    assert found.contains(np.array([t[3], t[49], t[7], 0.0], np.float32)).all()
    assert found.kinds()["exact"] == 3


def test_a_sum_of_a_transcendental_carries_its_width():
    x = np.random.default_rng(2).normal(size=(20, 33)).astype(np.float32)
    found = compute_allowed_sets(b.reduce(b.sin(b.param(0, x.shape, dt.float32)), Op.ADD, (1,)), {"p0": x}).values[0]
    s = np.sin(x.astype(float)).astype(np.float32)
    for step in (-2, 2):
        moved = (s + step * np.spacing(np.abs(s))).astype(np.float32)
        for total in (_sequential(moved), _pairwise(moved)):
            assert found.contains(total[:, None]).all()
    assert not found.contains((found.best * np.float32(1.1)) + np.float32(0.1)).any()
    assert math.isfinite(found.measure_width_in_ulps_or_points_less_one().max())


def test_r32_e4m3_a_bound_beyond_the_range_on_both_sides_leaves_every_value():
    x = np.array([[448, -448, 400, -400, 3, 300, -300, 200, -200, 100, -100, 448, -448, 448, -448]]).astype(ml_dtypes.float8_e4m3fn)
    found = _sets(x, dt.fp8e4m3)
    for v in (3, -3, 0, 448, -448, np.nan):
        assert found.contains(np.array([[v]]).astype(x.dtype)).all(), v


def _product_at_either_position():
    """The product of p0 and p1 at index 0 or 1: the index compares Exp2(0.3) with its rounded value."""
    e = b.exp2(b.param(7, (1,), dt.float32))
    position = b.cast(b.lt(e, b.param(8, (1,), dt.float32)), dt.index)
    half = np.array([0.3], np.float32)
    return b.at(b.mul(b.param(0, (2,), dt.float32), b.param(1, (2,), dt.float32)), position), {"p7": half, "p8": np.exp2(half)}


def test_r16_a_product_at_an_inexact_index_is_fused_into_a_sum_at_every_position():
    product, inputs = _product_at_either_position()
    x = np.array([1 + 2**-12, 1 + 2**-13], np.float32)
    addend = np.array([(x * x)[0]], np.float32)
    graph = b.sub(product, b.param(2, (1,), dt.float32))
    found = compute_allowed_sets(graph, {**inputs, "p0": x, "p1": x, "p2": addend}).values[0]
    fused = (x.astype(np.float64) ** 2 - addend).astype(np.float32)
    for want in (*fused, *(x * x - addend)):
        assert found.contains(np.array([want])).all()
    assert found.kinds()["points"] == 1


@pytest.mark.parametrize(("a", "c", "ends"), [([2, 6], [3, 10], (6, 60)), ([1, 100], [100, 1], (100, 100))], ids=str)
def test_r32_a_sum_of_products_at_an_inexact_index_has_every_position(a, c, ends):
    product, inputs = _product_at_either_position()
    inputs |= {"p0": np.array(a, np.float32), "p1": np.array(c, np.float32)}
    found = compute_allowed_sets(b.reduce(product, Op.ADD, (0,)), inputs).values[0]
    inside = [found.contains(np.array([x], np.float32)).all() for x in (ends[0] - 1, *ends, ends[1] + 1)]
    assert inside == [False, True, True, False]


@pytest.mark.parametrize(("d", "big"), [(dt.float16, 6e4), (dt.float32, 3e38)])
def test_a_product_has_the_sign_of_each_zero_among_its_factors(d, big):
    x = np.array([[big, big, -big, -big, big / 3], [1, 0, 0, 0, 1]], LAYOUT[d].np)
    sums = b.reduce(b.param(0, x.shape, d), Op.ADD, (1,))  # the first may be -inf, whose reciprocal is -0.0
    product = b.reduce(b.build_alu_with_promotion(Op.RECIP, sums), Op.MUL, (0,))
    sets = compute_allowed_sets(product, {"p0": x}).values[0]
    assert sets.contains(np.array([[-0.0]], x.dtype)).all() and sets.contains(np.array([[0.0]], x.dtype)).all()


@pytest.mark.parametrize("op", [Op.MAX, Op.ADD, Op.MUL])
def test_a_reduction_of_unknown_bools_is_unknown(op):
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    sines = b.build_alu_with_promotion(Op.SIN, b.param(0, (4,), dt.float32))
    scaled = b.cast(b.build_alu_with_promotion(Op.MUL, sines, b.const(1e9, dt.float32)), dt.int32)  # any of many integers (R30)
    best = compute_allowed_sets(scaled, {"p0": x}).values[0].best
    limit = int(best.min() if op is Op.MUL else best.max())
    is_greater = b.build_alu_with_promotion(Op.CMPLT, b.const(limit - (op is Op.MUL), dt.int32), scaled)
    sets = compute_allowed_sets(b.reduce(is_greater, op, (0,)), {"p0": x}).values[0]
    assert sets.contains(np.array([True])).all() and sets.contains(np.array([False])).all()
