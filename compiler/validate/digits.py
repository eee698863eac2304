"""The iteration in which an access touches an element, as sums.

Takes: a `Site` and the sum of an element. Gives: the condition that this iteration is one of the access and touches the element.
How the sums are found counts for nothing: the condition says all that has to hold of them, and the solver decides it.
Spec: R45, R52.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from uops.compiler.validate import terms as T
from uops.compiler.validate.decide import facts_of, tightened
from uops.compiler.validate.sites import Site
from uops.compiler.validate.terms import App, Atom, Cond, Interval, Lin, Var

_Pairs = set[tuple[object, object]]


def decoded(s: Site, element: Lin) -> Cond | None:
    """That `s` touches the element: the counters of the site as digits of it, which are in bounds, satisfy the gate and give the
    element. Digits count as far as they go, from the one that counts most (a window's overlap). What memory holds is taken
    as the same where it stands in both. None where no such digits are to be found."""
    known = tightened(facts_of(s.condition)) or {}
    put: dict[Var, Lin] = {}
    done: _Pairs = set()
    for t, c in s.index.terms:
        if isinstance(t, App) and any(v in s.counters for v in T.unknowns(t)):
            other = next((o for o, k in element.terms if k == c and isinstance(o, App) and o.op == t.op), None)
            if other is None or not _unified(t, other, s, known, put, done):
                return None
    index = T.substituted(s.index, put)
    digits = [(v, c) for v, c in index.terms if isinstance(v, Var) and v in s.counters]
    fixed = Lin(index.const, tuple([(v, c) for v, c in index.terms if not (isinstance(v, Var) and v in s.counters)]))
    rest = _digits(digits, T.add(element, fixed, -1), known, put)
    checks = T.TRUE
    for v in s.counters:
        put.setdefault(v, Lin(known.get(v, (v.low, v.high))[0]))
        checks = T.both(checks, T.both(T.at_least(T.add(put[v], Lin(v.low), -1)), T.at_least(T.add(Lin(v.high), put[v], -1))))
    return T.both(T.both(T.is_zero(rest), checks), T.substituted(s.condition, put))


def _digits(digits: Iterable[tuple[Var, int]], rest: Lin, known: Mapping[Atom, Interval], put: dict[Var, Lin]) -> Lin:
    """Put the digits of `rest`; gives what is left of it."""
    ordered = sorted(digits, key=lambda d: -abs(d[1]))
    limits = [known.get(v, (v.low, v.high)) for v, _ in ordered]
    starts = [low if c > 0 else high for (_, c), (low, high) in zip(ordered, limits)]  # where each counts least
    for (_, c), start in zip(ordered, starts):
        rest = T.add(rest, Lin(c * start), -1)
    span = sum(abs(c) * (high - low) for (_, c), (low, high) in zip(ordered, limits))
    for (v, c), (low, high), start in zip(ordered, limits, starts):
        span -= abs(c) * (high - low)  # the most that the lesser digits give
        step = _bounded(quotient(_raised(rest, abs(c), abs(c) - 1 - span), abs(c)), high - low)
        put[v] = T.add(Lin(start), step, 1 if c > 0 else -1)
        rest = T.add(rest, step, -abs(c))
    return rest


def _unified(a: App, b: App, s: Site, known: Mapping[Atom, Interval], put: dict[Var, Lin], done: _Pairs) -> bool:
    """Whether some counters of `s`, which are put, may make `b` of `a`; whether they do, the solver says. Pairs in `done` were
    made alike, and those that cannot be end it all."""
    if (a, b) in done:
        return True
    if a.op != b.op or len(a.args) != len(b.args):
        return False
    done.add((a, b))
    return all(_alike(x, y, s, known, put, done) for x, y in zip(a.args, b.args))


def _alike(
    x: Lin | Cond | str, y: Lin | Cond | str, s: Site, known: Mapping[Atom, Interval], put: dict[Var, Lin], done: _Pairs
) -> bool:  # fmt: skip
    if (x, y) in done:
        return True
    if isinstance(x, str) or isinstance(y, str):
        return x == y
    done.add((x, y))
    if isinstance(x, Cond) or isinstance(y, Cond):
        same = isinstance(x, Cond) and isinstance(y, Cond) and x.op == y.op and len(x.args) == len(y.args)
        return same and all(_alike(a, b, s, known, put, done) for a, b in zip(x.args, y.args))  # type: ignore[union-attr]
    apps = [[(t, c) for t, c in z.terms if isinstance(t, App)] for z in (x, y)]
    if len(apps[0]) != len(apps[1]):
        return False
    for (t, c), (o, k) in zip(*apps):
        if c != k or not _unified(t, o, s, known, put, done):
            return False
    rest = Lin(x.const, tuple([(t, c) for t, c in x.terms if isinstance(t, Var) and t not in s.counters]))
    value = Lin(y.const, tuple([(t, c) for t, c in y.terms if isinstance(t, Var)]))
    digits = [(t, c) for t, c in x.terms if isinstance(t, Var) and t in s.counters and t not in put]
    _digits(digits, T.add(value, rest, -1), known, put)
    return True


def _raised(a: Lin, c: int, room: int) -> Lin:
    """a, or up to `room` more, so that what are no multiples of c are not below 0."""
    low = T.bounds(Lin(a.const, _part(a, c, False).terms))[0]
    return T.add(a, Lin(max(0, min(room, -low))))


def quotient(a: Lin, c: int) -> Lin:
    """floor(a / c), as a sum as far as that is seen: what does not reach the next multiple of a divisor of c does not count, and
    multiples of c are divided one by one."""
    g = next(g for g in sorted({1, c, *(math.gcd(c, k) for _, k in a.terms)}, reverse=True) if _within(_part(a, g, False), g))
    coarse = _part(a, g, True)
    whole, rest = _part(coarse, c // g, True), _part(coarse, c // g, False)
    return T.add(whole, T.of(App("idiv", (rest, Lin(c // g))))) if rest.terms else whole


def _part(a: Lin, n: int, whole: bool) -> Lin:
    """Of a = n q + r, where r has the terms that are no multiples of n: q if `whole`, else r."""
    if whole:
        return Lin(a.const // n, tuple([(t, k // n) for t, k in a.terms if k % n == 0]))
    return Lin(a.const % n, tuple([(t, k) for t, k in a.terms if k % n]))


def _within(a: Lin, n: int) -> bool:
    low, high = T.bounds(a)
    return 0 <= low and high < n


def _bounded(a: Lin, most: int) -> Lin:
    """The least of a and a constant."""
    if T.bounds(a)[1] <= most:
        return a
    return T.scale(T.of(App("max", (T.scale(a, -1), Lin(-most)))), -1)
