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

from uops.compiler.decompose.build import BITS, E, where
from uops.compiler.decompose.casts import cast
from uops.compiler.decompose.doubles import two_sum
from uops.compiler.decompose.elementary import WIDE_RULES
from uops.compiler.decompose.narrow import SMALL
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import COMPARE, Op
from uops.spec.ir.record import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """A node with small float operands, and its operands as the lowered graph holds them: bits, or themselves where native."""

    u: UOp
    src: tuple[UOp, ...]
    native: frozenset[DType]

    def operands(self, d: DType) -> list[E]:
        """The operands' values in float32 or float64, exactly."""
        return [cast(E.of(v), s.dtype, d, self.native) for v, s in zip(self.src, self.u.src, strict=True)]

    def result(self, x: E) -> E:
        """A float32 or float64 rounded to the node's dtype."""
        return cast(x, x.dtype, self.u.dtype, self.native)


def _through32(at: Site) -> E:
    operands = at.operands(dt.float32)
    rule = WIDE_RULES.get(at.u.op)
    x = operands[0]
    return at.result(rule(operands, at.u.src) if rule else E(UOp(at.u.op, tuple(o.u for o in operands)), x.dtype, x.shape))


def _compare32(at: Site) -> E:
    operands = at.operands(dt.float32)
    return E(UOp(at.u.op, tuple(o.u for o in operands)), dt.bool_, operands[0].shape)


def _negate(at: Site) -> E:
    d = at.u.dtype
    held = E.of(at.src[0])
    return (held.bitcast(BITS[d]) ^ (1 << (d.bits - 1))).bitcast(held.dtype)


def _mulacc(at: Site) -> E:
    a, b, c = at.operands(dt.float64)
    product = a * b
    return at.result(product + c if at.u.dtype in (dt.fp8e4m3, dt.fp8e5m2) else add_to_odd(product, c))


def add_to_odd(a: E, b: E) -> E:
    """a + b in float64, an inexact sum rounded to the neighbour with an odd significand; inf and NaN as Add gives them."""
    total, error = two_sum(a, b)
    bits = total.bits()
    inexact = (error < 0.0) | (error > 0.0)  # false for NaN, the error beside an infinite sum
    even = (bits & 1).eq(0)
    toward_zero = (error.bits() ^ bits) >> 63
    return where(inexact & even, bits + 1 - (toward_zero << 1), bits).bitcast(dt.float64)


_THROUGH = (
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.RECIP, Op.SQRT, Op.MAX, Op.MIN, Op.TRUNC, Op.EXP2, Op.LOG2, Op.SIN, Op.POW,
)  # fmt: skip
#: The arithmetic ops and comparisons on small floats, by way of a wider float.
SMALL_RULES: dict[Op, Callable[[Site], E]] = {
    **dict.fromkeys(_THROUGH, _through32),
    **dict.fromkeys(COMPARE, _compare32),
    Op.NEG: _negate,
    Op.MULACC: _mulacc,
}


def is_small(u: UOp) -> bool:
    """Whether `u` is one of `SMALL_RULES` on a small float."""
    return u.op in SMALL_RULES and u.src[-1].dtype in SMALL
