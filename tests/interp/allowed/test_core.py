"""The core level: each row that the rulings open, opened, and nothing of the strict set lost (P3)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from uops.fuzz.generate.graphs import case
from uops.interp.allowed import compute_allowed_sets
from uops.interp.allowed.value import SetArray
from uops.spec.errors import Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op

F = np.float32


def _both(graph, **inputs):
    return compute_allowed_sets(graph, inputs).values[0], compute_allowed_sets(graph, inputs, "core").values[0]


def _p(k, like):
    names = {np.dtype(np.float32): dt.float32, np.dtype(np.float64): dt.float64, np.dtype(np.int32): dt.int32}
    names |= {
        np.dtype(ml_dtypes.float8_e4m3fn): dt.fp8e4m3,
        np.dtype(ml_dtypes.float8_e5m2): dt.fp8e5m2,
        np.dtype(np.uint8): dt.uint8,
    }
    return b.param(k, like.shape, names[like.dtype])


def test_r03_division_by_zero_is_any_in_core():
    a, d = np.array([7, 7, -7], np.int32), np.array([0, 2, 0], np.int32)
    for op in (Op.IDIV, Op.MOD):
        strict, core = _both(b.build_alu_with_promotion(op, _p(0, a), _p(1, d)), p0=a, p1=d)
        assert strict.is_exact and core.kinds() == {"exact": 1, "points": 0, "interval": 0, "any": 2}
        assert core.contains(np.array([99, strict.best[1], 5], np.int32)).all()


def test_r06_counts_beyond_the_width_are_any_in_core():
    a, n = np.array([1, 1, 1, 1], np.int32), np.array([3, 32, -1, 31], np.int32)
    for op in (Op.SHL, Op.SHR):
        strict, core = _both(b.build_alu_with_promotion(op, _p(0, a), _p(1, n)), p0=a, p1=n)
        assert (
            strict.is_exact
            and core.kinds()["any"] == 2
            and core.measure_width_in_ulps_or_points_less_one()[[0, 3]].tolist() == [0, 0]
        )


def test_r11_max_may_drop_a_nan_in_core():
    x, y = np.array([np.nan, 1, np.nan], F), np.array([2, np.nan, np.nan], F)
    strict, core = _both(b.maximum(_p(0, x), _p(1, y)), p0=x, p1=y)
    numbers, nans = np.array([2, 1, 3], F), np.full(3, np.nan, F)
    assert core.contains(numbers).tolist() == [True, True, False] and core.contains(nans).all()
    assert not strict.contains(numbers).any()


def test_r11_a_reduced_max_may_drop_nans_in_core():
    x = np.array([[1, np.nan, 3], [1, 2, 3]], F)
    strict, core = _both(b.reduce(_p(0, x), Op.MAX, (1,)), p0=x)
    assert core.contains(np.array([[3], [3]], F)).all() and core.contains(np.array([[np.nan], [3]], F)).all()
    assert strict.is_exact and core.measure_width_in_ulps_or_points_less_one()[1, 0] == 0


@pytest.mark.parametrize("op", [Op.CMPGE, Op.CMPLE], ids=lambda op: op.name)
def test_r13_comparisons_with_nan_are_either_in_core(op):
    x, y = np.array([np.nan, 1], F), np.array([1, 1], F)
    strict, core = _both(b.build_alu_with_promotion(op, _p(0, x), _p(1, y)), p0=x, p1=y)
    assert strict.contains(np.array([True, True])).tolist() == [False, True]
    assert core.contains(np.array([True, True])).all() and core.contains(np.array([False, False])).tolist() == [True, False]


def test_r15_a_cast_out_of_range_is_any_in_core():
    x = np.array([300.0, -1.0, np.nan, 255.9, -0.9, 7.0, np.inf], F)
    strict, core = _both(b.cast(_p(0, x), dt.uint8), p0=x)
    assert strict.is_exact and (core.measure_width_in_ulps_or_points_less_one() == np.inf).tolist() == [
        True,
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    x = np.array([2.0**63, 2.0**63 - 1024, -(2.0**63)])
    assert (_both(b.cast(_p(0, x), dt.int64), p0=x)[1].measure_width_in_ulps_or_points_less_one() == np.inf).tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("d", [dt.fp8e4m3, dt.fp8e5m2], ids=str)
def test_r15_fp8_may_saturate_in_core(d):
    x = np.array([1e6, -1e6, np.inf, 1.0, np.nan], F)
    strict, core = _both(b.cast(_p(0, x), d), p0=x)
    top = np.array([d.max_finite, -d.max_finite, d.max_finite, d.max_finite, d.max_finite]).astype(strict.best.dtype)
    assert core.contains(top).tolist() == [True, True, True, False, False] and not strict.contains(top).any()
    y = np.full(2, d.max_finite).astype(strict.best.dtype)
    strict, core = _both(b.add(_p(0, y), _p(1, y)), p0=y, p1=y)
    assert core.contains(y).all() and core.contains(strict.best).all() and not strict.contains(y).any()


def test_r16_a_quotient_may_be_a_product_with_a_reciprocal_in_core():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=500).astype(F), rng.normal(size=500).astype(F)
    strict, core = _both(b.div(_p(0, x), _p(1, y)), p0=x, p1=y)
    other = x * (F(1) / y)
    assert (other != strict.best).any() and core.contains(other).all() and not strict.contains(other).all()
    assert core.measure_width_in_ulps_or_points_less_one().max() <= 12


def test_r16_a_root_may_be_its_decomposition_in_core():
    x = np.abs(np.random.default_rng(1).normal(size=200)).astype(F)
    strict, core = _both(b.sqrt(_p(0, x)), p0=x)
    other = np.exp2(F(0.5) * np.log2(x))
    assert core.contains(other).all() and core.contains(strict.best).all() and not strict.contains(other).all()


def test_r16_mulacc_may_round_twice_in_core():
    rng = np.random.default_rng(2)
    x, y, z = (rng.normal(size=300).astype(F) for _ in range(3))
    strict, core = _both(b.mulacc(_p(0, x), _p(1, y), _p(2, z)), p0=x, p1=y, p2=z)
    other = x * y + z
    assert core.contains(other).all() and core.contains(strict.best).all() and not strict.contains(other).all()


@pytest.mark.parametrize("op", [Op.EXP2, Op.LOG2, Op.SIN], ids=lambda op: op.name)
def test_r17_core_allows_four_ulp(op):
    x = np.abs(np.random.default_rng(3).normal(size=100)).astype(F) + F(0.01)
    strict, core = _both(b.build_alu_with_promotion(op, _p(0, x)), p0=x)
    away = strict.best + 4 * np.spacing(np.abs(strict.best))
    assert core.contains(away).all() and not strict.contains(away).any()


def test_r17_core_allows_an_absolute_error_of_sin():
    x = np.array([np.pi], F)
    strict, core = _both(b.sin(_p(0, x)), p0=x)
    assert core.contains(strict.best + F(2.0**-21)).all() and not core.contains(strict.best + F(2.0**-19)).any()
    assert not strict.contains(strict.best + F(2.0**-21)).any()


def test_r18_a_power_may_be_its_decomposition_in_core():
    x = np.abs(np.random.default_rng(4).normal(size=200)).astype(F)
    y = np.random.default_rng(5).normal(size=200).astype(F) * F(20)
    strict, core = _both(b.pow_(_p(0, x), _p(1, y)), p0=x, p1=y)
    other = np.exp2(np.log2(x) * y)
    assert core.contains(other).all() and core.contains(strict.best).all() and not strict.contains(other).all()


def test_r19_flush_to_zero_is_allowed_where_declared():
    tiny = F(1e-40)
    x = np.array([tiny, -tiny, 1.0, tiny], F)
    y = np.array([1.0, 1.0, 1e-39, 2.0**100], F)
    graph, inputs = b.mul(_p(0, x), _p(1, y)), {"p0": x, "p1": y}
    plain = compute_allowed_sets(graph, inputs, "core").values[0]
    flushing = compute_allowed_sets(graph, inputs, "core", ftz=True).values[0]
    zeros = np.array([0.0, -0.0, 0.0, 0.0], F)
    assert flushing.contains(zeros).all() and flushing.contains(plain.best).all() and not plain.contains(zeros).any()
    moved = compute_allowed_sets(b.flip(_p(0, x), (True,)), {"p0": x}, "core", ftz=True).values[0]
    assert moved.is_exact  # movement keeps every bit (R28)
    with pytest.raises(ValueError, match="R19"):
        compute_allowed_sets(graph, inputs, "strict", ftz=True)


def test_r19_flushed_terms_move_a_sum():
    x = np.full((1, 8), 1e-38, F)
    x[0, ::2] = 1.5e-38
    found = compute_allowed_sets(b.reduce(b.mul(_p(0, x), 0.5), Op.ADD, (1,)), {"p0": x}, "core", ftz=True).values[0]
    assert found.contains(np.array([[0.0]], F)).all()


def test_a_cast_to_bool_may_flush_its_operand_too():
    x = np.array([2.0**-140, 1.0, 0.0], np.float32)
    graph = b.cast(_p(0, x), dt.bool_)
    flushed = np.array([False, True, False])
    assert compute_allowed_sets(graph, {"p0": x}, "core", ftz=True).values[0].contains(flushed).all()
    assert not compute_allowed_sets(graph, {"p0": x}, "core").values[0].contains(flushed)[0]


def _core_members(graph, candidates, ftz=False, **inputs):
    found = compute_allowed_sets(graph, inputs, "core", ftz=ftz).values[0]
    return [bool(found.contains(np.full(found.shape, x).astype(found.best.dtype)).all()) for x in candidates]


def test_r15_what_saturated_goes_on_as_a_number_in_core():
    top = np.array([448], ml_dtypes.float8_e4m3fn)
    x = _p(0, top)
    doubled = b.add(x, x)
    for graph in (b.add(doubled, x), b.add(b.mul(x, x), x), b.mul(doubled, x)):
        assert _core_members(graph, [448, -448, np.nan], p0=top) == [True, True, True]
    # beside a NaN that is a source, and a zero, nothing overflows
    half = np.array([0.3], F)
    nan_or_one = b.where(b.lt(b.exp2(_p(1, half)), _p(2, half)), b.const(1.0, dt.fp8e4m3), b.const(np.nan, dt.fp8e4m3))
    assert _core_members(b.add(nan_or_one, 1.0), [448, 2, np.nan], p1=half, p2=np.exp2(half)) == [False, True, True]


def test_r15_each_infinity_saturates_with_its_own_sign_in_core():
    half = np.array([0.3], F)
    either = b.where(b.lt(b.exp2(_p(0, half)), _p(1, half)), b.const(40960.0, dt.fp8e5m2), b.const(-20480.0, dt.fp8e5m2))
    inputs = {"p0": half, "p1": np.exp2(half)}
    members = _core_members(b.add(either, either), [57344, np.inf, -40960, -57344, -np.inf], **inputs)
    assert members == [True, True, True, False, False]


def test_r15_terms_that_saturated_are_summed_in_core():
    x, y = np.array([448, 20], ml_dtypes.float8_e4m3fn), np.array([448, -20], ml_dtypes.float8_e4m3fn)
    assert _core_members(b.reduce(b.mul(_p(0, x), _p(1, y)), Op.ADD, (0,)), [64, np.nan], p0=x, p1=y) == [True, True]


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])
def test_r15_a_partial_result_that_saturated_goes_on_in_core(dtype):
    top = float(ml_dtypes.finfo(dtype).max)
    for op, terms in (
        (Op.ADD, (top, top, -top / 4)),
        (Op.MUL, (top, top, 1 / 64)),
        (Op.MUL, (-top, 2, 0.5)),
        (Op.ADD, (-top, -top, top / 2)),
    ):
        x = np.array(terms, dtype)
        strict, core = _both(b.reduce(_p(0, x), op, (0,)), p0=x)
        fold = np.add if op is Op.ADD else np.multiply
        part = np.clip(fold(F(x[0]), F(x[1])), -top, top)
        saturated = np.array([np.clip(fold(part, F(x[2])), -top, top)]).astype(dtype)
        assert core.contains(saturated).all()
        if dtype is ml_dtypes.float8_e5m2:  # without an infinity, a NaN of either sign widens the strict set, too
            assert not strict.contains(saturated).any()
            assert op is Op.ADD or not core.contains(np.array([-saturated[0]], dtype)).any()


@pytest.mark.parametrize("terms", [(-0.0, 1e-40), (-1e-40, 0.0), (-1e-40, 1e-40)])
def test_r19_a_flushed_operand_of_a_maximum_is_a_zero_of_its_sign(terms):
    x = np.array(terms, F)
    sets = compute_allowed_sets(b.reduce(_p(0, x), Op.MAX, (0,)), {"p0": x}, "core", ftz=True).values[0]
    assert sets.contains(np.array([-0.0], F)).all()
    assert (
        not compute_allowed_sets(b.reduce(_p(0, x), Op.MAX, (0,)), {"p0": x}, "core").values[0].contains(np.array([-1.0], F)).any()
    )


def test_r19_a_fused_sum_may_be_flushed():
    x = np.array([2.0**-60 * (1 + 2.0**-12)], F)
    graph = b.sub(_p(1, x), b.mul(_p(0, x), _p(0, x)))
    assert _core_members(graph, [0.0, -0.0, -(2.0**-144)], ftz=True, p0=x, p1=x * x) == [True, True, True]
    assert _core_members(graph, [-0.0], p0=x, p1=x * x) == [False]


def test_r19_a_flushed_factor_takes_a_product_out_of_a_sum():
    x, y = np.array([1e-40, 1.0], F), np.array([1e38, 1.0], F)
    graph = b.reduce(b.mul(_p(0, x), _p(1, y)), Op.ADD, (0,))
    assert _core_members(graph, [1.0, 1.0 + x[0] * y[0], 0.9], ftz=True, p0=x, p1=y) == [True, True, False]
    assert _core_members(graph, [1.0], p0=x, p1=y) == [False]


def test_r19_a_partial_product_of_any_members_may_be_flushed():
    half = np.array([0.3], F)
    either = b.where(b.lt(b.exp2(_p(0, half)), _p(1, half)), b.const(2.0**-70), b.const(1.0))
    graph = b.reduce(b.stack(either, either, b.reshape(b.const(2.0**100), (1,))), Op.MUL, (0,))
    for bound in (np.exp2(half), np.nextafter(np.exp2(half), F(2))):
        assert _core_members(graph, [0.0, 2.0**-40, -0.0], ftz=True, p0=half, p1=bound) == [True, True, False]


def test_r19_a_flushed_product_widens_its_own_row_alone():
    x = np.full((4, 50), 0.5, F)
    x[2] = 2.0**-10
    found = compute_allowed_sets(b.reduce(_p(0, x), Op.MUL, (1,)), {"p0": x}, "core", ftz=True).values[0]
    assert found.contains(np.zeros((4, 1), F))[:, 0].tolist() == [False, False, True, False]


@pytest.mark.parametrize("ftz", [False, True])
def test_core_holds_every_strict_set(ftz, make_sampler):
    judged = 0
    for seed in range(250):
        graph, inputs = case(seed, nodes=8, max_elements=60)
        if any(u.op is Op.BITCAST for u in toposort(graph)):
            continue  # strict points may become any, never fewer; but bits of a wider set are not comparable by sampling
        try:
            strict, core = compute_allowed_sets(graph, inputs).values, compute_allowed_sets(graph, inputs, "core", ftz=ftz).values
        except Trap:
            continue
        for s, c in zip(strict, core, strict=True):
            for k in range(3):
                x = make_sampler(seed + k).member(s._value)
                if isinstance(s._value, SetArray) and s._value.anything_mask() is not None:
                    x = np.where(s._value.anything_mask(), s.best, x)
                assert c.contains(x).all(), (seed, c.describe(int(np.flatnonzero(~c.contains(x).reshape(-1))[0])))
                judged += 1
    assert judged > 300


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="must be 'strict' or 'core'"):
        compute_allowed_sets(b.const(1), {}, "lenient")  # type: ignore[arg-type]
