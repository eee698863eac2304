"""Cast and the rounding behind every op, against exact fractions (R15, R16, R19, R29)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from uops.interp.ops.rounding import CASTS, NARROW, float64_to_float32_odd
from uops.interp.tensor.storage import BITS, NUMPY, to_index_array
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt

SMALL_FLOATS = [d for d in dt.FLOATS if d.bits <= 16]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def nearest(d: dt.DType, x: Fraction, negative: bool) -> float:
    """x rounded once to the float d, to nearest even; written from the layout alone."""
    if x == 0:
        return -0.0 if negative else 0.0
    size = abs(x)
    e = max(math.floor(math.log2(size.numerator) - math.log2(size.denominator)), 1 - d.bias)
    while e > 1 - d.bias and Fraction(2) ** e > size:
        e -= 1
    while Fraction(2) ** (e + 1) <= size:
        e += 1
    unit = Fraction(2) ** (e - d.man_bits)
    q = size / unit
    n = q.numerator // q.denominator
    rest = q - n
    n += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n % 2 == 1)
    value = n * unit
    if value > Fraction(d.max_finite):
        return math.nan if d is dt.fp8e4m3 else (-math.inf if negative else math.inf)
    return -float(value) if negative else float(value)


def to_float(d: dt.DType, v: float | int) -> float:
    if isinstance(v, float) and not math.isfinite(v):
        return math.nan if v != v or d is dt.fp8e4m3 else v
    return nearest(d, Fraction(v), v < 0 or (isinstance(v, float) and math.copysign(1, v) < 0))


def to_int(d: dt.DType, v: float) -> int:
    if v != v:
        return 0
    if math.isinf(v):
        return d.max if v > 0 else d.min
    return min(max(math.trunc(v), d.min), d.max)


def wrapped(d: dt.DType, v: int) -> int:
    v %= 1 << d.bits
    return v - (1 << d.bits) if d.is_signed and v >> (d.bits - 1) else v


def expected(s: dt.DType, d: dt.DType, v) -> object:
    if d is dt.bool_:
        return bool(v != 0)
    if d.is_float:
        return to_float(d, int(v) if not s.is_float else v)
    if s.is_float:
        return to_int(d, v)
    return int(v) if d is dt.index else wrapped(d, int(v))


def python(d: dt.DType, a) -> list:
    return [float(v) for v in a] if d.is_float else [bool(v) if d is dt.bool_ else int(v) for v in a]


def agree(got: list, want: list, values: list, what: str) -> None:
    for g, w, v in zip(got, want, values, strict=True):
        same = (g == w and (not isinstance(w, float) or math.copysign(1, g) == math.copysign(1, w))) or (w != w and g != g)
        assert same, f"{what}: {v!r} gives {g!r}, not {w!r}"


def every(d: dt.DType) -> np.ndarray:
    return np.arange(1 << d.bits, dtype=BITS[d]).view(NUMPY[d])


def edges(d: dt.DType) -> np.ndarray:
    """Values near every boundary of every dtype, and midpoints of every narrow float with a last bit either way."""
    if d is dt.bool_:
        return np.array([False, True])
    rng = np.random.default_rng(5)
    if not d.is_float:
        points = {
            0,
            1,
            -1,
            2**30 + 2**22 + 1,
            2**30 + 2**22,
            2**53 + 1,
            2**62 + 2**54 + 1,
            2**63 - 1,
            2**64 - 1,
            447,
            448,
            464,
            465,
            65519,
            65520,
        }
        for k in range(65):
            points |= {s * (2**k) + e for s in (1, -1) for e in (-1, 0, 1)}
            for m in (3, 4, 8, 11, 24):
                if k > m + 1:
                    mid = 2**k + 2 ** (k - m - 1)
                    points |= {s * (mid + e) for s in (1, -1) for e in (-1, 0, 1)}
        return np.array(sorted(p for p in points if d.min <= p <= d.max), NUMPY[d])
    points = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        5e-324,
        1e-310,
        2.0**-126,
        2.0**-149,
        2.0**-150,
        2.0**-134,
        448.0,
        464.0,
        465.0,
        1.7e308,
    ]
    for other in dt.FLOATS:
        if other.man_bits < d.man_bits:
            grid = rng.integers(0, 1 << min(other.bits, 16), 60)
            exponents = rng.integers(1 - other.bias - other.man_bits - 2, other.bias + 2, 60)
            for g, e in zip(grid.tolist(), exponents.tolist()):
                mid = math.ldexp((1 << other.man_bits) + g % (1 << other.man_bits) + 0.5, e - other.man_bits) if e < 1000 else 1.0
                points += [mid, math.nextafter(mid, 0), math.nextafter(mid, math.inf), -mid]
    for k in (7, 8, 15, 16, 31, 32, 63, 64):
        points += [s * (2.0**k + e) for s in (1, -1) for e in (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0)] + [math.nextafter(2.0**k, 0)]
    points += rng.integers(0, 2**64, 300, dtype=np.uint64).view(np.float64).tolist()
    return np.array(points, np.float64).astype(NUMPY[d])


@pytest.mark.parametrize("d", [*dt.STORABLE], ids=str)
@pytest.mark.parametrize("s", SMALL_FLOATS, ids=str)
def test_r15_cast_of_every_narrow_float(s, d):
    values = every(s)
    if s.bits == 16 and d is not dt.fp8e4m3 and d is not dt.uint8:  # the other targets share their code: a share of the values
        values = values[::13]
    source = python(s, values)
    agree(python(d, CASTS[s, d](values)), [expected(s, d, v) for v in source], source, f"{s} to {d}")


@pytest.mark.parametrize("d", [*dt.STORABLE], ids=str)
@pytest.mark.parametrize("s", [dt.bool_, *dt.INTS, dt.float32, dt.float64], ids=str)
def test_r15_cast_at_edges(s, d):
    values = edges(s)
    source = python(s, values)
    agree(python(d, CASTS[s, d](values)), [expected(s, d, v) for v in source], source, f"{s} to {d}")


@pytest.mark.parametrize("d", SMALL_FLOATS, ids=str)
def test_float32_rounds_once_to_every_narrow_float(d):
    """What `odd32` and the ops rely on: NumPy's and ml_dtypes' own step from float32."""
    grid = np.sort(np.unique(every(d).astype(np.float64)[np.isfinite(every(d).astype(np.float64))]))
    middle = ((grid[:-1] + grid[1:]) / 2).astype(np.float32)
    near = [middle, np.nextafter(middle, np.float32(-np.inf)), np.nextafter(middle, np.float32(np.inf))]
    x = np.concatenate([grid.astype(np.float32), *near])
    if d.bits == 16:
        x = x[::17]
    agree(python(d, x.astype(NUMPY[d])), [to_float(d, float(v)) for v in x], python(dt.float32, x), f"float32 to {d}")


def test_measured_double_roundings_are_gone():
    """int32 2^30 + 2^22 + 1 to bfloat16 is 2^30 + 2^23, not 2^30; a subnormal is not flushed."""
    x = np.array([2**30 + 2**22 + 1], np.int32)
    assert float(CASTS[dt.int32, dt.bfloat16](x)[0]) == 2**30 + 2**23
    assert CASTS[dt.float32, dt.bfloat16](np.array([2.0**-130], np.float32)).view(np.uint16)[0] == 0x0008


@pytest.mark.parametrize("d", SMALL_FLOATS, ids=str)
def test_narrow_agrees_with_odd32_everywhere(d):
    """The cut-off path and the odd path round alike, subnormals included."""
    rng = np.random.default_rng(3)
    x = np.concatenate([edges(dt.float64), rng.normal(size=20000) * 10.0 ** rng.integers(-50, 50, 20000)])
    assert np.array_equal(
        NARROW[d](x).view(BITS[d])[~np.isnan(x)], float64_to_float32_odd(x).astype(NUMPY[d]).view(BITS[d])[~np.isnan(x)]
    )


BIG = [2**63, 2**64 - 1, -(2**63) - 1, 2**100, 2**127 + 2**103 + 1, 2**128, -(2**200), 2**1100, 5, -3, 0, 2**62 + 2**38 + 1]


@pytest.mark.parametrize("d", [*dt.STORABLE], ids=str)
def test_r29_cast_from_unbounded_index(d):
    got = python(d, CASTS[dt.index, d](to_index_array(BIG)))
    agree(got, [expected(dt.index, d, v) for v in BIG], BIG, f"index to {d}")


def test_r29_cast_to_index():
    assert CASTS[dt.uint64, dt.index](np.array([2**64 - 1, 1], np.uint64)).tolist() == [2**64 - 1, 1]
    assert CASTS[dt.float64, dt.index](np.array([1e300, -2.9])).tolist() == [int(1e300), -2]
    assert CASTS[dt.int8, dt.index](np.array([-4], np.int8)).dtype == np.int64
    for bad in (np.inf, -np.inf, np.nan):
        with pytest.raises(Trap, match="R29"):
            CASTS[dt.float32, dt.index](np.array([1.0, bad], np.float32))
