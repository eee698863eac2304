"""The dtypes for which a rule has to be proved.

Takes: a rule. Gives: every assignment of dtypes to its variables, type variables and literals for which its left side is
well-typed and its `types` relation holds. A literal of the left side matches a Const of any dtype that has the value (True only
a bool, 1.0 only a float), so its dtype is enumerated too. On the right side and in the condition, `annotate_dtypes_if_well_typed`
decides as `instantiate` does. A variable that only a witness binds takes every dtype with which condition and right side are
well-typed. A witness that proposed another would make an ill-formed node, not a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from uops.compiler.prove.semantics import infer_result_dtype_if_legal
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
class TypedPattern:
    """A pattern with the dtype of each of its nodes: `dtype` is the result's, `src` are the typed sources."""

    pattern: Pattern
    dtype: DType
    src: tuple[TypedPattern, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleTyping:
    """One typing of a rule: both sides and the conjuncts of its condition. `rhs` is None if it is ill-typed."""

    types: Types
    lhs: TypedPattern
    rhs: TypedPattern | None
    when: tuple[TypedPattern, ...]

    def __str__(self) -> str:
        return (
            ",".join(d.short for d in dict.fromkeys(self.types.values()))
            if self._has_single_dtype()
            else ",".join(f"{_format_key(k)}:{d.short}" for k, d in self.types.items())
        )

    def _has_single_dtype(self) -> bool:
        """Return True if all variables and literals have the same dtype."""
        return len(set(self.types.values())) == 1


def _format_key(key: str | tuple[int, ...]) -> str:
    """Return a variable's name, or the path of a literal."""
    return key if isinstance(key, str) else "@" + ".".join(map(str, key))


def conjuncts(condition: Pattern | None) -> list[Pattern]:
    """Return the conjuncts of a condition, which are discharged one by one."""
    if condition is None:
        return []
    return [c for q in condition.src for c in conjuncts(q)] if condition.op is Op.AND else [condition]


def conditions(rule: Rule) -> list[Pattern]:
    """Return the conditions on the values of a rule: its `when`, and those that it `assumes`."""
    return [*conjuncts(rule.when), *conjuncts(None if rule.assumes is None else rule.assumes.values)]


def enumerate_rule_typings(rule: Rule) -> Iterator[RuleTyping]:
    """Yield every typing of `rule`."""
    for types, lhs in _enumerate_typings(rule.lhs, {}, ()):
        if rule.types is not None and not rule.types(_collect_named_dtypes_and_first_as_s(rule, types)):
            continue
        yield from _extend_typing_by_witness_dtypes_or_refute(rule, types, lhs)


def _collect_named_dtypes_and_first_as_s(rule: Rule, types: Types) -> Mapping[str, DType]:
    """Return the arguments of a type relation: the dtypes by name, and as `S` that of the first variable."""
    arguments = {k: d for k, d in types.items() if isinstance(k, str)}
    first = next(iter(variables(rule.lhs)), None)
    return arguments if first is None else {**arguments, "S": arguments[first]}


def _extend_typing_by_witness_dtypes_or_refute(rule: Rule, types: Types, lhs: TypedPattern) -> Iterator[RuleTyping]:
    """Yield the typings that extend `types` by the variables that only a witness binds.

    If none is well-typed, yield one typing without a right side, which refutes the rule.
    """
    sides = [rule.rhs, *conditions(rule)]
    free = {n: v for side in sides for n, v in variables(side).items() if n not in types}
    fitting = 0
    for chosen in _enumerate_dtype_choices(free):
        full = {**types, **chosen}
        rhs = annotate_dtypes_if_well_typed(rule.rhs, full, lhs.dtype)
        when = [annotate_dtypes_if_well_typed(c, full, None) for c in conditions(rule)]
        typed = tuple(t for t in when if t is not None and t.dtype is dt.bool_)
        if free and (rhs is None or rhs.dtype is not lhs.dtype or len(typed) < len(when)):
            continue
        if len(typed) < len(when):
            raise Crash(f"the condition of {rule} has no dtypes for {full}")
        fitting += 1
        yield RuleTyping(full, lhs, rhs if rhs is not None and rhs.dtype is lhs.dtype else None, typed)
    if free and not fitting:
        yield RuleTyping(types, lhs, None, ())


def _enumerate_dtype_choices(free_variables: Mapping[str, Pattern]) -> Iterator[Types]:
    """Yield every assignment of dtypes to the free variables."""
    if not free_variables:
        yield {}
        return
    (name, v), *rest = free_variables.items()
    for d in v.dtypes:
        for rest_types in _enumerate_dtype_choices(dict(rest)):
            yield {name: d, **rest_types}


def _enumerate_typings(p: Pattern, types_to_extend: Types, path: tuple[int, ...]) -> Iterator[tuple[Types, TypedPattern]]:
    """Yield every typing of a left side that extends `types_to_extend`."""
    if p.name is not None:
        bound = types_to_extend.get(p.name)
        for d in p.dtypes if bound is None else (bound,):
            yield {**types_to_extend, p.name: d}, TypedPattern(p, d)
    elif p.op is None:
        for d in _literal_dtypes(p.value):
            yield {**types_to_extend, path: d}, TypedPattern(p, d)
    else:
        for source_types, src in _enumerate_source_typings(p.src, types_to_extend, path):
            for full, to in _enumerate_cast_target_dtypes(p.to, source_types):
                result = infer_result_dtype_if_legal(p.op, [s.dtype for s in src], to)
                if result is not None:
                    yield full, TypedPattern(p, result, src)


def _enumerate_source_typings(
    src: Sequence[Pattern], types_to_extend: Types, path: tuple[int, ...]
) -> Iterator[tuple[Types, tuple[TypedPattern, ...]]]:
    """Yield every typing of some sources that extends `types_to_extend`."""
    if not src:
        yield types_to_extend, ()
        return
    for source_types, last in _enumerate_source_typings(src[:-1], types_to_extend, path):
        for full, typed in _enumerate_typings(src[-1], source_types, (*path, len(src) - 1)):
            yield full, (*last, typed)


def _enumerate_cast_target_dtypes(to: DType | TypeVar | None, types: Types) -> Iterator[tuple[Types, DType | None]]:
    """Yield the target dtypes of a Cast or Bitcast, each with `types` extended by its type variable."""
    if not isinstance(to, TypeVar):
        yield types, to
    elif to.name in types:
        yield types, types[to.name]
    else:
        yield from (({**types, to.name: among}, among) for among in to.among)


def _literal_dtypes(value: bool | int | float | None) -> Iterable[DType]:
    """Return the dtypes in which a literal matches a Const."""
    if isinstance(value, bool):
        return (dt.bool_,)
    among = dt.FLOATS if isinstance(value, float) else (*dt.STORABLE, dt.index)
    return [d for d in among if value is not None and can_represent(d, value)]


def can_represent(d: DType, value: bool | int | float) -> bool:
    """Return True if `value` is a value of dtype `d`."""
    if d is dt.bool_:
        return value in (0, 1)
    if not d.is_float:
        return isinstance(value, int) and d.min <= value <= d.max
    if isinstance(value, int) and (abs(value) >= 2**1024 or float(value) != value):
        return False
    x = float(value)
    if not math.isfinite(x):
        return d.has_inf or x != x
    e = max(d.min_exponent, math.frexp(x)[1] - 1) if x else 0
    return abs(x) <= d.max_finite and math.ldexp(x, d.man_bits - e).is_integer()


def annotate_dtypes_if_well_typed(p: Pattern, types: Types, root_literal_dtype: DType | None) -> TypedPattern | None:
    """Return the typed form of a right side or condition, or None if it has none.

    Literals get the dtypes that `instantiate` gives them; `root_literal_dtype` is that of a literal at the root.
    """
    if p.name is not None:
        return TypedPattern(p, types[p.name])
    if p.op is None:
        fits = root_literal_dtype is not None and p.value is not None and can_represent(root_literal_dtype, p.value)
        return TypedPattern(p, root_literal_dtype) if fits and root_literal_dtype is not None else None
    literal = [q.op is None and q.name is None for q in p.src]
    typed = [
        None if is_literal else annotate_dtypes_if_well_typed(q, types, None) for q, is_literal in zip(p.src, literal, strict=True)
    ]
    if any(k is None and not is_literal for k, is_literal in zip(typed, literal, strict=True)):
        return None
    first = 1 if p.op is Op.WHERE else 0
    sibling = next((k.dtype for k in typed[first:] if k is not None), root_literal_dtype)
    src = [
        k if k is not None else annotate_dtypes_if_well_typed(q, types, dt.bool_ if j < first else sibling)
        for j, (q, k) in enumerate(zip(p.src, typed, strict=True))
    ]
    sources = tuple(s for s in src if s is not None)
    if len(sources) < len(src):
        return None
    to = types[p.to.name] if isinstance(p.to, TypeVar) else p.to
    d = infer_result_dtype_if_legal(p.op, [s.dtype for s in sources], to)
    return None if d is None else TypedPattern(p, d, sources)
