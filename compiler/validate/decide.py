"""Decisions of claims: by sums and intervals, by trying every point, and by the solver, in this order.

Takes: a `ValidationClaim`. Gives: a `ValidationVerdict`; a claim that none of the three decides is not proved.
`encode_negated_claim_and_model_defaults` gives the text of a claim for the solver, which is unsatisfiable if the claim holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from uops.compiler.prove.casts import wrap_to_dtype
from uops.compiler.prove.model import EncodedValue, Representation, SmtEncoder, within
from uops.compiler.prove.semantics import encode_op
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import Term
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate import terms as T
from uops.compiler.validate.budget import BudgetUnit, charge_budget_if_limited, require_remaining_budget
from uops.compiler.validate.model import ClaimCounterexample, DecisionMethod, ValidationClaim, ValidationVerdict
from uops.compiler.validate.terms import Atom, Condition, Interval, LinearSum, Operation, PointValues, Unknown
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

#: Greatest number of points that are tried per claim.
POINTS = 1 << 21
#: Limits for one claim, in steps of the solver. A claim about values of memory is proved in few steps or not at all.
STEPS = 20_000_000
HELD_STEPS = 1_000_000
#: Greatest magnitude of values at points, so that no sum of two leaves int64.
_INT64 = (1 << 62) - 1


def decide_claim(c: ValidationClaim, worker: SolverWorker) -> ValidationVerdict:
    """Decide a claim by the first method that can."""
    return (
        ValidationVerdict(c.kind, c.place, DecisionMethod.SUMS)
        if is_proved_by_linear_arithmetic(c)
        else decide_by_trying_every_point(c) or decide_by_solver(c, worker)
    )


# Sums


def is_proved_by_linear_arithmetic(claim: ValidationClaim) -> bool:
    """Return True if intervals, and differences from the given sums, prove the claim.

    Try it first with each index as it stands, then also with the choices by its gate resolved
    (`terms.resolve_wheres_whose_condition_is_listed`).
    """
    facts = extract_nonnegative_sums(claim.given)
    if _is_implied(claim.goal, facts):
        return True
    given = T.conjuncts(claim.given)
    resolved = [f for f, x in ((T.resolve_wheres_whose_condition_is_listed(x, given), x) for x in facts) if f is not x]
    return bool(resolved) and _is_implied(claim.goal, [*facts, *resolved])


def _is_implied(goal: Condition, nonnegative_sums: Sequence[LinearSum]) -> bool:
    """Return True if sums that are at least 0 imply the goal."""
    bounds = derive_atom_bounds_unless_contradictory(nonnegative_sums)
    return bounds is None or all(_is_conjunct_implied(g, nonnegative_sums, bounds) for g in T.conjuncts(goal))


def extract_nonnegative_sums(given: Condition) -> list[LinearSum]:
    """Return sums that are at least 0 if a condition holds."""
    sums = []
    for x in T.conjuncts(given):
        if x.op == ">=0":
            sums.append(x.args[0])
        elif x.op == "==0":
            sums += [x.args[0], T.scale(x.args[0], -1)]  # type: ignore[arg-type]
        elif x == T.FALSE:
            sums.append(LinearSum(-1))
        elif x.op == "not" and x.args[0].op == ">=0":  # type: ignore[union-attr]
            sums.append(T.add(LinearSum(-1), x.args[0].args[0], -1))  # type: ignore[union-attr,arg-type]
    return sums  # type: ignore[return-value]


def derive_condition_bounds_unless_contradictory(condition: Condition) -> dict[Atom, Interval] | None:
    """Return the bounds of single atoms where a condition holds; None if it contradicts itself."""
    return derive_atom_bounds_unless_contradictory(extract_nonnegative_sums(condition))


def derive_atom_bounds_unless_contradictory(nonnegative_sums: Sequence[LinearSum]) -> dict[Atom, Interval] | None:
    """Return the bounds of single atoms if the sums are at least 0; None if these facts contradict each other."""
    bounds: dict[Atom, Interval] = {}
    for _ in range(2):
        for f in nonnegative_sums:
            spans = [(t, c, T.bounds(T.as_sum(t), bounds)) for t, c in f.terms]
            top = f.const + sum(c * high if c > 0 else c * low for _, c, (low, high) in spans)
            if top < 0:
                return None
            for t, c, (low, high) in spans:
                rest = top - (c * high if c > 0 else c * low)  # the greatest value of the other terms
                tightened = (max(low, -(rest // c)), high) if c > 0 else (low, min(high, rest // -c))
                if tightened[0] > tightened[1]:
                    return None
                if tightened != (low, high):
                    bounds[t] = tightened
    return bounds


def _is_conjunct_implied(conjunct: Condition, nonnegative_sums: Sequence[LinearSum], bounds: Mapping[Atom, Interval]) -> bool:
    """Return True if a conjunct of the goal follows from the facts and the bounds of atoms."""
    if conjunct.op == "or":
        return any(all(_is_conjunct_implied(x, nonnegative_sums, bounds) for x in T.conjuncts(g)) for g in conjunct.args)  # type: ignore[arg-type]
    if conjunct.op != ">=0":
        return False
    (sum_,) = conjunct.args
    assert isinstance(sum_, LinearSum)
    return _is_provably_nonnegative(sum_, nonnegative_sums, bounds, 2)


def _is_provably_nonnegative(
    a: LinearSum, nonnegative_sums: Sequence[LinearSum], bounds: Mapping[Atom, Interval], depth: int
) -> bool:
    """Return True if a >= 0 by its interval, or as a multiple of a fact plus something at least 0."""
    if T.bounds(a, bounds)[0] >= 0:
        return True
    if not depth:
        return False
    coefficients = dict(a.terms)
    for f in nonnegative_sums:
        for k in {coefficients[t] // c for t, c in f.terms if t in coefficients and coefficients[t] % c == 0}:
            if k > 0 and _is_provably_nonnegative(T.add(a, f, -k), nonnegative_sums, bounds, depth - 1):
                return True
    return False


# Points


def build_open_grid_unless_large_or_loaded(
    unknowns: Sequence[Unknown], max_point_count: int = POINTS
) -> dict[Unknown, PointValues] | None:
    """Return every value of each unknown along an axis of its own, so that NumPy pairs them all; None if there are too many."""
    if math.prod(v.high - v.low + 1 for v in unknowns) > max_point_count or any(v.loaded for v in unknowns):
        return None
    n = len(unknowns)
    return {
        v: np.arange(v.low, v.high + 1, dtype=np.int64).reshape([-1 if j == k else 1 for j in range(n)])
        for k, v in enumerate(unknowns)
    }


def has_known_int64_values(*terms: LinearSum | Condition) -> bool:
    """Return True if every value is known and no intermediate one leaves int64."""
    if any(map(T.has_memory_value, terms)):
        return False
    for x in T.list_subterms_arguments_first(*terms):
        if isinstance(x, LinearSum):
            if _bound_partial_sums(x) > _INT64 or any(abs(c) > _INT64 for _, c in x.terms):
                return False
        elif isinstance(x, Operation) and x.op in ("shl", "shr"):
            return False
    return True


def _bound_partial_sums(x: LinearSum) -> int:
    """Return a number that the magnitude of no constant, product or partial sum of `x` exceeds."""
    return abs(x.const) + sum(abs(c) * max(map(abs, T.bounds(T.as_sum(t)))) for t, c in x.terms)


def decide_by_trying_every_point(claim: ValidationClaim) -> ValidationVerdict | None:
    """Decide a claim at every point; None if there are too many, or a value is unknown."""
    unknowns = list(T.collect_unknowns(claim.goal, T.collect_unknowns(claim.given)))
    at = build_open_grid_unless_large_or_loaded(unknowns) if has_known_int64_values(claim.given, claim.goal) else None
    if at is None:
        return None
    wrong = np.logical_and(T.evaluate_at_points(claim.given, at), np.logical_not(T.evaluate_at_points(claim.goal, at)))
    if not wrong.any():
        return ValidationVerdict(claim.kind, claim.place, DecisionMethod.POINTS)
    where = np.unravel_index(int(np.argmax(wrong)), wrong.shape) if wrong.ndim else ()
    return make_refutation(
        claim,
        DecisionMethod.POINTS,
        {v.name: int(at[v].reshape(-1)[_coordinate(where, wrong.shape, k)]) for k, v in enumerate(unknowns)},
    )


def _coordinate(where: Sequence[np.intp], shape: Sequence[int], k: int) -> int:
    return int(where[k]) if k < len(where) and shape[k] > 1 else 0


def make_refutation(c: ValidationClaim, by: DecisionMethod, values: Mapping[str, int]) -> ValidationVerdict:
    """Build the verdict of a claim that these values refute."""
    words = ", ".join(f"{k} = {v}" for k, v in values.items()) or "always"
    return ValidationVerdict(c.kind, c.place, by, ClaimCounterexample(dict(values), f"not for {words}" if values else words))


# The solver


def decide_by_solver(claim: ValidationClaim, worker: SolverWorker, unit: BudgetUnit = BudgetUnit.STEPS) -> ValidationVerdict:
    """Ask the solver about a claim. Raises BudgetExhausted."""
    steps = require_remaining_budget(unit, HELD_STEPS if unit is BudgetUnit.HELD_STEPS else STEPS)
    text, defaults, is_refuted_by_model = encode_negated_claim_and_model_defaults(claim)
    answer = worker.run_query(text, steps, list(defaults))
    charge_budget_if_limited(unit, min(steps, answer.steps))
    if answer.result == "unsat":
        return ValidationVerdict(claim.kind, claim.place, DecisionMethod.SOLVER)
    if answer.result == "sat" and is_refuted_by_model:
        return make_refutation(claim, DecisionMethod.SOLVER, {n: int(answer.model.get(n, low)) for n, low in defaults.items()})
    why = answer.reason or "the solver's model is of a query that says less than the claim"
    return ValidationVerdict(claim.kind, claim.place, None, why=why)


class EncodedClaimQuery(NamedTuple):
    """A claim's query, a default value of each of its unknowns by name, and True if a model of the query refutes the claim."""

    text: str
    default_by_unknown: dict[str, int]
    is_refuted_by_model: bool


