"""Arithmetic on small floats through float32 or float64, with one rounding (R16).

Add, Sub, Mul, Div, Recip, Sqrt through float32: rounding to float32 and again to p bits equals rounding once when float32's 24
bits are at least 2p + 2 (Figueroa 1995): float16 has p = 11, bfloat16 8, fp8 4 and 3. Where the small result is subnormal it has
fewer bits than p and the same bound covers it as long as float32 still has its 24, which holds for float16 and fp8. bfloat16
shares float32's exponents, so there float32 rounds to a multiple of 2^-149 and bfloat16 to one of 2^-133; a wrong second rounding
needs an exact result within 2^-150 of an odd multiple h of 2^-134, but not equal to it. A sum is a multiple of 2^-133. A product
of two 8-bit significands that is at least 2^-134 is a multiple of 2^-149. For a quotient a/b near h with a = A * 2^i, b = B *
2^j, A and B below 2^8, the distance |a - h*b| / b is a multiple of 2^min(i, j - 134) over b: at least 2^-142 if j - 134 <= i, and
else 2^(i - j) / B with 2^(i - j) about h*B/A > 2^-142, hence at least 2^-141 and over B more than 2^-149. A square root of a
bfloat16 is never subnormal. Results below 2^-134 round to zero either way.

Mulacc through float64: the product is exact (22 bits), the sum is rounded to odd, so that narrowing it rounds as from the exact
value (53 >= p + 2). Sums of fp8 that do not overflow span at most 48 bits and are exact.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.compiler.decompose.build import E, where
from uops.compiler.decompose.doubles import two_sum
from uops.compiler.decompose.elementary import decompose_wide
from uops.spec import dtypes as dt
from uops.spec.node import UOp
from uops.spec.ops import COMPARE, Op


def _through32(u: UOp) -> UOp:
    wide = decompose_wide(UOp(u.op, tuple(E.of(s).cast(dt.float32).u for s in u.src), u.arg))
    return E(wide, dt.float32, u.shape).cast(u.dtype).u


def _compare32(u: UOp) -> UOp:
    return UOp(u.op, tuple(E.of(s).cast(dt.float32).u for s in u.src), u.arg)


def _negate(u: UOp) -> UOp:
    x = E.of(u.src[0])
    return (x.bits() ^ (1 << (x.dtype.bits - 1))).bitcast(x.dtype).u


def _mulacc(u: UOp) -> UOp:
    a, b, c = (E.of(s).cast(dt.float64) for s in u.src)
    product = a * b
    total = product + c if u.dtype in (dt.fp8e4m3, dt.fp8e5m2) else add_to_odd(product, c)
    return total.cast(u.dtype).u


def add_to_odd(a: E, b: E) -> E:
    """a + b in float64, an inexact sum rounded to the neighbour with an odd significand; inf and NaN as Add gives them."""
    total, error = two_sum(a, b)
    bits = total.bits()
    inexact = (error < 0.0) | (error > 0.0)  # false for NaN, the error beside an infinite sum
    even = (bits & 1).eq(0)
    away = (error.bits() ^ bits) >> 63  # 1 where the exact sum is nearer to zero
    return where(inexact & even, bits + 1 - (away << 1), bits).bitcast(dt.float64)


_THROUGH = (
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.RECIP, Op.SQRT, Op.MAX, Op.MIN, Op.TRUNC, Op.EXP2, Op.LOG2, Op.SIN, Op.POW,
)  # fmt: skip
#: The elementwise ops on small floats; each rule gives the same value with Casts around an operation on a wider float.
SMALL_RULES: dict[Op, Callable[[UOp], UOp]] = {
    **dict.fromkeys(_THROUGH, _through32),
    **dict.fromkeys(COMPARE, _compare32),
    Op.NEG: _negate,
    Op.MULACC: _mulacc,
}
