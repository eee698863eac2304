"""Simplification of an index expression under the facts that its gate states.

Takes: an index expression, a gate outside of which its value does not matter, and a function that computes normal forms. Gives: an
expression with the same value wherever the gate is true, which costs no more. `simplify_gate` applies this to the conjuncts of a
gate, each under all others. Spec: Load and Store (the gate decides whether the address is used); R08 (index values are integers
without bounds).

A *fact* bounds a sum of terms without constant: from `4 * i + j - 3 < 10` follows `4 * i + j` <= 12. A fact about a sum also bounds
each of its terms, as the other terms have bounds of their own. To use a fact, its sum is replaced by a variable with these bounds.
Then the expression is simplified by the proved rules, and the variable is replaced by the sum again. The rules hold for every value
within the bounds, hence for that of the sum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from uops.compiler.ir.affine import AffineSum, build_affine_sum, extract_affine_sum, index_constant
from uops.compiler.rewrite.rewriter import weighted_tree_cost
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import COMPARE, DIVISION, Op

Simplify = Callable[[UOp], UOp]
#: Least and greatest value; None where there is no bound.
Bounds = tuple[int | None, int | None]
#: The terms of a sum, each with its coefficient.
_Terms = tuple[tuple[UOp, int], ...]
_UNBOUNDED: Bounds = (None, None)
_LEAVES = frozenset({Op.RANGE, Op.PARAM})
_COMPARISONS = COMPARE - {Op.CMPNE}
#: Tag of our variables, so that they are no variables of the user.
_OWN = "fact"
#: Most conjuncts of a gate, and most facts, that are tried.
_MOST_CONJUNCTS, _MOST_FACTS = 16, 24
#: Most times that all conjuncts of a gate are simplified: a shorter conjunct may state more.
_MOST_ROUNDS = 3


class _Fact(NamedTuple):
    """A sum of terms, of which the first has a positive coefficient and all have none in common, and its bounds."""

    terms: _Terms
    bounds: Bounds

    @property
    def node(self) -> UOp:
        """The sum as a node."""
        return build_affine_sum(AffineSum(dict(self.terms), 0))


def simplify_under_gate(index: UOp, gate: UOp, simplify: Simplify) -> UOp:
    """Return an index expression, in normal form, that equals `index` wherever `gate` is true. Both are arithmetic and read no
    memory.
    """
    return _simplify_under_facts(index, _derive_facts(list(split_conjuncts(gate))), simplify)


def simplify_gate(gate: UOp, simplify: Simplify) -> UOp:
    """Return a gate that is true where `gate` is: each conjunct simplified under the others.

    A gate of one conjunct, or of too many, comes back as it is.
    """
    conjuncts = list(split_conjuncts(gate))
    if not 1 < len(conjuncts) <= _MOST_CONJUNCTS:
        return gate
    for _ in range(_MOST_ROUNDS):
        before = list(conjuncts)
        for k in sorted(range(len(conjuncts)), key=lambda k: -weighted_tree_cost(conjuncts[k])):
            others = [c for j, c in enumerate(conjuncts) if j != k and c.op is not Op.CONST]
            conjuncts[k] = _simplify_under_facts(conjuncts[k], _derive_facts(others), simplify)
        if conjuncts == before:
            break
        gate = simplify(functools.reduce(lambda a, b: UOp(Op.AND, (a, b)), conjuncts))
        conjuncts = list(split_conjuncts(gate))
    return gate


def split_conjuncts(gate: UOp) -> Iterator[UOp]:
    """Yield the conjuncts of a gate, each once, in their order."""
    pending, seen = [gate], set[UOp]()
    while pending:
        u = pending.pop()
        if u.op is Op.AND:
            pending += (u.rhs, u.lhs)
        elif u not in seen:
            seen.add(u)
            yield u


# Facts


def _derive_facts(conjuncts: Sequence[UOp]) -> list[_Fact]:
    """Return the facts that conjuncts state, and those that follow for single terms, if they say more than min_max does."""
    bounds: dict[_Terms, Bounds] = {}
    for c in conjuncts[:_MOST_CONJUNCTS]:
        if c.op in _COMPARISONS and c.lhs.dtype is dt.index:
            for terms, stated in _bound_difference(c):
                bounds[terms] = _intersect(bounds.get(terms, _UNBOUNDED), stated)
    facts = {terms: _intersect(stated, _bounds_of_terms(terms)) for terms, stated in bounds.items()}
    of_term: dict[UOp, Bounds] = {}
    for terms, known in facts.items():
        for u, k in terms:
            others = _bounds_of_terms(tuple([(v, n) for v, n in terms if v is not u]))
            implied = _intersect(_own_bounds(u), _divide_bounds(_subtract_bounds(known, others), k))
            of_term[u] = _intersect(of_term.get(u, _UNBOUNDED), implied)
    for u, implied in of_term.items():
        facts[(u, 1),] = _intersect(facts.get(((u, 1),), _UNBOUNDED), implied)
    useful = [_Fact(terms, known) for terms, known in facts.items() if known != _bounds_of_terms(terms)]
    return [f for f in useful if None not in f.bounds and f.bounds[0] <= f.bounds[1]][:_MOST_FACTS]  # type: ignore[operator]


def _bound_difference(comparison: UOp) -> Iterator[tuple[_Terms, Bounds]]:
    """Yield the terms of a difference that a comparison bounds, in the form of facts, with these bounds."""
    left, right = extract_affine_sum(comparison.lhs), extract_affine_sum(comparison.rhs)
    terms = dict(left.terms)
    for u, k in right.terms.items():
        terms[u] = terms.get(u, 0) - k
    terms = {u: k for u, k in terms.items() if k}
    if not terms:
        return
    limit = right.constant - left.constant  # terms `op` limit
    lo, hi = {
        Op.CMPLT: (None, limit - 1), Op.CMPLE: (None, limit), Op.CMPGT: (limit + 1, None), Op.CMPGE: (limit, None),
        Op.CMPEQ: (limit, limit),
    }[comparison.op]  # fmt: skip
    common = math.gcd(*terms.values())
    if next(iter(terms.values())) < 0:
        common = -common
    yield tuple((u, k // common) for u, k in terms.items()), _divide_bounds((lo, hi), common)


def _own_bounds(u: UOp) -> Bounds:
    """Return the bounds that min_max gives an index node; None for an infinite one."""
    low, high = u.min_max or _UNBOUNDED
    return None if low is None or low == -math.inf else int(low), None if high is None or high == math.inf else int(high)


def _bounds_of_terms(terms: _Terms) -> Bounds:
    """Return the bounds of a sum by those of its terms."""
    lo: int | None = 0
    hi: int | None = 0
    for u, k in terms:
        a, b = _own_bounds(u)
        if k < 0:
            a, b = b, a
        lo = None if lo is None or a is None else lo + k * a
        hi = None if hi is None or b is None else hi + k * b
    return lo, hi


def _intersect(a: Bounds, b: Bounds) -> Bounds:
    lows, highs = [int(x[0]) for x in (a, b) if x[0] is not None], [int(x[1]) for x in (a, b) if x[1] is not None]
    return max(lows, default=None), min(highs, default=None)


def _subtract_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Return the bounds of x - y, of x within a and y within b."""
    return None if a[0] is None or b[1] is None else a[0] - b[1], None if a[1] is None or b[0] is None else a[1] - b[0]


