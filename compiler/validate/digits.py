"""Iterations of an access that touch a given element, solved as sums.

Takes: an `AccessSite` and the sum of an element. Gives: the condition that an iteration belongs to the access and touches the
element. The search for these sums need not be sound: the condition states all that they must satisfy, and the solver decides it.
Spec: R45 (Index: positions are in bounds), R52 (Load: a false gate leaves the address untouched).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from uops.compiler.validate import terms as T
from uops.compiler.validate.decide import extract_nonnegative_sums, tighten_bounds
from uops.compiler.validate.sites import AccessSite
from uops.compiler.validate.terms import App, Atom, Cond, Interval, Lin, Var

_Pairs = set[tuple[object, object]]


def decode_iteration(site: AccessSite, element: Lin) -> Cond | None:
    """Return the condition that `site` touches the element, with its counters solved as digits of the element.

    The digits must be in bounds, satisfy the gate, and give the element. They are taken as far as they go, from the most
    significant one, as windows may overlap. Values of memory are assumed equal if they occur in both. Returns None if no digits
    are found.
    """
    bounds = tighten_bounds(extract_nonnegative_sums(site.condition)) or {}
    put: dict[Var, Lin] = {}
    done: _Pairs = set()
    for t, c in site.index.terms:
        if isinstance(t, App) and any(v in site.counters for v in T.unknowns(t)):
            other = next((o for o, k in element.terms if k == c and isinstance(o, App) and o.op == t.op), None)
            if other is None or not _unify_applications(t, other, site, bounds, put, done):
                return None
    index = T.substitute(site.index, put)
    digits = [(v, c) for v, c in index.terms if isinstance(v, Var) and v in site.counters]
    fixed = Lin(index.const, tuple([(v, c) for v, c in index.terms if not (isinstance(v, Var) and v in site.counters)]))
    rest = _solve_digits(digits, T.add(element, fixed, -1), bounds, put)
    checks = T.TRUE
    for v in site.counters:
        put.setdefault(v, Lin(bounds.get(v, (v.low, v.high))[0]))
        checks = T.conjoin(
            checks, T.conjoin(T.is_nonnegative(T.add(put[v], Lin(v.low), -1)), T.is_nonnegative(T.add(Lin(v.high), put[v], -1)))
        )
    return T.conjoin(T.conjoin(T.is_zero(rest), checks), T.substitute(site.condition, put))


def _solve_digits(digits: Iterable[tuple[Var, int]], rest: Lin, bounds: Mapping[Atom, Interval], solution: dict[Var, Lin]) -> Lin:
    """Put the digits of `rest` into `solution`, and return the remainder."""
    ordered = sorted(digits, key=lambda d: -abs(d[1]))
    limits = [bounds.get(v, (v.low, v.high)) for v, _ in ordered]
    least_values = [low if c > 0 else high for (_, c), (low, high) in zip(ordered, limits)]  # the value that contributes least
    for (_, c), start in zip(ordered, least_values):
        rest = T.add(rest, Lin(c * start), -1)
    span = sum(abs(c) * (high - low) for (_, c), (low, high) in zip(ordered, limits))
    for (v, c), (low, high), start in zip(ordered, limits, least_values):
        span -= abs(c) * (high - low)  # the greatest value of the less significant digits
        step = _clamp_to_maximum(floor_divide_sum(_raise_remainder(rest, abs(c), abs(c) - 1 - span), abs(c)), high - low)
        solution[v] = T.add(Lin(start), step, 1 if c > 0 else -1)
        rest = T.add(rest, step, -abs(c))
    return rest


def _unify_applications(
    a: App, b: App, site: AccessSite, bounds: Mapping[Atom, Interval], solution: dict[Var, Lin], done: _Pairs
) -> bool:
    """Try to solve counters of `site` such that `a` becomes `b`; the solver decides later whether they do.

    `done` has the pairs that are unified already. Returns False if a pair cannot be unified.
    """
    if (a, b) in done:
        return True
    if a.op != b.op or len(a.args) != len(b.args):
        return False
    done.add((a, b))
    return all(_unify_terms(x, y, site, bounds, solution, done) for x, y in zip(a.args, b.args))


def _unify_terms(
    x: Lin | Cond | str,
    y: Lin | Cond | str,
    site: AccessSite,
    bounds: Mapping[Atom, Interval],
    solution: dict[Var, Lin],
    done: _Pairs,
) -> bool:
    """Try to solve counters of `site` such that `x` becomes `y`. Returns False if they cannot."""
    if (x, y) in done:
        return True
    if isinstance(x, str) or isinstance(y, str):
        return x == y
    done.add((x, y))
    if isinstance(x, Cond) or isinstance(y, Cond):
        same = isinstance(x, Cond) and isinstance(y, Cond) and x.op == y.op and len(x.args) == len(y.args)
        return same and all(_unify_terms(a, b, site, bounds, solution, done) for a, b in zip(x.args, y.args))  # type: ignore[union-attr]
    apps = [[(t, c) for t, c in z.terms if isinstance(t, App)] for z in (x, y)]
    if len(apps[0]) != len(apps[1]):
        return False
    for (t, c), (o, k) in zip(*apps):
        if c != k or not _unify_applications(t, o, site, bounds, solution, done):
            return False
    rest = Lin(x.const, tuple([(t, c) for t, c in x.terms if isinstance(t, Var) and t not in site.counters]))
    value = Lin(y.const, tuple([(t, c) for t, c in y.terms if isinstance(t, Var)]))
    digits = [(t, c) for t, c in x.terms if isinstance(t, Var) and t in site.counters and t not in solution]
    _solve_digits(digits, T.add(value, rest, -1), bounds, solution)
    return True


def _raise_remainder(a: Lin, c: int, room: int) -> Lin:
    """Return `a` plus at most `room`, so that its terms that are no multiples of c are not below 0."""
    low = T.bounds(Lin(a.const, _quotient_or_remainder(a, c, False).terms))[0]
    return T.add(a, Lin(max(0, min(room, -low))))


def floor_divide_sum(a: Lin, c: int) -> Lin:
    """Return floor(a / c), as a sum as far as possible.

    Terms that never reach the next multiple of a divisor of c are dropped, and multiples of c are divided term by term.
    """
    g = next(
        g
        for g in sorted({1, c, *(math.gcd(c, k) for _, k in a.terms)}, reverse=True)
        if _is_within(_quotient_or_remainder(a, g, False), g)
    )
    coarse = _quotient_or_remainder(a, g, True)
    whole, rest = _quotient_or_remainder(coarse, c // g, True), _quotient_or_remainder(coarse, c // g, False)
    return T.add(whole, T.as_sum(App("idiv", (rest, Lin(c // g))))) if rest.terms else whole


def _quotient_or_remainder(a: Lin, n: int, want_quotient: bool) -> Lin:
    """Return q or r of a = n q + r, where r has the terms that are no multiples of n."""
    if want_quotient:
        return Lin(a.const // n, tuple([(t, k // n) for t, k in a.terms if k % n == 0]))
    return Lin(a.const % n, tuple([(t, k) for t, k in a.terms if k % n]))


def _is_within(a: Lin, n: int) -> bool:
    low, high = T.bounds(a)
    return 0 <= low and high < n


def _clamp_to_maximum(a: Lin, most: int) -> Lin:
    """Return min(a, most)."""
    if T.bounds(a)[1] <= most:
        return a
    return T.scale(T.as_sum(App("max", (T.scale(a, -1), Lin(-most)))), -1)
