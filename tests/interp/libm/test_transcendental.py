"""Exp2, Log2, Sin and Pow against multiple precision (R17, R18)."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

MEANING = {Op.EXP2: lambda x: mpmath.mpf(2) ** x, Op.LOG2: lambda x: mpmath.log(x, 2), Op.SIN: mpmath.sin}
#: Greatest distance from the exact value, in ulp: what the reference claims for float64; for the others the rounding of a float64
#: that is itself within one ulp of float64.
LIMIT = {
    dt.float64: 0.51,
    dt.float32: 0.5 + 2.0**-27,
    **dict.fromkeys([d for d in dt.FLOATS if d.bits < 32], 0.5 + 2.0**-40),
}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"), mpmath.workprec(200):
        yield


def patterns(d: dt.DType, n: int, seed: int) -> np.ndarray:
    if d.bits == 8:
        return np.arange(256, dtype=np.uint8).view(NUMPY[d])
    bits = np.random.default_rng(seed).integers(0, 1 << d.bits, n, dtype=np.uint64).astype(f"u{d.itemsize}")
    return bits.view(NUMPY[d])


def points(op: Op, d: dt.DType) -> np.ndarray:
    rng = np.random.default_rng(17)
    near = {
        Op.EXP2: [
            rng.uniform(-1080, 1030, 300),
            rng.uniform(-150, 130, 300),
            rng.uniform(-1, 1, 300),
            rng.uniform(-1075, -1021, 200),
        ],
        Op.LOG2: [rng.uniform(0.5, 2, 400), 1 + rng.normal(size=300) * 1e-6, 1 + rng.normal(size=100) * 1e-14, [0.0, 1.0]],
        Op.SIN: [
            rng.uniform(-10, 10, 400),
            rng.uniform(-(2.0**21), 2.0**21, 200),
            np.arange(1, 300) * (math.pi / 2),
            [2.0**21, 2.0**1023],
        ],
    }[op]
    known = [6381956970095103 * 2.0**797, 0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 2.0**-1022, -1.0]
    return np.concatenate([patterns(d, 500, 23), *(CASTS[dt.float64, d](np.asarray(p, np.float64)) for p in (*near, known))])


def distance(d: dt.DType, got: float, exact: mpmath.mpf) -> float:
    """In units of d's spacing at the correctly rounded result, about."""
    unit = max(mpmath.frexp(abs(exact))[1] - 1, 1 - d.bias) - d.man_bits
    return float(abs(mpmath.mpf(got) - exact) / mpmath.mpf(2) ** unit)


def overflows(d: dt.DType, exact: mpmath.mpf) -> bool:
    return bool(abs(exact) >= mpmath.mpf(d.max_finite) * (1 + mpmath.mpf(2) ** (-d.man_bits - 2)))


@pytest.mark.parametrize("op", MEANING)
@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r17_accuracy(op, d):
    x = points(op, d)
    worst, at = 0.0, math.nan
    for v, g in zip(x.tolist(), np.asarray(KERNELS[op][d](x)).tolist()):
        v, g = float(v), float(g)
        if v != v or math.isinf(v) or (op is Op.LOG2 and v <= 0):
            continue
        with mpmath.workprec(1300 if op is Op.SIN and abs(v) > 2.0**20 else 200):
            exact = MEANING[op](mpmath.mpf(v))
        if overflows(d, exact):
            assert (g == math.inf) if d.has_inf else g != g, f"{op} {v}"
            continue
        assert math.isfinite(g), f"{op} on {d}: {v} gives {g}"
        far = distance(d, g, exact) if exact else abs(g) * math.inf if g else 0.0
        worst, at = max((worst, at), (far, v))
    assert worst <= LIMIT[d], f"{op} on {d}: {worst} ulp at {at!r}"


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r17_exact_points_and_specials(d):
    low = max(1 - d.bias - d.man_bits, -1074)
    k = np.arange(low, math.frexp(d.max_finite)[1]).astype(np.float64)
    two = CASTS[dt.float64, d](np.ldexp(1.0, k.astype(int)))
    whole = CASTS[dt.float64, d](k)
    same = whole.astype(np.float64) == k  # bfloat16 and fp8 do not hold every exponent
    assert (KERNELS[Op.EXP2][d](whole[same]).astype(np.float64) == np.ldexp(1.0, k[same].astype(int))).all()
    assert (KERNELS[Op.LOG2][d](two).astype(np.float64)[same] == k[same]).all()

    def answers(op, values):
        return [float(v) for v in np.asarray(KERNELS[op][d](np.array(values).astype(NUMPY[d])))]

    zeros = answers(Op.SIN, [0.0, -0.0])
    assert zeros == [0.0, 0.0]
    assert [math.copysign(1, z) for z in zeros] == [1, -1]
    if d.has_inf:
        assert answers(Op.EXP2, [math.inf, -math.inf]) == [math.inf, 0.0]
        assert answers(Op.LOG2, [0.0, -0.0, math.inf]) == [-math.inf, -math.inf, math.inf]
        assert all(v != v for v in answers(Op.SIN, [math.inf, -math.inf, math.nan]))
    assert all(v != v for v in answers(Op.LOG2, [-1.0, math.nan]) + answers(Op.EXP2, [math.nan]))


