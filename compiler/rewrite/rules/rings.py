"""Further rules of machine integers and index: laws of the ring modulo 2^n (R05, integer overflow) and of the lattice of bits.

A constant that combines two others is computed by the folder (`EvaluationWitness`).
"""

from __future__ import annotations

from uops.compiler.rewrite.pattern import ALL_INTS, MACHINE_INTS, Pattern, as_pattern, cst, maximum, operation, var
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.witness import EvaluationWitness
from uops.spec.ir.ops import Op

x, y = var("x", ALL_INTS), var("y", ALL_INTS)
u, v = var("u", MACHINE_INTS), var("v", MACHINE_INTS)
c, d, k = (cst(n, MACHINE_INTS) for n in "cdk")
zero = as_pattern(0)


def _merge_constants_rule(name: str, op: Op, inner: Op | None = None) -> Rule:
    """Return the rule (u op c) op d -> u op k with k = c op d, or c inner d."""
    join = operation(inner or op, c, d)
    return Rule(name, operation(op, operation(op, u, c), d), operation(op, u, k), witness=EvaluationWitness(join))


_NEGATED: Pattern = -y

RULES = (
    # Constants are merged.
    _merge_constants_rule("add-constants", Op.ADD),
    _merge_constants_rule("mul-constants", Op.MUL),
    _merge_constants_rule("and-constants", Op.AND),
    _merge_constants_rule("or-constants", Op.OR),
    _merge_constants_rule("xor-constants", Op.XOR),
    _merge_constants_rule("max-constants", Op.MAX),
    _merge_constants_rule("sub-constants", Op.SUB, Op.ADD),
    # Signs.
    Rule("zero-sub", operation(Op.SUB, 0, x), -x),
    Rule("add-neg", x + _NEGATED, x - y),
    Rule("neg-add", _NEGATED + x, x - y),
    Rule("sub-neg", x - _NEGATED, x + y),
    Rule("neg-sub", -(x - y), y - x),
    Rule("mul-minus-one", u * -1, -u),
    # A term that is added and subtracted again.
    Rule("add-sub", (u + v) - v, u),
    Rule("add-sub-first", (u + v) - u, v),
    Rule("sub-add", (u - v) + v, u),
    Rule("sub-sub", u - (u - v), v),
    # Division of 0, by -1 and of x by itself (R03, division by zero; R04, INT_MIN Idiv -1).
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
