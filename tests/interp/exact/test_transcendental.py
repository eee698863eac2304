"""Exp2, Log2, Sin and Pow: correct rounding against mpmath, exact points, IEEE's special cases, allowances (R17, R18)."""

import math
import random
import struct
from fractions import Fraction

import mpmath
import pytest

from uops.interp.exact import FORMATS, bits_of, evaluate_canonical, evaluate_op, exact_fraction, python_number, round_to
from uops.interp.exact.numbers.constants import ln2, pi
from uops.interp.exact.numbers.formats import dyadic
from uops.interp.exact.numbers.transcendental import (
    enclose_exp2,
    log2_sign_and_magnitude_enclosure,
    sin_sign_and_magnitude_enclosure,
)
from uops.spec.ir.dtypes import FLOATS, bfloat16, float16, float32, float64, fp8e4m3, fp8e5m2
from uops.spec.ir.ops import Op

INF, NAN = math.inf, math.nan
WIDE = (float32, float64)
#: Digits of the third opinion: enough that no input of these tests lies so near a midpoint.
PRECISION = 1400


@pytest.fixture(autouse=True)
def _precise():
    with mpmath.workprec(PRECISION):
        yield


def mp(x):
    return mpmath.mpf(x.numerator) / x.denominator


def rational(x):
    """An mpf as a Fraction."""
    sign, man, exp, _ = x._mpf_
    return (-1) ** sign * dyadic(man, exp)


REAL = {
    Op.EXP2: lambda x: mpmath.power(2, mp(x)),
    Op.LOG2: lambda x: mpmath.log(mp(x), 2),
    Op.SIN: lambda x: mpmath.sin(mp(x)),
}


def defined(op, fmt, bits):
    real = fmt.decode(bits)
    if real.kind or (op is Op.LOG2 and (real.sign or not real.m)):
        return False
    return op is not Op.EXP2 or real.m.bit_length() + real.e < fmt.dtype.exp_bits + 3


def test_pi_and_ln2_against_mpmath_at_many_precisions():
    for bits in (1, 7, 64, 100, 511, 512, 513, 1100):
        assert abs(rational(mpmath.pi + 0) - Fraction(pi(bits), 1 << bits)) < Fraction(2, 1 << bits)
        assert abs(rational(mpmath.ln2 + 0) - Fraction(ln2(bits), 1 << bits)) < Fraction(2, 1 << bits)


@pytest.mark.parametrize("bits", [20, 40, 77, 200])
def test_enclosures_hold_the_value(bits):
    r = random.Random(bits)
    for _ in range(150):
        m, e = r.randrange(3, 1 << 24) | 1, r.randint(-40, 2)
        x = dyadic(m, e)
        sign, (low, high, q) = log2_sign_and_magnitude_enclosure(m, e, bits)
        value = rational(REAL[Op.LOG2](x))
        assert (value < 0) == bool(sign) and dyadic(low, q) <= abs(value) <= dyadic(high, q)
        sign, (low, high, q) = sin_sign_and_magnitude_enclosure(m, e, bits)
        value = rational(REAL[Op.SIN](x)) * (-1) ** sign
        assert dyadic(low, q) <= value <= dyadic(high, q)
        if m.bit_length() + e < 12:
            for s in (1, -1):
                low, high, q = enclose_exp2(s * m, e, bits)
                assert dyadic(low, q) <= rational(REAL[Op.EXP2](s * x)) <= dyadic(high, q)


@pytest.mark.parametrize("op", REAL, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [fp8e4m3, fp8e5m2], ids=str)
def test_r17_every_fp8_result_is_correctly_rounded(op, dtype):
    fmt = FORMATS[dtype]
    for b in (b for b in range(256) if defined(op, fmt, b)):
        exact = rational(REAL[op](exact_fraction(dtype, b)))
        assert evaluate_canonical(op, [dtype], dtype, b) == round_to(dtype, exact, b >> 7), (b, exact)


