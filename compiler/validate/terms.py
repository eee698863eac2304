"""Integers and conditions of a kernel, read as mathematics.

Takes: nothing. Gives: `Lin`, a sum of multiples of atoms, and conditions over them. An atom is a `Var` (a loop counter, a lane, a
named variable, or a value that memory holds) or an `App` of an operation that is not linear. Arithmetic of sums is all that is
worked out here; every other operation stays as it was written. `bounds` gives intervals, `values` the numbers at many points.
Spec: R01 to R05 and R08.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from uops.spec.record import dataclass

#: What is known of a value of which nothing is known.
FAR = 1 << 70


@dataclass(frozen=True, slots=True)
class Var:
    """An unknown in [low, high]; `loaded`: what memory holds, or an operation on it that is not read here; `stored`: memory that
    the body changes holds it, so that more may be true of it."""

    name: str
    low: int
    high: int
    loaded: bool = False
    stored: bool = False


@dataclass(frozen=True, slots=True)
class App:
    """An operation on sums (or conditions): idiv, mod, mul, max, and, or, xor, shl, shr, where, or wrap-N, the number that a dtype
    N stores, or table, of which the first argument numbers one of the others, or held-N-S, what the memory of argument S holds
    at an element, in a dtype N."""

    op: str
    args: tuple[Lin | Cond, ...]


Atom = Var | App


@dataclass(frozen=True, slots=True)
class Lin:
    """`const` + the sum of coefficient * atom, in the order in which the atoms were met."""

    const: int
    terms: tuple[tuple[Atom, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Cond:
    """A truth: `>=0`, `==0` of one sum; `and`, `or`, `not` of conditions; `true`; `held`, what the memory of an
    argument (by its slot) holds at an element."""

    op: str
    args: tuple[Lin | Cond | str, ...] = ()


TRUE = Cond("true")
FALSE = Cond("not", (TRUE,))
ZERO, ONE = Lin(0), Lin(1)

# Arithmetic


def number(n: int) -> Lin:
    return Lin(n)


def of(a: Atom) -> Lin:
    return Lin(0, ((a, 1),))


def add(a: Lin, b: Lin, k: int = 1) -> Lin:
    """a + k b."""
    if not b.terms:
        return Lin(a.const + k * b.const, a.terms)
    found = dict(a.terms)
    for t, c in b.terms:
        found[t] = found.get(t, 0) + k * c
    return Lin(a.const + k * b.const, tuple([(t, c) for t, c in found.items() if c]))


def scale(a: Lin, k: int) -> Lin:
    return Lin(a.const * k, tuple([(t, c * k) for t, c in a.terms])) if k else ZERO


def mul(a: Lin, b: Lin) -> Lin:
    if not b.terms:
        return scale(a, b.const)
    return scale(b, a.const) if not a.terms else of(App("mul", (a, b)))


def at_least(a: Lin) -> Cond:
    return Cond(">=0", (a,))


def is_zero(a: Lin) -> Cond:
    return Cond("==0", (a,))


def negated(c: Cond) -> Cond:
    return c.args[0] if c.op == "not" else Cond("not", (c,))  # type: ignore[return-value]


def both(a: Cond, b: Cond) -> Cond:
    return b if a is TRUE else a if b is TRUE else Cond("and", (a, b))


def conjuncts(c: Cond) -> list[Cond]:
    if c.op == "and":
        return [x for a in c.args for x in conjuncts(a)]  # type: ignore[arg-type]
    return [] if c.op == "true" else [c]


def substituted(x: Any, put: Mapping[Var, Lin], done: dict[int, Any] | None = None) -> Any:
    """A sum or condition with sums in place of unknowns. `done` is what became of the objects that were met, by their ids: of
    several, while all of them are alive."""
    done = {} if done is None else done
    if id(x) in done:
        return done[id(x)]
    if isinstance(x, Cond):
        made: Any = Cond(x.op, tuple([a if isinstance(a, str) else substituted(a, put, done) for a in x.args]))
    else:
        made = Lin(x.const)
        for t, c in x.terms:
            if isinstance(t, Var):
                made = add(made, put[t] if t in put else of(t), c)
            else:
                made = add(made, _rebuilt(t.op, tuple([substituted(a, put, done) for a in t.args])), c)
    done[id(x)] = made
    return made


def _rebuilt(op: str, args: tuple[Lin | Cond, ...]) -> Lin:
    """An operation on sums; of a product with a number, a sum."""
    if op == "mul":
        a, b = args
        return mul(a, b)  # type: ignore[arg-type]
    return of(App(op, args))


def settled(a: Lin) -> Lin:
    """A sum without unknowns as a number."""
    return a if not a.terms or unknowns(a) or has_held(a) else Lin(int(values(a, {})))


def under(a: Lin, known: Sequence[Cond]) -> Lin:
    """A sum where some conditions are known to hold: a choice by one of them is made."""
    found = Lin(a.const)
    for t, c in a.terms:
        if isinstance(t, App) and known:
            if t.op == "where" and t.args[0] in known:
                found = add(found, under(_sum(t.args[1]), known), c)
                continue
            t = App(t.op, tuple([under(x, known) if isinstance(x, Lin) else x for x in t.args]))
        found = add(found, of(t), c)
    return found


def _sum(x: Lin | Cond) -> Lin:
    assert isinstance(x, Lin)
    return x


def unknowns(x: Lin | Cond | App | str, found: dict[Var, None] | None = None) -> dict[Var, None]:
    """The unknowns of a sum or condition, in the order in which they stand there."""
    found = {} if found is None else found
    if isinstance(x, Lin):
        for t, _ in x.terms:
            if isinstance(t, Var):
                found[t] = None
            else:
                unknowns(t, found)
    elif not isinstance(x, str):
        for a in x.args:
            unknowns(a, found)
    return found


def has_held(x: Lin | Cond | App | str) -> bool:
    """Whether what memory holds at an element stands in it."""
    if isinstance(x, str):
        return False
    if isinstance(x, Lin):
        return any(isinstance(t, App) and has_held(t) for t, _ in x.terms)
    return x.op == "held" or x.op.startswith("held-") or any(has_held(a) for a in x.args)


# Intervals

Interval = tuple[int, int]


def bounds(a: Lin, known: Mapping[Var, Interval] | None = None) -> Interval:
    """An interval that holds the sum, where the unknowns are in theirs, or in those that are `known`."""
    low = high = a.const
    for t, c in a.terms:
        x, y = _atom_bounds(t, known)
        low, high = (low + c * x, high + c * y) if c > 0 else (low + c * y, high + c * x)
    return low, high


def _atom_bounds(t: Atom, known: Mapping[Var, Interval] | None) -> Interval:
    if isinstance(t, Var):
        return (t.low, t.high) if known is None or t not in known else known[t]
    args = [bounds(x, known) for x in t.args if isinstance(x, Lin)]
    rule = _BOUNDS.get(t.op)
    if rule is not None:
        return rule(*args)
    low, high = storage(t.op)
    x, y = args[0]
    return (x, y) if low <= x and y <= high and t.op.startswith("wrap-") else (low, high)


def storage(op: str) -> Interval:
    """The least and the greatest number of the dtype that wrap-i32 or held-i32-1 name; of another operation, anything."""
    kind, _, rest = op.partition("-")
    if kind not in ("wrap", "held"):
        return -FAR, FAR
    signed, bits = rest[0] == "i", int(rest[1:].partition("-")[0])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _div_bounds(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        m = max(abs(a[0]), abs(a[1]))
        return -m, m
    ends = [x // y for x in a for y in b]
    return min(ends), max(ends)


def _mod_bounds(a: Interval, b: Interval) -> Interval:
    if b[0] > 0:
        return (a[0], min(a[1], b[1] - 1)) if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1 if a[0] < 0 else min(a[1], b[1] - 1))
    m = max(*map(abs, a), *map(abs, b))
    return -m, m


def _mul_bounds(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _bit_bounds(a: Interval, b: Interval) -> Interval:
    top = max(x.bit_length() for x in (*a, *b))
    return (0 if a[0] >= 0 and b[0] >= 0 else -(1 << top)), (1 << top) - 1


def _and_bounds(a: Interval, b: Interval) -> Interval:
    tops = [x[1] for x in (a, b) if x[0] >= 0]
    return (0, min(tops)) if tops else _bit_bounds(a, b)


def _shift_bounds(a: Interval, n: Interval) -> Interval:
    return _mul_bounds(a, (1 << n[0], 1 << n[1])) if 0 <= n[0] and n[1] < 64 else (-FAR, FAR)


def _shifted_bounds(a: Interval, n: Interval) -> Interval:
    return _div_bounds(a, (1 << n[0], 1 << n[1])) if 0 <= n[0] and n[1] < 64 else (min(a[0], -1), max(a[1], 0))


_BOUNDS: dict[str, Callable[..., Interval]] = {
    "idiv": _div_bounds,
    "mod": _mod_bounds,
    "mul": _mul_bounds,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "and": _and_bounds,
    "or": _bit_bounds,
    "xor": _bit_bounds,
    "shl": _shift_bounds,
    "shr": _shifted_bounds,
    "where": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "table": lambda k, *of_: (min(x[0] for x in of_), max(x[1] for x in of_)),
}

# Numbers at many points

Numbers = Any  # of NumPy, int64


def values(x: Lin | Cond, at: Mapping[Var, Numbers]) -> Numbers:
    """The value at each point; all unknowns are given, and no step leaves int64."""
    if isinstance(x, Cond):
        return _truth(x, at)
    found: Numbers = np.int64(x.const)
    for t, c in x.terms:
        found = found + (at[t] if isinstance(t, Var) else _applied(t, at)) * np.int64(c)
    return found


def _truth(c: Cond, at: Mapping[Var, Numbers]) -> Numbers:
    if c.op == "true":
        return np.True_
    args = [values(a, at) for a in c.args if not isinstance(a, str)]
    return _TRUTH[c.op](*args)


def _applied(t: App, at: Mapping[Var, Numbers]) -> Numbers:
    args = [values(a, at) for a in t.args if not isinstance(a, str)]
    if t.op in _VALUES:
        return _VALUES[t.op](*args)
    low, high = storage(t.op)
    return (args[0] - low) % (high - low + 1) + low if high - low + 1 < 1 << 63 else args[0]


def _divided(a: Numbers, b: Numbers) -> Numbers:
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _remainder(a: Numbers, b: Numbers) -> Numbers:
    return np.where(b == 0, a, a % np.where(b == 0, 1, b))


_TRUTH: dict[str, Callable[..., Numbers]] = {
    ">=0": lambda a: a >= 0,
    "==0": lambda a: a == 0,
    "and": lambda *a: np.logical_and(a[0], a[1]),
    "or": lambda *a: np.logical_or(a[0], a[1]),
    "not": np.logical_not,
}
_VALUES: dict[str, Callable[..., Numbers]] = {
    "idiv": _divided,
    "mod": _remainder,
    "mul": np.multiply,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "where": np.where,
    "table": lambda k, *of_: np.asarray(of_)[k],
}
