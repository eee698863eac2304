"""Rules of comparisons. Over the integers (R08, index dtype) a sum or product moves across; negations are absorbed.

A rule for machine integers, which wrap (R05, integer overflow), says so.
"""

from __future__ import annotations

from uops.compiler.ir.affine import index_constant
from uops.compiler.rewrite.pattern import ALL_INTS, INDEX, VALUES, Binding, as_pattern, cst, eq, ne, not_, var
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir.node import UOp

x, y = var("x", INDEX), var("y", INDEX)
c, d, k = (cst(n, INDEX) for n in "cdk")
a, b = var("a", ALL_INTS), var("b", ALL_INTS)
v, w = var("v", VALUES), var("w", VALUES)
true, false = as_pattern(True), as_pattern(False)


def _constant_value(binding: Binding, name: str) -> int:
    n = binding[name]
    assert isinstance(n, UOp)
    return int(n.arg.value)


def propose_difference(binding: Binding) -> dict[str, UOp]:
    """Propose k = d - c."""
    return {"k": index_constant(_constant_value(binding, "d") - _constant_value(binding, "c"))}


def _propose_quotient(binding: Binding) -> dict[str, UOp] | None:
    """Propose k = d // c."""
    by = _constant_value(binding, "c")
    return {"k": index_constant(_constant_value(binding, "d") // by)} if by else None


_SHIFTED = eq(k, d - c)

RULES = (
    # x + c = d is x = d - c.
    Rule("eq-shifted", eq(x + c, d), eq(x, k), _SHIFTED, propose_difference),
    Rule("ne-shifted", ne(x + c, d), ne(x, k), _SHIFTED, propose_difference),
    # c x = d has a solution where c divides d.
    Rule("eq-scaled", eq(x * c, d), eq(x, k), ne(c, 0) & eq(d, c * k), _propose_quotient),
    Rule("ne-scaled", ne(x * c, d), ne(x, k), ne(c, 0) & eq(d, c * k), _propose_quotient),
    # The swapped or opposite comparison: of machine integers too, and an equality of floats as well (R12, CmpLt and CmpNe).
    Rule("gt-is-lt", v > w, w < v),
    Rule("not-gt", not_(a > b), b >= a),
    Rule("not-eq", not_(eq(v, w)), ne(v, w)),
    Rule("not-ne", not_(ne(v, w)), eq(v, w)),
    Rule("le-self", a <= a, true),
    Rule("ge-self", a >= a, true),
    # A comparison combined with its opposite.
    Rule("lt-and-ge", (a < b) & (a >= b), false),
    Rule("lt-or-ge", (a < b) | (a >= b), true),
    Rule("eq-and-ne", eq(v, w) & ne(v, w), false),
    Rule("eq-or-ne", eq(v, w) | ne(v, w), true),
)
