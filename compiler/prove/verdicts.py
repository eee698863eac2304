"""Decisions of proof obligations.

Takes: `Obligation`s. Gives: a `ProofVerdict` for each, with one of these statuses:

- proved: all queries of an attempt are unsatisfiable, and the condition, if any, is satisfiable
- refuted, with a counterexample
- vacuous: the condition never holds
- unknown: no attempt decided it
- unmodelled: there is no attempt

A lemma that a plan assumes is an obligation too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from uops.compiler.prove.casts import build_lemma_that_cast_keeps_number
from uops.compiler.prove.obligations import Obligation, ProofAttempt, ProofPlan, has_lossless_cast_to_float_lemma
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.solver import Number, SolverPool, SolverWorker
from uops.spec.ir import dtypes as dt
from uops.spec.ir.record import dataclass

#: The rule name of all lemmas about casts.
LEMMA = "lemma: the cast keeps the number"


class ProofStatus(Enum):
    """The outcome of an obligation."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    VACUOUS = "vacuous"
    UNMODELLED = "unmodelled"


@dataclass(frozen=True, slots=True)
class ProofVerdict:
    """The status of an obligation, the theory or reason that decided it, a counterexample, and the plan that proved it.

    A counterexample has values by variable; a float is given by its bits.
    """

    obligation: Obligation
    status: ProofStatus
    by: str = ""
    values: tuple[tuple[str, Number], ...] = ()
    plan: ProofPlan | None = None


def decide_obligation(worker: SolverWorker, obligation: Obligation) -> ProofVerdict:
    """Run the attempts of an obligation until one decides it."""
    if obligation.refutation is not None:
        return ProofVerdict(obligation, ProofStatus.REFUTED, obligation.refutation)
    reasons, attempted = [], False
    for make in obligation.plans:
        plan = make()
        if plan.why is not None:
            reasons.append(plan.why)
        for a in plan.attempts:
            attempted = True
            outcome = _run_attempt_and_check_vacuity(worker, obligation, plan, a)
            if isinstance(outcome, ProofVerdict):
                return outcome
            reasons.append(outcome)
    return ProofVerdict(obligation, ProofStatus.UNKNOWN if attempted else ProofStatus.UNMODELLED, "; ".join(dict.fromkeys(reasons)))


def _run_attempt_and_check_vacuity(
    worker: SolverWorker, obligation: Obligation, plan: ProofPlan, attempt: ProofAttempt
) -> ProofVerdict | str:
    """Return the verdict of one attempt, or the reason why it gives none."""
    names = [n for n, _ in obligation.variables]
    for query in attempt.queries:
        answer = worker.run_query(query, attempt.steps, names)
        if answer.result == "sat" and attempt.concrete:
            return ProofVerdict(obligation, ProofStatus.REFUTED, attempt.by, tuple(sorted(answer.model.items())))
        if answer.result != "unsat":
            return answer.reason or f"{attempt.by} knows too little"
    if plan.condition_query is not None:
        result = worker.run_query(plan.condition_query, attempt.steps).result
        if result != "sat":
            return ProofVerdict(
                obligation,
                ProofStatus.VACUOUS if result == "unsat" else ProofStatus.UNKNOWN,
                f"whether the condition can hold: {result}",
            )
    return ProofVerdict(obligation, ProofStatus.PROVED, attempt.by, plan=plan)


def list_exact_cast_lemmas() -> tuple[str, ...]:
    """Return each `source>target` for which a lemma says that the cast keeps the number."""
    numbers = [d for d in dt.SHORT.values() if d is not dt.void]
    return tuple(sorted(f"{a.short}>{b.short}" for a in numbers for b in numbers if has_lossless_cast_to_float_lemma(a, b)))


def make_cast_lemma_obligation(source_and_target_names: str) -> Obligation:
    """Build the obligation of the lemma `source>target`."""
    source, target = (dt.SHORT[d] for d in source_and_target_names.split(">"))
    plan = ProofPlan(
        (ProofAttempt("bits", (smt.render_query([smt.not_(build_lemma_that_cast_keeps_number(source, target))]),), 200_000_000),)
    )
    return Obligation(LEMMA, source_and_target_names, (lambda: plan,), (("x", source),))


def prove(obligations: Iterable[Obligation], jobs: int = 1, seed: int = 0) -> Iterator[ProofVerdict]:
    """Decide obligations on `jobs` processes; yield verdicts as they complete."""
    yield from SolverPool(decide_obligation, jobs, seed).map_unordered(obligations)
