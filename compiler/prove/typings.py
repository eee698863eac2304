"""The dtypes for which a rule has to be proved.

`assignments(rule)` gives every way to give dtypes to the variables, type variables and literals of a rule such that its left side
is well-typed and its `types` relation holds. A literal of the left side matches a Const of any dtype that has the value (True only
a bool), so its dtype is chosen too; on the right side and in the condition `instantiate` decides, and so does `annotate` here. A
variable that only a witness binds takes every dtype with which condition and right side are well-typed: a witness that proposed
another would make an ill-formed node, not a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from uops.compiler.prove.semantics import result_dtype
from uops.compiler.rewrite.pattern import Pattern, TypeVar, variables
from uops.compiler.rewrite.rule import Rule
from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass

#: Variables and type variables by name, literals of the left side by their path from the root.
Types = dict[str | tuple[int, ...], DType]


@dataclass(frozen=True, slots=True)
class Typed:
    """A pattern with the dtype of every node of it: `dtype` is the result's, `src` are the typed sources."""

    pattern: Pattern
    dtype: DType
    src: tuple[Typed, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """One way to type a rule: both sides and the conjuncts of its condition. `rhs` is None where it is ill-typed."""

    types: Types
    lhs: Typed
    rhs: Typed | None
    when: tuple[Typed, ...]

    def __str__(self) -> str:
        return (
            ",".join(d.short for d in dict.fromkeys(self.types.values()))
            if self._alike()
            else ",".join(f"{_spelt(k)}:{d.short}" for k, d in self.types.items())
        )

    def _alike(self) -> bool:
        return len(set(self.types.values())) == 1


def _spelt(key: str | tuple[int, ...]) -> str:
    return key if isinstance(key, str) else "@" + ".".join(map(str, key))


def conjuncts(p: Pattern | None) -> list[Pattern]:
    """The conditions of a conjunction, which are discharged one by one."""
    if p is None:
        return []
    return [c for q in p.src for c in conjuncts(q)] if p.op is Op.AND else [p]


def conditions(rule: Rule) -> list[Pattern]:
    """What is to be assumed of the values of a rule: its condition, and what else it takes for granted."""
    return [*conjuncts(rule.when), *conjuncts(None if rule.assumes is None else rule.assumes.values)]


def assignments(rule: Rule) -> Iterator[Assignment]:
    """Every typing of `rule`."""
    for types, lhs in _typings(rule.lhs, {}, ()):
        if rule.types is not None and not rule.types(_named(rule, types)):
            continue
        yield from _with_witness(rule, types, lhs)


def _named(rule: Rule, types: Types) -> Mapping[str, DType]:
    """What a type relation is asked about: the type variables, and as `S` the dtype of the first variable."""
    found = {k: d for k, d in types.items() if isinstance(k, str)}
    first = next(iter(variables(rule.lhs)), None)
    return found if first is None else {**found, "S": found[first]}


def _with_witness(rule: Rule, types: Types, lhs: Typed) -> Iterator[Assignment]:
    sides = [rule.rhs, *conditions(rule)]
    free = {n: v for side in sides for n, v in variables(side).items() if n not in types}
    fitting = 0
    for chosen in _choices(free):
        full = {**types, **chosen}
        rhs = annotate(rule.rhs, full, lhs.dtype)
        when = [annotate(c, full, None) for c in conditions(rule)]
        typed = tuple(t for t in when if t is not None and t.dtype is dt.bool_)
        if free and (rhs is None or rhs.dtype is not lhs.dtype or len(typed) < len(when)):
            continue
        if len(typed) < len(when):
            raise Crash(f"the condition of {rule} has no dtypes for {full}")
        fitting += 1
        yield Assignment(full, lhs, rhs if rhs is not None and rhs.dtype is lhs.dtype else None, typed)
    if free and not fitting:
        yield Assignment(types, lhs, None, ())


def _choices(free: Mapping[str, Pattern]) -> Iterator[Types]:
    if not free:
        yield {}
        return
    (name, v), *rest = free.items()
    for d in v.dtypes:
        for others in _choices(dict(rest)):
            yield {name: d, **others}


def _typings(p: Pattern, types: Types, path: tuple[int, ...]) -> Iterator[tuple[Types, Typed]]:
    """Every typing of a left side that extends `types`."""
    if p.name is not None:
        known = types.get(p.name)
        for d in p.dtypes if known is None else (known,):
            yield {**types, p.name: d}, Typed(p, d)
    elif p.op is None:
        for d in _holding(p.value):
            yield {**types, path: d}, Typed(p, d)
    else:
        for found, src in _sources(p, p.src, types, path):
            for full, to in _targets(p.to, found):
                result = result_dtype(p.op, [s.dtype for s in src], to)
                if result is not None:
                    yield full, Typed(p, result, src)


def _sources(p: Pattern, src: Sequence[Pattern], types: Types, path: tuple[int, ...]) -> Iterator[tuple[Types, tuple[Typed, ...]]]:
    if not src:
        yield types, ()
        return
    for found, last in _sources(p, src[:-1], types, path):
        for full, typed in _typings(src[-1], found, (*path, len(src) - 1)):
            yield full, (*last, typed)


def _targets(to: DType | TypeVar | None, types: Types) -> Iterator[tuple[Types, DType | None]]:
    if not isinstance(to, TypeVar):
        yield types, to
    elif to.name in types:
        yield types, types[to.name]
    else:
        yield from (({**types, to.name: among}, among) for among in to.among)


def _holding(value: bool | int | float | None) -> Iterable[DType]:
    """The dtypes in which a literal matches a Const."""
    if isinstance(value, bool):
        return (dt.bool_,)
    return [d for d in (*dt.STORABLE, dt.index) if value is not None and holds(d, value)]


def holds(d: DType, value: bool | int | float) -> bool:
    """Whether `value` is one of `d`."""
    if d is dt.bool_:
        return value in (0, 1)
    if not d.is_float:
        return isinstance(value, int) and d.min <= value <= d.max
    x = float(value)
    if not math.isfinite(x):
        return d.has_inf or x != x
    e = max(1 - d.bias, math.frexp(x)[1] - 1) if x else 0
    return abs(x) <= d.max_finite and math.ldexp(x, d.man_bits - e).is_integer()


def annotate(p: Pattern, types: Types, like: DType | None) -> Typed | None:
    """The typed form of a right side or condition, with the dtypes that `instantiate` gives literals; None where it has none."""
    if p.name is not None:
        return Typed(p, types[p.name])
    if p.op is None:
        fits = like is not None and p.value is not None and holds(like, p.value)
        return Typed(p, like) if fits and like is not None else None
    literal = [q.op is None and q.name is None for q in p.src]
    known = [None if is_literal else annotate(q, types, None) for q, is_literal in zip(p.src, literal, strict=True)]
    if any(k is None and not is_literal for k, is_literal in zip(known, literal, strict=True)):
        return None
    first = 1 if p.op is Op.WHERE else 0
    sibling = next((k.dtype for k in known[first:] if k is not None), like)
    src = [
        k if k is not None else annotate(q, types, dt.bool_ if j < first else sibling)
        for j, (q, k) in enumerate(zip(p.src, known, strict=True))
    ]
    found = tuple(s for s in src if s is not None)
    if len(found) < len(src):
        return None
    to = types[p.to.name] if isinstance(p.to, TypeVar) else p.to
    d = result_dtype(p.op, [s.dtype for s in found], to)
    return None if d is None else Typed(p, d, found)
