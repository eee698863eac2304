"""What has to be shown about a rule: queries for a solver, made from the live `Rule` object.

`obligations(rule)` gives one `Obligation` per typing of the rule. Each holds `plans`, one per theory that may answer, made of
queries whose unsatisfiability proves that for all values of the variables, those of a witness included, if the left side is
defined and the condition holds, then the right side is defined and is a value that may stand for the left one. The condition is
assumed with the meaning by which the matcher discharges it: every conjunct is true of the values (by min_max, or by equality of
canonical sums). Of a rule that `assumes` something, its condition on values is one more, and definedness of the left side is
claimed, not assumed. A witness with an attribute `evaluates` promises that its variable `k` is the value of that pattern, found by
the constant folder. A plan with a condition also holds the query that asks whether left side and condition can be satisfied: if
not, the rule is vacuous.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial

from uops.compiler.prove.casts import kept
from uops.compiler.prove.model import Form, Model, Unmodelled, Value, equal
from uops.compiler.prove.semantics import mean
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import Encoding, Term
from uops.compiler.prove.typings import Assignment, Typed, annotate, assignments
from uops.compiler.rewrite.pattern import Pattern, variables
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import BITWISE, Op
from uops.spec.ir.record import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """Queries, one per case: all unsatisfiable means proved. A model of one is a counterexample where it is `concrete`; else the
    query only knows less than the semantics says. `steps` of the solver are the limit of each, some millions a second: a limit
    that a busy machine does not move."""

    by: str
    queries: tuple[str, ...]
    steps: int
    concrete: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What one theory has to say: attempts in order of hope, the query that must be satisfiable, and the lemmas that are assumed.
    `why` says why there is no attempt."""

    attempts: tuple[Attempt, ...] = ()
    possible: str | None = None
    needs: tuple[str, ...] = ()
    why: str | None = None

    @property
    def key(self) -> str:
        """SHA-256 of the texts of all its queries, and their limits."""
        parts = [f"{a.by} {a.steps}\n{q}" for a in self.attempts for q in a.queries]
        return hashlib.sha256("\n".join([*parts, f"possible\n{self.possible}", *self.needs]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Obligation:
    """One typing `at` of a rule. `plans` are made when they are asked for, in order of hope; `wrong` says why it is refuted without
    one."""

    rule: str
    at: str
    plans: tuple[Callable[[], Plan], ...] = ()
    variables: tuple[tuple[str, DType], ...] = ()
    wrong: str | None = None

    @property
    def name(self) -> str:
        return f"{self.rule}/{self.at}"


# Evaluating typed patterns in a model


def _value(m: Model, t: Typed, env: Mapping[str, Value], casts: Callable[[Value, Value], None]) -> Value:
    p = t.pattern
    if p.name is not None:
        return env[p.name]
    if p.op is None:
        assert p.value is not None
        return m.number(p.value, t.dtype)
    src = [_value(m, s, env, casts) for s in t.src]
    found = mean(m, p.op, src, t.dtype if p.op in (Op.CAST, Op.BITCAST) else None)
    if p.op is Op.CAST:
        casts(src[0], found)
    return found


def _ops(*typed: Typed | None) -> set[Op]:
    found: set[Op] = set()
    pending = [t for t in typed if t is not None]
    while pending:
        t = pending.pop()
        if t.pattern.op is not None:
            found.add(t.pattern.op)
        pending.extend(t.src)
    return found


def _dtypes(*typed: Typed | None) -> set[DType]:
    found: set[DType] = set()
    pending = [t for t in typed if t is not None]
    while pending:
        t = pending.pop()
        found.add(t.dtype)
        pending.extend(t.src)
    return found


@dataclass(frozen=True, slots=True)
class Theory:
    """How to model one obligation: representations, and the encodings of division to try with their limits in steps."""

    by: str
    machine: Form
    index: Form
    exact: bool = False
    reals: bool = False
    encodings: tuple[tuple[Encoding, int], ...] = ((Encoding.NATIVE, 100_000_000),)


_BITS = Theory("bits", Form.BITS, Form.WIDE)
_SLICE = Theory("slice", Form.BITS, Form.SLICE)
_NUMBERS = Theory("numbers", Form.WHOLE, Form.WHOLE, exact=True)
_WHOLE = Theory("whole", Form.WHOLE, Form.WHOLE)
#: The two encodings of division answer for different rules; each gets a short try before a long one.
_DIVIDED = Theory(
    "whole",
    Form.WHOLE,
    Form.WHOLE,
    encodings=(
        (Encoding.NATIVE, 2_000_000),
        (Encoding.SKOLEM, 6_000_000),
        (Encoding.NATIVE, 20_000_000),
        (Encoding.SKOLEM, 40_000_000),
    ),
)
#: Rules that change values of floats: what they assume makes both sides defined, and equal.
_REALS = Theory("reals", Form.BITS, Form.WIDE, reals=True)
#: Divisors that are variables of a machine's width: bit vectors refute fast, and prove little beyond 8 bits.
_BITS_DIVIDED = Theory("bits", Form.BITS, Form.WIDE, encodings=((Encoding.NATIVE, 5_000_000),))
_CASTS = frozenset({Op.CAST, Op.BITCAST})
_DIVISIONS = frozenset({Op.IDIV, Op.MOD})
_MOVING = BITWISE | {Op.WHERE, Op.NOT}


def theories(a: Assignment) -> tuple[Theory, ...]:
    """The theories to try, by what the obligation speaks of."""
    sides = (a.lhs, a.rhs, *a.when)
    ops, found = _ops(*sides), _dtypes(*sides)
    if dt.index not in found:
        if ops & _DIVISIONS and found <= {dt.bool_, *dt.INTS} and any(map(_divides, sides)):
            narrow = all(d.bits <= 8 for d in found)
            return (_BITS_DIVIDED, _DIVIDED) if narrow else (_DIVIDED, _BITS_DIVIDED)
        return (_NUMBERS, _BITS) if ops == {Op.CAST} and _source(a) is not dt.bool_ else (_BITS,)
    if ops <= _CASTS:
        concrete = (_BITS,) if _source(a) is not dt.index else ()
        return concrete if _source(a) is dt.bool_ else (_NUMBERS, *concrete)
    if ops & BITWISE and not (found - {dt.index, dt.bool_}) and ops <= _MOVING:
        return (_SLICE, _WHOLE)
    return (_DIVIDED if ops & _DIVISIONS else _WHOLE,)


def _divides(t: Typed | None) -> bool:
    """Whether there is a division by something else than a literal."""
    if t is None:
        return False
    return (t.pattern.op in _DIVISIONS and t.src[1].pattern.value is None) or any(map(_divides, t.src))


def _source(a: Assignment) -> DType:
    t = a.lhs
    while t.src:
        t = t.src[0]
    return t.dtype


# Queries


@dataclass(frozen=True, slots=True)
class _Query:
    """What is assumed, what is claimed, which pairs of dtypes the casts inside are assumed to keep, and whether a model refutes."""

    assumed: tuple[Term, ...]
    claimed: Term
    needs: tuple[str, ...]
    concrete: bool


def _query(theory: Theory, rule: Rule, a: Assignment) -> _Query:
    assert a.rhs is not None
    m = Model(theory.machine, theory.index, theory.exact, theory.reals)
    env = {n: m.variable(n, d) for n, d in a.types.items() if isinstance(n, str) and _is_variable(rule, n)}
    lemmas: dict[str, list[Term]] = {}

    def casts(before: Value, after: Value) -> None:
        if theory.exact and keeps_by_lemma(before.dtype, after.dtype):
            lemmas[f"{before.dtype.short}>{after.dtype.short}"] = kept(m, before, after)

    lhs = _value(m, a.lhs, env, casts)
    defined, left_choices = tuple(m.defined), tuple(m.choices)
    m.defined.clear()
    m.choices.clear()
    conditions = [_value(m, c, env, casts).term for c in a.when]
    conditions += _evaluated(m, rule, a, env, casts)
    conditions += [_multiple(m, c, env, casts) for c in a.when if _is_divisible(m, c)]
    m.defined.clear()
    rhs = _value(m, a.rhs, env, casts)
    claimed = smt.and_(*m.defined, _some_choice(left_choices, equal(lhs, rhs)))
    if theory.reals:
        claimed, defined = smt.and_(*defined, claimed), ()
    facts = [*m.facts, *(t for terms in lemmas.values() for t in terms)]
    return _Query((*facts, *defined, *conditions), claimed, tuple(sorted(lemmas)), not m.abstract)


def _is_divisible(m: Model, c: Typed) -> bool:
    """Whether a condition says a % b == 0 of whole numbers."""
    whole = c.pattern.op is Op.CMPEQ and m.form(c.src[0].dtype) is Form.WHOLE
    return whole and c.src[0].pattern.op is Op.MOD and c.src[1].pattern.value == 0


def _multiple(m: Model, c: Typed, env: Mapping[str, Value], casts: Callable[[Value, Value], None]) -> Term:
    """What follows from a % b == 0: a = b k for some k, whatever b is (R03: a % 0 is a)."""
    a, b = (_value(m, s, env, casts).term for s in c.src[0].src)
    return smt.same(a, smt.times(b, m.fresh("k", smt.INT)))


def _is_variable(rule: Rule, name: str) -> bool:
    return any(name in variables(p) for p in (rule.lhs, rule.rhs, rule.when) if p is not None)


def _evaluated(m: Model, rule: Rule, a: Assignment, env: Mapping[str, Value], casts: Callable[[Value, Value], None]) -> list[Term]:
    """The promise of a witness that evaluates a pattern: `k` is its value."""
    form: Pattern | None = getattr(rule.witness, "evaluates", None)
    if form is None or "k" not in env:
        return []
    if form is rule.lhs:
        typed: Typed | None = a.lhs
    else:
        typed = annotate(form, a.types, None)
    assert typed is not None
    return [equal(_value(m, typed, env, casts), env["k"])]


def _some_choice(choices: Sequence[Term], claim: Term) -> Term:
    """The claim for some way to make the choices of the left side: any of its values may be kept."""
    found = [claim]
    for c in choices:
        found = [smt.substitute(t, c, v) for t in found for v in (smt.TRUE, smt.FALSE)]
    return smt.or_(*found)


def keeps_by_lemma(source: DType, target: DType) -> bool:
    """Pairs of dtypes for which the cast that keeps every number is a lemma: what `lossless` says, for a float target."""
    if source is target or not target.is_float or source in (dt.bool_, dt.index):
        return False
    if source.is_float:
        return source.man_bits <= target.man_bits and source.exp_bits <= target.exp_bits and source.has_inf <= target.has_inf
    return source.bits - source.is_signed <= target.man_bits + 1 and source.bits <= target.bias


# Obligations


def obligations(rule: Rule) -> Iterator[Obligation]:
    """What proves `rule`, one obligation per typing."""
    for a in assignments(rule):
        yield _obligation(rule, a)


def _obligation(rule: Rule, a: Assignment) -> Obligation:
    names = tuple((n, d) for n, d in a.types.items() if isinstance(n, str) and _is_variable(rule, n))
    if a.rhs is None:
        return Obligation(rule.name, str(a), variables=names, wrong=f"the right side is not of dtype {a.lhs.dtype}")
    chosen = theories(a) if rule.assumes is None else (_REALS,)
    return Obligation(rule.name, str(a), tuple([cache(partial(_plan, t, rule, a)) for t in chosen]), names)


def _plan(theory: Theory, rule: Rule, a: Assignment) -> Plan:
    smt.forget()
    try:
        q = _query(theory, rule, a)
    except Unmodelled as e:
        return Plan(why=str(e))
    assumed, split = _split(q)
    attempts = []
    for encoding, steps in theory.encodings:
        by = f"{theory.by} {encoding.value}" if len(theory.encodings) > 1 else theory.by
        queries = tuple([smt.script(terms, encoding, known) for terms, known in split])
        attempts.append(Attempt(by, queries, steps, q.concrete))
    possible = smt.script(assumed) if a.when else None
    return Plan(tuple(attempts), possible, q.needs)


def _split(q: _Query) -> tuple[Sequence[Term], list[tuple[list[Term], dict[Term, Term]]]]:
    """The assumptions, and the cases of what would refute the claim: one per combination of signs of the divisors."""
    terms = [*q.assumed, smt.not_(q.claimed)]
    if not smt.divisors(terms):
        return q.assumed, [(terms, {})]
    assumed, (claimed,) = smt.solved(q.assumed, q.claimed)
    return assumed, list(_cases([*assumed, smt.not_(claimed)]))


def _cases(terms: list[Term]) -> Iterator[tuple[list[Term], dict[Term, Term]]]:
    """`terms` for each combination of signs that the divisors may have, with what is known then."""
    divisors = smt.divisors(terms)
    for chosen in itertools.product(*([s for s in smt.signs(b) if _possible(s, terms)] for b in divisors)):
        known = {t: v for s in chosen for t, v in s.items()}
        stated = [smt.literal_of(t, v) for t, v in known.items() if v is smt.TRUE]
        simple = [smt.simplified(t, known) for t in terms if t not in known]
        if smt.FALSE not in simple:
            yield [*stated, *simple], known


def _possible(sign: Mapping[Term, Term], terms: list[Term]) -> bool:
    return not any(v is smt.FALSE and t in terms for t, v in sign.items())