def encode_negated_claim_and_model_defaults(claim: ValidationClaim) -> EncodedClaimQuery:
    """Return the query that is unsatisfiable if the claim holds."""
    m = SmtEncoder(Representation.WHOLE, Representation.WHOLE)
    unknowns = T.collect_unknowns(claim.goal, T.collect_unknowns(claim.given))
    terms = {v: smt.var(v.name, smt.INT) for v in unknowns}
    limits = [within(terms[v], v.low, v.high) for v in unknowns]
    encoded: dict[object, Term] = {}
    given, goal = (
        _encode_condition_memoized(m, claim.given, terms, encoded),
        _encode_condition_memoized(m, claim.goal, terms, encoded),
    )
    text = smt.render_query([*limits, given, *m.facts, smt.not_(goal)])
    is_refuted_by_model = not m.abstract and not any(v.stored for v in unknowns)
    return EncodedClaimQuery(text, {v.name: v.low for v in unknowns}, is_refuted_by_model)


def _encode_condition_memoized(
    m: SmtEncoder, c: Condition, unknown_terms: Mapping[Unknown, Term], encoded: dict[object, Term]
) -> Term:
    """Encode a condition, memoized per query."""
    if c not in encoded:
        encoded[c] = _encode_condition_unmemoized(m, c, unknown_terms, encoded)
    return encoded[c]


