"""Index arithmetic: rules over the integers (R08), with floor division (R01, R02) and x // 0 = 0, x % 0 = x (R03).

Sums are compared and split in their canonical form (`uops.compiler.linear`): a witness proposes the parts of a sum, and the condition
says that they add up to it. So one rule per law covers every shape in which the terms may stand.
"""

from __future__ import annotations

import math

from uops.compiler.linear import Sum, build, linear, number
from uops.compiler.pattern import INDEX, Binding, cst, eq, maximum, ne, operation, var
from uops.compiler.rewrite import Rule, cost
from uops.spec.node import UOp
from uops.spec.ops import Op

x, y, s = (var(n, INDEX) for n in "xys")
q, r = var("q", INDEX), var("r", INDEX)
c, d, g, a = (cst(n, INDEX) for n in "cdga")


def _node(found: Binding, name: str) -> UOp:
    n = found[name]
    assert isinstance(n, UOp)
    return n


def _shorter_sum(op: Op) -> object:
    """The canonical form of a sum, if it is cheaper."""

    def propose(found: Binding) -> dict[str, UOp] | None:
        before = UOp(op, (_node(found, "x"), _node(found, "y")))
        after = build(linear(before))
        return {"q": after} if after is not before and cost(after) < cost(before) else None

    return propose


def _multiples(found: Binding) -> dict[str, UOp] | None:
    """s = q*c + r with in q the terms whose coefficient c divides; none if q would be empty."""
    by, total = int(_node(found, "c").arg.value), linear(_node(found, "s"))
    if by == 0:
        return None
    whole = {t: k // by for t, k in total.terms.items() if k % by == 0}
    rest = {t: k for t, k in total.terms.items() if k % by}
    quotient, remainder = divmod(total.constant, by)
    if not whole and quotient == 0:
        return None
    return {"q": build(Sum(whole, quotient)), "r": build(Sum(rest, remainder))}


def _common_factor(found: Binding) -> dict[str, UOp] | None:
    """s = q*g + r and c = d*g, g the greatest common divisor of c and the coefficients that are not below it."""
    by, total = int(_node(found, "c").arg.value), linear(_node(found, "s"))
    best = None
    for k in total.terms.values():
        common = math.gcd(k, by)
        if 1 < common < by or (common == by > 1):
            best = common if best is None else max(best, common)
    if best is None or by <= 0:
        return None
    whole = {t: k // best for t, k in total.terms.items() if k % best == 0}
    rest = {t: k for t, k in total.terms.items() if k % best}
    quotient, remainder = divmod(total.constant, best)
    return {"q": build(Sum(whole, quotient)), "r": build(Sum(rest, remainder)), "g": number(best), "d": number(by // best)}


RULES = (
    # Sums. Collecting like terms is linear algebra: 2x + 3x = 5x, x - x = 0, (x + 1) + 2 = x + 3.
    Rule("sum", x + y, q, when=eq(q, x + y), witness=_shorter_sum(Op.ADD)),  # type: ignore[arg-type]
    Rule("difference", x - y, q, when=eq(q, x - y), witness=_shorter_sum(Op.SUB)),  # type: ignore[arg-type]
    Rule("product-of-constants", (x * c) * d, x * (c * d)),
    Rule("distribute", (x + d) * c, x * c + d * c),
    # Division. q*c + r over c: floor((q*c + r) / c) = q + floor(r / c) for every c but 0.
    Rule("div-multiples", s // c, q + r // c, when=ne(c, 0) & eq(s, q * c + r), witness=_multiples),
    Rule("mod-multiples", s % c, r % c, when=ne(c, 0) & eq(s, q * c + r), witness=_multiples),
    # floor((q*g + r) / (d*g)) = floor(q / d) for 0 <= r < g; the remainder keeps g * (q mod d) + r.
    Rule("div-factor", s // c, q // d, when=(d > 0) & (r >= 0) & (r < g) & eq(c, d * g) & eq(s, q * g + r), witness=_common_factor),
    Rule("mod-factor", s % c, (q % d) * g + r, when=(d > 0) & (r >= 0) & (r < g) & eq(c, d * g) & eq(s, q * g + r), witness=_common_factor),
    Rule("div-one", x // 1, x),
    Rule("mod-one", x % 1, 0 * c if False else operation(Op.MUL, 0, 0).src[0]),
    Rule("div-small", x // y, operation(Op.MUL, 0, 0).src[0], when=(x >= 0) & (x < y)),
    Rule("mod-small", x % y, x, when=(x >= 0) & (x < y)),
    Rule("div-div", (x // c) // d, x // (c * d), when=(c > 0) & (d > 0)),
    Rule("mod-mod", (x % c) % d, x % d, when=(d > 0) & eq(c % d, 0)),
    Rule("div-mod", (x % c) // d, (x // d) % (c // d), when=(c > 0) & (d > 0) & eq(c % d, 0)),
    Rule("max-right", maximum(x, y), y, when=x <= y),
    Rule("max-left", maximum(x, y), x, when=y <= x),
)
