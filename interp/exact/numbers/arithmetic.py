"""Float arithmetic with one rounding, in integers: the functions behind the float columns of `elementwise` (R11, R16, R20, R21).

Each function takes (format, core, *bit patterns) and gives the allowed answer.
"""

from __future__ import annotations

from math import isqrt

from uops.interp.exact.answers import Answer, any_nan, either, hull, settled
from uops.interp.exact.numbers.formats import FINITE, INFINITE, NAN, Format, Real, sticky


def plus(fmt: Format, x: Real, y: Real) -> int:
    """Bits of x + y, rounded once; NaN for inf - inf."""
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


def product(x: Real, y: Real) -> Real:
    """x * y, not rounded."""
    sign = x.sign ^ y.sign
    if x.kind or y.kind:
        zero = (x.kind == FINITE and not x.m) or (y.kind == FINITE and not y.m)
        if zero or x.kind == NAN or y.kind == NAN:
            return Real(NAN, 0, 0, 0)
        return Real(INFINITE, sign, 0, 0)
    return Real(FINITE, sign, x.m * y.m, x.e + y.e)


def rounded(fmt: Format, x: Real) -> int:
    """Bits of an exact number, rounded once (R15)."""
    if x.kind == FINITE:
        return fmt.encode(x.sign, x.m, x.e)
    return fmt.infinity(x.sign) if x.kind == INFINITE else fmt.nan


def quotient(fmt: Format, x: Real, y: Real) -> int:
    """Bits of x / y, rounded once."""
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
    m, e = sticky(x.m, y.m, fmt.precision + 3)
    return fmt.encode(sign, m, e + x.e - y.e)


def root(fmt: Format, x: Real) -> int:
    """Bits of the square root of x, rounded once; the root of -0 is -0."""
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


def add(fmt: Format, core: bool, a: int, b: int) -> Answer:
    return settled(fmt, plus(fmt, fmt.decode(a), fmt.decode(b)))


def sub(fmt: Format, core: bool, a: int, b: int) -> Answer:
    return settled(fmt, plus(fmt, fmt.decode(a), fmt.decode(b ^ fmt.sign_bit)))


def mul(fmt: Format, core: bool, a: int, b: int) -> Answer:
    return settled(fmt, rounded(fmt, product(fmt.decode(a), fmt.decode(b))))


def recip(fmt: Format, core: bool, a: int) -> Answer:
    return settled(fmt, reciprocal(fmt, a))


def reciprocal(fmt: Format, a: int) -> int:
    return quotient(fmt, Real(FINITE, 0, 1, 0), fmt.decode(a))


def div(fmt: Format, core: bool, a: int, b: int) -> Answer:
    """Correctly rounded; core also allows all between that and Mul(a, Recip(b)), rounded twice (R16)."""
    right = settled(fmt, quotient(fmt, fmt.decode(a), fmt.decode(b)))
    return hull_unless_same(right, mul(fmt, core, a, reciprocal(fmt, b))) if core else right


def hull_unless_same(a: Answer, b: Answer) -> Answer:
    """`a` itself where both are the same set, so that an exact answer stays exact."""
    return a if a == b else hull(a, b)


def sqrt(fmt: Format, core: bool, a: int) -> Answer:
    return settled(fmt, root(fmt, fmt.decode(a)))


def mulacc(fmt: Format, core: bool, a: int, b: int, c: int) -> Answer:
    """a * b + c rounded once; core also rounds the product first (the row's decomposition)."""
    p, z = product(fmt.decode(a), fmt.decode(b)), fmt.decode(c)
    fused = plus(fmt, p, z)
    return either(fmt.dtype, fused, plus(fmt, fmt.decode(rounded(fmt, p)), z)) if core else settled(fmt, fused)


def neg(fmt: Format, core: bool, a: int) -> Answer:
    """The sign bit flipped (R21)."""
    return settled(fmt, a ^ fmt.sign_bit)


def trunc(fmt: Format, core: bool, a: int) -> Answer:
    """Rounded toward zero; the sign stays, of a zero too."""
    x = fmt.decode(a)
    if x.kind or x.e >= 0:
        return settled(fmt, a)
    return Answer(fmt.dtype, fmt.encode(x.sign, x.m >> -x.e, 0))


def maximum(fmt: Format, core: bool, a: int, b: int) -> Answer:
    return _extreme(fmt, core, a, b, fmt.key(a) >= fmt.key(b))


def minimum(fmt: Format, core: bool, a: int, b: int) -> Answer:
    return _extreme(fmt, core, a, b, fmt.key(a) <= fmt.key(b))


def _extreme(fmt: Format, core: bool, a: int, b: int, first: bool) -> Answer:
    """NaN if either is (core: or either operand); of two zeros, either (R11)."""
    if fmt.is_nan(a) or fmt.is_nan(b):
        return either(fmt.dtype, fmt.nan, a, b) if core else any_nan(fmt)
    if not fmt.key(a) and not fmt.key(b):
        return Answer(fmt.dtype, a & b, (a | b,)) if a != b else Answer(fmt.dtype, a)
    return Answer(fmt.dtype, a if first else b)
