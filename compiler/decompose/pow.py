"""Pow of float32 and float64 as a graph: |x|^y = 2^(y * log2|x|), then the sign, then the special cases of IEEE 754 (R18).

Zeros and infinities need no cases of their own. Their log2 is an infinity, y is clamped to a size at which any |x| != 1 already
overflows or underflows, and the clamped exponent gives inf or zero. What remains is 0 * inf (y = 0, which is decided first), NaN
for a finite negative base with a non-integral exponent, and the sign.

float32 works in float64 with short polynomials: the relative error is below 2^-27 before the rounding. float64 carries log2|x|,
its product with y and 2^t as unevaluated sums of two doubles.
"""

from __future__ import annotations

import math

from uops.compiler.decompose import coefficients as k
from uops.compiler.decompose.build import Expr, clamp, horner, select_constants, where
from uops.compiler.decompose.doubles import (
    HighLowPair,
    add_pair_to_larger_without_renormalizing,
    fast_two_sum,
    multiply_pairs,
    two_product,
)
from uops.compiler.decompose.exp2 import make_power_of_two_factors
from uops.compiler.decompose.log2 import split_exponent_at_sqrt_half
from uops.spec.ir import dtypes as dt

#: The sign bit of a float64.
_SIGN = 1 << 63
#: A float64 whose sum with a small number has that number, rounded to an integer, in its low bits.
_MAGIC = 1.5 * 2.0**52


def pow_(x: Expr, y: Expr) -> Expr:
    """Return x^y for two float32 or two float64, within 2 ulp (R18)."""
    d = x.dtype
    x, y = x.cast(dt.float64), y.cast(dt.float64)
    bits = x.bits()
    size = (bits & (_SIGN - 1)).bitcast(dt.float64)
    magnitude = (_build_unrounded_float32_pow if d is dt.float32 else _pow64)(size, y)
    half = y * 0.5
    integral = y.eq(y.trunc())
    odd = integral & half.ne(half.trunc())
    sign = where(odd, bits & _SIGN, 0)
    result = (magnitude.bits() | sign).bitcast(dt.float64)
    undefined = (x < 0.0) & (x > -math.inf) & (integral ^ True)
    result = where(undefined, math.nan, result)
    return where(y.eq(0.0) | x.eq(1.0), 1.0, result).cast(d)


def _log2_with_edge_values(size: Expr, log: Expr) -> Expr:
    """Return log2 with its values at 0, inf and NaN filled in."""
    return where(size.eq(0.0), -math.inf, where(size < math.inf, log, size))


def _build_unrounded_float32_pow(magnitude: Expr, y: Expr) -> Expr:
    """Return magnitude^y of float32 values in float64, not rounded. The Cast to float32 rounds it, and overflows."""
    s = split_exponent_at_sqrt_half(magnitude, may_be_subnormal=False)
    log = _log2_with_edge_values(magnitude, horner(s.fraction, k.LOG2_POW32).fma(s.fraction, s.exponent))
    t = clamp(clamp(y, -(2.0**40), 2.0**40) * log, -200.0, 200.0)
    shifted = t + (_MAGIC + 1023)
    r = t - (shifted - (_MAGIC + 1023))
    scale = (shifted.bits() << 52).bitcast(dt.float64)
    return horner(r, k.EXP2_POW32).fma(r, 1.0) * scale


def _pow64(magnitude: Expr, y: Expr) -> Expr:
    """Return magnitude^y with a relative error of about 2^-62 before the last rounding, or two roundings where it is subnormal."""
    high, low = _log2_pair(magnitude)
    high = _log2_with_edge_values(magnitude, high)
    y = clamp(y, -(2.0**66), 2.0**66)
    t = high * y
    in_range = (t > -1100.0) & (t < 1100.0)
    rest = where(in_range, low.fma(y, high.fma(y, -t)), 0.0)
    return _exp2_of_sum(clamp(t, -1100.0, 1100.0), rest)


def _log2_pair(magnitude: Expr) -> HighLowPair:
    """Return log2 of a positive finite float64 to about 2^-73 of its value.

    It is e + s*(C0 + C1 z + ..) with s = f / (2 + f) and z = s*s.
    """
    parts = split_exponent_at_sqrt_half(magnitude)
    f, e = parts.fraction, parts.exponent
    total, total_error = fast_two_sum(f.const_like(2.0), f)
    inverse = total.recip()
    s = f * inverse
    s_low = (-s).fma(total_error, (-s).fma(total, f)) * inverse
    z, z_error = two_product(s, s)
    z_pair = z, (s + s).fma(s_low, z_error)
    *head, last = k.ATANH_HEAD
    series = add_pair_to_larger_without_renormalizing(last, two_product(z, horner(z, k.ATANH_TAIL)))
    for c in reversed(head):
        series = add_pair_to_larger_without_renormalizing(c, multiply_pairs(z_pair, series))
    return add_pair_to_larger_without_renormalizing(e, multiply_pairs((s, s_low), series))


def _exp2_of_sum(t: Expr, small_correction: Expr) -> Expr:
    """Return 2^(t + s), s = `small_correction`, for |t| <= 1100, |s| < 2^-42, rounded once to 53 bits before it is scaled.

    4t is rounded to n. With w = (t - n/4) * ln 2, |w| <= 0.087, the result is e^w * 2^(n/4). 1 + w + w^2/2 are summed without
    error.
    """
    magic = _MAGIC + 8 * 1023
    shifted = t.fma(4.0, magic)
    r = (shifted - magic).fma(-0.25, t)
    w, w_error = two_product(r, k.LN2[0])
    w_low = small_correction.fma(k.LN2[0], r.fma(k.LN2[1], w_error))
    square, square_low = two_product(w * 0.5, w)
    cube = horner(w, [2 * c for c in k.EXP_TAIL]) * (w * square)
    head, head_low = fast_two_sum(w, square)
    one, one_low = fast_two_sum(w.const_like(1.0), head)
    low = w_low.fma(one + cube, one_low + (head_low + (square_low + cube)))  # e^(w + w_low) = e^w + w_low e^w
    bits = shifted.bits()
    high, small_correction = multiply_pairs((one, low), _two_to_quarters_of_low_two_bits(bits))
    first, second = make_power_of_two_factors(bits >> 2, dt.float64)
    return (high + small_correction) * first * second


def _two_to_quarters_of_low_two_bits(quarters: Expr) -> HighLowPair:
    """Return 2^(n/4) for the two low bits of n, as a pair."""
    odd, upper = (quarters & 1).ne(0), (quarters & 2).ne(0)
    high, low = (
        where(upper, select_constants(odd, r3, r2, dt.float64), select_constants(odd, r1, r0, dt.float64))
        for r0, r1, r2, r3 in zip(*k.ROOTS, strict=True)
    )
    return high, low
