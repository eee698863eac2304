"""From obligations to verdicts.

A verdict is `proved` (an attempt is unsatisfiable, and where there is a condition it can be met), `refuted` (with the values that
refute it), `vacuous` (the condition never holds), `unknown` (no attempt answered), or `unmodelled` (there is no attempt). A lemma
that an obligation assumes is an obligation too: `with_lemmas` adds those that are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from uops.compiler.prove import smt
from uops.compiler.prove.casts import lemma
from uops.compiler.prove.obligations import Attempt, Obligation
from uops.compiler.prove.solver import Pool, Worker
from uops.spec import dtypes as dt
from uops.spec.record import dataclass

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
    """The status of an obligation, the attempt that gave it, and the counterexample: values by variable, floats as their bits."""

    obligation: Obligation
    status: Status
    by: str = ""
    values: tuple[tuple[str, bool | int], ...] = ()


def judge(worker: Worker, o: Obligation) -> Verdict:
    """Ask the solver until it answers."""
    if o.wrong is not None:
        return Verdict(o, Status.REFUTED, o.wrong)
    if not o.attempts:
        return Verdict(o, Status.UNMODELLED, o.why or "")
    names = [n for n, _ in o.variables]
    reason = ""
    for a in o.attempts:
        open_ = ""
        for query in a.queries:
            answer = worker.ask(query, a.seconds, names)
            if answer.result == "sat" and a.concrete:
                return Verdict(o, Status.REFUTED, a.by, tuple(sorted(answer.model.items())))
            if answer.result != "unsat":
                open_ = answer.reason or "the query knows too little"
                break
        if not open_:
            return _unless_vacuous(worker, o, a)
        reason = open_
    return Verdict(o, Status.UNKNOWN, reason)


def _unless_vacuous(worker: Worker, o: Obligation, a: Attempt) -> Verdict:
    if o.possible is not None:
        found = worker.ask(o.possible, a.seconds).result
        if found != "sat":
            return Verdict(o, Status.VACUOUS if found == "unsat" else Status.UNKNOWN, f"whether the condition can hold: {found}")
    return Verdict(o, Status.PROVED, a.by)


def with_lemmas(obligations: Iterable[Obligation]) -> Iterator[Obligation]:
    """The obligations, and after them the lemmas that they need, each once."""
    needs: dict[str, None] = {}
    for o in obligations:
        needs.update(dict.fromkeys(o.needs))
        yield o
    yield from map(lemma_obligation, sorted(needs))


def lemma_obligation(pair: str) -> Obligation:
    """The lemma `source>target`."""
    source, target = (dt.SHORT[d] for d in pair.split(">"))
    attempt = Attempt("bits", (smt.script([smt.not_(lemma(source, target))]),), 30.0)
    return Obligation(LEMMA, pair, (attempt,), None, (("x", source),))


def prove(obligations: Iterable[Obligation], jobs: int = 1, seed: int = 0) -> Iterator[Verdict]:
    """Verdicts in the order in which they are found."""
    yield from Pool(judge, jobs, seed).each(obligations)
