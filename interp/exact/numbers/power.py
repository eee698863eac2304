"""Pow as IEEE 754 defines it, correctly rounded (R18)."""

from __future__ import annotations

from math import isqrt

from uops.interp.exact.answers import Answer, hull, near, settled
from uops.interp.exact.numbers.formats import FINITE, INFINITE, NAN, Format, Real
from uops.interp.exact.numbers.transcendental import (
    Enclosure,
    correctly_rounded,
    exp2_fixed,
    log2,
    log2_enclosure,
    scaled,
    through_exp2,
)


def pow_(fmt: Format, core: bool, a: int, b: int) -> Answer:
    """Strict: special cases exactly, the rest within 2 ulp. Core: also all that Exp2(Log2(a) * b) can give."""
    right = _strict(fmt, core, fmt.decode(a), fmt.decode(b))
    return hull(right, through_exp2(fmt, log2(fmt, True, a), b)) if core else right


def _strict(fmt: Format, core: bool, x: Real, y: Real) -> Answer:
    special = _special(fmt, x, y)
    if special is not None:
        return settled(fmt, special)
    sign = x.sign & _parity(y)
    ulps = 4 if core else 2
    if _beyond(fmt, x, y):
        if _grows(x, y):
            return settled(fmt, fmt.infinity(sign))
        return near(fmt, sign, 0, fmt.unit, ulps)
    known = _exact(x.m, x.e, -y.m if y.sign else y.m, y.e, fmt.precision + 2)
    if known is not None:
        r, q = fmt.grid(*known)
    else:
        r, q = correctly_rounded(fmt, lambda bits: _enclosure(x, y, bits))
    return near(fmt, sign, r, q, ulps)


def _special(fmt: Format, x: Real, y: Real) -> int | None:
    """The cases that IEEE 754 lists, in its terms; None where x**y is a finite real power."""
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
        sign = x.sign & _parity(y)
        grows = (x.kind == INFINITE) != bool(y.sign)
        return fmt.infinity(sign) if grows else fmt.zero(sign)
    return fmt.nan if x.sign and not _integral(y) else None


def _at_least_one(x: Real) -> bool:
    return x.kind == INFINITE or (x.m.bit_length() + x.e >= 1 and x.m != 0)


def _is_one(x: Real) -> bool:
    return x.kind == FINITE and x.m.bit_length() + x.e == 1 and not x.m & (x.m - 1)


def _integral(y: Real) -> bool:
    return y.e >= 0 or not y.m & ((1 << -y.e) - 1)


def _parity(y: Real) -> int:
    """1 if y is an odd integer."""
    return scaled(y.m, y.e, 0) & 1 if y.e <= 0 and _integral(y) else 0


def _grows(x: Real, y: Real) -> bool:
    return _at_least_one(x) != bool(y.sign)


def _beyond(fmt: Format, x: Real, y: Real) -> bool:
    """Whether |y log2 x| is so large that the result overflows or underflows whatever its digits; x is not +-1."""
    _, (low, _, e) = log2_enclosure(x.m, x.e, 8) if x.m & (x.m - 1) else (0, (abs(x.m.bit_length() - 1 + x.e), 0, 0))
    product = low * y.m
    return product > 0 and product.bit_length() + e + y.e > fmt.dtype.exp_bits + 6


def _exact(m: int, e: int, y: int, ye: int, most: int) -> tuple[int, int] | None:
    """(m * 2**e) ** (y * 2**ye) as r * 2**q, where that holds with r of at most `most` bits; else None."""
    low = (m & -m).bit_length() - 1
    m, e = m >> low, e + low
    low = (y & -y).bit_length() - 1
    y, ye = y >> low, ye + low
    while ye < 0:  # an even root: rational only of a square
        r = isqrt(m)
        if r * r != m or e & 1:
            return None
        m, e, ye = r, e >> 1, ye + 1
    y <<= ye
    if m == 1:
        return 1, e * y
    if y < 0 or (m.bit_length() - 1) * y >= most:
        return None
    return m**y, e * y


def _enclosure(x: Real, y: Real, bits: int) -> Enclosure:
    """|x| ** y with about `bits` correct bits."""
    if x.m & (x.m - 1):
        sign, (low, high, e) = log2_enclosure(x.m, x.e, bits + 24)
    else:
        k = x.m.bit_length() - 1 + x.e
        sign, low, high, e = int(k < 0), abs(k), abs(k), 0
    if sign != y.sign:
        low, high = -high, -low
    t, end = scaled(low * y.m, e + y.e, bits), scaled(high * y.m, e + y.e, bits) + 1
    value, error, k = exp2_fixed(t, bits)
    return value - error, value + error + 2 * (end - t) + 2, k - bits
