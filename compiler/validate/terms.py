"""Integers and conditions of a kernel, read as mathematics.

Takes: nothing. Gives: `Lin`, a sum of multiples of atoms, and conditions over them. An atom is a `Var` (a loop counter, a lane, a
named variable, or a value that memory holds) or an `App` of an operation that is not linear. Arithmetic of sums is all that is
worked out here; every other operation stays as it was written. `bounds` gives intervals, `values` the numbers at many points.

Terms are interned: equal ones are one object. A sum that stands many times in another, as the element of a gather of a gather does,
is there once, and is looked at once. Terms that are made or looked at are paid for (`budget`).
Spec: R01 to R05 and R08.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from uops.compiler.validate.budget import BudgetUnit, pay

#: What is known of a value of which nothing is known.
FAR = 1 << 70

Interval = tuple[int, int]
_new = object.__new__
_interned: weakref.WeakValueDictionary[tuple[object, ...], Any] = weakref.WeakValueDictionary()


class InternedTerm:
    """An immutable term, compared by identity. What was worked out of a term stays with it: its interval, its unknowns, and whether
    what memory holds stands in it."""

    __slots__ = ("__weakref__", "_bounds", "_held", "_unknowns")

    _bounds: Interval | None
    _held: bool | None
    _unknowns: tuple[Var, ...] | None

    _setters: ClassVar[tuple[Callable[[Any, object], None], ...]]

    def __init_subclass__(cls) -> None:
        cls._setters = tuple([vars(cls)[name].__set__ for name in cls.__slots__])

    @classmethod
    def _unique(cls, *fields: object) -> Self:
        """The term with these fields, which are those of its slots."""
        pay(BudgetUnit.TERMS, 1)
        key = (cls, *fields)
        found: Self | None = _interned.get(key)
        if found is None:
            made = _new(cls)
            for put, value in zip(cls._setters, fields):
                put(made, value)
            for put in _MEMOS:
                put(made, None)
            found = _interned.setdefault(key, made)  # another thread may be faster
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a term is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a term is immutable: cannot delete {name}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, n)) for n in self.__slots__)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, n) for n in self.__slots__)


_MEMOS = tuple([vars(InternedTerm)[name].__set__ for name in InternedTerm.__slots__ if name != "__weakref__"])


class Var(InternedTerm):
    """An unknown in [low, high]; `loaded`: what memory holds, or an operation on it that is not read here; `stored`: memory that
    the body changes holds it, so that more may be true of it."""

    __slots__ = ("name", "low", "high", "loaded", "stored")  # noqa: RUF023 - the order of the fields

    name: str
    low: int
    high: int
    loaded: bool
    stored: bool

    def __new__(cls, name: str, low: int, high: int, loaded: bool = False, stored: bool = False) -> Var:
        return cls._unique(name, low, high, loaded, stored)


class App(InternedTerm):
    """An operation on sums (or conditions): idiv, mod, mul, max, and, or, xor, shl, shr, where, or wrap-N, the number that a dtype
    N stores, or table, of which the first argument numbers one of the others, or held-N-S, what the memory of argument S holds
    at an element, in a dtype N."""

    __slots__ = ("op", "args")  # noqa: RUF023

    op: str
    args: tuple[Lin | Cond, ...]

    def __new__(cls, op: str, args: tuple[Lin | Cond, ...]) -> App:
        return cls._unique(op, args)


Atom = Var | App


class Lin(InternedTerm):
    """`const` + the sum of coefficient * atom, in the order in which the atoms were met."""

    __slots__ = ("const", "terms")

    const: int
    terms: tuple[tuple[Atom, int], ...]

    def __new__(cls, const: int, terms: tuple[tuple[Atom, int], ...] = ()) -> Lin:
        return cls._unique(const, terms)


class Cond(InternedTerm):
    """A truth: `>=0`, `==0` of one sum; `and`, `or`, `not` of conditions; `true`; `held`, what the memory of an
    argument (by its slot) holds at an element."""

    __slots__ = ("op", "args")  # noqa: RUF023

    op: str
    args: tuple[Lin | Cond | str, ...]

    def __new__(cls, op: str, args: tuple[Lin | Cond | str, ...] = ()) -> Cond:
        return cls._unique(op, args)


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
    """The conditions of which it is the conjunction, each once."""
    found: dict[Cond, None] = {}
    seen: set[Cond] = set()
    pending: list[Cond] = [c]
    while pending:
        x = pending.pop()
        if x.op == "and" and x not in seen:
            seen.add(x)
            pending += reversed(x.args)  # type: ignore[arg-type]
        elif x.op not in ("and", "true"):
            found[x] = None
    return list(found)


def subterms(*roots: Lin | Cond | App, unless: str | None = None) -> list[Lin | Cond | App]:
    """Every sum, condition and operation that stands in these, once, arguments first; iterative. Terms of which an attribute,
    `unless`, was worked out are left out, with what stands in them alone."""
    order: dict[Lin | Cond | App, None] = {}
    stack: list[Any] = [*roots[::-1]]  # a None lies on a term whose arguments come before it
    met: set[InternedTerm] = set()
    while stack:
        x = stack.pop()
        if x is None:
            order[stack.pop()] = None
        elif x not in met and (unless is None or getattr(x, unless) is None):
            met.add(x)
            stack += (x, None, *_direct_parts(x)[::-1])
    pay(BudgetUnit.TERMS, len(order))
    return list(order)


def _direct_parts(x: Lin | Cond | App) -> Sequence[Lin | Cond | App]:
    """The terms that stand right in a term, but for unknowns."""
    if isinstance(x, Lin):
        return [t for t, _ in x.terms if isinstance(t, App)]
    return [a for a in x.args if not isinstance(a, str)]


def substituted(x: Any, put: Mapping[Var, Lin], done: dict[Any, Any] | None = None) -> Any:
    """A sum or condition with sums in place of unknowns. `done` is what became of the terms that were met: of several."""
    done = {} if done is None else done
    if x not in done:
        for y in subterms(x):
            if y not in done:
                done[y] = _substitute_in(y, put, done) if any(v in put for v in unknowns(y)) else of(y) if isinstance(y, App) else y
    return done[x]


def _substitute_in(x: Lin | Cond | App, put: Mapping[Var, Lin], done: Mapping[Any, Any]) -> Lin | Cond:
    """Put values in place of unknowns in a term whose parts `done` has already; an operation becomes a sum."""
    if isinstance(x, Lin):
        made = Lin(x.const)
        for t, c in x.terms:
            made = add(made, done[t] if isinstance(t, App) else put[t] if t in put else of(t), c)
        return made
    if isinstance(x, Cond):
        return Cond(x.op, tuple([a if isinstance(a, str) else done[a] for a in x.args]))
    return _rebuilt(x.op, tuple([done[a] for a in x.args]))


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
    if not known:
        return a
    done: dict[Any, Any] = {}
    for x in subterms(a):
        if isinstance(x, Lin):
            found = Lin(x.const)
            for t, c in x.terms:
                found = add(found, done[t] if isinstance(t, App) else of(t), c)
            done[x] = found
        elif isinstance(x, App):
            chosen = x.op == "where" and x.args[0] in known
            done[x] = done[_sum(x.args[1])] if chosen else of(App(x.op, tuple([_substituted_part(y, done) for y in x.args])))
    return _sum(done[a])


def _substituted_part(x: Lin | Cond, done: Mapping[Any, Any]) -> Lin | Cond:
    return done[x] if isinstance(x, Lin) else x


def _sum(x: Lin | Cond) -> Lin:
    assert isinstance(x, Lin)
    return x


def unknowns(x: Lin | Cond | App, found: dict[Var, None] | None = None) -> dict[Var, None]:
    """The unknowns of a sum or condition, in the order in which they stand there, after those that were found."""
    found = {} if found is None else found
    found.update(dict.fromkeys(_note_parts(x)._unknowns or ()))
    return found


def has_held(x: Lin | Cond | App) -> bool:
    """Whether what memory holds at an element stands in it."""
    return bool(_note_parts(x)._held)


def _note_parts(x: Lin | Cond | App) -> Lin | Cond | App:
    """A term of which is known what stands in it."""
    for y in subterms(x, unless="_unknowns") if x._unknowns is None else ():
        parts = [t for t, _ in y.terms] if isinstance(y, Lin) else [a for a in y.args if not isinstance(a, str)]
        found = dict.fromkeys(v for t in parts for v in ([t] if isinstance(t, Var) else t._unknowns or ()))
        held = any(t._held for t in parts) or (not isinstance(y, Lin) and (y.op == "held" or y.op.startswith("held-")))
        object.__setattr__(y, "_unknowns", tuple(found))
        object.__setattr__(y, "_held", held)
    return x


# Intervals


def bounds(a: Lin, known: Mapping[Atom, Interval] | None = None) -> Interval:
    """An interval that holds the sum, where the atoms are in theirs, or in those that are `known`."""
    if a._bounds is None:
        for x in subterms(a, unless="_bounds"):
            object.__setattr__(x, "_bounds", _bounds(x, {}, {}))
    narrower: dict[InternedTerm, Interval] = {}
    if known and any(isinstance(t, App) for t, _ in a.terms):
        everywhere = any(isinstance(t, App) for t in known)
        for x in subterms(a):
            if everywhere or any(v in known for v in unknowns(x)):
                low, high = narrower[x] = _bounds(x, known, narrower)
                if isinstance(x, App) and x in known:
                    narrower[x] = max(low, known[x][0]), min(high, known[x][1])
    assert a._bounds is not None
    return _bounds(a, known, narrower) if known else a._bounds


def _bounds(x: Lin | Cond | App, known: Mapping[Atom, Interval], narrower: Mapping[InternedTerm, Interval]) -> Interval:
    """The interval of a term where `narrower` has those of its parts that are not the widest ones; of a truth, 0 or 1."""
    if isinstance(x, Lin):
        low = high = x.const
        for t, c in x.terms:
            a, b = known.get(t) or (t.low, t.high) if isinstance(t, Var) else narrower.get(t) or t._bounds or _NOWHERE
            low, high = (low + c * a, high + c * b) if c > 0 else (low + c * b, high + c * a)
        return low, high
    if isinstance(x, Cond):
        return 0, 1
    return _app_bounds(x, [narrower.get(y) or y._bounds or _NOWHERE for y in x.args if isinstance(y, Lin)])


_NOWHERE = (-FAR, FAR)


def _app_bounds(t: App, args: Sequence[Interval]) -> Interval:
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
    """The value at each point; all unknowns are given, and no step leaves int64. What is not needed any more is not kept."""
    order = subterms(x)
    last = {y: k for k, z in enumerate(order) for y in _direct_parts(z)}
    found: dict[Any, Numbers] = {}
    for k, y in enumerate(order):
        found[y] = _RULE[type(y)](y, found, at)
        for z in _direct_parts(y):
            if last[z] == k:
                found.pop(z, None)
    return found[x]


def _total(x: Lin, found: Mapping[Any, Numbers], at: Mapping[Var, Numbers]) -> Numbers:
    total: Numbers = np.int64(x.const)
    for t, c in x.terms:
        total = total + (at[t] if isinstance(t, Var) else found[t]) * np.int64(c)
        pay(BudgetUnit.POINTS, total.size)
    return total


def _truth(c: Cond, found: Mapping[Any, Numbers], at: Mapping[Var, Numbers]) -> Numbers:
    if c.op == "true":
        return np.True_
    return _pay_for(_TRUTH[c.op](*[found[a] for a in c.args if not isinstance(a, str)]))


def _applied(t: App, found: Mapping[Any, Numbers], at: Mapping[Var, Numbers]) -> Numbers:
    args = [found[a] for a in t.args]
    if t.op in _VALUES:
        return _pay_for(_VALUES[t.op](*args))
    low, high = storage(t.op)
    return _pay_for((args[0] - low) % (high - low + 1) + low if high - low + 1 < 1 << 63 else args[0])


def _pay_for(numbers: Numbers) -> Numbers:
    pay(BudgetUnit.POINTS, numbers.size)
    return numbers


_RULE: dict[type, Callable[..., Numbers]] = {Lin: _total, Cond: _truth, App: _applied}


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
