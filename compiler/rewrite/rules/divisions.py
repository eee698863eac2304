"""Rules of divisions and remainders in sums, over the integers (R08, index dtype).

A quotient and the remainder that belongs to it are recombined to the dividend, and redundant remainders are dropped. Division is
floor division (R01, Idiv; R02, Mod), with x // 0 = 0 and x % 0 = x (R03, division by zero). As in `index`, a witness proposes the
parts of a sum, and the condition requires that they add up to it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from uops.compiler.ir.affine import AffineSum, build_affine_sum, extract_affine_sum, index_constant
from uops.compiler.ir.extents import finite_bounds
from uops.compiler.rewrite.pattern import INDEX, Binding, Pattern, cst, eq, ne, var
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules.index import bound_node, make_witness_requiring_lower_cost
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import DIVISION, Op

x, y, s, t, q, r, w = (var(n, INDEX) for n in "xystqrw")
c, d, e, g, j, k, m = (cst(n, INDEX) for n in "cdegjkm")

#: The nodes that a witness proposes, by variable.
WitnessNodes = dict[str, UOp]


class RemainderTerm(NamedTuple):
    """A term `coefficient` * (t % `divisor`) of a sum. The coefficient of t // divisor that completes it is
    `quotient_coefficient`."""

    total: AffineSum
    remainder: UOp
    divisor: int
    coefficient: int
    quotient_coefficient: int


def _positive_constant(u: UOp) -> int:
    """Return the value of a positive constant; 0 for any other node."""
    return max(0, int(u.arg.value)) if u.op is Op.CONST else 0


def _drop_terms(total: AffineSum, *terms: UOp) -> AffineSum:
    """Return a sum without these terms."""
    return AffineSum({u: n for u, n in total.terms.items() if u not in terms}, total.constant)


def _add_multiple(total: AffineSum, term: UOp, factor: int) -> UOp:
    """Return the canonical form of total + term * factor."""
    terms, constant = dict(total.terms), total.constant
    more = extract_affine_sum(term)
    for u, n in more.terms.items():
        terms[u] = terms.get(u, 0) + n * factor
    return build_affine_sum(AffineSum({u: n for u, n in terms.items() if n}, constant + more.constant * factor))


# A remainder and its quotient


def _has_division_or_remainder_term(u: UOp) -> bool:
    """Return True if a term of a sum is a division or remainder."""
    while u.op in (Op.ADD, Op.MUL, Op.NEG):
        if u.op is Op.ADD and _has_division_or_remainder_term(u.rhs):
            return True
        u = u.operand if u.op is Op.NEG else u.lhs
    return u.op in DIVISION


def _enumerate_remainder_terms_in_sum(binding: Binding) -> Iterator[RemainderTerm]:
    """Yield the remainders t % c in the sum x + y; their coefficient is k, that of the matching quotient c k."""
    x, y = bound_node(binding, "x"), bound_node(binding, "y")
    if not (_has_division_or_remainder_term(y) and _has_division_or_remainder_term(x)):
        return
    total = extract_affine_sum(UOp(Op.ADD, (x, y)))
    for rest, k in total.terms.items():
        if rest.op is Op.MOD and (by := _positive_constant(rest.rhs)):
            yield RemainderTerm(total, rest, by, k, by * k)


def _match_quotient_beside_remainder(binding: Binding) -> WitnessNodes | None:
    """Match t // c beside t % c."""
    for total, rest, by, k, times in _enumerate_remainder_terms_in_sum(binding):
        whole = rest.lhs
        other = UOp(Op.IDIV, (whole, index_constant(by)))
        if total.terms.get(other) == times:
            left = _drop_terms(total, rest, other)
            return {
                "t": whole,
                "c": index_constant(by),
                "k": index_constant(k),
                "m": index_constant(times),
                "q": build_affine_sum(left),
                "w": _add_multiple(left, whole, k),
            }
    return None


