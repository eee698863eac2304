"""Index arithmetic: rules over the integers (R08), with floor division (R01, R02) and x // 0 = 0, x % 0 = x (R03).

Sums are compared and split in their canonical form (`uops.compiler.ir.affine`): a witness proposes the parts of a sum, and the
condition says that they add up to it. So one rule per law covers every shape in which the terms may stand.
"""

from __future__ import annotations

import math

from uops.compiler.ir.affine import Sum, build, constants_out, linear, number
from uops.compiler.rewrite.pattern import (
    INDEX,
    MACHINE_INTS,
    Binding,
    Pattern,
    TypeVar,
    cast,
    cst,
    eq,
    instantiate,
    lift,
    maximum,
    ne,
    var,
)
from uops.compiler.rewrite.rewriter import cost
from uops.compiler.rewrite.rule import Rule, Witness
from uops.spec.ir.args import ConstArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

x, y, s, q, r = (var(n, INDEX) for n in "xysqr")
c, d, g, k = (cst(n, INDEX) for n in "cdgk")
u, e = var("u", MACHINE_INTS), cst("e", MACHINE_INTS)
m, _T = cst("m", MACHINE_INTS), TypeVar("T", MACHINE_INTS)
zero = lift(0)


def node(found: Binding, name: str) -> UOp:
    n = found[name]
    assert isinstance(n, UOp)
    return n


def cheaper(lhs: Pattern, rhs: Pattern, propose: Witness) -> Witness:
    """The proposal, where the rule then lowers the cost."""

    def checked(found: Binding) -> dict[str, UOp] | None:
        proposed = propose(found)
        if proposed is None:
            return None
        whole = {**found, **proposed}
        before, after = instantiate(lhs, whole), instantiate(rhs, whole, INDEX[0])
        return dict(proposed) if after is not before and cost(after) < cost(before) else None

    return checked


def _canonical(op: Op) -> Witness:
    """The canonical form of a sum, or the one with products left in it, where that is cheaper."""

    def propose(found: Binding) -> dict[str, UOp] | None:
        total = UOp(op, (node(found, "x"), node(found, "y")))
        plain = build(linear(total))
        if plain is total:  # no product is left in it
            return None
        left = constants_out(total)
        best = plain if plain is left else min(plain, left, key=cost)
        return {"q": best} if best is not total else None

    return propose


def _product(found: Binding) -> dict[str, UOp]:
    return {"k": number(node(found, "c").arg.value * node(found, "d").arg.value)}


def _as_source(found: Binding) -> dict[str, UOp] | None:
    """The constant c in the dtype of u, if it has it."""
    value, d = node(found, "c").arg.value, node(found, "u").dtype
    return {"e": UOp(Op.CONST, (), ConstArg(value, d))} if d.min <= value <= d.max else None


