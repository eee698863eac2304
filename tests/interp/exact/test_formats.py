"""Formats: decoding, one rounding, keys and Python numbers (R15, R16, R19, R24, R28)."""

import itertools
import math
import random
import struct
from fractions import Fraction

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.interp.exact import FORMATS, bits_of, exact_fraction, python_number, round_to
from uops.interp.exact.numbers.formats import FINITE, divide_with_sticky_bit, dyadic
from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import FLOATS, bfloat16, bool_, float16, float32, float64, fp8e4m3, fp8e5m2, index, int8, uint8

# fmt: off
TABLE = [  # dtype, bits, value
    (float16,  0x0001, Fraction(1, 1 << 24)),
    (float16,  0x03FF, Fraction(1023, 1 << 24)),
    (float16,  0x0400, Fraction(1, 1 << 14)),
    (float16,  0x3C00, Fraction(1)),
    (float16,  0x7BFF, Fraction(65504)),
    (float16,  0xC000, Fraction(-2)),
    (bfloat16, 0x0001, Fraction(1, 1 << 133)),
    (bfloat16, 0x3F80, Fraction(1)),
    (bfloat16, 0x7F7F, Fraction(255 << 120)),
    (fp8e4m3,  0x01,   Fraction(1, 512)),
    (fp8e4m3,  0x08,   Fraction(1, 64)),
    (fp8e4m3,  0x38,   Fraction(1)),
    (fp8e4m3,  0x78,   Fraction(256)),
    (fp8e4m3,  0x7E,   Fraction(448)),
    (fp8e4m3,  0xFE,   Fraction(-448)),
    (fp8e5m2,  0x01,   Fraction(1, 1 << 16)),
    (fp8e5m2,  0x3C,   Fraction(1)),
    (fp8e5m2,  0x7B,   Fraction(57344)),
    (float32,  0x00000001, Fraction(1, 1 << 149)),
    (float32,  0x7F7FFFFF, Fraction(((1 << 24) - 1) << 104)),
    (float64,  0x0000000000000001, Fraction(1, 1 << 1074)),
    (float64,  0x7FEFFFFFFFFFFFFF, Fraction(((1 << 53) - 1) << 971)),
]
SPECIAL = [  # dtype, infinity, a NaN, max
    (float16,  0x7C00, 0x7E00, 0x7BFF),
    (bfloat16, 0x7F80, 0x7FC0, 0x7F7F),
    (fp8e5m2,  0x7C,   0x7E,   0x7B),
    (float32,  0x7F800000, 0x7FC00000, 0x7F7FFFFF),
    (float64,  0x7FF0000000000000, 0x7FF8000000000000, 0x7FEFFFFFFFFFFFFF),
]
# fmt: on


@pytest.mark.parametrize(("dtype", "bits", "value"), TABLE)
def test_known_patterns_decode_and_encode(dtype, bits, value):
    assert exact_fraction(dtype, bits) == value
    assert round_to(dtype, value) == bits


@pytest.mark.parametrize(("dtype", "inf", "nan", "top"), SPECIAL)
def test_specials_of_ieee_formats(dtype, inf, nan, top):
    fmt = FORMATS[dtype]
    assert (fmt.inf_mag, fmt.nan, fmt.max_mag) == (inf, nan, top)
    assert fmt.is_nan(nan) and fmt.is_nan(inf + 1) and not fmt.is_nan(inf) and not fmt.is_nan(top)
    assert python_number(dtype, inf | fmt.sign_bit) == -math.inf


def test_r15_fp8e4m3_has_two_nans_and_no_infinity():
    fmt = FORMATS[fp8e4m3]
    assert [b for b in range(256) if fmt.is_nan(b)] == [0x7F, 0xFF]
    assert all(fmt.decode(b).kind == FINITE for b in range(256) if not fmt.is_nan(b))
    assert fmt.is_nan(bits_of(fp8e4m3, math.inf)) and fmt.is_nan(bits_of(fp8e4m3, 465.0))
    assert bits_of(fp8e4m3, 464.0) == 0x7E  # a tie between 448 and 480, to even


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.bits <= 16], ids=str)
def test_every_small_pattern_is_the_number_numpy_reads(dtype):
    count = 1 << dtype.bits
    with np.errstate(invalid="ignore"):  # signalling NaNs
        theirs = np.arange(count, dtype=f"u{dtype.itemsize}").view(STORAGE[dtype]).astype(np.float64)
    ours = np.array([python_number(dtype, b) for b in range(count)])
    assert np.array_equal(ours, theirs, equal_nan=True)
    assert np.array_equal(np.signbit(ours)[~np.isnan(ours)], np.signbit(theirs)[~np.isnan(ours)])


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.bits <= 16], ids=str)
def test_every_small_pattern_survives_decode_and_encode(dtype):
    fmt = FORMATS[dtype]
    for b in range(1 << dtype.bits):
        real = fmt.decode(b)
        if real.kind == FINITE:
            assert fmt.encode(real.sign, real.m, real.e) == b
            assert fmt.from_key(fmt.key(b)) == (b if fmt.key(b) else 0)
        assert bits_of(dtype, python_number(dtype, b)) == b or fmt.is_nan(b)


