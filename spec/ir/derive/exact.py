"""Directed rounding of an exact value to a float dtype, for outward-rounded bounds."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from uops.spec.ir.dtypes import DType


def _quantum(d: DType, x: Fraction) -> Fraction:
    """Spacing of `d` at |x|, x not 0: subnormal spacing below the normal range."""
    n, m = abs(x.numerator), x.denominator
    e = n.bit_length() - m.bit_length()
    if Fraction(n, m) < Fraction(2) ** e:
        e -= 1
    return Fraction(2) ** (max(e, 1 - d.bias) - d.man_bits)


@functools.cache
def _format(d: DType) -> tuple[float, int, int]:
    """Largest finite value, bits of significand, least exponent (of frexp) of a normal value."""
    return d.max_finite, d.man_bits + 1, 2 - d.bias


def _is_value(d: DType, x: float) -> bool:
    """Whether a float is certainly a value of `d`: 0, or normal with few enough bits."""
    top, precision, least = _format(d)
    if not -top <= x <= top:
        return False
    m, e = math.frexp(x)
    return x == 0 or (e >= least and math.ldexp(m, precision).is_integer())


def round_down(d: DType, x: float | Fraction) -> float:
    """Greatest value of `d` at most x; -inf (or the least finite value, without infinities) below the finite range."""
    if isinstance(x, float):
        if math.isinf(x):
            return max(x, d.min)
        if _is_value(d, x):
            return x + 0.0
    x = Fraction(x)
    if x == 0:
        return 0.0
    top = _format(d)[0]
    if x < -Fraction(top):
        return float(d.min)
    if x >= Fraction(top):
        return top
    q = _quantum(d, x)
    return float(x // q * q)


def round_up(d: DType, x: float | Fraction) -> float:
    """Least value of `d` at least x."""
    return -round_down(d, -x)


def round_nearest(d: DType, x: float | Fraction) -> float:
    """`x` rounded once to `d`, to nearest even (R15): overflow gives an infinity, in fp8e4m3 NaN; the sign of zero is kept."""
    if isinstance(x, float) and (x != x or _is_value(d, x)):
        return x
    if isinstance(x, float) and math.isinf(x):
        return x if d.has_inf else math.nan
    exact = Fraction(x)
    if exact == 0:
        return 0.0
    q = _quantum(d, exact)
    r = round(exact / q) * q
    sign = 1.0 if exact > 0 else -1.0
    if abs(r) > Fraction(_format(d)[0]):
        return sign * math.inf if d.has_inf else math.nan
    return math.copysign(float(r), sign)
