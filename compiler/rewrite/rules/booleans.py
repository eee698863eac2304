"""Rules of the two-element lattice of booleans (R09, bool). Add and Max are Or, Mul is And."""

from __future__ import annotations

from uops.compiler.rewrite.pattern import ALL_INTS, BOOL, as_pattern, eq, maximum, ne, not_, var
from uops.compiler.rewrite.rule import Rule

p = var("p", BOOL)
x, y = var("x", ALL_INTS), var("y", ALL_INTS)
true, false = as_pattern(True), as_pattern(False)

RULES = (
    Rule("and-true", p & True, p),
    Rule("and-false", p & False, false),
    Rule("and-same", p & p, p),
    Rule("or-false", p | False, p),
    Rule("or-true", p | True, true),
    Rule("or-same", p | p, p),
    Rule("add-false", p + False, p),
    Rule("mul-true", p * True, p),
    Rule("max-false", maximum(p, False), p),
    Rule("xor-false", p ^ False, p),
    Rule("xor-true", p ^ True, not_(p)),
    Rule("not-not", not_(not_(p)), p),
    Rule("ne-false", ne(p, False), p),
    Rule("ne-true", ne(p, True), not_(p)),
    Rule("eq-true", eq(p, True), p),
    # The negation of an integer comparison is the opposite one. For floats it is not, because of NaN.
    Rule("not-lt", not_(x < y), x >= y),
    Rule("not-ge", not_(x >= y), x < y),
    Rule("lt-self", x < x, false),
    Rule("ne-self", ne(x, x), false),
    Rule("eq-self", eq(x, x), true),
)
