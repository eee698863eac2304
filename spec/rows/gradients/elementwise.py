"""Gradients of elementwise ops. Operands may be broadcast; each cotangent is summed to its operand's shape."""

from __future__ import annotations

import math

from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import TO_SHAPE, Op
from uops.spec.rows.gradients.base import Gradient, make_gradient_summing_broadcasts


def _split_between_operands(u: UOp, g: UOp) -> tuple[UOp, UOp]:
    """Give `g` to the greater operand, and half of it to each where neither is greater (R78, gradients)."""
    left_wins, right_wins, half = b.lt(u.rhs, u.lhs), b.lt(u.lhs, u.rhs), b.mul(g, 0.5)
    return b.where(left_wins, g, b.where(right_wins, 0.0, half)), b.where(right_wins, g, b.where(left_wins, 0.0, half))


def _cosine(x: UOp) -> UOp:
    """Build 1 - 2 sin(x/2)^2, whose argument is exact; the error is absolute, a few units of the last place of 1."""
    s = b.sin(b.mul(x, 0.5))
    return b.sub(1.0, b.mul(b.mul(s, s), 2.0))


def _differentiate_power(u: UOp, g: UOp) -> tuple[UOp, UOp]:
    """Differentiate a^b: constant in a where b is 0, and in b where the power is 0, or a and b both are (R184)."""
    a, e = u.lhs, u.rhs
    by_base = b.mul(g, b.mul(e, b.pow_(a, b.sub(e, 1.0))))
    by_exponent = b.mul(g, b.mul(u, b.mul(b.log2(a), math.log(2))))
    is_constant = b.or_(b.eq(u, 0.0), b.and_(b.eq(a, 0.0), b.eq(e, 0.0)))
    return b.where(b.eq(e, 0.0), 0.0, by_base), b.where(is_constant, 0.0, by_exponent)


def _scale(g: UOp, factor: UOp) -> UOp:
    """Return `g * factor`: the factor itself where `g` is 1 everywhere, as at the beginning of a backward pass."""
    ones = g
    while ones.op in TO_SHAPE:
        ones = ones.operand
    if ones.op is Op.CONST and ones.arg.value == 1 and len(factor.shape) == len(g.shape):
        return b.expand(factor, g.shape)
    return b.mul(g, factor)


# fmt: off
GRADIENTS: dict[Op, Gradient] = {
    Op.ADD:    make_gradient_summing_broadcasts("g; g", lambda u, g: (g, g)),
    Op.SUB:    make_gradient_summing_broadcasts("g; -g", lambda u, g: (g, b.neg(g))),
    Op.NEG:    make_gradient_summing_broadcasts("-g", lambda u, g: (b.neg(g),)),
    Op.MUL:    make_gradient_summing_broadcasts("g * b; g * a", lambda u, g: (_scale(g, u.rhs), _scale(g, u.lhs))),
    Op.MULACC: make_gradient_summing_broadcasts("g * b; g * a; g", lambda u, g: (_scale(g, u.rhs), _scale(g, u.lhs), g)),
    Op.DIV:    make_gradient_summing_broadcasts("g / b; -(g / b) * y",
                                                   lambda u, g: (b.div(g, u.rhs), b.neg(b.mul(b.div(g, u.rhs), u)))),
    Op.RECIP:  make_gradient_summing_broadcasts("-g * y * y", lambda u, g: (b.neg(b.mul(g, b.mul(u, u))),)),
    Op.MAX:    make_gradient_summing_broadcasts("g to the greater, half of g to each if neither is (R78)",
                                                   _split_between_operands),
    Op.WHERE:  make_gradient_summing_broadcasts("none; g where p, else 0; 0 where p, else g",
                                                   lambda u, g: (None, b.where(u.condition, g, 0.0), b.where(u.condition, 0.0, g))),
    Op.EXP2:   make_gradient_summing_broadcasts("g * y * ln 2", lambda u, g: (b.mul(g, b.mul(u, math.log(2))),)),
    Op.LOG2:   make_gradient_summing_broadcasts("g / (a * ln 2)", lambda u, g: (b.div(g, b.mul(u.operand, math.log(2))),)),
    Op.SIN:    make_gradient_summing_broadcasts("g * cos a", lambda u, g: (b.mul(g, _cosine(u.operand)),)),
    Op.SQRT:   make_gradient_summing_broadcasts("g / (2 * y)", lambda u, g: (b.div(g, b.mul(u, 2.0)),)),
    Op.POW:    make_gradient_summing_broadcasts("g * b * a^(b - 1), 0 if b = 0; g * y * ln a, 0 if y = 0 or a = b = 0 (R184)",
                                                   _differentiate_power),
    Op.CAST:   make_gradient_summing_broadcasts("g converted back, between floats", lambda u, g: (b.cast(g, u.operand.dtype),)),
}
# fmt: on