@pytest.mark.parametrize("op", REAL, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_r17_random_results_are_correctly_rounded(op, dtype):
    fmt = FORMATS[dtype]
    r = random.Random(f"{op}{dtype}")
    near_one = [fmt.one + k for k in range(-20, 20)]
    tiny = [*range(1, 20), fmt.hidden, fmt.hidden + 1]
    some = [r.getrandbits(dtype.bits) for _ in range(400)] + near_one + tiny + [fmt.max_mag, fmt.max_mag - 1]
    judged = [b for b in some if defined(op, fmt, b)]
    assert len(judged) > 50
    for b in judged:
        exact = rational(REAL[op](exact_fraction(dtype, b)))
        answer = evaluate_op(op, [dtype], dtype, (b,))
        assert answer.best == round_to(dtype, exact, b >> (dtype.bits - 1)), (b, exact)


def test_r17_sin_of_huge_and_of_nearly_a_multiple_of_pi():
    """Among the doubles 0x1.921fb54442d18p+1 is next to pi and 6381956970095103 * 2**797 next to a multiple of pi / 2."""
    for x in (float.fromhex("0x1.921fb54442d18p+1"), float(6381956970095103 << 797), 1e22, 1.7e308):
        b = bits_of(float64, x)
        assert evaluate_canonical(Op.SIN, [float64], float64, b) == round_to(float64, rational(mpmath.sin(mpmath.mpf(x))))


# fmt: off
SPECIAL = [  # op, operand, result
    (Op.EXP2, 3.0, 8.0), (Op.EXP2, -2.0, 0.25), (Op.EXP2, 0.0, 1.0), (Op.EXP2, -0.0, 1.0),
    (Op.EXP2, INF, INF), (Op.EXP2, -INF, 0.0), (Op.EXP2, NAN, NAN),
    (Op.LOG2, 8.0, 3.0), (Op.LOG2, 0.25, -2.0), (Op.LOG2, 1.0, 0.0), (Op.LOG2, 0.0, -INF), (Op.LOG2, -0.0, -INF),
    (Op.LOG2, INF, INF), (Op.LOG2, -1.0, NAN), (Op.LOG2, -INF, NAN), (Op.LOG2, NAN, NAN),
    (Op.SIN, 0.0, 0.0), (Op.SIN, -0.0, -0.0), (Op.SIN, INF, NAN), (Op.SIN, -INF, NAN), (Op.SIN, NAN, NAN),
]
POW = [  # x, y, x ** y; IEEE 754-2019, 9.2.1
    (NAN, 0.0, 1.0), (INF, -0.0, 1.0), (0.0, 0.0, 1.0), (-3.0, 0.0, 1.0),
    (1.0, NAN, 1.0), (1.0, INF, 1.0), (1.0, -3.0, 1.0), (-1.0, INF, 1.0), (-1.0, -INF, 1.0),
    (NAN, 1.0, NAN), (2.0, NAN, NAN), (-1.0, NAN, NAN), (-1.0, 0.5, NAN), (-2.0, -1.5, NAN),
    (0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, 0.5, 0.0),
    (0.0, -3.0, INF), (-0.0, -3.0, -INF), (-0.0, -2.0, INF), (-0.0, -0.5, INF), (0.0, -INF, INF), (-0.0, INF, 0.0),
    (0.5, INF, 0.0), (-0.5, INF, 0.0), (0.5, -INF, INF), (2.0, INF, INF), (-2.0, -INF, 0.0), (2.0, -INF, 0.0),
    (INF, 2.0, INF), (INF, -0.5, 0.0), (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF),
    (-INF, -3.0, -0.0), (-INF, -2.0, 0.0), (-INF, INF, INF), (-INF, -INF, 0.0),
]
# fmt: on


def held(dtype, *values):
    """R15: fp8e4m3 has no infinity."""
    return dtype.has_inf or not any(math.isinf(v) for v in values)


def all_bits(dtype, *values):
    return [bits_of(dtype, v) for v in values]


def check_exactly(answer, dtype, value):
    fmt = FORMATS[dtype]
    if math.isnan(value) or (math.isinf(value) and not dtype.has_inf):
        assert fmt.is_nan(answer.best) and answer.value_count_nans_as_one == 1
    else:
        assert answer.best == bits_of(dtype, value) and answer.is_exact


@pytest.mark.parametrize("level", ["strict", "core"])
@pytest.mark.parametrize(("dtype", "op", "x", "value"), [(d, *s) for d in FLOATS for s in SPECIAL if held(d, s[1])])
def test_r17_exact_points_and_specials(dtype, level, op, x, value):
    answer = evaluate_op(op, [dtype], dtype, all_bits(dtype, x), level)
    check_exactly(answer, dtype, value)


@pytest.mark.parametrize(("dtype", "x", "y", "value"), [(d, *p) for d in FLOATS for p in POW if held(d, *p[:2])])
def test_r18_special_cases_of_ieee_pow(dtype, x, y, value):
    check_exactly(evaluate_op(Op.POW, [dtype] * 2, dtype, all_bits(dtype, x, y)), dtype, value)


@pytest.mark.parametrize(("x", "y", "nan"), [(0.0, 0.0, True), (1.0, NAN, True), (-2.0, 2.0, True), (2.0, 2.0, False)])
def test_r18_core_holds_the_decomposition(x, y, nan):
    answer = evaluate_op(Op.POW, [float32] * 2, float32, [bits_of(float32, x), bits_of(float32, y)], "core")
    assert answer.contains(0x7FC00000) == nan and answer.contains(answer.best)


def test_r18_core_holds_what_correct_parts_give():
    r = random.Random(21)
    for dtype in FLOATS:
        for _ in range(150):
            a, b = (r.getrandbits(dtype.bits) for _ in range(2))
            core = evaluate_op(Op.POW, [dtype] * 2, dtype, (a, b), "core")
            log = evaluate_canonical(Op.LOG2, [dtype], dtype, a)
            listed = evaluate_canonical(Op.EXP2, [dtype], dtype, evaluate_canonical(Op.MUL, [dtype] * 2, dtype, log, b))
            strict = evaluate_op(Op.POW, [dtype] * 2, dtype, (a, b))
            assert core.contains(listed) and core.best == strict.best, (dtype, a, b)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_r18_finite_powers_are_correctly_rounded(dtype):
    fmt = FORMATS[dtype]
    r = random.Random(f"pow{dtype}")
    judged = 0
    for _ in range(1500):
        a, b = r.randrange(1, fmt.max_mag), r.getrandbits(dtype.bits)
        if r.random() < 0.5:
            a = fmt.one + r.randint(-300, 300) % fmt.hidden
        x, y = exact_fraction(dtype, a), exact_fraction(dtype, b)
        if y is None or abs(y) * abs(mpmath.log(mp(x), 2)) > fmt.dtype.bias * 2 or fmt.is_nan(a):
            continue
        judged += 1
        exact = rational(mpmath.power(mp(x), mp(y)))
        assert evaluate_canonical(Op.POW, [dtype] * 2, dtype, a, b) == round_to(dtype, exact), (a, b)
    assert judged > 200


@pytest.mark.parametrize(
    ("x", "y", "value"),
    [
        (3.0, 2.0, 9.0),
        (-3.0, 3.0, -27.0),
        (4.0, 0.5, 2.0),
        (0.0625, -0.75, 8.0),
        (2.0, -1.0, 0.5),
        (-2.0, -3.0, -0.125),
        (9.0, 1.5, 27.0),
    ],
)
def test_r18_exact_powers(x, y, value):
    for dtype in (bfloat16, float16, float32, float64):
        assert evaluate_canonical(Op.POW, [dtype] * 2, dtype, bits_of(dtype, x), bits_of(dtype, y)) == bits_of(dtype, value)


def test_r18_ties_of_exact_powers_go_to_even():
    """(1 + 2^-12)^2 in float32 is exact; 4097^2 = 2^24 + 2^13 + 1 lies midway between two floats."""
    x = bits_of(float32, 4097.0)
    assert evaluate_canonical(Op.POW, [float32] * 2, float32, x, bits_of(float32, 2.0)) == bits_of(float32, 2.0**24 + 2.0**13)


def test_r18_far_overflow_and_underflow_keep_the_sign():
    huge, odd = bits_of(float64, -1e300), bits_of(float64, 2.0**53 - 1)
    assert python_number(float64, evaluate_canonical(Op.POW, [float64] * 2, float64, huge, odd)) == -INF
    minus = bits_of(float64, -(2.0**53 - 1))
    assert evaluate_canonical(Op.POW, [float64] * 2, float64, huge, minus) == 1 << 63
    assert evaluate_canonical(Op.POW, [float64] * 2, float64, bits_of(float64, -1.0), bits_of(float64, 1e300)) == bits_of(
        float64, 1.0
    )


@pytest.mark.parametrize(("dtype", "ulps"), [(float64, 2), (float32, 2), (float16, 1), (bfloat16, 1)], ids=str)
@pytest.mark.parametrize(("op", "x"), [(Op.EXP2, 0.3), (Op.LOG2, 5.0), (Op.SIN, 2.0)])
def test_r17_allowance_in_ulp(dtype, ulps, op, x):
    b = bits_of(dtype, x)
    strict = evaluate_op(op, [dtype], dtype, (b,))
    assert (
        strict.span == (strict.best - ulps, strict.best + ulps)
        and strict.value_count_nans_as_one == 2 * ulps + 1
        and not strict.nan
    )
    core = evaluate_op(op, [dtype], dtype, (b,), "core")
    assert core.contains(strict.best - 4) and core.contains(strict.best + 4)
    if op is not Op.SIN:
        assert not core.contains(strict.best - 5) and not core.contains(strict.best + 5)


def test_r17_the_unit_is_the_spacing_at_the_correct_result():
    """Just above 1 the spacing below 1 is half as wide, so more floats fit in the same two units."""
    b = bits_of(float32, 1e-9)
    answer = evaluate_op(Op.EXP2, [float32], float32, (b,))
    one = bits_of(float32, 1.0)
    assert answer.best == one and answer.span == (one - 4, one + 2)


def test_r17_core_sin_has_an_absolute_term():
    b = bits_of(float32, 3.1415927)
    core = evaluate_op(Op.SIN, [float32], float32, (b,), "core")
    assert core.contains(bits_of(float32, 2.0**-21)) and not core.contains(bits_of(float32, 2.0**-19))
    assert not evaluate_op(Op.SIN, [float32], float32, (b,)).contains(bits_of(float32, 2.0**-21))


def test_r17_near_overflow_infinity_counts_as_the_next_power_of_two():
    top = struct.unpack("<I", struct.pack("<f", 127.99999))[0]
    answer = evaluate_op(Op.EXP2, [float32], float32, (top,))
    assert not answer.contains(0x7F800000)
    x, y = bits_of(float32, 2.0), bits_of(float32, 128.0)
    assert evaluate_op(Op.POW, [float32] * 2, float32, (x, y)).best == 0x7F800000
    far = evaluate_op(Op.POW, [float32] * 2, float32, (x, bits_of(float32, 4096.0)))
    assert far.best == 0x7F800000 and not far.contains(0x7F7FFFFF)


def test_r17_underflow_is_within_units_of_zero():
    for x in (-1000.5, -1000.0, -150.0, -1e30):  # a power of two that is no float32 is no exact point
        answer = evaluate_op(Op.EXP2, [float32], float32, (bits_of(float32, x),))
        assert answer.best == 0 and answer.contains(2) and not answer.contains(3)
    assert evaluate_op(Op.EXP2, [float32], float32, (bits_of(float32, -149.0),)).is_exact