def _split(total: Sum, by: int) -> tuple[UOp, UOp]:
    """(q, r) with total = q * by + r, in q of every term as often as `by` goes into its coefficient, toward zero."""
    quotient, remainder = divmod(total.constant, by)
    whole = {t: n // by if n > 0 else -(-n // by) for t, n in total.terms.items() if abs(n) >= abs(by)}
    rest = {t: n - by * whole.get(t, 0) for t, n in total.terms.items()}
    return build(Sum(whole, quotient)), build(Sum({t: n for t, n in rest.items() if n}, remainder))


def _multiples(found: Binding) -> dict[str, UOp] | None:
    """s = q*c + r."""
    by = int(node(found, "c").arg.value)
    if by == 0:
        return None
    parts = _split(linear(node(found, "s")), by)
    return {"q": parts[0], "r": parts[1]}


def _common_factor(found: Binding) -> dict[str, UOp] | None:
    """c = d*g and s = q*g + r, with g the largest common factor that c has with a coefficient."""
    by, total = int(node(found, "c").arg.value), linear(node(found, "s"))
    best = max((math.gcd(n, by) for n in total.terms.values()), default=1)
    if best <= 1 or by <= 0:
        return None
    parts = _split(total, best)
    return {"q": parts[0], "r": parts[1], "g": number(best), "d": number(by // best)}


def _narrow(op: Op) -> Witness:
    """The canonical form of x + m or x - m, where int32 holds x and it: an index in a kernel has a width (R08), and so has m."""

    def propose(found: Binding) -> dict[str, UOp] | None:
        k = number(int(node(found, "m").arg.value))
        total = build(linear(UOp(op, (node(found, "x"), k))))
        return {"k": k, "q": total} if _is_narrow(node(found, "x")) and _is_narrow(total) else None

    return propose


def _is_narrow(u: UOp) -> bool:
    bounds = u.min_max
    return bounds is not None and -(2**31) <= bounds[0] and bounds[1] < 2**31


def _sum_rule(name: str, lhs: Pattern, rhs: Pattern, when: Pattern, propose: Witness) -> Rule:
    return Rule(name, lhs, rhs, when=when, witness=cheaper(lhs, rhs, propose))


_FACTOR = (d > 0) & (r >= 0) & (r < g) & eq(c, d * g) & eq(s, q * g + r)

RULES = (
    # Like terms are collected: 2x + 3x = 5x, x - x = 0, (x + 1) + 2 = x + 3.
    _sum_rule("sum", x + y, q, eq(q, x + y), _canonical(Op.ADD)),
    _sum_rule("difference", x - y, q, eq(q, x - y), _canonical(Op.SUB)),
    Rule("product-of-constants", (x * c) * d, x * k, when=eq(k, c * d), witness=_product),
    Rule("div-one", x // 1, x),
    Rule("mod-one", x % 1, zero),
    # Nothing of 0 <= x < y is left by a division, all of it by a remainder.
    Rule("div-small", x // y, zero, when=(x >= 0) & (x < y)),
    Rule("mod-small", x % y, x, when=(x >= 0) & (x < y)),
    # floor((q*c + r) / c) = q + floor(r / c) for every c but 0.
    _sum_rule("div-multiples", s // c, q + r // c, ne(c, 0) & eq(s, q * c + r), _multiples),
    _sum_rule("mod-multiples", s % c, r % c, ne(c, 0) & eq(s, q * c + r), _multiples),
    # floor((q*g + r) / (d*g)) = floor(q / d) for 0 <= r < g, and what is left is g * (q mod d) + r.
    _sum_rule("div-factor", s // c, q // d, _FACTOR, _common_factor),
    _sum_rule("mod-factor", s % c, (q % d) * g + r, _FACTOR, _common_factor),
    Rule("div-div", (x // c) // d, x // k, when=(c > 0) & (d > 0) & eq(k, c * d), witness=_product),
    # A division by a constant of the source's dtype stays in that dtype, which for uint64 an index in int64 could not.
    Rule("mod-cast", cast(u, INDEX[0]) % c, cast(u % e, INDEX[0]), when=(c > 0) & eq(cast(e, INDEX[0]), c), witness=_as_source),
    Rule("div-cast", cast(u, INDEX[0]) // c, cast(u // e, INDEX[0]), when=(c > 0) & eq(cast(e, INDEX[0]), c), witness=_as_source),
    Rule("lt-cast", cast(u, INDEX[0]) < c, u < e, when=eq(cast(e, INDEX[0]), c), witness=_as_source),
    Rule("ge-cast", cast(u, INDEX[0]) >= c, u >= e, when=eq(cast(e, INDEX[0]), c), witness=_as_source),
    # A cast to a machine integer is modulo 2^n, with which a sum commutes.
    _sum_rule("cast-sum", cast(x, _T) + m, cast(q, _T), eq(cast(m, INDEX[0]), k) & eq(q, x + k), _narrow(Op.ADD)),
    _sum_rule("cast-difference", cast(x, _T) - m, cast(q, _T), eq(cast(m, INDEX[0]), k) & eq(q, x - k), _narrow(Op.SUB)),
    Rule("max-right", maximum(x, y), y, when=x <= y),
    Rule("max-left", maximum(x, y), x, when=y <= x),
)
