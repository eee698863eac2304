"""Rules of Where with a decided or redundant condition. Where keeps bits (R28, bits), so that they hold for every dtype."""

from __future__ import annotations

from uops.compiler.rewrite.pattern import BOOL, ne, not_, var, where
from uops.compiler.rewrite.rule import Rule

p = var("p", BOOL)
a, b, c = var("a"), var("b"), var("c")
u, v = var("u", BOOL), var("v", BOOL)

RULES = (
    Rule("where-true", where(True, a, b), a),
    Rule("where-false", where(False, a, b), b),
    Rule("where-same", where(p, a, a), a),
    Rule("where-not", where(not_(p), a, b), where(p, b, a)),
    Rule("where-nested-true", where(p, where(p, a, b), c), where(p, a, c)),
    Rule("where-nested-false", where(p, a, where(p, b, c)), where(p, a, c)),
    Rule("where-is-condition", where(p, True, False), p),
    Rule("where-is-not", where(p, False, True), not_(p)),
    Rule("where-xor", where(p, not_(u), u), ne(p, u)),
)
