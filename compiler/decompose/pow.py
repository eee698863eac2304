"""Pow of float32 and float64 as a graph: |x|^y = 2^(y * log2|x|), then the sign, then the special cases of IEEE 754 (R18).

Zeros and infinities of either operand need no cases of their own: log2 of them is an infinity, y is clamped to a size at which
any |x| != 1 already overflows or underflows, and the clamped exponent gives inf or zero. What remains is 0 * inf (y = 0, answered
first), NaN for a finite negative base with a non-integral exponent, and the sign.

float32 works in float64 with short polynomials (relative error below 2^-27 before the rounding). float64 carries log2|x|, its
product with y and 2^t as unevaluated sums of two doubles.
"""

from __future__ import annotations

import math

from uops.compiler.decompose import coefficients as k
from uops.compiler.decompose.build import E, clamp, horner, pick, where
from uops.compiler.decompose.doubles import Pair, fast_add, fast_two_sum, multiply, two_product
from uops.compiler.decompose.exp2 import split_scale
from uops.compiler.decompose.log2 import split
from uops.spec.ir import dtypes as dt

_SIGN = 1 << 63
_MAGIC = 1.5 * 2.0**52


def pow_(x: E, y: E) -> E:
    """x^y for two float32 or two float64 within 2 ulp (R18)."""
    d = x.dtype
    x, y = x.cast(dt.float64), y.cast(dt.float64)
    bits = x.bits()
    size = (bits & (_SIGN - 1)).bitcast(dt.float64)
    magnitude = (_pow32 if d is dt.float32 else _pow64)(size, y)
    half = y * 0.5
    integral = y.eq(y.trunc())
    odd = integral & half.ne(half.trunc())
    sign = where(odd, bits & _SIGN, 0)
    result = (magnitude.bits() | sign).bitcast(dt.float64)
    undefined = (x < 0.0) & (x > -math.inf) & (integral ^ True)
    result = where(undefined, math.nan, result)
    return where(y.eq(0.0) | x.eq(1.0), 1.0, result).cast(d)


def _log_edges(size: E, log: E) -> E:
    """log2 with the values at 0, inf and NaN put in."""
    return where(size.eq(0.0), -math.inf, where(size < math.inf, log, size))


def _pow32(size: E, y: E) -> E:
    """size^y for float32 operands held in float64, unrounded; overflow beyond float32 is left to the Cast."""
    s = split(size, subnormals=False)
    log = _log_edges(size, horner(s.fraction, k.LOG2_POW32).fma(s.fraction, s.exponent))
    t = clamp(clamp(y, -(2.0**40), 2.0**40) * log, -200.0, 200.0)
    shifted = t + (_MAGIC + 1023)
    r = t - (shifted - (_MAGIC + 1023))
    scale = (shifted.bits() << 52).bitcast(dt.float64)
    return horner(r, k.EXP2_POW32).fma(r, 1.0) * scale


def _pow64(size: E, y: E) -> E:
    """size^y with a relative error of about 2^-62 before the last rounding, or two where the result is subnormal."""
    high, low = _log2_pair(size)
    high = _log_edges(size, high)
    y = clamp(y, -(2.0**66), 2.0**66)
    t = high * y
    inside = (t > -1100.0) & (t < 1100.0)
    rest = where(inside, low.fma(y, high.fma(y, -t)), 0.0)
    return _exp2_pair(clamp(t, -1100.0, 1100.0), rest)


def _log2_pair(size: E) -> Pair:
    """log2 of a positive finite float64 to about 2^-73 of its value: e + s*(C0 + C1 z + ..), s = f / (2 + f), z = s*s."""
    parts = split(size)
    f, e = parts.fraction, parts.exponent
    total, lost = fast_two_sum(f.const(2.0), f)
    inverse = total.recip()
    s = f * inverse
    less = -s
    s_low = less.fma(lost, less.fma(total, f)) * inverse
    z, z_error = two_product(s, s)
    z_pair = z, (s + s).fma(s_low, z_error)
    acc: Pair = horner(z, k.ATANH_TAIL), f.const(0.0)
    *head, last = k.ATANH_HEAD
    acc = fast_add(last, two_product(z, acc[0]))
    for c in reversed(head):
        acc = fast_add(c, multiply(z_pair, acc))
    return fast_add(e, multiply((s, s_low), acc))


def _exp2_pair(t: E, rest: E) -> E:
    """2^(t + rest) for |t| <= 1100, |rest| < 2^-42, rounded once to 53 bits before it is scaled.

    4t is rounded to n; with w = (t - n/4) * ln 2, |w| <= 0.087, the result is e^w * 2^(n/4). 1 + w + w^2/2 are summed without
    error.
    """
    magic = _MAGIC + 8 * 1023
    shifted = t.fma(4.0, magic)
    r = (shifted - magic).fma(-0.25, t)
    w, w_error = two_product(r, k.LN2[0])
    w_low = rest.fma(k.LN2[0], r.fma(k.LN2[1], w_error))
    square, square_low = two_product(w * 0.5, w)
    cube = horner(w, [2 * c for c in k.EXP_TAIL]) * (w * square)
    head, head_low = fast_two_sum(w, square)
    one, one_low = fast_two_sum(w.const(1.0), head)
    low = w_low.fma(one + cube, one_low + (head_low + (square_low + cube)))  # e^(w + w_low) = e^w + w_low e^w
    bits = shifted.bits()
    high, rest = multiply((one, low), _root(bits))
    first, second = split_scale(bits >> 2, dt.float64)
    return (high + rest) * first * second


def _root(bits: E) -> Pair:
    """2^(n/4) for the two low bits of n, as a pair."""
    odd, upper = (bits & 1).ne(0), (bits & 2).ne(0)
    high, low = (
        where(upper, pick(odd, r3, r2, dt.float64), pick(odd, r1, r0, dt.float64)) for r0, r1, r2, r3 in zip(*k.ROOTS, strict=True)
    )
    return high, low
