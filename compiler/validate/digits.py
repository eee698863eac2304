"""Iterations of an access that touch a given element, solved as sums.

Takes: an `AccessSite` and the sum of an element. Gives: the condition that an iteration belongs to the access and touches the
element. The search for these sums need not be sound: the condition states all that they must satisfy, and the solver decides it.
Spec: R45 (Index: positions are in bounds), R52 (Load: a false gate leaves the address untouched).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from uops.compiler.validate import terms as T
from uops.compiler.validate.decide import derive_condition_bounds_unless_contradictory
from uops.compiler.validate.sites import AccessSite
from uops.compiler.validate.terms import Atom, Condition, Interval, LinearSum, Operation, Unknown

_UnifiedPairs = set[tuple[object, object]]


def find_sufficient_touch_conditions(site: AccessSite, element: LinearSum) -> Iterator[Condition]:
    """Yield conditions that `site` touches the element, with its counters solved as digits of the element.

    The digits must be in bounds, satisfy the gate, and give the element. They are taken as far as they go, from the most
    significant one. Windows overlap, so an element has several solutions: a second one takes counters of the element where
    they have equal steps and bounds. Values of memory are assumed equal if they occur in both.
    """
    matched = _match_counters(site, element)
    for put in ({}, matched) if matched else ({},):
        if (condition := _solve_touch_condition(site, element, put)) is not None:
            yield condition


def _match_counters(site: AccessSite, element: LinearSum) -> dict[Unknown, LinearSum]:
    """Return the counters of a site whose step and bounds are those of a counter of the element, each with that counter."""
    left = [(o, c) for o, c in element.terms if isinstance(o, Unknown)]
    matched: dict[Unknown, LinearSum] = {}
    for v, c in site.index.terms:
        if isinstance(v, Unknown) and v in site.counters:
            found = next(((o, k) for o, k in left if k == c and (o.low, o.high) == (v.low, v.high)), None)
            if found is not None:
                left.remove(found)
                matched[v] = LinearSum(0, ((found[0], 1),))
    return matched


def _solve_touch_condition(site: AccessSite, element: LinearSum, put: dict[Unknown, LinearSum]) -> Condition | None:
    """Return the condition that `site` touches the element, with the counters that `put` lacks solved as digits; None if no digits
    are found.
    """
    bounds = derive_condition_bounds_unless_contradictory(site.condition) or {}
    done: _UnifiedPairs = set()
    for t, c in site.index.terms:
        if isinstance(t, Operation) and any(v in site.counters for v in T.collect_unknowns(t)):
            other = next((o for o, k in element.terms if k == c and isinstance(o, Operation) and o.op == t.op), None)
            if other is None or not _propose_counters_to_match_operations(t, other, site, bounds, put, done):
                return None
    index = T.substitute(site.index, put)
    digits = [(v, c) for v, c in index.terms if isinstance(v, Unknown) and v in site.counters]
    fixed = LinearSum(index.const, tuple([(v, c) for v, c in index.terms if not (isinstance(v, Unknown) and v in site.counters)]))
    rest = _solve_digits_and_return_rest(digits, T.add(element, fixed, -1), bounds, put)
    checks = T.TRUE
    for v in site.counters:
        put.setdefault(v, LinearSum(bounds.get(v, (v.low, v.high))[0]))
        checks = T.conjoin(
            checks,
            T.conjoin(
                T.is_nonnegative(T.add(put[v], LinearSum(v.low), -1)), T.is_nonnegative(T.add(LinearSum(v.high), put[v], -1))
            ),
        )
    return T.conjoin(T.conjoin(T.is_zero(rest), checks), T.substitute(site.condition, put))


def _solve_digits_and_return_rest(
    weighted_digits: Iterable[tuple[Unknown, int]],
    number: LinearSum,
    bounds: Mapping[Atom, Interval],
    solution_to_extend: dict[Unknown, LinearSum],
) -> LinearSum:
    """Put the digits of `number` into `solution_to_extend`, and return the remainder."""
    ordered = sorted(weighted_digits, key=lambda d: -abs(d[1]))
    limits = [bounds.get(v, (v.low, v.high)) for v, _ in ordered]
    least_values = [low if c > 0 else high for (_, c), (low, high) in zip(ordered, limits)]  # the value that contributes least
    for (_, c), start in zip(ordered, least_values):
        number = T.add(number, LinearSum(c * start), -1)
    span = sum(abs(c) * (high - low) for (_, c), (low, high) in zip(ordered, limits))
    for (v, c), (low, high), start in zip(ordered, limits, least_values):
        span -= abs(c) * (high - low)  # the greatest value of the less significant digits
        step = _clamp_to_maximum(floor_divide_sum(_raise_remainder(number, abs(c), abs(c) - 1 - span), abs(c)), high - low)
        solution_to_extend[v] = T.add(LinearSum(start), step, 1 if c > 0 else -1)
        number = T.add(number, step, -abs(c))
    return number


def _propose_counters_to_match_operations(
    site_operation: Operation,
    element_operation: Operation,
    site: AccessSite,
    bounds: Mapping[Atom, Interval],
    solution_to_extend: dict[Unknown, LinearSum],
    seen_pairs: _UnifiedPairs,
) -> bool:
    """Try to solve counters of `site` such that `site_operation` becomes `element_operation`; the solver decides later whether
    they do.

    `seen_pairs` has the pairs that are unified already. Returns False if a pair cannot be unified.
    """
    if (site_operation, element_operation) in seen_pairs:
        return True
    if site_operation.op != element_operation.op or len(site_operation.args) != len(element_operation.args):
        return False
    seen_pairs.add((site_operation, element_operation))
    return all(
        _propose_counters_to_match_terms(x, y, site, bounds, solution_to_extend, seen_pairs)
        for x, y in zip(site_operation.args, element_operation.args)
    )


def _propose_counters_to_match_terms(
    site_term: LinearSum | Condition | str,
    element_term: LinearSum | Condition | str,
    site: AccessSite,
    bounds: Mapping[Atom, Interval],
    solution_to_extend: dict[Unknown, LinearSum],
    seen_pairs: _UnifiedPairs,
) -> bool:
    """Try to solve counters of `site` such that `site_term` becomes `element_term`. Returns False if they cannot."""
    if (site_term, element_term) in seen_pairs:
        return True
    if isinstance(site_term, str) or isinstance(element_term, str):
        return site_term == element_term
    seen_pairs.add((site_term, element_term))
    if isinstance(site_term, Condition) or isinstance(element_term, Condition):
        same = (
            isinstance(site_term, Condition)
            and isinstance(element_term, Condition)
            and site_term.op == element_term.op
            and len(site_term.args) == len(element_term.args)
        )
        return same and all(
            _propose_counters_to_match_terms(a, b, site, bounds, solution_to_extend, seen_pairs)
            for a, b in zip(site_term.args, element_term.args)  # type: ignore[union-attr]
        )
    apps = [[(t, c) for t, c in z.terms if isinstance(t, Operation)] for z in (site_term, element_term)]
    if len(apps[0]) != len(apps[1]):
        return False
    for (t, c), (o, k) in zip(*apps):
        if c != k or not _propose_counters_to_match_operations(t, o, site, bounds, solution_to_extend, seen_pairs):
            return False
    rest = LinearSum(
        site_term.const, tuple([(t, c) for t, c in site_term.terms if isinstance(t, Unknown) and t not in site.counters])
    )
    value = LinearSum(element_term.const, tuple([(t, c) for t, c in element_term.terms if isinstance(t, Unknown)]))
    digits = [(t, c) for t, c in site_term.terms if isinstance(t, Unknown) and t in site.counters and t not in solution_to_extend]
    _solve_digits_and_return_rest(digits, T.add(value, rest, -1), bounds, solution_to_extend)
    return True


def _raise_remainder(a: LinearSum, c: int, room: int) -> LinearSum:
    """Return `a` plus at most `room`, so that its terms that are no multiples of c are not below 0."""
    low = T.bounds(LinearSum(a.const, _split_off_quotient_or_remainder(a, c, False).terms))[0]
    return T.add(a, LinearSum(max(0, min(room, -low))))


def floor_divide_sum(a: LinearSum, c: int) -> LinearSum:
    """Return floor(a / c), as a sum as far as possible.

    Terms that never reach the next multiple of a divisor of c are dropped, and multiples of c are divided term by term.
    """
    g = next(
        g
        for g in sorted({1, c, *(math.gcd(c, k) for _, k in a.terms)}, reverse=True)
        if _is_within(_split_off_quotient_or_remainder(a, g, False), g)
    )
    coarse = _split_off_quotient_or_remainder(a, g, True)
    whole, rest = _split_off_quotient_or_remainder(coarse, c // g, True), _split_off_quotient_or_remainder(coarse, c // g, False)
    return T.add(whole, T.as_sum(Operation("idiv", (rest, LinearSum(c // g))))) if rest.terms else whole


def _split_off_quotient_or_remainder(a: LinearSum, n: int, want_quotient: bool) -> LinearSum:
    """Return q or r of a = n q + r, where r has the terms that are no multiples of n."""
    if want_quotient:
        return LinearSum(a.const // n, tuple([(t, k // n) for t, k in a.terms if k % n == 0]))
    return LinearSum(a.const % n, tuple([(t, k) for t, k in a.terms if k % n]))


def _is_within(a: LinearSum, n: int) -> bool:
    low, high = T.bounds(a)
    return 0 <= low and high < n


def _clamp_to_maximum(a: LinearSum, maximum: int) -> LinearSum:
    """Return min(a, maximum)."""
    if T.bounds(a)[1] <= maximum:
        return a
    return T.scale(T.as_sum(Operation("max", (T.scale(a, -1), LinearSum(-maximum)))), -1)