def _match_quotient_beside_remainder_of_quotient(binding: Binding) -> WitnessNodes | None:
    """Match t // (g c) beside (t // g) % c."""
    for total, rest, by, k, times in _enumerate_remainder_terms_in_sum(binding):
        whole = rest.lhs
        if whole.op is Op.IDIV and (inner := _positive_constant(whole.rhs)):
            other = UOp(Op.IDIV, (whole.lhs, index_constant(inner * by)))
            if total.terms.get(other) == times:
                left = _drop_terms(total, rest, other)
                parts = {
                    "t": whole.lhs,
                    "c": index_constant(by),
                    "g": index_constant(inner),
                    "e": index_constant(inner * by),
                    "k": index_constant(k),
                }
                return {**parts, "m": index_constant(times), "q": build_affine_sum(left), "w": _add_multiple(left, whole, k)}
    return None


def _match_adjacent_remainders(binding: Binding) -> WitnessNodes | None:
    """Match (t // c) % d beside t % c."""
    for total, rest, by, k, times in _enumerate_remainder_terms_in_sum(binding):
        whole = rest.lhs
        quotient = UOp(Op.IDIV, (whole, index_constant(by)))
        for other, n in total.terms.items():
            if n == times and other.op is Op.MOD and other.lhs is quotient and (outer := _positive_constant(other.rhs)):
                left, e = _drop_terms(total, rest, other), index_constant(by * outer)
                parts = {
                    "t": whole,
                    "c": index_constant(by),
                    "d": index_constant(outer),
                    "e": e,
                    "k": index_constant(k),
                    "m": index_constant(times),
                }
                return {**parts, "q": build_affine_sum(left), "w": _add_multiple(left, UOp(Op.MOD, (whole, e)), k)}
    return None


def _match_adjacent_remainders_of_quotient(binding: Binding) -> WitnessNodes | None:
    """Match (t // (g c)) % d beside (t // g) % c."""
    for total, rest, by, k, times in _enumerate_remainder_terms_in_sum(binding):
        whole = rest.lhs
        if whole.op is not Op.IDIV or not (inner := _positive_constant(whole.rhs)):
            continue
        quotient = UOp(Op.IDIV, (whole.lhs, index_constant(inner * by)))
        for other, n in total.terms.items():
            if n == times and other.op is Op.MOD and other.lhs is quotient and (outer := _positive_constant(other.rhs)):
                left, wide = _drop_terms(total, rest, other), index_constant(by * outer)
                parts = {
                    "t": whole.lhs,
                    "c": index_constant(by),
                    "d": index_constant(outer),
                    "e": index_constant(inner * by),
                    "g": index_constant(inner),
                }
                parts |= {"j": wide, "k": index_constant(k), "m": index_constant(times)}
                return {**parts, "q": build_affine_sum(left), "w": _add_multiple(left, UOp(Op.MOD, (whole, wide)), k)}
    return None


# Remainders in a dividend


def _match_unscaled_remainder_of_multiple(binding: Binding) -> WitnessNodes | None:
    """Match s = t % e + q with e a multiple of c."""
    by, total = int(bound_node(binding, "c").arg.value), extract_affine_sum(bound_node(binding, "s"))
    for rest, times in total.terms.items():
        if rest.op is Op.MOD and times == 1 and by > 0 and (period := _positive_constant(rest.rhs)) and period % by == 0:
            left = _drop_terms(total, rest)
            return {"t": rest.lhs, "e": rest.rhs, "q": build_affine_sum(left), "w": _add_multiple(left, rest.lhs, 1)}
    return None


#: Most terms of a sum of which combinations of residues are tried.
_MAX_TERMS = 6