def _encode_condition_unmemoized(
    m: SmtEncoder, c: Condition, unknown_terms: Mapping[Unknown, Term], encoded: dict[object, Term]
) -> Term:
    """Encode a condition over the terms of the unknowns."""
    if c.op == "held":
        slot, element = c.args
        assert isinstance(element, LinearSum)
        return m.apply_uninterpreted(f"held-{slot}", _encode_sum(m, element, unknown_terms, encoded), sort=smt.BOOL)
    if c.op in _RELATION:
        (a,) = c.args
        assert isinstance(a, LinearSum)
        return smt.compare(_RELATION[c.op], _encode_sum(m, a, unknown_terms, encoded), smt.integer(0))
    return _LOGIC[c.op](*(_encode_condition_memoized(m, a, unknown_terms, encoded) for a in c.args if isinstance(a, Condition)))


def _encode_sum(m: SmtEncoder, a: LinearSum, unknown_terms: Mapping[Unknown, Term], encoded: dict[object, Term]) -> Term:
    """Encode a sum, memoized per query."""
    if a not in encoded:
        parts = []
        for t, k in a.terms:
            one = unknown_terms[t] if isinstance(t, Unknown) else _encode_operation(m, t, unknown_terms, encoded)
            parts.append(one if k == 1 else smt.times(smt.integer(k), one))
        if a.const or not parts:
            parts.append(smt.integer(a.const))
        encoded[a] = parts[0] if len(parts) == 1 else smt.app("+", *parts, sort=smt.INT)
    return encoded[a]


def _encode_operation(m: SmtEncoder, t: Operation, unknown_terms: Mapping[Unknown, Term], encoded: dict[object, Term]) -> Term:
    """Encode an operation, memoized per query."""
    if t not in encoded:
        args = [
            _encode_condition_memoized(m, a, unknown_terms, encoded)
            if isinstance(a, Condition)
            else _encode_sum(m, a, unknown_terms, encoded)
            for a in t.args
        ]
        if t.op == "where":
            encoded[t] = smt.ite(*args)
        elif t.op.startswith("held-"):
            encoded[t] = m.apply_uninterpreted(t.op, args[0], sort=smt.INT)
            low, high = T.dtype_range_of_wrap_or_held_op(t.op)
            m.facts.append(within(encoded[t], low, high))
        elif t.op == "table":
            encoded[t] = args[-1]
            for k, value in enumerate(args[1:-1]):
                encoded[t] = smt.ite(smt.equals(args[0], smt.integer(k)), value, encoded[t])
        elif t.op.startswith("wrap-"):
            encoded[t] = wrap_to_dtype(_DTYPES[t.op[5:]], args[0])
        else:
            encoded[t] = encode_op(m, _OPS[t.op], [EncodedValue(dt.index, a) for a in args]).term
    return encoded[t]


_DTYPES = {d.short: d for d in dt.INTS}
_RELATION = {">=0": ">=", "==0": "="}
_LOGIC: dict[str, Callable[..., Term]] = {"true": lambda: smt.TRUE, "and": smt.and_, "or": smt.or_, "not": smt.not_}
_OPS = {
    "idiv": Op.IDIV, "mod": Op.MOD, "mul": Op.MUL, "max": Op.MAX, "and": Op.AND, "or": Op.OR, "xor": Op.XOR, "shl": Op.SHL,
    "shr": Op.SHR,
}  # fmt: skip


def rename_unknown(v: Unknown, suffix: str) -> Unknown:
    """Return the same unknown of another copy of a site."""
    return Unknown(f"{v.name}{suffix}", v.low, v.high, v.loaded, v.stored)
