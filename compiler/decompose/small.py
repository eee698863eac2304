"""Arithmetic on small floats through float32 or float64, with one rounding (R16).

Add, Sub, Mul, Div, Recip and Sqrt go through float32. Rounding to float32 and again to p bits equals rounding once if float32's
24 bits are at least 2p + 2 (Figueroa 1995): float16 has p = 11, bfloat16 8, fp8 4 and 3. A subnormal result has fewer bits than
p. The same bound covers it as long as float32 still has its 24, which holds for float16 and fp8.

bfloat16 shares float32's exponents. There float32 rounds to a multiple of 2^-149 and bfloat16 to one of 2^-133. A wrong second
rounding needs an exact result within 2^-150 of an odd multiple h of 2^-134, but not equal to it.

- A sum is a multiple of 2^-133.
- A product of two 8-bit significands that is at least 2^-134 is a multiple of 2^-149.
- Let a/b be a quotient near h, a = A * 2^i, b = B * 2^j, A and B below 2^8. The distance |a - h*b| / b is a multiple of 2^min(i,
  j - 134) over b. It is at least 2^-142 if j - 134 <= i. Else it is 2^(i - j) / B with 2^(i - j) about h*B/A > 2^-142, so at
  least 2^-141 and over B more than 2^-149.
- A square root of a bfloat16 is never subnormal.

Results below 2^-134 round to zero either way.

Mulacc goes through float64. The product is exact (22 bits), and the sum is rounded to odd, so that narrowing rounds it as the
exact value (53 >= p + 2). Sums of fp8 that do not overflow span at most 48 bits and are exact.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.compiler.decompose.build import BITS, Expr, where
from uops.compiler.decompose.casts import lower_cast_expr
from uops.compiler.decompose.doubles import two_sum
from uops.compiler.decompose.elementary import WIDE_RULES
from uops.compiler.decompose.narrow import SMALL
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, BITWISE, COMPARE, DIVISION, SHIFT, Op
from uops.spec.ir.record import dataclass


@dataclass(frozen=True, slots=True)
class SmallFloatNode:
    """A node with small float operands, and its operands as the lowered graph holds them: as bits, or as floats if native."""

    u: UOp
    lowered_sources: tuple[UOp, ...]
    native: frozenset[DType]

    def operands(self, d: DType) -> list[Expr]:
        """Return the values of the operands in float32 or float64, exactly."""
        pairs = zip(self.lowered_sources, self.u.src, strict=True)
        return [lower_cast_expr(Expr.of(lowered), s.dtype, d, self.native) for lowered, s in pairs]

    def result(self, x: Expr) -> Expr:
        """Return a float32 or float64 rounded to the node's dtype."""
        return lower_cast_expr(x, x.dtype, self.u.dtype, self.native)


def _compute_in_float32_and_round(node: SmallFloatNode) -> Expr:
    operands = node.operands(dt.float32)
    rule = WIDE_RULES.get(node.u.op)
    if rule is not None:
        return node.result(rule(operands, node.u.src))
    return node.result(Expr(UOp(node.u.op, tuple(x.u for x in operands)), dt.float32, operands[0].shape))


def _compare_in_float32(node: SmallFloatNode) -> Expr:
    operands = node.operands(dt.float32)
    return Expr(UOp(node.u.op, tuple(x.u for x in operands)), dt.bool_, operands[0].shape)


def _flip_sign_bit(node: SmallFloatNode) -> Expr:
    d = node.u.dtype
    x = Expr.of(*node.lowered_sources)
    return (x.bitcast(BITS[d]) ^ (1 << (d.bits - 1))).bitcast(x.dtype)


def _mulacc_in_float64(node: SmallFloatNode) -> Expr:
    a, b, c = node.operands(dt.float64)
    product = a * b
    return node.result(product + c if _has_few_bits(node.u.dtype) else add_round_to_odd(product, c))


def _has_few_bits(d: DType) -> bool:
    """Return True if a * b + c that does not overflow spans no more bits than float64 has: those of 2^-2k to 2^n."""
    k, n = d.man_bits - d.min_exponent, d.bias + 1 + d.finite_only
    return 2 * k + n <= dt.float64.man_bits + 1


def add_round_to_odd(a: Expr, b: Expr) -> Expr:
    """Return a + b in float64, an inexact sum rounded to the neighbour with an odd significand.

    inf and NaN are as Add gives them.
    """
    total, error = two_sum(a, b)
    bits = total.bits()
    inexact = (error < 0.0) | (error > 0.0)  # false for NaN, the error beside an infinite sum
    even = (bits & 1).eq(0)
    toward_zero = (error.bits() ^ bits) >> 63
    return where(inexact & even, bits + 1 - (toward_zero << 1), bits).bitcast(dt.float64)


#: Ops that are computed in float32 and rounded once more.
_FLOAT32_OPS = (
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.RECIP, Op.SQRT, Op.MAX, Op.MIN, Op.TRUNC, Op.EXP2, Op.LOG2, Op.SIN, Op.POW,
)  # fmt: skip
#: op -> its lowering on small floats, by way of a wider float
SMALL_RULES: dict[Op, Callable[[SmallFloatNode], Expr]] = {
    **dict.fromkeys(_FLOAT32_OPS, _compute_in_float32_and_round),
    **dict.fromkeys(COMPARE, _compare_in_float32),
    Op.NEG: _flip_sign_bit,
    Op.MULACC: _mulacc_in_float64,
}


#: Elementwise ops that no rule here lowers: they move bits, are converted by `casts`, or take no floats.
_WITHOUT_SMALL_RULE = BITWISE | SHIFT | DIVISION | {Op.WHERE, Op.CAST, Op.NOT, Op.THREEFRY}
assert SMALL_RULES.keys() | _WITHOUT_SMALL_RULE == ALU, (
    f"compiler/decompose/small.py: lower {ALU - SMALL_RULES.keys() - _WITHOUT_SMALL_RULE} on small floats"
)


def is_small(u: UOp) -> bool:
    """Return True if `u` is one of `SMALL_RULES` on a small float."""
    return u.op in SMALL_RULES and u.src[-1].dtype in SMALL  # the last operand
