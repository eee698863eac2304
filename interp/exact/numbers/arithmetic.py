"""Float arithmetic with one rounding, in integers: the functions behind the float columns of `elementwise` (R11, R16, R20, R21).

Each op's function takes (format, core, *bit patterns) and gives the allowed answer.
"""

from __future__ import annotations

from math import isqrt

from uops.interp.exact.answers import AnswerSet, any_nan, float_result, one_of, unite_in_float_hull
from uops.interp.exact.numbers.formats import FINITE, INFINITE, NAN, FloatFormat, Real, divide_with_sticky_bit


def add_and_round(fmt: FloatFormat, x: Real, y: Real) -> int:
    """Return the bits of x + y, rounded once; NaN for inf - inf."""
    if x.kind or y.kind:
        if x.kind == NAN or y.kind == NAN or (x.kind == y.kind and x.sign != y.sign):
            return fmt.nan
        return fmt.infinity(x.sign if x.kind == INFINITE else y.sign)
    e = x.e if x.e < y.e else y.e
    a, b = x.m << (x.e - e), y.m << (y.e - e)
    total = (-a if x.sign else a) + (-b if y.sign else b)
    if not total:
        return fmt.zero(x.sign & y.sign)  # an exact zero is +0 unless both terms are negative zeros
    return fmt.encode(1, -total, e) if total < 0 else fmt.encode(0, total, e)


def multiply_exactly(x: Real, y: Real) -> Real:
    """Return x * y, not rounded."""
    sign = x.sign ^ y.sign
    if x.kind or y.kind:
        zero = (x.kind == FINITE and not x.m) or (y.kind == FINITE and not y.m)
        if zero or x.kind == NAN or y.kind == NAN:
            return Real(NAN, 0, 0, 0)
        return Real(INFINITE, sign, 0, 0)
    return Real(FINITE, sign, x.m * y.m, x.e + y.e)


def round_real(fmt: FloatFormat, x: Real) -> int:
    """Return the bits of an exact number, rounded once (R15)."""
    if x.kind == FINITE:
        return fmt.encode(x.sign, x.m, x.e)
    return fmt.infinity(x.sign) if x.kind == INFINITE else fmt.nan


def divide_and_round(fmt: FloatFormat, x: Real, y: Real) -> int:
    """Return the bits of x / y, rounded once."""
    sign = x.sign ^ y.sign
    if x.kind == NAN or y.kind == NAN or (x.kind == INFINITE and y.kind == INFINITE):
        return fmt.nan
    if x.kind == INFINITE:
        return fmt.infinity(sign)
    if y.kind == INFINITE:
        return fmt.zero(sign)
    if not y.m:
        return fmt.infinity(sign) if x.m else fmt.nan
    if not x.m:
        return fmt.zero(sign)
    m, e = divide_with_sticky_bit(x.m, y.m, fmt.precision + 3)
    return fmt.encode(sign, m, e + x.e - y.e)


