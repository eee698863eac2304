"""Proof obligations of a rule: queries for a solver, built from the live `Rule` object.

Takes: a rule. Gives: one `Obligation` per typing of it, with one plan per theory that may decide it. The queries of a plan are
unsatisfiable only if the rule is right: for all values of the variables, those of a witness included, let the left side be
defined and the condition hold. Then the right side is defined and may replace the left one.

- The condition has the meaning by which the matcher discharges it. Every conjunct is true of the values, by min_max or by
  equality of canonical sums.
- A rule that `assumes` something has its condition on values as one more conjunct. Definedness of its left side is claimed, not
  assumed.
- The variable `k` of an `EvaluationWitness` is the value of its pattern, by the constant folder. What another witness says of its
  variables is not believed.
- A plan with a condition also has a query whether left side and condition are satisfiable: if not, the rule is vacuous.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache, partial

from uops.compiler.prove.casts import derive_facts_of_lossless_cast
from uops.compiler.prove.model import (
    EncodedValue,
    Representation,
    SmtEncoder,
    Unmodelled,
    ZeroChoice,
    encode_replacement_keeps_known_bits,
)
from uops.compiler.prove.semantics import encode_op
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import Encoding, Term
from uops.compiler.prove.typings import RuleTyping, TypedPattern, annotate_dtypes_if_well_typed, enumerate_rule_typings
from uops.compiler.rewrite.pattern import variables
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import BITWISE, CONVERSIONS, DIVISION, Op
from uops.spec.ir.record import dataclass


@dataclass(frozen=True, slots=True)
class ProofAttempt:
    """Queries, one per case; the obligation is proved if all are unsatisfiable.

    If `concrete`, a model of a query is a counterexample; otherwise the query knows less than the semantics. `steps` limits each
    query, in steps of the solver, of which some millions take a second. Unlike a time, this limit does not depend on the load.
    """

    by: str
    queries: tuple[str, ...]
    steps: int
    concrete: bool = True


@dataclass(frozen=True, slots=True)
class ProofPlan:
    """The attempts of one theory in order of promise, the query that must be satisfiable, and the lemmas assumed.

    `why` gives the reason if there is no attempt.
    """

    attempts: tuple[ProofAttempt, ...] = ()
    condition_query: str | None = None
    lemmas: tuple[str, ...] = ()
    why: str | None = None

    @property
    def key(self) -> str:
        """The SHA-256 of the texts and limits of all queries."""
        parts = [f"{a.by} {a.steps}\n{q}" for a in self.attempts for q in a.queries]
        return hashlib.sha256("\n".join([*parts, f"possible\n{self.condition_query}", *self.lemmas]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Obligation:
    """One typing of a rule. `plans` are built lazily, in order of promise; `refutation` is the reason if no plan is needed to
    refute it."""

    rule: str
    typing: str
    plans: tuple[Callable[[], ProofPlan], ...] = ()
    variables: tuple[tuple[str, DType], ...] = ()
    refutation: str | None = None

    @property
    def name(self) -> str:
        """The rule and the typing."""
        return f"{self.rule}/{self.typing}"


# Evaluating typed patterns in a model


def _encode_pattern(
    m: SmtEncoder,
    t: TypedPattern,
    values_by_name: Mapping[str, EncodedValue],
    on_cast: Callable[[EncodedValue, EncodedValue], None],
) -> EncodedValue:
    """Encode a typed pattern over the values in `values_by_name`, and report each cast to `on_cast`.

    Equal patterns make equal nodes, which are one node with one value (R27).
    """
    p = t.pattern
    if p.name is not None:
        return values_by_name[p.name]
    if p.op is None:
        assert p.value is not None
        return m.make_constant(p.value, t.dtype)
    key = _make_structural_key(t)
    if key in m.values:
        return m.values[key]
    src = [_encode_pattern(m, s, values_by_name, on_cast) for s in t.src]
    result = encode_op(m, p.op, src, t.dtype if p.op in CONVERSIONS else None)
    if p.op is Op.CAST:
        on_cast(src[0], result)
    m.values[key] = result
    return result


def _make_structural_key(t: TypedPattern) -> Hashable:
    """Return a key that is equal for typed patterns that make equal nodes whatever their variables are."""
    p = t.pattern
    if p.name is not None:
        return p.name
    return (repr(p.value) if p.op is None else p.op, t.dtype, *map(_make_structural_key, t.src))


def _collect_ops(*typed: TypedPattern | None) -> set[Op]:
    """Return all ops of typed patterns."""
    ops: set[Op] = set()
    pending = [t for t in typed if t is not None]
    while pending:
        t = pending.pop()
        if t.pattern.op is not None:
            ops.add(t.pattern.op)
        pending.extend(t.src)
    return ops


def _collect_dtypes(*typed: TypedPattern | None) -> set[DType]:
    """Return all dtypes of typed patterns."""
    dtypes: set[DType] = set()
    pending = [t for t in typed if t is not None]
    while pending:
        t = pending.pop()
        dtypes.add(t.dtype)
        pending.extend(t.src)
    return dtypes


@dataclass(frozen=True, slots=True)
class Theory:
    """A way to model an obligation: representations, and the encodings of division to try, each with its limit in steps."""

    name: str
    machine: Representation
    index: Representation
    exact: bool = False
    reals: bool = False
    encodings: tuple[tuple[Encoding, int], ...] = ((Encoding.NATIVE, 100_000_000),)


_BITS = Theory("bits", Representation.BITS, Representation.WIDE)
_SLICE = Theory("slice", Representation.BITS, Representation.SLICE)
_NUMBERS = Theory("numbers", Representation.WHOLE, Representation.WHOLE, exact=True)
_WHOLE = Theory("whole", Representation.WHOLE, Representation.WHOLE)
#: The two encodings of division decide different rules; each gets a short try before a long one.
_DIVISION = Theory(
    "whole",
    Representation.WHOLE,
    Representation.WHOLE,
    encodings=(
        (Encoding.NATIVE, 2_000_000),
        (Encoding.SKOLEM, 6_000_000),
        (Encoding.NATIVE, 20_000_000),
        (Encoding.SKOLEM, 40_000_000),
    ),
)
#: For rules that change values of floats: their assumptions imply that both sides are defined, and equal.
_REALS = Theory("reals", Representation.BITS, Representation.WIDE, reals=True)
#: For divisors that are variables of a machine integer: bit vectors refute fast, and prove little beyond 8 bits.
_BITS_DIVISION = Theory("bits", Representation.BITS, Representation.WIDE, encodings=((Encoding.NATIVE, 5_000_000),))
_BIT_SELECTING = BITWISE | {Op.WHERE, Op.NOT}


#: Names of the theories in whose models an index is a word, in two's complement.
_THEORIES_OF_WIDE_INDEX = frozenset(
    t.name for t in (_BITS, _SLICE, _NUMBERS, _WHOLE, _DIVISION, _REALS, _BITS_DIVISION) if t.index is Representation.WIDE
)


def gives_index_as_word(attempt: str) -> bool:
    """Return True if an attempt, given by its `by`, models an index as a WIDE bit vector."""
    theory, *_ = attempt.split(" ")
    return theory in _THEORIES_OF_WIDE_INDEX


def choose_theories(assignment: RuleTyping) -> tuple[Theory, ...]:
    """Return the theories to try in order, by the ops and dtypes of the obligation."""
    sides = (assignment.lhs, assignment.rhs, *assignment.when)
    ops, dtypes = _collect_ops(*sides), _collect_dtypes(*sides)
    if dt.index not in dtypes:
        if ops & DIVISION and dtypes <= {dt.bool_, *dt.INTS} and any(map(_has_nonliteral_divisor, sides)):
            narrow = all(d.bits <= 8 for d in dtypes)
            return (_BITS_DIVISION, _DIVISION) if narrow else (_DIVISION, _BITS_DIVISION)
        return (_NUMBERS, _BITS) if ops == {Op.CAST} and _leftmost_leaf_dtype(assignment) is not dt.bool_ else (_BITS,)
    if ops <= CONVERSIONS:
        concrete = (_BITS,) if _leftmost_leaf_dtype(assignment) is not dt.index else ()
        return concrete if _leftmost_leaf_dtype(assignment) is dt.bool_ else (_NUMBERS, *concrete)
    if ops & BITWISE and not (dtypes - {dt.index, dt.bool_}) and ops <= _BIT_SELECTING:
        return (_SLICE, _WHOLE)
    return (_DIVISION if ops & DIVISION else _WHOLE,)


def _has_nonliteral_divisor(t: TypedPattern | None) -> bool:
    """Return True if there is a division by anything but a literal."""
    if t is None:
        return False
    if t.pattern.op in DIVISION:
        _, divisor = t.src  # lhs, rhs
        if divisor.pattern.value is None:
            return True
    return any(map(_has_nonliteral_divisor, t.src))


def _leftmost_leaf_dtype(a: RuleTyping) -> DType:
    """Return the dtype of the leftmost leaf of the left side."""
    t = a.lhs
    while t.src:
        t, *_ = t.src
    return t.dtype


# Queries


@dataclass(frozen=True, slots=True)
class _Query:
    """The assumptions, the claim, the lemmas assumed about casts, and whether a model is a counterexample."""

    assumptions: tuple[Term, ...]
    claim: Term
    lemmas: tuple[str, ...]
    concrete: bool


def _encode_assumptions_and_claim(theory: Theory, rule: Rule, assignment: RuleTyping) -> _Query:
    """Encode a rule under one typing in one theory. Raises Unmodelled."""
    assert assignment.rhs is not None
    m = SmtEncoder(theory.machine, theory.index, theory.exact, theory.reals)
    env = {n: m.make_variable(n, d) for n, d in assignment.types.items() if isinstance(n, str) and _is_variable(rule, n)}
    lemmas: dict[str, list[Term]] = {}

    def assume_cast_lemma(before: EncodedValue, after: EncodedValue) -> None:
        if theory.exact and has_lossless_cast_to_float_lemma(before.dtype, after.dtype):
            lemmas[f"{before.dtype.short}>{after.dtype.short}"] = derive_facts_of_lossless_cast(m, before, after)

    lhs = _encode_pattern(m, assignment.lhs, env, assume_cast_lemma)
    defined, left_choices = tuple(m.definedness), tuple(m.choices)
    m.forget_nodes()
    conditions = [_encode_pattern(m, c, env, assume_cast_lemma).term for c in assignment.when]
    conditions += _assume_witness_value_equals_evaluated_pattern(m, rule, assignment, env, assume_cast_lemma)
    conditions += [
        _encode_dividend_as_unknown_multiple(m, c, env, assume_cast_lemma)
        for c in assignment.when
        if _is_whole_number_mod_equals_zero(m, c)
    ]
    m.forget_nodes()
    rhs = _encode_pattern(m, assignment.rhs, env, assume_cast_lemma)
    claim = smt.and_(*m.definedness, _claim_for_some_left_side_choice(left_choices, encode_replacement_keeps_known_bits(lhs, rhs)))
    if theory.reals:
        claim, defined = smt.and_(*defined, claim), ()
    facts = [*m.facts, *(t for terms in lemmas.values() for t in terms)]
    return _Query((*facts, *defined, *conditions), claim, tuple(sorted(lemmas)), not m.abstract)


def _is_whole_number_mod_equals_zero(m: SmtEncoder, condition: TypedPattern) -> bool:
    """Return True if a condition states a % b == 0 of whole numbers."""
    if condition.pattern.op is not Op.CMPEQ:
        return False
    remainder, zero = condition.src  # lhs, rhs
    is_whole = m.representation(remainder.dtype) is Representation.WHOLE
    return is_whole and remainder.pattern.op is Op.MOD and zero.pattern.value == 0


def _encode_dividend_as_unknown_multiple(
    m: SmtEncoder, condition: TypedPattern, env: Mapping[str, EncodedValue], on_cast: Callable[[EncodedValue, EncodedValue], None]
) -> Term:
    """Return the consequence of a % b == 0: a = b k for some k, for every b (R03: a % 0 is a)."""
    remainder, _ = condition.src  # lhs, rhs
    a, b = (_encode_pattern(m, s, env, on_cast).term for s in remainder.src)
    return smt.equals(a, smt.times(b, m.fresh_constant("k", smt.INT)))


def _is_variable(rule: Rule, name: str) -> bool:
    return any(name in variables(p) for p in (rule.lhs, rule.rhs, rule.when) if p is not None)


def _assume_witness_value_equals_evaluated_pattern(
    m: SmtEncoder,
    rule: Rule,
    assignment: RuleTyping,
    env: Mapping[str, EncodedValue],
    on_cast: Callable[[EncodedValue, EncodedValue], None],
) -> list[Term]:
    """State the promise of a witness that evaluates a pattern: `k` is its value."""
    evaluated = rule.evaluated_pattern
    if evaluated is None or "k" not in env:
        return []
    if evaluated is rule.lhs:
        typed: TypedPattern | None = assignment.lhs
    else:
        typed = annotate_dtypes_if_well_typed(evaluated, assignment.types, None)
    assert typed is not None
    return [encode_replacement_keeps_known_bits(_encode_pattern(m, typed, env, on_cast), env["k"])]


def _claim_for_some_left_side_choice(left_side_choices: Sequence[ZeroChoice], claim: Term) -> Term:
    """Return the disjunction of the claim over the choices of the left side, as any of its values may be kept.

    Two Max of equal operands may be one node, as two variables may match one. So they choose alike (R27).
    """
    pairs = itertools.combinations(left_side_choices, 2)
    cases = [smt.and_(*[_choose_alike_if_equal(c, d) for c, d in pairs if c.dtype is d.dtype], claim)]
    for c in left_side_choices:
        cases = [smt.substitute(t, c.first, v) for t in cases for v in (smt.TRUE, smt.FALSE)]
    return smt.or_(*cases)


def _choose_alike_if_equal(c: ZeroChoice, d: ZeroChoice) -> Term:
    return smt.implies(smt.and_(smt.equals(c.a, d.a), smt.equals(c.b, d.b)), smt.equals(c.first, d.first))


def has_lossless_cast_to_float_lemma(source: DType, target: DType) -> bool:
    """Return True if a lemma says that a cast keeps every number: it is to a float that holds them, and not from bool or index."""
    if source is target or not target.is_float or source in (dt.bool_, dt.index):
        return False
    if source.is_float:
        return source.man_bits <= target.man_bits and source.exp_bits <= target.exp_bits and source.has_inf <= target.has_inf
    return source.bits - source.is_signed <= target.man_bits + 1 and source.bits <= target.bias


# Obligations


def obligations(rule: Rule) -> Iterator[Obligation]:
    """Yield the obligations that prove `rule`, one per typing."""
    for a in enumerate_rule_typings(rule):
        yield _make_obligation(rule, a)


def _make_obligation(rule: Rule, assignment: RuleTyping) -> Obligation:
    """Build the obligation of one typing."""
    names = tuple((n, d) for n, d in assignment.types.items() if isinstance(n, str) and _is_variable(rule, n))
    if assignment.rhs is None:
        return Obligation(
            rule.name, str(assignment), variables=names, refutation=f"the right side is not of dtype {assignment.lhs.dtype}"
        )
    chosen = choose_theories(assignment) if rule.assumes is None else (_REALS,)
    return Obligation(
        rule.name, str(assignment), tuple([cache(partial(_make_plan_or_reason, t, rule, assignment)) for t in chosen]), names
    )


def _make_plan_or_reason(theory: Theory, rule: Rule, assignment: RuleTyping) -> ProofPlan:
    """Build the plan of one theory."""
    smt.clear_interned_terms()
    try:
        q = _encode_assumptions_and_claim(theory, rule, assignment)
    except Unmodelled as e:
        return ProofPlan(why=str(e))
    assumed, split = _assumptions_and_refutation_cases_by_divisor_signs(q)
    attempts = []
    for encoding, steps in theory.encodings:
        by = f"{theory.name} {encoding.value}" if len(theory.encodings) > 1 else theory.name
        queries = tuple([smt.render_query(terms, encoding, known) for terms, known in split])
        attempts.append(ProofAttempt(by, queries, steps, q.concrete))
    possible = smt.render_query(assumed) if assignment.when else None
    return ProofPlan(tuple(attempts), possible, q.lemmas)


def _assumptions_and_refutation_cases_by_divisor_signs(
    query: _Query,
) -> tuple[Sequence[Term], list[tuple[list[Term], dict[Term, Term]]]]:
    """Return the assumptions, and the cases that would refute the claim: one per combination of signs of the divisors."""
    terms = [*query.assumptions, smt.not_(query.claim)]
    if not smt.symbolic_divisors(terms):
        return query.assumptions, [(terms, {})]
    assumed, (claimed,) = smt.inline_constants_defined_by_equations(query.assumptions, query.claim)
    return assumed, list(_simplify_per_divisor_sign_case([*assumed, smt.not_(claimed)]))


def _simplify_per_divisor_sign_case(terms: list[Term]) -> Iterator[tuple[list[Term], dict[Term, Term]]]:
    """Yield `terms`, simplified by the facts of each combination of the divisors' signs, and these facts."""
    divisors = smt.symbolic_divisors(terms)
    for chosen in itertools.product(
        *([s for s in smt.decide_comparisons_with_zero_per_sign(b) if _is_sign_possible(s, terms)] for b in divisors)
    ):
        facts = {t: v for s in chosen for t, v in s.items()}
        stated = [smt.literal_of(t, v) for t, v in facts.items() if v is smt.TRUE]
        simple = [smt.simplify_under_facts(t, facts) for t in terms if t not in facts]
        if smt.FALSE not in simple:
            yield [*stated, *simple], facts


def _is_sign_possible(sign: Mapping[Term, Term], terms: list[Term]) -> bool:
    """Return False if `terms` contains a test that this sign makes false."""
    return not any(v is smt.FALSE and t in terms for t, v in sign.items())