def _divide_bounds(bounds: Bounds, k: int) -> Bounds:
    """Return the bounds of an integer x of which k * x has these bounds."""
    lo, hi = bounds if k > 0 else (None if bounds[1] is None else -bounds[1], None if bounds[0] is None else -bounds[0])
    k = abs(k)
    return None if lo is None else -(-lo // k), None if hi is None else hi // k


# Their use


def _simplify_under_facts(root: UOp, facts: Sequence[_Fact], simplify: Simplify) -> UOp:
    """Return the cheapest form of an expression that was found under facts."""
    root = simplify(root)
    if not facts:
        return root
    best = root
    of_leaves = [f for f in facts if len(f.terms) == 1 and f.terms[0][0].op in _LEAVES]
    of_nodes = [f for f in facts if len(f.terms) == 1 and f.terms[0][0].op not in _LEAVES]
    # Sums come first, as a term that is replaced may leave no such sum. Leaves come before nodes, which hide the leaves in them.
    attempts = (
        (_simplify_divisions_and_comparisons_by_facts, facts),
        (_multiply_out_exact_quotients, of_nodes),
        (_simplify_with_terms_as_bounded_variables, of_leaves),
        (_simplify_with_terms_as_bounded_variables, of_nodes),
        (_simplify_divisions_and_comparisons_by_facts, facts),
    )
    for attempt, useful in attempts:
        changed = attempt(best, useful, simplify) if useful else best
        if weighted_tree_cost(changed) < weighted_tree_cost(best):
            best = changed
    return best


def _simplify_with_terms_as_bounded_variables(root: UOp, facts: Sequence[_Fact], simplify: Simplify) -> UOp:
    """Simplify an expression with a variable in place of each term that is bounded alone."""
    variables = {f.terms[0][0]: _variable_or_constant_of_fact(k, f) for k, f in enumerate(facts)}
    replaced = substitute(root, variables)
    if replaced is root:
        return root
    return _restore_sums(simplify(replaced), {v: u for u, v in variables.items()}, simplify)


def _simplify_divisions_and_comparisons_by_facts(root: UOp, facts: Sequence[_Fact], simplify: Simplify) -> UOp:
    """Simplify each division, remainder and comparison of an expression with variables in place of the sums that facts bound.

    The bounds of a quotient or remainder that follow are a fact about the nodes that use it.
    """
    known = list(facts)
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        if not u.src:
            continue
        new = u if done.keys().isdisjoint(u.src) else simplify(u.replace(src=tuple([done.get(s, s) for s in u.src])))
        if new.op in DIVISION | _COMPARISONS and new.lhs.dtype is dt.index:
            new, bounds = _simplify_and_bound_by_facts_on_left_side(new, known, simplify)
            if new.op in DIVISION and None not in bounds and bounds != _own_bounds(new) and len(known) < _MOST_FACTS:
                known.append(_Fact(((new, 1),), bounds))
        if new is not u:
            done[u] = new
    return simplify(done.get(root, root))


def _multiply_out_exact_quotients(root: UOp, facts: Sequence[_Fact], simplify: Simplify) -> UOp:
    """Replace `k * (x // m)` by `k / m * x`, where a fact says that `x % m` is 0 and k is a multiple of m."""
    remainders = [u for f in facts for u, _ in f.terms if u.op is Op.MOD and f.bounds == (0, 0)]
    quotients = {UOp(Op.IDIV, u.src): u for u in remainders}
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        new = u if done.keys().isdisjoint(u.src) else u.replace(src=tuple([done.get(s, s) for s in u.src]))
        total = extract_affine_sum(new) if new.dtype is dt.index else AffineSum({}, 0)
        for q in total.terms.keys() & quotients.keys():
            m = quotients[q].rhs
            if m.op is Op.CONST and m.arg.value and total.terms[q] % m.arg.value == 0:
                factor, dividend = total.terms[q] // m.arg.value, extract_affine_sum(quotients[q].lhs)
                terms = {t: k for t, k in total.terms.items() if t is not q}
                for t, k in dividend.terms.items():
                    terms[t] = terms.get(t, 0) + factor * k
                total = AffineSum({t: k for t, k in terms.items() if k}, total.constant + factor * dividend.constant)
                new = build_affine_sum(total)
        if new is not u:
            done[u] = new
    return simplify(done[root]) if root in done else root


def _simplify_and_bound_by_facts_on_left_side(u: UOp, facts: Sequence[_Fact], simplify: Simplify) -> tuple[UOp, Bounds]:
    """Return the cheapest form of a division, remainder or comparison that was found with variables in its left side, and its
    bounds.
    """
    total = extract_affine_sum(u.lhs)
    best, several, originals = u, total, dict[UOp, UOp]()
    for k, fact in enumerate(facts):
        variable = _variable_or_constant_of_fact(k, fact)
        one = _express_by_variable(total, fact, variable)
        if one is None and u.op in DIVISION and u.rhs.op is Op.CONST:
            one = _express_by_variable_and_multiples(total, fact, variable, int(u.rhs.arg.value))
        more = _express_by_variable(several, fact, variable)
        if one is not None and len(fact.terms) > 1:
            best = min(best, _simplify_with_left_side(u, one, {variable: fact.node}, simplify), key=weighted_tree_cost)
        if more is not None:
            several, originals[variable] = more, fact.node
    if not originals:
        return best, _UNBOUNDED
    simplified = simplify(UOp(u.op, (build_affine_sum(several), u.rhs)))
    best = min(best, _restore_sums(simplified, originals, simplify), key=weighted_tree_cost)
    return best, _intersect(_own_bounds(simplified), _own_bounds(best))


def _simplify_with_left_side(u: UOp, left: AffineSum, originals: dict[UOp, UOp], simplify: Simplify) -> UOp:
    """Simplify `u` with another left side, and replace its variables by what they stand for."""
    return _restore_sums(simplify(UOp(u.op, (build_affine_sum(left), u.rhs))), originals, simplify)


def _restore_sums(root: UOp, originals: dict[UOp, UOp], simplify: Simplify) -> UOp:
    """Replace variables by what they stand for. A constant in place of a variable stays."""
    return simplify(substitute(root, {v: u for v, u in originals.items() if v.op is not Op.CONST}))


def _express_by_variable(total: AffineSum, fact: _Fact, variable: UOp) -> AffineSum | None:
    """Return a sum with a multiple of a variable or constant for that multiple of the fact's sum; None if there is none in it."""
    first, coefficient = fact.terms[0]
    factor, rest = divmod(total.terms.get(first, 0), coefficient)
    if rest or not factor or any(total.terms.get(u, 0) != factor * k for u, k in fact.terms):
        return None
    inside = {u for u, _ in fact.terms}
    others = {u: k for u, k in total.terms.items() if u not in inside}
    if variable.op is Op.CONST:  # one node may stand for several facts, so it is no term
        return AffineSum(others, total.constant + factor * variable.arg.value)
    return AffineSum({variable: factor} | others, total.constant)


def _express_by_variable_and_multiples(total: AffineSum, fact: _Fact, variable: UOp, divisor: int) -> AffineSum | None:
    """Return a sum with a variable or constant for the fact's sum or its negation, if that leaves multiples of the divisor of its
    terms.

    With a fact about y - x, 58x + y by 59 becomes v + 59x.
    """
    inside = {u for u, _ in fact.terms}
    others = {u: k for u, k in total.terms.items() if u not in inside}
    for factor in (1, -1) if divisor else ():
        rest = {u: left for u, k in fact.terms if (left := total.terms.get(u, 0) - factor * k)}
        if len(rest) == len(fact.terms) or any(k % divisor for k in rest.values()):
            continue
        if variable.op is Op.CONST:
            return AffineSum(others | rest, total.constant + factor * variable.arg.value)
        return AffineSum({variable: factor} | others | rest, total.constant)
    return None


def _variable_or_constant_of_fact(number: int, fact: _Fact) -> UOp:
    """Return an index variable with the bounds of a fact; a constant if they are one value."""
    lo, hi = fact.bounds
    assert lo is not None and hi is not None
    return index_constant(lo) if lo == hi else B.variable(f"fact {number}", lo, hi).replace(tag=_OWN)