SPECIAL = [
    0.0,
    1.0,
    2.0,
    3.0,
    0.5,
    1e300,
    5e-324,
    2.0**53 - 1,
    2.0**53,
    1e17,
    1 - 2.0**-53,
    1 + 2.0**-52,
    math.inf,
    math.nan,
    1e-300,
]


def ieee_pow(a: float, b: float) -> float:
    """C's pow through Python's, whose two exceptions stand for infinities and NaN."""
    odd = math.isfinite(b) and b == math.floor(b) and int(b) % 2 == 1
    try:
        return math.pow(a, b)
    except ValueError:
        return math.nan if a != 0 else math.copysign(math.inf, a) if odd else math.inf
    except OverflowError:
        return -math.inf if a < 0 and odd else math.inf


def test_r18_pow_special_cases():
    values = [s * v for v in SPECIAL for s in (1.0, -1.0)]
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    for x, y, g in zip(a.tolist(), b.tolist(), KERNELS[Op.POW][dt.float64](a, b).tolist()):
        w = ieee_pow(x, y)
        close = g == w or abs(g - w) <= 2 * math.ulp(w)
        assert (close and math.copysign(1, g) == math.copysign(1, w)) or (g != g and w != w), f"pow({x}, {y}) = {g}, not {w}"


@pytest.mark.parametrize("d", [dt.float32, dt.float16, dt.bfloat16, dt.fp8e5m2, dt.fp8e4m3], ids=str)
def test_r18_pow_special_cases_of_narrow_floats(d):
    values = CASTS[dt.float64, d](np.array([s * v for v in (0.0, 1.0, 2.0, 3.0, 0.5, math.inf, math.nan) for s in (1.0, -1.0)]))
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    for x, y, g in zip(a.tolist(), b.tolist(), KERNELS[Op.POW][d](a, b).tolist()):
        w = float(CASTS[dt.float64, d](np.array(ieee_pow(float(x), float(y)))))
        assert (float(g) == w and math.copysign(1, float(g)) == math.copysign(1, w)) or (g != g and w != w), (x, y, g, w)


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r18_pow_accuracy(d):
    rng = np.random.default_rng(29)
    xs = [np.abs(patterns(dt.float64, 500, 31)), rng.uniform(0.5, 2, 500), 1 + rng.normal(size=500) * 1e-5, rng.uniform(0, 9, 300)]
    ys = [rng.normal(size=500), rng.uniform(-1000, 1000, 500), rng.uniform(-5e7, 5e7, 500), rng.integers(-9, 9, 300)]
    x, y = (CASTS[dt.float64, d](np.concatenate(v).astype(np.float64)) for v in (xs, ys))
    worst, at = 0.0, (math.nan, math.nan)
    for a, b, g in zip(x.tolist(), y.tolist(), KERNELS[Op.POW][d](x, y).tolist()):
        a, b, g = float(a), float(b), float(g)
        if not (math.isfinite(a) and math.isfinite(b)) or a <= 0:
            continue
        exact = mpmath.power(mpmath.mpf(a), mpmath.mpf(b))
        if overflows(d, exact):
            assert (g == math.inf) if d.has_inf else g != g
            continue
        worst, at = max((worst, at), (distance(d, g, exact), (a, b)))
    assert worst <= LIMIT[d], f"pow on {d}: {worst} ulp at {at}"
