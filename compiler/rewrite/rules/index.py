"""Rules of index arithmetic over the integers (R08, index dtype).

Division is floor division (R01, Idiv; R02, Mod), with x // 0 = 0 and x % 0 = x (R03, division by zero). Sums are compared and split
in their canonical form (`uops.compiler.ir.affine`). A witness proposes the parts of a sum, and the condition requires that they add
up to it. So one rule per law covers every order and nesting of the terms.
"""

from __future__ import annotations

import math

from uops.compiler.ir.affine import AffineSum, build_affine_sum, extract_affine_sum, hoist_constant_terms, index_constant
from uops.compiler.rewrite.pattern import (
    INDEX,
    MACHINE_INTS,
    Binding,
    Pattern,
    TypeVar,
    as_pattern,
    cast,
    cst,
    eq,
    instantiate,
    maximum,
    ne,
    var,
)
from uops.compiler.rewrite.rewriter import weighted_tree_cost
from uops.compiler.rewrite.rule import Rule, Witness
from uops.compiler.rewrite.rules.comparisons import propose_difference
from uops.spec.ir.args import ConstArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

x, y, s, q, r = (var(n, INDEX) for n in "xysqr")
c, d, g, k = (cst(n, INDEX) for n in "cdgk")
u, e = var("u", MACHINE_INTS), cst("e", MACHINE_INTS)
m, _T = cst("m", MACHINE_INTS), TypeVar("T", MACHINE_INTS)
zero = as_pattern(0)


def bound_node(binding: Binding, name: str) -> UOp:
    """Return the node that is bound to a variable."""
    n = binding[name]
    assert isinstance(n, UOp)
    return n


def make_witness_requiring_lower_cost(lhs: Pattern, rhs: Pattern, propose: Witness) -> Witness:
    """Return the witness that proposes what `propose` does where the rule then lowers the cost."""

    def propose_cheaper(binding: Binding) -> dict[str, UOp] | None:
        proposed = propose(binding)
        if proposed is None:
            return None
        whole = {**binding, **proposed}
        before, after = instantiate(lhs, whole), instantiate(rhs, whole, INDEX[0])
        return dict(proposed) if after is not before and weighted_tree_cost(after) < weighted_tree_cost(before) else None

    return propose_cheaper


def _make_witness_of_cheaper_of_two_forms(sum_op: Op) -> Witness:
    """Return the witness of the cheaper one of two forms of a sum: canonical, or with products of sums kept."""

    def propose(binding: Binding) -> dict[str, UOp] | None:
        total = UOp(sum_op, (bound_node(binding, "x"), bound_node(binding, "y")))
        plain = build_affine_sum(extract_affine_sum(total))
        if plain is total:  # no product of a sum in it
            return None
        left = hoist_constant_terms(total)
        best = plain if plain is left else min(plain, left, key=weighted_tree_cost)
        return {"q": best} if best is not total else None

    return propose


def _propose_product(binding: Binding) -> dict[str, UOp]:
    return {"k": index_constant(bound_node(binding, "c").arg.value * bound_node(binding, "d").arg.value)}


def _propose_source_constant(binding: Binding) -> dict[str, UOp] | None:
    """Propose the constant c in the dtype of u, if that dtype has the value."""
    value, d = bound_node(binding, "c").arg.value, bound_node(binding, "u").dtype
    return {"e": UOp(Op.CONST, (), ConstArg(value, d))} if d.min <= value <= d.max else None


