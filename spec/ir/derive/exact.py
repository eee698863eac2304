"""Rounding of exact values to float dtypes: down, up and to nearest."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from uops.spec.ir.dtypes import DType


def _ulp(d: DType, x: Fraction) -> Fraction:
    """Return the spacing of the values of `d` at |x|, x not 0; below the normal range that of the subnormals."""
    n, m = abs(x.numerator), x.denominator
    e = n.bit_length() - m.bit_length()
    if Fraction(n, m) < Fraction(2) ** e:
        e -= 1
    return Fraction(2) ** (max(e, d.min_exponent) - d.man_bits)


@functools.cache
def _float_format(d: DType) -> tuple[float, int, int]:
    """Return the largest finite value, the bits of the significand and the least exponent (of frexp) of a normal value."""
    return d.max_finite, d.man_bits + 1, d.min_exponent + 1


def _is_zero_or_normal_value(d: DType, x: float) -> bool:
    """Return True if a float is 0 or a normal value of `d`; False says nothing about subnormals."""
    top, precision, least = _float_format(d)
    if not -top <= x <= top:
        return False
    m, e = math.frexp(x)
    return x == 0 or (e >= least and math.ldexp(m, precision).is_integer())


def round_down(d: DType, x: float | Fraction) -> float:
    """Return the greatest value of `d` at most x.

    Below the finite range that is -inf, or the least finite value of a dtype without infinities.
    """
    if isinstance(x, float):
        if math.isinf(x):
            return min(max(x, d.min), d.max)
        if _is_zero_or_normal_value(d, x):
            return x + 0.0
    x = Fraction(x)
    if x == 0:
        return 0.0
    top = _float_format(d)[0]
    if x < -Fraction(top):
        return float(d.min)
    if x >= Fraction(top):
        return top
    q = _ulp(d, x)
    return float(x // q * q)


def round_up(d: DType, x: float | Fraction) -> float:
    """Return the least value of `d` at least x."""
    return -round_down(d, -x)


def round_nearest(d: DType, x: float | Fraction) -> float:
    """Return `x` rounded once to `d`, to nearest even (R15, Cast).

    Overflow gives an infinity, or NaN in a dtype that has none. The sign of a zero float is kept.
    """
    if isinstance(x, float) and (x != x or _is_zero_or_normal_value(d, x)):
        return x
    if isinstance(x, float) and math.isinf(x):
        return x if d.has_inf else math.nan
    exact = Fraction(x)
    if exact == 0:
        return 0.0
    q = _ulp(d, exact)
    r = round(exact / q) * q
    sign = 1.0 if exact > 0 else -1.0
    if abs(r) > Fraction(_float_format(d)[0]):
        return sign * math.inf if d.has_inf else math.nan
    return math.copysign(float(r), sign)
