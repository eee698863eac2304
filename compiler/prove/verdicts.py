"""From obligations to verdicts.

A verdict is `proved` (an attempt is unsatisfiable, and where there is a condition it can be met), `refuted` (with the values that
refute it), `vacuous` (the condition never holds), `unknown` (no attempt answered), or `unmodelled` (there is no attempt). A lemma
that a plan assumes is an obligation too (`lemma_obligation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from uops.compiler.prove.casts import lemma
from uops.compiler.prove.obligations import Attempt, Obligation, Plan, keeps_by_lemma
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.solver import Number, Pool, Worker
from uops.spec.ir import dtypes as dt
from uops.spec.ir.record import dataclass

#: The name under which the casts that keep every number are proved.
LEMMA = "lemma: the cast keeps the number"


class Status(Enum):
    """What became of an obligation."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    VACUOUS = "vacuous"
    UNMODELLED = "unmodelled"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status of an obligation, who says so, the counterexample (values by variable, floats as their bits), and the plan that
    proved it."""

    obligation: Obligation
    status: Status
    by: str = ""
    values: tuple[tuple[str, Number], ...] = ()
    plan: Plan | None = None


def judge(worker: Worker, o: Obligation) -> Verdict:
    """Ask the solver until it answers."""
    if o.wrong is not None:
        return Verdict(o, Status.REFUTED, o.wrong)
    reasons, attempted = [], False
    for make in o.plans:
        plan = make()
        if plan.why is not None:
            reasons.append(plan.why)
        for a in plan.attempts:
            attempted = True
            found = _try(worker, o, plan, a)
            if isinstance(found, Verdict):
                return found
            reasons.append(found)
    return Verdict(o, Status.UNKNOWN if attempted else Status.UNMODELLED, "; ".join(dict.fromkeys(reasons)))


def _try(worker: Worker, o: Obligation, plan: Plan, a: Attempt) -> Verdict | str:
    """The verdict of one attempt, or why it gives none."""
    names = [n for n, _ in o.variables]
    for query in a.queries:
        answer = worker.ask(query, a.steps, names)
        if answer.result == "sat" and a.concrete:
            return Verdict(o, Status.REFUTED, a.by, tuple(sorted(answer.model.items())))
        if answer.result != "unsat":
            return answer.reason or f"{a.by} knows too little"
    if plan.possible is not None:
        found = worker.ask(plan.possible, a.steps).result
        if found != "sat":
            return Verdict(o, Status.VACUOUS if found == "unsat" else Status.UNKNOWN, f"whether the condition can hold: {found}")
    return Verdict(o, Status.PROVED, a.by, plan=plan)


def lemmas() -> tuple[str, ...]:
    """Every `source>target` of which the cast keeps the number, by a lemma."""
    numbers = [d for d in dt.SHORT.values() if d is not dt.void]
    return tuple(sorted(f"{a.short}>{b.short}" for a in numbers for b in numbers if keeps_by_lemma(a, b)))


def lemma_obligation(pair: str) -> Obligation:
    """The lemma `source>target`."""
    source, target = (dt.SHORT[d] for d in pair.split(">"))
    plan = Plan((Attempt("bits", (smt.script([smt.not_(lemma(source, target))]),), 200_000_000),))
    return Obligation(LEMMA, pair, (lambda: plan,), (("x", source),))


def prove(obligations: Iterable[Obligation], jobs: int = 1, seed: int = 0) -> Iterator[Verdict]:
    """Verdicts in the order in which they are found."""
    yield from Pool(judge, jobs, seed).each(obligations)