def _divide_coefficients_with_remainder(total: AffineSum, divisor: int) -> tuple[UOp, UOp]:
    """Return (q, r) with total = q * divisor + r.

    A coefficient of q is that of the total divided by `divisor`, rounded toward zero if `divisor` is positive. The constant is
    rounded down.
    """
    quotient, remainder = divmod(total.constant, divisor)
    whole = {t: n // divisor if n > 0 else -(-n // divisor) for t, n in total.terms.items() if abs(n) >= abs(divisor)}
    rest = {t: n - divisor * whole.get(t, 0) for t, n in total.terms.items()}
    return build_affine_sum(AffineSum(whole, quotient)), build_affine_sum(
        AffineSum({t: n for t, n in rest.items() if n}, remainder)
    )


def _split_by_nonzero_divisor_coefficientwise(binding: Binding) -> dict[str, UOp] | None:
    """Propose q and r with s = q*c + r."""
    by = int(bound_node(binding, "c").arg.value)
    if by == 0:
        return None
    parts = _divide_coefficients_with_remainder(extract_affine_sum(bound_node(binding, "s")), by)
    return {"q": parts[0], "r": parts[1]}


def _propose_split_by_factor_shared_with_a_term(binding: Binding) -> dict[str, UOp] | None:
    """Propose c = d*g and s = q*g + r, with g the largest common factor of c and a coefficient."""
    by, total = int(bound_node(binding, "c").arg.value), extract_affine_sum(bound_node(binding, "s"))
    best = max((math.gcd(n, by) for n in total.terms.values()), default=1)
    if best <= 1 or by <= 0:
        return None
    parts = _divide_coefficients_with_remainder(total, best)
    return {"q": parts[0], "r": parts[1], "g": index_constant(best), "d": index_constant(by // best)}


def _split_with_coefficients_to_nearest(binding: Binding) -> dict[str, UOp] | None:
    """Propose q and r with s = q*c + r and r between -c and c, where each coefficient of q is the nearest whole number.

    So the remainder of 58x + y by 59 is that of y - x, which a comparison or a gate may bound further.
    """
    by = int(bound_node(binding, "c").arg.value)
    total = extract_affine_sum(bound_node(binding, "s"))
    if by <= 0:
        return None
    whole = {t: n for t, k in total.terms.items() if (n := (2 * k + by) // (2 * by))}
    rest = {t: left for t, k in total.terms.items() if (left := k - by * whole.get(t, 0))}
    added = build_affine_sum(AffineSum({t: k for t, k in rest.items() if k > 0}, total.constant))
    taken = build_affine_sum(AffineSum({t: -k for t, k in rest.items() if k < 0}, 0))
    r = UOp(Op.SUB, (added, taken))  # cheaper than a product with -1
    if not whole or r.min_max is None or not -by < r.min_max[0] <= r.min_max[1] < by:
        return None
    return {"q": build_affine_sum(AffineSum(whole, 0)), "r": r}


def _make_witness_merging_addend_if_sums_fit_int32(sum_op: Op) -> Witness:
    """Return the witness of the canonical form of x + m or x - m, where x is a sum, too, and int32 holds both x and that form.

    A kernel computes an index in a machine integer (R08, index dtype), which the rule must not widen. Of index arithmetic it has
    none after instruction selection, and gets none back.
    """

    def propose_merged_sum_if_it_fits(binding: Binding) -> dict[str, UOp] | None:
        summand, k = bound_node(binding, "x"), index_constant(int(bound_node(binding, "m").arg.value))
        if summand in extract_affine_sum(summand).terms:
            return None
        total = build_affine_sum(extract_affine_sum(UOp(sum_op, (summand, k))))
        return {"k": k, "q": total} if _fits_int32(summand) and _fits_int32(total) else None

    return propose_merged_sum_if_it_fits


def _fits_int32(u: UOp) -> bool:
    bounds = u.min_max
    return bounds is not None and -(2**31) <= bounds[0] and bounds[1] < 2**31


def _sum_rule(name: str, lhs: Pattern, rhs: Pattern, when: Pattern, propose: Witness) -> Rule:
    return Rule(name, lhs, rhs, when=when, witness=make_witness_requiring_lower_cost(lhs, rhs, propose))


_FACTOR = (d > 0) & (r >= 0) & (r < g) & eq(c, d * g) & eq(s, q * g + r)

RULES = (
    # Like terms are collected: 2x + 3x = 5x, x - x = 0, (x + 1) + 2 = x + 3.
    _sum_rule("sum", x + y, q, eq(q, x + y), _make_witness_of_cheaper_of_two_forms(Op.ADD)),
    _sum_rule("difference", x - y, q, eq(q, x - y), _make_witness_of_cheaper_of_two_forms(Op.SUB)),
    Rule("product-of-constants", (x * c) * d, x * k, when=eq(k, c * d), witness=_propose_product),
    Rule("div-one", x // 1, x),
    Rule("mod-one", x % 1, zero),
    # For 0 <= x < y the quotient is 0 and the remainder x.
    Rule("div-small", x // y, zero, when=(x >= 0) & (x < y)),
    Rule("mod-small", x % y, x, when=(x >= 0) & (x < y)),
    # floor((q*c + r) / c) = q + floor(r / c) for every c but 0.
    _sum_rule("div-multiples", s // c, q + r // c, ne(c, 0) & eq(s, q * c + r), _split_by_nonzero_divisor_coefficientwise),
    _sum_rule("mod-multiples", s % c, r % c, ne(c, 0) & eq(s, q * c + r), _split_by_nonzero_divisor_coefficientwise),
    # floor((q*g + r) / (d*g)) = floor(q / d) for 0 <= r < g, and the remainder is g * (q mod d) + r.
    _sum_rule("div-factor", s // c, q // d, _FACTOR, _propose_split_by_factor_shared_with_a_term),
    _sum_rule("mod-factor", s % c, (q % d) * g + r, _FACTOR, _propose_split_by_factor_shared_with_a_term),
    _sum_rule("mod-near-multiples", s % c, r % c, ne(c, 0) & eq(s, q * c + r), _split_with_coefficients_to_nearest),
    # A remainder by c is below d where x is, if x is between d - c and c: a negative x has the remainder x + c, which is d or more.
    Rule(
        "lt-mod-window",
        x % c < d,
        (x >= 0) & (x < d),
        when=(c > 0) & eq(k, d - c) & (x >= k) & (x < c),
        witness=propose_difference,
    ),
    Rule("div-div", (x // c) // d, x // k, when=(c > 0) & (d > 0) & eq(k, c * d), witness=_propose_product),
    # Division by a constant of the source's dtype stays in that dtype; int64 could not hold every uint64.
    Rule(
        "mod-cast",
        cast(u, INDEX[0]) % c,
        cast(u % e, INDEX[0]),
        when=(c > 0) & eq(cast(e, INDEX[0]), c),
        witness=_propose_source_constant,
    ),
    Rule(
        "div-cast",
        cast(u, INDEX[0]) // c,
        cast(u // e, INDEX[0]),
        when=(c > 0) & eq(cast(e, INDEX[0]), c),
        witness=_propose_source_constant,
    ),
    Rule("lt-cast", cast(u, INDEX[0]) < c, u < e, when=eq(cast(e, INDEX[0]), c), witness=_propose_source_constant),
    Rule("ge-cast", cast(u, INDEX[0]) >= c, u >= e, when=eq(cast(e, INDEX[0]), c), witness=_propose_source_constant),
    # A cast to a machine integer is modulo 2^n and commutes with sums.
    _sum_rule(
        "cast-sum",
        cast(x, _T) + m,
        cast(q, _T),
        eq(cast(m, INDEX[0]), k) & eq(q, x + k),
        _make_witness_merging_addend_if_sums_fit_int32(Op.ADD),
    ),
    _sum_rule(
        "cast-difference",
        cast(x, _T) - m,
        cast(q, _T),
        eq(cast(m, INDEX[0]), k) & eq(q, x - k),
        _make_witness_merging_addend_if_sums_fit_int32(Op.SUB),
    ),
    Rule("max-right", maximum(x, y), y, when=x <= y),
    Rule("max-left", maximum(x, y), x, when=y <= x),
)
