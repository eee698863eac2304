"""Machine integers of every width, and index: laws of the ring modulo 2^n (R05) and of the lattice of bits, beyond those of
`integers`. A constant that two others make is the folder's (`Evaluation`).
"""

from __future__ import annotations

from uops.compiler.rewrite.pattern import ALL_INTS, MACHINE_INTS, Pattern, cst, lift, maximum, operation, var
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules.folding import Evaluation
from uops.spec.ir.ops import Op

x, y = var("x", ALL_INTS), var("y", ALL_INTS)
u, v = var("u", MACHINE_INTS), var("v", MACHINE_INTS)
c, d, k = (cst(n, MACHINE_INTS) for n in "cdk")
zero = lift(0)


def _joined(name: str, op: Op, inner: Op | None = None) -> Rule:
    """(u op c) op d is u op (c op d)."""
    join = operation(inner or op, c, d)
    return Rule(name, operation(op, operation(op, u, c), d), operation(op, u, k), witness=Evaluation(join))


_NEGATED: Pattern = -y

RULES = (
    # Constants meet.
    _joined("add-constants", Op.ADD),
    _joined("mul-constants", Op.MUL),
    _joined("and-constants", Op.AND),
    _joined("or-constants", Op.OR),
    _joined("xor-constants", Op.XOR),
    _joined("max-constants", Op.MAX),
    _joined("sub-constants", Op.SUB, Op.ADD),
    # Signs.
    Rule("zero-sub", operation(Op.SUB, 0, x), -x),
    Rule("add-neg", x + _NEGATED, x - y),
    Rule("neg-add", _NEGATED + x, x - y),
    Rule("sub-neg", x - _NEGATED, x + y),
    Rule("neg-sub", -(x - y), y - x),
    Rule("mul-minus-one", u * -1, -u),
    # What is added and taken away again.
    Rule("add-sub", (u + v) - v, u),
    Rule("add-sub-first", (u + v) - u, v),
    Rule("sub-add", (u - v) + v, u),
    Rule("sub-sub", u - (u - v), v),
    # Division: 0 by anything, anything by -1 and by itself (R03, R04).
    Rule("zero-idiv", operation(Op.IDIV, 0, x), zero),
    Rule("zero-imod", operation(Op.MOD, 0, x), zero),
    Rule("imod-self", x % x, zero),
    Rule("idiv-minus-one", u // -1, -u),
    Rule("imod-minus-one", u % -1, zero),
    # Absorption, in the lattice of bits and in that of order.
    Rule("and-or", x & (x | y), x),
    Rule("or-and", x | (x & y), x),
    Rule("and-again", (x & y) & y, x & y),
    Rule("or-again", (x | y) | y, x | y),
    Rule("xor-again", (x ^ y) ^ y, x),
    Rule("max-again", maximum(maximum(x, y), y), maximum(x, y)),
    Rule("zero-shl", operation(Op.SHL, 0, u), zero),
    Rule("zero-shr", operation(Op.SHR, 0, u), zero),
)