@pytest.mark.parametrize(("dtype", "code"), [(float16, "e"), (float32, "f"), (float64, "d")], ids=str)
def test_round_to_agrees_with_struct(dtype, code):
    r = random.Random(7)
    for _ in range(4000):
        x = (
            struct.unpack("<d", r.randbytes(8))[0]
            if code == "d"
            else math.ldexp(r.uniform(-2, 2), r.randint(-dtype.bias - 30, dtype.bias))
        )
        if not math.isfinite(x):
            continue
        try:
            expected = int.from_bytes(struct.pack("<" + code, x), "little")
        except OverflowError:
            expected = FORMATS[dtype].infinity(int(x < 0))
        assert round_to(dtype, Fraction(x), int(math.copysign(1, x) < 0)) == expected, x
        assert bits_of(dtype, x) == expected, x


def _nearest(dtype, value):
    """The nearest pattern by search among all; ties to the even pattern."""
    fmt = FORMATS[dtype]
    candidates = [(abs(exact_fraction(dtype, b) - value), b & 1, b) for b in range(fmt.max_mag + 1)]
    return min(candidates)[2]


@pytest.mark.parametrize("dtype", [fp8e4m3, fp8e5m2], ids=str)
def test_r19_rounding_is_to_the_nearest_of_all_values_ties_to_even(dtype):
    fmt = FORMATS[dtype]
    top = exact_fraction(dtype, fmt.max_mag)
    r = random.Random(3)
    values = [exact_fraction(dtype, b) for b in range(fmt.max_mag + 1)]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(values)]
    near = [m + s * Fraction(1, 1 << 40) for m in middles for s in (-1, 0, 1)]
    for v in near + [Fraction(r.randrange(1 << 20), 1 << 10) % top for _ in range(200)]:
        assert round_to(dtype, v) == _nearest(dtype, v), v
        assert round_to(dtype, -v, 1) == _nearest(dtype, v) | fmt.sign_bit, v


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_r15_overflow_starts_half_a_unit_above_the_largest(dtype):
    fmt = FORMATS[dtype]
    top, unit = exact_fraction(dtype, fmt.max_mag), dyadic(1, fmt.top)
    tie = round_to(dtype, top + unit / 2)
    assert tie == (fmt.max_mag if dtype is fp8e4m3 else fmt.inf_mag)  # 448's last bit is even, the others' is odd
    assert round_to(dtype, top + unit / 2 - Fraction(1, 1 << 2000)) == fmt.max_mag
    assert round_to(dtype, top + unit / 2 + Fraction(1, 1 << 2000)) == fmt.inf_mag
    assert round_to(dtype, -(top + unit)) == fmt.inf_mag | fmt.sign_bit


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_keys_order_all_values_and_bound_reals(dtype):
    fmt = FORMATS[dtype]
    r = random.Random(11)
    for _ in range(500):
        m, e = r.randint(-(1 << 60), 1 << 60), r.randint(fmt.unit - 70, fmt.top - 40)
        low, high = fmt.key_floor(m, e), fmt.key_ceil(m, e)
        assert high - low in (0, 1)
        x = dyadic(m, e)
        if abs(low) <= fmt.max_mag and abs(high) <= fmt.max_mag:
            assert exact_fraction(dtype, fmt.from_key(low)) <= x <= exact_fraction(dtype, fmt.from_key(high))
            assert (low == high) == (exact_fraction(dtype, fmt.from_key(low)) == x)


def test_grid_has_no_upper_limit():
    assert FORMATS[float16].round_without_overflow(0b111111111111, 100) == (1 << 10, 102)
    assert FORMATS[float16].round_without_overflow(3, -26) == (1, -24)


def test_sticky_rounds_like_the_fraction():
    r = random.Random(5)
    for _ in range(500):
        x = Fraction(r.randrange(1, 1 << 30), r.randrange(1, 1 << 30))
        assert FORMATS[float16].encode(0, *divide_with_sticky_bit(x.numerator, x.denominator, 14)) == round_to(float16, x)


def test_r28_nan_payload_and_sign_of_a_python_float_are_kept():
    nan = struct.unpack("<d", struct.pack("<Q", 0xFFF4_0000_0000_0000))[0]
    assert bits_of(float32, nan) == 0xFFE00000
    assert FORMATS[fp8e4m3].is_nan(bits_of(fp8e4m3, nan)) and bits_of(fp8e4m3, nan) == 0xFF
    assert bits_of(float16, -0.0) == 0x8000


def test_r23_numbers_of_other_dtypes():
    assert bits_of(int8, -1) == 255 and bits_of(bool_, True) == 1 and bits_of(index, -(1 << 70)) == -(1 << 70)
    assert python_number(int8, 255) == -1 and python_number(uint8, 255) == 255 and python_number(bool_, 1) is True
    for bad in (0.5, math.inf, math.nan):
        with pytest.raises(SpecError, match="R23"):
            bits_of(int8, bad)
