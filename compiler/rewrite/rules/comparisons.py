"""Comparisons: over the integers (R08) a sum or a product may be moved across, rounding as the comparison asks; negations are
absorbed. Nothing here holds for machine integers, which wrap (R05), unless it says so.
"""

from __future__ import annotations

from uops.compiler.ir.affine import number
from uops.compiler.rewrite.pattern import ALL_INTS, INDEX, VALUES, Binding, Pattern, cst, eq, lift, ne, not_, var
from uops.compiler.rewrite.rule import Rule, Witness
from uops.spec.ir.node import UOp

x, y = var("x", INDEX), var("y", INDEX)
c, d, k = (cst(n, INDEX) for n in "cdk")
a, b = var("a", ALL_INTS), var("b", ALL_INTS)
v, w = var("v", VALUES), var("w", VALUES)
true, false = lift(True), lift(False)


def _value(found: Binding, name: str) -> int:
    n = found[name]
    assert isinstance(n, UOp)
    return int(n.arg.value)


def _difference(found: Binding) -> dict[str, UOp]:
    return {"k": number(_value(found, "d") - _value(found, "c"))}


def _quotient(found: Binding) -> dict[str, UOp] | None:
    """The integer d / c."""
    by = _value(found, "c")
    return {"k": number(_value(found, "d") // by)} if by else None


def _moved(name: str, lhs: Pattern, rhs: Pattern, when: Pattern, witness: Witness) -> Rule:
    return Rule(name, lhs, rhs, when=when, witness=witness)


_SHIFTED = eq(k, d - c)

RULES = (
    # x + c = d is x = d - c.
    _moved("eq-shifted", eq(x + c, d), eq(x, k), _SHIFTED, _difference),
    _moved("ne-shifted", ne(x + c, d), ne(x, k), _SHIFTED, _difference),
    # c x = d has a solution where c divides d.
    _moved("eq-scaled", eq(x * c, d), eq(x, k), ne(c, 0) & eq(d, c * k), _quotient),
    _moved("ne-scaled", ne(x * c, d), ne(x, k), ne(c, 0) & eq(d, c * k), _quotient),
    # The other comparison: of machine integers too, and an equality of floats as well (R12).
    Rule("gt-is-lt", v > w, w < v),
    Rule("not-gt", not_(a > b), b >= a),
    Rule("not-eq", not_(eq(v, w)), ne(v, w)),
    Rule("not-ne", not_(ne(v, w)), eq(v, w)),
    Rule("le-self", a <= a, true),
    Rule("ge-self", a >= a, true),
    # A comparison and its opposite.
    Rule("lt-and-ge", (a < b) & (a >= b), false),
    Rule("lt-or-ge", (a < b) | (a >= b), true),
    Rule("eq-and-ne", eq(v, w) & ne(v, w), false),
    Rule("eq-or-ne", eq(v, w) | ne(v, w), true),
)
