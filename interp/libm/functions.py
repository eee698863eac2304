"""Exp2, Log2 and Pow of float64 (R17, R18: accuracy and special cases), each within 0.51 ulp of the exact value."""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.interp.libm.constants import LOG_FIRST, exp2_table, ln2, log2_table, nearest_double_pair
from uops.interp.libm.doubles import fast_two_sum, two_product, two_sum
from uops.interp.tensor.storage import Array

_LN2 = float(ln2())
_INVERSE_LN2 = nearest_double_pair(1 / ln2())
#: Coefficients ln(2)^k / k! for k = 1 .. 5. On |r| <= 1/512 the next term is below 2^-66.
_EXP2 = [_LN2, _LN2**2 / 2, _LN2**3 / 6, _LN2**4 / 24, _LN2**5 / 120]
#: An exponent beyond which 2^x is 0 or infinite.
_FAR = 1100.0


def _exp2_of_pair(high: Array, low: Any) -> Array:
    """Return 2^(high + low), given that |low| is far below |high|; a NaN in `high` gives NaN.

    2^(k/256) comes from the table, and 2^r - 1 on |r| <= 1/512 from a polynomial. Only their last sum rounds visibly.
    """
    k = np.rint(high * 256.0)
    r = (high - k * (1 / 256)) + low
    c1, c2, c3, c4, c5 = _EXP2
    p = r * (c1 + r * (c2 + r * (c3 + r * (c4 + r * c5))))
    whole = k.astype(np.int64)
    table_high, table_low = exp2_table()
    at = whole & 255
    base = table_high[at]
    s, e = fast_two_sum(base, table_low[at] + base * p)
    exponent = (whole >> 8).astype(np.int32)
    out = np.ldexp(s, exponent)
    subnormal = high < -1022
    return (
        np.where(subnormal, _round_scaled_sum_to_subnormal_once(s, e, exponent, out), out)
        if np.count_nonzero(subnormal)
        else np.asarray(out)
    )


def _round_scaled_sum_to_subnormal_once(s: Any, e: Any, exponent: Any, rounded_s: Any) -> Any:
    """Return (s + e) 2^exponent rounded once to a multiple of 2^-1074, given that `rounded_s` is s 2^exponent so rounded."""
    exponent = np.maximum(exponent, -1080)
    half = np.ldexp(0.5, -1074 - exponent)
    left = (s - np.ldexp(rounded_s, -exponent)) + e
    return rounded_s + np.where(left > half, 5e-324, np.where(left < -half, -5e-324, 0.0))


def exp2(x: Array) -> Array:
    """Return 2^x."""
    return _exp2_of_pair(np.asarray(np.clip(x, -_FAR, _FAR)), 0.0)


def _log2_as_pair(x: Array) -> tuple[Any, Any]:
    """Return log2 of positive finite x as a pair (high, low) with a relative error below 2^-70.

    x = 2^e * m. A table gives c near 1/m such that r = m c - 1 is exact as a pair and |r| < 2^-8. Then log2(x) = e - log2(c) +
    log2(1 + r).
    """
    m, e = np.frexp(x)
    low_half = m < 0.7071067811865476
    m, e = np.where(low_half, m + m, m), e - low_half
    at = np.rint(m * 256.0).astype(np.int64) - LOG_FIRST
    inverse, table_high, table_low = log2_table()
    c = inverse[at]
    top = (np.asarray(m).view(np.int64) & -(1 << 27)).view(np.float64)
    rh, rl = two_sum(top * c - 1.0, (m - top) * c)
    square, square_low = two_product(rh, rh)
    square_low = square_low + 2.0 * rh * rl
    tail = 1 / 3 - rh * (1 / 4 - rh * (1 / 5 - rh * (1 / 6 - rh * (1 / 7 - rh * (1 / 8 - rh * (1 / 9 - rh * (1 / 10)))))))
    h, low = two_sum(rh, -0.5 * square)
    low = low + (rl - 0.5 * square_low + square * rh * tail)
    h, low = fast_two_sum(h, low)
    p, p_low = two_product(h, _INVERSE_LN2[0])
    p_low = p_low + (h * _INVERSE_LN2[1] + low * _INVERSE_LN2[0])
    t, t_low = two_sum(e.astype(np.float64), table_high[at])
    v, v_low = two_sum(t, p)
    return fast_two_sum(v, v_low + (t_low + table_low[at] + p_low))


def _fill_log2_special_cases(x: Array, result: Any) -> Array:
    """Return `result` with log2 of 0, infinity, negative numbers and NaN put in."""
    out: Array = np.where(x == 0, -np.inf, np.where(x > 0, np.where(np.isinf(x), np.inf, result), np.nan))
    return out


def log2(x: Array) -> Array:
    """Return log2(x): -inf at 0, NaN for negative numbers."""
    good = (x > 0) & np.isfinite(x)
    if np.count_nonzero(good) == x.size:
        return np.asarray(_log2_as_pair(x)[0])
    return _fill_log2_special_cases(x, _log2_as_pair(np.where(good, x, 1.0))[0])


def pow_(x: Array, y: Array) -> Array:
    """Return x^y by IEEE 754 pow (R18).

    It is 2^(y log2|x|), then the sign of an odd power and the cases in which a limit decides.
    """
    x, y = np.broadcast_arrays(x, y)
    size = np.abs(x)
    good = (size > 0) & np.isfinite(size)
    h, low = _log2_as_pair(np.where(good, size, 1.0))
    clipped = np.clip(y, -(2.0**64), 2.0**64)
    p, p_low = two_product(clipped, h)
    p, p_low = fast_two_sum(p, p_low + clipped * low)
    limit = np.where((size < 1) == (y < 0), _FAR, -_FAR)
    far = ~good | (np.abs(p) > _FAR)
    p, p_low = np.where(far, np.where(good, np.copysign(_FAR, p), limit), p), np.where(far, 0.0, p_low)
    out = _exp2_of_pair(np.asarray(np.where(np.isnan(y), 0.0, p)), p_low)
    integral = np.rint(y) == y
    odd = integral & (np.abs(y) < 2.0**53) & (np.asarray(np.clip(y, -(2.0**53), 2.0**53)).astype(np.int64) & 1 == 1)
    out = np.where(np.signbit(x) & odd, -out, out)
    out = np.where((x < 0) & np.isfinite(x) & ~integral, np.nan, out)
    out = np.where(np.isnan(x) | np.isnan(y), np.nan, out)
    return np.asarray(np.where((y == 0) | (x == 1), 1.0, out))
