"""Integers and conditions of a kernel as mathematical terms.

Takes: nothing. Gives: `LinearSum`, a sum of multiples of atoms, and conditions over such sums. An atom is an `Unknown` (a loop
counter, a lane, a named variable, or a value of memory), or a nonlinear `Operation`. Only arithmetic of sums is
simplified; every other operation stays as written. `bounds` gives intervals, and `evaluate_at_points` the values at many points.

Terms are interned: equal ones are one object. A sum that occurs many times in another, as in a gather of a gather, exists once
and is visited once. Building or visiting terms is charged to the `budget`.
Spec: R01 to R05 (integer division and overflow), R08 (index).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from uops.compiler.validate.budget import BudgetUnit, charge_budget_if_limited

#: Greatest magnitude of a value without known bounds.
FAR = 1 << 70

Interval = tuple[int, int]
_new = object.__new__
_interned: weakref.WeakValueDictionary[tuple[object, ...], Any] = weakref.WeakValueDictionary()


class InternedTerm:
    """An immutable term, compared by identity.

    It memoizes its interval, its unknowns, and whether a value of memory occurs in it.
    """

    __slots__ = ("__weakref__", "_bounds", "_held", "_unknowns")

    _bounds: Interval | None
    _held: bool | None
    _unknowns: tuple[Unknown, ...] | None

    _setters: ClassVar[tuple[Callable[[Any, object], None], ...]]

    def __init_subclass__(cls) -> None:
        cls._setters = tuple([vars(cls)[name].__set__ for name in cls.__slots__])

    @classmethod
    def _intern(cls, *fields: object) -> Self:
        """Return the term with these fields, in the order of its slots."""
        charge_budget_if_limited(BudgetUnit.TERMS, 1)
        key = (cls, *fields)
        term: Self | None = _interned.get(key)
        if term is None:
            new_term = _new(cls)
            for put, value in zip(cls._setters, fields):
                put(new_term, value)
            for put in _MEMOS:
                put(new_term, None)
            term = _interned.setdefault(key, new_term)  # another thread may have added it
        return term

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a term is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a term is immutable: cannot delete {name}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, n)) for n in self.__slots__)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, n) for n in self.__slots__)


_MEMOS = tuple([vars(InternedTerm)[name].__set__ for name in InternedTerm.__slots__ if name != "__weakref__"])


class Unknown(InternedTerm):
    """An unknown in [low, high].

    `loaded` marks a value of memory, or an operation on one that the reader does not support. `stored` marks memory that the
    body changes: the value may satisfy more than is known.
    """

    __slots__ = ("name", "low", "high", "loaded", "stored")  # noqa: RUF023 - the order of the fields

    name: str
    low: int
    high: int
    loaded: bool
    stored: bool

    def __new__(cls, name: str, low: int, high: int, loaded: bool = False, stored: bool = False) -> Unknown:
        return cls._intern(name, low, high, loaded, stored)


class Operation(InternedTerm):
    """An operation on sums or conditions, by name.

    - idiv, mod, mul, max, and, or, xor, shl, shr, where
    - wrap-N: the number that a dtype N stores
    - table: one of the arguments after the first, which numbers it; the last one for any other number
    - held-N-S: the value of dtype N at an element of the memory of argument S
    """

    __slots__ = ("op", "args")  # noqa: RUF023

    op: str
    args: tuple[LinearSum | Condition, ...]

    def __new__(cls, op: str, args: tuple[LinearSum | Condition, ...]) -> Operation:
        return cls._intern(op, args)


Atom = Unknown | Operation


class LinearSum(InternedTerm):
    """The sum of `const` and of coefficient * atom over `terms`, in the order of first occurrence."""

    __slots__ = ("const", "terms")

    const: int
    terms: tuple[tuple[Atom, int], ...]

    def __new__(cls, const: int, terms: tuple[tuple[Atom, int], ...] = ()) -> LinearSum:
        return cls._intern(const, terms)


class Condition(InternedTerm):
    """A condition: `>=0` or `==0` of a sum; `and`, `or`, `not` of conditions; `true`; or `held`, a bool value of an argument's
    memory."""

    __slots__ = ("op", "args")  # noqa: RUF023

    op: str
    args: tuple[LinearSum | Condition | str, ...]

    def __new__(cls, op: str, args: tuple[LinearSum | Condition | str, ...] = ()) -> Condition:
        return cls._intern(op, args)


TRUE = Condition("true")
FALSE = Condition("not", (TRUE,))
ZERO, ONE = LinearSum(0), LinearSum(1)

# Arithmetic


def as_sum(a: Atom) -> LinearSum:
    """Return an atom as a sum."""
    return LinearSum(0, ((a, 1),))


def add(a: LinearSum, b: LinearSum, factor_of_b: int = 1) -> LinearSum:
    """Return a + factor_of_b * b."""
    if not b.terms:
        return LinearSum(a.const + factor_of_b * b.const, a.terms)
    coefficients = dict(a.terms)
    for t, c in b.terms:
        coefficients[t] = coefficients.get(t, 0) + factor_of_b * c
    return LinearSum(a.const + factor_of_b * b.const, tuple([(t, c) for t, c in coefficients.items() if c]))


def scale(a: LinearSum, k: int) -> LinearSum:
    """Return k a."""
    return LinearSum(a.const * k, tuple([(t, c * k) for t, c in a.terms])) if k else ZERO


def mul(a: LinearSum, b: LinearSum) -> LinearSum:
    """Return a b; an operation unless one factor is constant."""
    if not b.terms:
        return scale(a, b.const)
    return scale(b, a.const) if not a.terms else as_sum(Operation("mul", (a, b)))


def is_nonnegative(a: LinearSum) -> Condition:
    """Return the condition a >= 0."""
    return Condition(">=0", (a,))


def is_zero(a: LinearSum) -> Condition:
    """Return the condition a == 0."""
    return Condition("==0", (a,))


def negate(c: Condition) -> Condition:
    """Return the negation, without doubling it."""
    return c.args[0] if c.op == "not" else Condition("not", (c,))  # type: ignore[return-value]


def conjoin(a: Condition, b: Condition) -> Condition:
    """Return the conjunction of two conditions."""
    return b if a is TRUE else a if b is TRUE else Condition("and", (a, b))


def conjuncts(c: Condition) -> list[Condition]:
    """Return the distinct conjuncts of a condition."""
    terms: dict[Condition, None] = {}
    seen: set[Condition] = set()
    pending: list[Condition] = [c]
    while pending:
        x = pending.pop()
        if x.op == "and" and x not in seen:
            seen.add(x)
            pending += reversed(x.args)  # type: ignore[arg-type]
        elif x.op not in ("and", "true"):
            terms[x] = None
    return list(terms)


def list_subterms_arguments_first(
    *roots: LinearSum | Condition | Operation, skip_if_filled_slot: str | None = None
) -> list[LinearSum | Condition | Operation]:
    """Return every sum, condition and operation in these terms once, arguments first; iterative.

    `skip_if_filled_slot` names a memo: terms that have it are left out, together with what occurs only in them.
    """
    order: dict[LinearSum | Condition | Operation, None] = {}
    stack: list[Any] = [*roots[::-1]]  # a None marks that the next term's arguments are done
    met: set[InternedTerm] = set()
    while stack:
        x = stack.pop()
        if x is None:
            order[stack.pop()] = None
        elif x not in met and (skip_if_filled_slot is None or getattr(x, skip_if_filled_slot) is None):
            met.add(x)
            stack += (x, None, *_direct_parts_except_unknowns(x)[::-1])
    charge_budget_if_limited(BudgetUnit.TERMS, len(order))
    return list(order)


def _direct_parts_except_unknowns(x: LinearSum | Condition | Operation) -> Sequence[LinearSum | Condition | Operation]:
    """Return the direct subterms of a term, except unknowns."""
    if isinstance(x, LinearSum):
        return [t for t, _ in x.terms if isinstance(t, Operation)]
    return [a for a in x.args if not isinstance(a, str)]


def substitute(x: Any, replacements: Mapping[Unknown, LinearSum], memo: dict[Any, Any] | None = None) -> Any:
    """Return a sum or condition with sums in place of unknowns. `memo` shares the results of several calls."""
    memo = {} if memo is None else memo
    if x not in memo:
        for y in list_subterms_arguments_first(x):
            if y not in memo:
                memo[y] = (
                    _rebuild_with_substituted_parts(y, replacements, memo)
                    if any(v in replacements for v in collect_unknowns(y))
                    else as_sum(y)
                    if isinstance(y, Operation)
                    else y
                )
    return memo[x]


def _rebuild_with_substituted_parts(
    term: LinearSum | Condition | Operation, replacements: Mapping[Unknown, LinearSum], substituted_parts: Mapping[Any, Any]
) -> LinearSum | Condition:
    """Replace unknowns in a term whose parts are in `substituted_parts`; an operation becomes a sum."""
    if isinstance(term, LinearSum):
        total = LinearSum(term.const)
        for t, c in term.terms:
            total = add(
                total, substituted_parts[t] if isinstance(t, Operation) else replacements[t] if t in replacements else as_sum(t), c
            )
        return total
    if isinstance(term, Condition):
        return Condition(term.op, tuple([a if isinstance(a, str) else substituted_parts[a] for a in term.args]))
    return _rebuild_operation_folding_mul_by_constant(term.op, tuple([substituted_parts[a] for a in term.args]))


def _rebuild_operation_folding_mul_by_constant(op: str, args: tuple[LinearSum | Condition, ...]) -> LinearSum:
    """Return an operation on sums; a product with a constant becomes a sum."""
    if op == "mul":
        a, b = args
        return mul(a, b)  # type: ignore[arg-type]
    return as_sum(Operation(op, args))


def fold_constant(a: LinearSum) -> LinearSum:
    """Return a sum without unknowns as a constant."""
    return a if not a.terms or collect_unknowns(a) or has_memory_value(a) else LinearSum(int(evaluate_at_points(a, {})))


def resolve_wheres_whose_condition_is_listed(a: LinearSum, true_conditions: Sequence[Condition]) -> LinearSum:
    """Return a sum with its choices resolved whose condition is among those known to hold."""
    if not true_conditions:
        return a
    done: dict[Any, Any] = {}
    for x in list_subterms_arguments_first(a):
        if isinstance(x, LinearSum):
            total = LinearSum(x.const)
            for t, c in x.terms:
                total = add(total, done[t] if isinstance(t, Operation) else as_sum(t), c)
            done[x] = total
        elif isinstance(x, Operation):
            chosen = x.op == "where" and x.args[0] in true_conditions
            done[x] = (
                done[_expect_sum(x.args[1])] if chosen else as_sum(Operation(x.op, tuple([_lookup_part(y, done) for y in x.args])))
            )
    return _expect_sum(done[a])


def _lookup_part(x: LinearSum | Condition, done: Mapping[Any, Any]) -> LinearSum | Condition:
    """Return the result of a sum; a condition is unchanged."""
    return done[x] if isinstance(x, LinearSum) else x


def _expect_sum(x: LinearSum | Condition) -> LinearSum:
    """Return a term that must be a sum."""
    assert isinstance(x, LinearSum)
    return x


def collect_unknowns(
    x: LinearSum | Condition | Operation, unknowns_to_extend: dict[Unknown, None] | None = None
) -> dict[Unknown, None]:
    """Return the unknowns of a term in order of occurrence, after the `unknowns_to_extend` ones, which are extended."""
    unknowns_to_extend = {} if unknowns_to_extend is None else unknowns_to_extend
    unknowns_to_extend.update(dict.fromkeys(_memoize_unknowns_and_memory_use(x)._unknowns or ()))
    return unknowns_to_extend


def has_memory_value(x: LinearSum | Condition | Operation) -> bool:
    """Return True if a value of memory at an element occurs in the term."""
    return bool(_memoize_unknowns_and_memory_use(x)._held)


def _memoize_unknowns_and_memory_use(x: LinearSum | Condition | Operation) -> LinearSum | Condition | Operation:
    """Compute the memos for unknowns and memory values of a term, and return the term."""
    for y in list_subterms_arguments_first(x, skip_if_filled_slot="_unknowns") if x._unknowns is None else ():
        parts = [t for t, _ in y.terms] if isinstance(y, LinearSum) else [a for a in y.args if not isinstance(a, str)]
        unknown_vars = dict.fromkeys(v for t in parts for v in ([t] if isinstance(t, Unknown) else t._unknowns or ()))
        has_memory = any(t._held for t in parts) or (not isinstance(y, LinearSum) and (y.op == "held" or y.op.startswith("held-")))
        object.__setattr__(y, "_unknowns", tuple(unknown_vars))
        object.__setattr__(y, "_held", has_memory)
    return x


# Intervals


def bounds(a: LinearSum, known: Mapping[Atom, Interval] | None = None) -> Interval:
    """Return an interval that contains the sum, for atoms within their bounds or within those in `known`."""
    if a._bounds is None:
        for x in list_subterms_arguments_first(a, skip_if_filled_slot="_bounds"):
            object.__setattr__(x, "_bounds", _compute_bounds(x, {}, {}))
    narrower: dict[InternedTerm, Interval] = {}
    if known and any(isinstance(t, Operation) for t, _ in a.terms):
        everywhere = any(isinstance(t, Operation) for t in known)
        for x in list_subterms_arguments_first(a):
            if everywhere or any(v in known for v in collect_unknowns(x)):
                low, high = narrower[x] = _compute_bounds(x, known, narrower)
                if isinstance(x, Operation) and x in known:
                    narrower[x] = max(low, known[x][0]), min(high, known[x][1])
    assert a._bounds is not None
    return _compute_bounds(a, known, narrower) if known else a._bounds


def _compute_bounds(
    x: LinearSum | Condition | Operation, known: Mapping[Atom, Interval], bounds_overriding_memo: Mapping[InternedTerm, Interval]
) -> Interval:
    """Return the interval of a term, 0 to 1 for a condition; `bounds_overriding_memo` has the parts with other intervals than
    their memo."""
    if isinstance(x, LinearSum):
        low = high = x.const
        for t, c in x.terms:
            a, b = (
                known.get(t) or (t.low, t.high)
                if isinstance(t, Unknown)
                else bounds_overriding_memo.get(t) or t._bounds or _NOWHERE
            )
            low, high = (low + c * a, high + c * b) if c > 0 else (low + c * b, high + c * a)
        return low, high
    if isinstance(x, Condition):
        return 0, 1
    return _operation_bounds(
        x, [bounds_overriding_memo.get(y) or y._bounds or _NOWHERE for y in x.args if isinstance(y, LinearSum)]
    )


_NOWHERE = (-FAR, FAR)


def _operation_bounds(t: Operation, args: Sequence[Interval]) -> Interval:
    rule = _BOUNDS.get(t.op)
    if rule is not None:
        return rule(*args)
    low, high = dtype_range_of_wrap_or_held_op(t.op)
    x, y = args[0]
    return (x, y) if low <= x and y <= high and t.op.startswith("wrap-") else (low, high)


def dtype_range_of_wrap_or_held_op(op_name: str) -> Interval:
    """Return the range of the dtype that wrap-i32 or held-i32-1 name; unbounded for another operation."""
    kind, _, rest = op_name.partition("-")
    if kind not in ("wrap", "held"):
        return -FAR, FAR
    signed, bits = rest[0] == "i", int(rest[1:].partition("-")[0])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _bound_total_floor_quotient(a: Interval, b: Interval) -> Interval:
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


def _shl_bounds(a: Interval, n: Interval) -> Interval:
    return _mul_bounds(a, (1 << n[0], 1 << n[1])) if 0 <= n[0] and n[1] < 64 else (-FAR, FAR)


def _shr_bounds(a: Interval, n: Interval) -> Interval:
    return _bound_total_floor_quotient(a, (1 << n[0], 1 << n[1])) if 0 <= n[0] and n[1] < 64 else (min(a[0], -1), max(a[1], 0))


_BOUNDS: dict[str, Callable[..., Interval]] = {
    "idiv": _bound_total_floor_quotient,
    "mod": _mod_bounds,
    "mul": _mul_bounds,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "and": _and_bounds,
    "or": _bit_bounds,
    "xor": _bit_bounds,
    "shl": _shl_bounds,
    "shr": _shr_bounds,
    "where": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "table": lambda k, *of_: (min(x[0] for x in of_), max(x[1] for x in of_)),
}

# Numbers at many points

PointValues = Any  # of NumPy, int64


def evaluate_at_points(x: LinearSum | Condition, points: Mapping[Unknown, PointValues]) -> PointValues:
    """Return the value at each point of the grid. All unknowns are given, and no intermediate value leaves int64.

    No value of memory occurs in the term. A value is dropped after its last use.
    """
    order = list_subterms_arguments_first(x)
    last = {y: k for k, z in enumerate(order) for y in _direct_parts_except_unknowns(z)}
    results: dict[Any, PointValues] = {}
    for k, y in enumerate(order):
        results[y] = _EVALUATORS[type(y)](y, results, points)
        for z in _direct_parts_except_unknowns(y):
            if last[z] == k:
                results.pop(z, None)
    return results[x]


def _evaluate_sum(x: LinearSum, part_results: Mapping[Any, PointValues], points: Mapping[Unknown, PointValues]) -> PointValues:
    total: PointValues = np.int64(x.const)
    for t, c in x.terms:
        total = total + (points[t] if isinstance(t, Unknown) else part_results[t]) * np.int64(c)
        charge_budget_if_limited(BudgetUnit.POINTS, total.size)
    return total


def _evaluate_condition(c: Condition, results: Mapping[Any, PointValues], points: Mapping[Unknown, PointValues]) -> PointValues:
    if c.op == "true":
        return np.True_
    return _charge_points(_TRUTH[c.op](*[results[a] for a in c.args if not isinstance(a, str)]))


def _evaluate_operation(
    t: Operation, part_results: Mapping[Any, PointValues], points: Mapping[Unknown, PointValues]
) -> PointValues:
    args = [part_results[a] for a in t.args]
    if t.op in _VALUES:
        return _charge_points(_VALUES[t.op](*args))
    assert t.op.startswith("wrap-"), t.op  # a value of memory is not known
    low, high = dtype_range_of_wrap_or_held_op(t.op)
    return _charge_points((args[0] - low) % (high - low + 1) + low if high - low + 1 < 1 << 63 else args[0])


def _charge_points(numbers: PointValues) -> PointValues:
    charge_budget_if_limited(BudgetUnit.POINTS, numbers.size)
    return numbers


_EVALUATORS: dict[type, Callable[..., PointValues]] = {
    LinearSum: _evaluate_sum,
    Condition: _evaluate_condition,
    Operation: _evaluate_operation,
}


def _floor_divide(a: PointValues, b: PointValues) -> PointValues:
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _floor_remainder(a: PointValues, b: PointValues) -> PointValues:
    return np.where(b == 0, a, a % np.where(b == 0, 1, b))


_TRUTH: dict[str, Callable[..., PointValues]] = {
    ">=0": lambda a: a >= 0,
    "==0": lambda a: a == 0,
    "and": lambda *a: functools.reduce(np.logical_and, a),
    "or": lambda *a: functools.reduce(np.logical_or, a),
    "not": np.logical_not,
}
_VALUES: dict[str, Callable[..., PointValues]] = {
    "idiv": _floor_divide,
    "mod": _floor_remainder,
    "mul": np.multiply,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "where": np.where,
    "table": lambda k, *of_: np.asarray(of_)[np.where((k >= 0) & (k < len(of_)), k, -1)],
}