def sqrt_and_round(fmt: FloatFormat, x: Real) -> int:
    """Return the bits of the square root of x, rounded once; the root of -0 is -0."""
    if x.kind == FINITE and not x.m:
        return fmt.zero(x.sign)
    if x.kind == NAN or x.sign:
        return fmt.nan
    if x.kind == INFINITE:
        return fmt.infinity(0)
    shift = max(2 * fmt.precision + 6 - x.m.bit_length(), 0)
    shift += (x.e - shift) & 1
    m = x.m << shift
    r = isqrt(m)
    return fmt.encode(0, (r << 1) | (r * r != m), (x.e - shift) // 2 - 1)


def add(fmt: FloatFormat, core: bool, a: int, b: int) -> AnswerSet:
    """Return the allowed answers of Add."""
    return float_result(fmt, add_and_round(fmt, fmt.decode(a), fmt.decode(b)))


def sub(fmt: FloatFormat, core: bool, a: int, b: int) -> AnswerSet:
    """Return the allowed answers of Sub."""
    return float_result(fmt, add_and_round(fmt, fmt.decode(a), fmt.decode(b ^ fmt.sign_bit)))


def mul(fmt: FloatFormat, core: bool, a: int, b: int) -> AnswerSet:
    """Return the allowed answers of Mul."""
    return float_result(fmt, round_real(fmt, multiply_exactly(fmt.decode(a), fmt.decode(b))))


def recip(fmt: FloatFormat, core: bool, a: int) -> AnswerSet:
    """Return the allowed answers of Recip."""
    return float_result(fmt, _reciprocal(fmt, a))


def _reciprocal(fmt: FloatFormat, a: int) -> int:
    return divide_and_round(fmt, Real(FINITE, 0, 1, 0), fmt.decode(a))


def evaluate_div_with_core_decomposition(fmt: FloatFormat, core: bool, a: int, b: int) -> AnswerSet:
    """Return the allowed answers of Div.

    Strict has the correctly rounded quotient. Core also allows all between it and Mul(a, Recip(b)), which rounds twice (R16).
    """
    rounded = float_result(fmt, divide_and_round(fmt, fmt.decode(a), fmt.decode(b)))
    return hull_unless_same(rounded, mul(fmt, core, a, _reciprocal(fmt, b))) if core else rounded


def hull_unless_same(a: AnswerSet, b: AnswerSet) -> AnswerSet:
    """Return `a` itself if both are the same set, so that an exact answer stays exact; else their hull."""
    return a if a == b else unite_in_float_hull(a, b)


def evaluate_mulacc_unfused_too_in_core(fmt: FloatFormat, core: bool, a: int, b: int, c: int) -> AnswerSet:
    """Return the allowed answers of Mulacc: rounded once, and under core also with the product rounded first."""
    product, addend = multiply_exactly(fmt.decode(a), fmt.decode(b)), fmt.decode(c)
    fused = add_and_round(fmt, product, addend)
    if not core:
        return float_result(fmt, fused)
    return one_of(fmt.dtype, fused, add_and_round(fmt, fmt.decode(round_real(fmt, product)), addend))


def neg(fmt: FloatFormat, core: bool, a: int) -> AnswerSet:
    """Return the allowed answers of Neg: the sign bit is flipped (R21)."""
    return float_result(fmt, a ^ fmt.sign_bit)


def trunc(fmt: FloatFormat, core: bool, a: int) -> AnswerSet:
    """Return the allowed answers of Trunc, which keeps the sign, of a zero too."""
    x = fmt.decode(a)
    if x.kind or x.e >= 0:
        return float_result(fmt, a)
    return AnswerSet(fmt.dtype, fmt.encode(x.sign, x.m >> -x.e, 0))


def maximum(fmt: FloatFormat, core: bool, a: int, b: int) -> AnswerSet:
    """Return the allowed answers of Max."""
    return _pick_extreme_or_either_zero_or_nan_by_level(fmt, core, a, b, fmt.key(a) >= fmt.key(b))


def minimum(fmt: FloatFormat, core: bool, a: int, b: int) -> AnswerSet:
    """Return the allowed answers of Min."""
    return _pick_extreme_or_either_zero_or_nan_by_level(fmt, core, a, b, fmt.key(a) <= fmt.key(b))


def _pick_extreme_or_either_zero_or_nan_by_level(fmt: FloatFormat, core: bool, a: int, b: int, first_is_extreme: bool) -> AnswerSet:
    """Return NaN if either operand is (core: or either operand), and of two zeros either (R11); else the preferred operand."""
    if fmt.is_nan(a) or fmt.is_nan(b):
        return one_of(fmt.dtype, fmt.nan, a, b) if core else any_nan(fmt)
    if not fmt.key(a) and not fmt.key(b):
        return AnswerSet(fmt.dtype, a & b, (a | b,)) if a != b else AnswerSet(fmt.dtype, a)
    return AnswerSet(fmt.dtype, a if first_is_extreme else b)