def _propose_quotient_and_bounded_remainder(binding: Binding) -> WitnessNodes | None:
    """Propose s = q c + r with 0 <= r < c. Each coefficient of r is a small one, of either sign, congruent to that of s."""
    by, total = int(bound_node(binding, "c").arg.value), extract_affine_sum(bound_node(binding, "s"))
    if by <= 0 or len(total.terms) > _MAX_TERMS:
        return None
    for rest in itertools.product(*(_candidate_residues(n, by, len(total.terms)) for n in total.terms.values())):
        left = {u: n for u, n in zip(total.terms, rest, strict=True) if n}
        bounds = finite_bounds(build_affine_sum(AffineSum(left, total.constant % by)))
        if bounds is not None and bounds[0] // by == bounds[1] // by:
            shift = bounds[0] // by
            whole = {u: (n - m) // by for (u, n), m in zip(total.terms.items(), rest, strict=True) if n != m}
            quotient = build_affine_sum(AffineSum(whole, total.constant // by + shift))
            return {"q": quotient, "r": build_affine_sum(AffineSum(left, total.constant % by - shift * by))}
    return None


def _candidate_residues(coefficient: int, modulus: int, term_count: int) -> tuple[int, ...]:
    """Return the coefficients to try that are congruent to `coefficient` modulo `modulus`: both signs for a single term, else the
    smaller one."""
    up = coefficient % modulus
    if term_count == 1 or up * 2 == modulus:
        return (up, up - modulus) if up else (0,)
    return (min(up, up - modulus, key=abs),)


def _match_quotient_plus_constant(binding: Binding) -> WitnessNodes | None:
    """Match s = t // g + k."""
    total = extract_affine_sum(bound_node(binding, "s"))
    if len(total.terms) != 1 or not total.constant:
        return None
    (term, times), by = next(iter(total.terms.items())), _positive_constant(bound_node(binding, "c"))
    if times != 1 or term.op is not Op.IDIV or not by or not (inner := _positive_constant(term.rhs)):
        return None
    whole = _add_multiple(extract_affine_sum(term.lhs), index_constant(total.constant), inner)
    return {"t": term.lhs, "g": term.rhs, "k": index_constant(total.constant), "w": whole, "e": index_constant(inner * by)}


def _propose_factor(binding: Binding) -> WitnessNodes | None:
    """Match e = k c."""
    by, period = int(bound_node(binding, "c").arg.value), int(bound_node(binding, "e").arg.value)
    return {"k": index_constant(period // by)} if by > 0 and period > 0 and period % by == 0 else None


def _match_multiple_of_symbol_and_rest(binding: Binding) -> WitnessNodes | None:
    """Match s = (t y) k + r."""
    by, total = bound_node(binding, "y"), extract_affine_sum(bound_node(binding, "s"))
    for term, times in total.terms.items():
        if term.op is Op.MUL and term.rhs is by:
            whole = term.lhs
            return {
                "t": whole,
                "k": index_constant(times),
                "q": _add_multiple(AffineSum({}, 0), whole, times),
                "r": build_affine_sum(_drop_terms(total, term)),
            }
    return None


def _propose_product(binding: Binding) -> WitnessNodes:
    return {"k": index_constant(int(bound_node(binding, "c").arg.value) * int(bound_node(binding, "d").arg.value))}


# Comparisons of sums


def _split_sum_so_that_quotient_decides_less_than(binding: Binding) -> WitnessNodes | None:
    """Propose s = q g + r and k, where s < c is q < k for every r."""
    limit, total = int(bound_node(binding, "c").arg.value), extract_affine_sum(bound_node(binding, "s"))
    sizes = {abs(n) for n in total.terms.values()}
    if not sizes:
        return None
    for size in sorted({math.gcd(*sizes), *sizes}, reverse=True):
        if size == 1 and not total.constant:  # q would be s itself
            return None
        parts = _split_divisible_terms(total, size)
        bounds = finite_bounds(parts[1])
        if bounds is None:  # a smaller size may leave less in the rest
            continue
        least = -((bounds[0] - limit) // size)  # the least k with k g + r >= c for all r
        if (least - 1) * size + bounds[1] < limit:
            return {"q": parts[0], "r": parts[1], "g": index_constant(size), "k": index_constant(least)}
    return None


def _split_divisible_terms(total: AffineSum, divisor: int) -> tuple[UOp, UOp]:
    """Return (q, r) with total = q * divisor + r, where r has the constant and the terms whose coefficients `divisor` does not
    divide."""
    whole = {u: n // divisor for u, n in total.terms.items() if n % divisor == 0}
    rest = {u: n for u, n in total.terms.items() if n % divisor}
    return build_affine_sum(AffineSum(whole, 0)), build_affine_sum(AffineSum(rest, total.constant))


_PAIR = eq(m, c * k)
_BOUND = (g > 0) & eq(s, q * g + r) & (k * g + r >= c) & ((k - 1) * g + r < c)
_IN_RANGE = (c > 0) & eq(s, q * c + r) & (r >= 0) & (r < c)


def _make_rule_comparing_divisible_part_only(name: str, lhs: Pattern, rhs: Pattern) -> Rule:
    """Return a rule that compares a sum by its multiples of g only."""
    return Rule(
        name,
        lhs,
        rhs,
        when=_BOUND,
        witness=make_witness_requiring_lower_cost(lhs, rhs, _split_sum_so_that_quotient_decides_less_than),
    )


RULES = (
    # (t // c) c + t % c = t, also for multiples of both; t // g // c is t // (g c).
    Rule(
        "recombine",
        x + y,
        w,
        _PAIR & eq(w, q + t * k) & eq(x + y, q + (t // c) * m + (t % c) * k),
        _match_quotient_beside_remainder,
    ),
    Rule(
        "recombine-nested",
        x + y,
        w,
        (c > 0) & (g > 0) & eq(e, g * c) & _PAIR & eq(w, q + (t // g) * k) & eq(x + y, q + (t // e) * m + ((t // g) % c) * k),
        _match_quotient_beside_remainder_of_quotient,
    ),
    # With (t // c) % d in place of t // c it is t % (c d).
    Rule(
        "widen",
        x + y,
        w,
        (c > 0) & (d > 0) & eq(e, c * d) & _PAIR & eq(w, q + (t % e) * k) & eq(x + y, q + ((t // c) % d) * m + (t % c) * k),
        _match_adjacent_remainders,
    ),
    Rule(
        "widen-nested",
        x + y,
        w,
        (c > 0)
        & (d > 0)
        & (g > 0)
        & eq(e, g * c)
        & eq(j, c * d)
        & _PAIR
        & eq(w, q + ((t // g) % j) * k)
        & eq(x + y, q + ((t // e) % d) * m + ((t // g) % c) * k),
        _match_adjacent_remainders_of_quotient,
    ),
    # Values that differ by a multiple of c have the same remainder.
    Rule(
        "mod-period",
        s % c,
        w % c,
        (c > 0) & (e > 0) & eq(e % c, 0) & eq(w, q + t) & eq(s, q + t % e),
        _match_unscaled_remainder_of_multiple,
    ),
    # floor((q c + r) / c) = q for 0 <= r < c.
    Rule("div-in-range", s // c, q, _IN_RANGE, _propose_quotient_and_bounded_remainder),
    Rule("mod-in-range", s % c, r, _IN_RANGE, _propose_quotient_and_bounded_remainder),
    # floor((floor(t / g) + k) / c) = floor((t + k g) / (g c)).
    Rule(
        "div-sum-div",
        s // c,
        w // e,
        (c > 0) & (g > 0) & eq(e, g * c) & eq(w, t + k * g) & eq(s, t // g + k),
        _match_quotient_plus_constant,
    ),
    # The quotient of a remainder is a remainder of the quotient.
    Rule("div-mod", (t % e) // c, (t // c) % k, (c > 0) & (k > 0) & eq(e, k * c), _propose_factor),
    # q g + r < c is q < k where the multiples of g decide.
    _make_rule_comparing_divisible_part_only("lt-multiples", s < c, q < k),
    _make_rule_comparing_divisible_part_only("ge-multiples", s >= c, q >= k),
    # floor(t / c) < d is t < c d.
    Rule("lt-quotient", (t // c) < d, t < k, (c > 0) & eq(k, c * d), _propose_product),
    Rule("ge-quotient", (t // c) >= d, t >= k, (c > 0) & eq(k, c * d), _propose_product),
    # The divisor may be no constant, like the extent of a loop: floor((t y + r) / y) = t + floor(r / y).
    Rule(
        "div-multiples-of", s // y, q + r // y, ne(y, 0) & eq(q, t * k) & eq(s, (t * y) * k + r), _match_multiple_of_symbol_and_rest
    ),
    Rule("mod-multiples-of", s % y, r % y, ne(y, 0) & eq(s, (t * y) * k + r), _match_multiple_of_symbol_and_rest),
)
