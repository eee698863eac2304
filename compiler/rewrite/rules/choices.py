"""Rules of nested choices and of redundant conditions.

Where keeps bits (R28, bits), so that its laws hold for every dtype.
"""

from __future__ import annotations

from uops.compiler.rewrite.pattern import ALL_INTS, BOOL, as_pattern, maximum, not_, var, where
from uops.compiler.rewrite.rule import Rule

p, q = var("p", BOOL), var("q", BOOL)
a, b = var("a"), var("b")
x, y = var("x", ALL_INTS), var("y", ALL_INTS)
true, false = as_pattern(True), as_pattern(False)

RULES = (
    # Two conditions for one value.
    Rule("where-and", where(p, where(q, a, b), b), where(p & q, a, b)),
    Rule("where-or", where(p, a, where(q, a, b)), where(p | q, a, b)),
    # A choice of booleans is a conjunction or a disjunction.
    Rule("where-else-false", where(p, q, False), p & q),
    Rule("where-true-else", where(p, True, q), p | q),
    Rule("where-or-condition", where(p, p, q), p | q),
    Rule("where-and-condition", where(p, q, p), p & q),
    # A choice of the greater of two values.
    Rule("where-is-max", where(x < y, y, x), maximum(x, y)),
    Rule("where-is-max-too", where(y < x, x, y), maximum(x, y)),
    # Absorption, and the law of the excluded middle.
    Rule("and-absorbs-or", p & (p | q), p),
    Rule("or-absorbs-and", p | (p & q), p),
    Rule("and-not", p & not_(p), false),
    Rule("or-not", p | not_(p), true),
    Rule("and-twice", (p & q) & q, p & q),
    Rule("or-twice", (p | q) | q, p | q),
    Rule("xor-same", p ^ p, false),
    Rule("xor-twice", (p ^ q) ^ q, p),
)
