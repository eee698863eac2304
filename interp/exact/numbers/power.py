"""Pow as IEEE 754 defines it, correctly rounded (R18)."""

from __future__ import annotations

from math import isqrt

from uops.interp.exact.answers import AnswerSet, float_result, floats_within_ulps, unite_in_float_hull
from uops.interp.exact.numbers.formats import FINITE, INFINITE, NAN, Dyadic, FloatFormat, Real
from uops.interp.exact.numbers.transcendental import (
    Enclosure,
    exp2_mantissa_error_exponent,
    hull_of_exp2_of_product,
    log2,
    log2_sign_and_magnitude_enclosure,
    round_irrational_by_enclosures,
    to_fixed_point,
)


def evaluate_pow_with_core_decomposition(fmt: FloatFormat, core: bool, a: int, b: int) -> AnswerSet:
    """Return the allowed answers of Pow.

    Strict has the special cases exactly, and all others within 2 ulp. Core also allows all results of Exp2(Log2(a) * b).
    """
    rounded = _pow_within_ulps(fmt, core, fmt.decode(a), fmt.decode(b))
    return unite_in_float_hull(rounded, hull_of_exp2_of_product(fmt, log2(fmt, True, a), b)) if core else rounded


def _pow_within_ulps(fmt: FloatFormat, core: bool, x: Real, y: Real) -> AnswerSet:
    special = _ieee_special_case_bits_or_none(fmt, x, y)
    if special is not None:
        return float_result(fmt, special)
    sign = x.sign & _odd_bit(y)
    ulps = 4 if core else 2
    if _surely_overflows_or_underflows(fmt, x, y):
        if _grows(x, y):
            return float_result(fmt, fmt.infinity(sign))
        return floats_within_ulps(fmt, sign, 0, fmt.unit, ulps)
    exact = _compute_exact_power(x.m, x.e, -y.m if y.sign else y.m, y.e, fmt.precision + 2)
    if exact is not None:
        r, q = fmt.round_without_overflow(*exact)
    else:
        r, q = round_irrational_by_enclosures(fmt, lambda bits: _enclose_power_of_magnitude(x, y, bits))
    return floats_within_ulps(fmt, sign, r, q, ulps)


def _ieee_special_case_bits_or_none(fmt: FloatFormat, x: Real, y: Real) -> int | None:
    """Return the result in the cases that IEEE 754 lists; None if x**y is a finite real power."""
    one = fmt.one
    if y.kind == FINITE and not y.m:
        return one
    if _is_one(x) and not x.sign:
        return one
    if x.kind == NAN or y.kind == NAN:
        return fmt.nan
    if y.kind == INFINITE:
        if _is_one(x):
            return one
        return fmt.infinity(0) if _at_least_one(x) != bool(y.sign) else 0
    if x.kind == INFINITE or not x.m:
        sign = x.sign & _odd_bit(y)
        grows = (x.kind == INFINITE) != bool(y.sign)
        return fmt.infinity(sign) if grows else fmt.zero(sign)
    return fmt.nan if x.sign and not _is_integer(y) else None


def _at_least_one(x: Real) -> bool:
    return x.kind == INFINITE or (x.m.bit_length() + x.e >= 1 and x.m != 0)


def _is_one(x: Real) -> bool:
    return x.kind == FINITE and x.m.bit_length() + x.e == 1 and not x.m & (x.m - 1)


def _is_integer(y: Real) -> bool:
    return y.e >= 0 or not y.m & ((1 << -y.e) - 1)


def _odd_bit(y: Real) -> int:
    """Return 1 if y is an odd integer, else 0."""
    return to_fixed_point(y.m, y.e, 0) & 1 if y.e <= 0 and _is_integer(y) else 0


def _grows(x: Real, y: Real) -> bool:
    return _at_least_one(x) != bool(y.sign)


def _surely_overflows_or_underflows(fmt: FloatFormat, x: Real, y: Real) -> bool:
    """Return True if |y log2 x| is so large that the result surely overflows or underflows; x is not +-1."""
    _, (low, _, e) = (
        log2_sign_and_magnitude_enclosure(x.m, x.e, 8) if x.m & (x.m - 1) else (0, (abs(x.m.bit_length() - 1 + x.e), 0, 0))
    )
    product = low * y.m
    return product > 0 and product.bit_length() + e + y.e > fmt.dtype.exp_bits + 6


def _compute_exact_power(m: int, e: int, y: int, y_exponent: int, max_bits: int) -> Dyadic | None:
    """Return (m * 2**e) ** (y * 2**y_exponent) as (r, q) if it is such a number with r of at most `max_bits` bits; else None."""
    low = (m & -m).bit_length() - 1
    m, e = m >> low, e + low
    low = (y & -y).bit_length() - 1
    y, y_exponent = y >> low, y_exponent + low
    while y_exponent < 0:  # an even root: rational only of a square
        r = isqrt(m)
        if r * r != m or e & 1:
            return None
        m, e, y_exponent = r, e >> 1, y_exponent + 1
    y <<= y_exponent
    if m == 1:
        return 1, e * y
    if y < 0 or (m.bit_length() - 1) * y >= max_bits:
        return None
    return m**y, e * y


def _enclose_power_of_magnitude(x: Real, y: Real, bits: int) -> Enclosure:
    """Return an enclosure of |x| ** y with about `bits` correct bits."""
    if x.m & (x.m - 1):
        sign, (low, high, e) = log2_sign_and_magnitude_enclosure(x.m, x.e, bits + 24)
    else:
        k = x.m.bit_length() - 1 + x.e
        sign, low, high, e = int(k < 0), abs(k), abs(k), 0
    if sign != y.sign:
        low, high = -high, -low
    t, end = to_fixed_point(low * y.m, e + y.e, bits), to_fixed_point(high * y.m, e + y.e, bits) + 1
    value, error, k = exp2_mantissa_error_exponent(t, bits)
    return value - error, value + error + 2 * (end - t) + 2, k - bits
