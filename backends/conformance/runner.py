"""Run a backend over the suite and decide every cell at both levels.

Takes: a backend's name, a tier, a glob of rows. Gives: `Run`, with one `CellResult` per required cell and level. Cases run in
worker processes: a crash, a hang, a trap or an exception fails the cells of its case, each with a reproducer, and nothing else. So
does a refusal of what the backend declares, of which nothing counts as judged. An elementwise case that ended so is run again class
by class, and only the classes that end so alone fail. With a journal, each case is on the disk when it is decided, and what the
journal holds already is not run again.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from uops.backends.conformance.cases import cases
from uops.backends.conformance.decided import Decided, heading, known
from uops.backends.conformance.judge import Expectation, Verdict, judge
from uops.backends.conformance.model import REFUSED, Case, Cell, CellResult, Failure, Level, Schedules, Segment, Status, Tier
from uops.backends.contract import Capabilities
from uops.backends.registry import Introduction
from uops.backends.testing.journal import Journal
from uops.backends.worker import client
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.text import show

LIMITS = client.Limits(timeout=60.0)
CHOSEN = Schedules()
Progress = Callable[[int, int], None]
_RANK = {Status.PASS: 0, Status.XFAIL: 1, Status.UNSUPPORTED: 2, Status.NOT_RUN: 3, Status.FAIL: 4}


@dataclass(slots=True)
class Run:
    """The outcome of one run; `cells[level]` has every required cell of the tier, `applied` how often each move of a forced
    schedule was made, `validated` what was proved of kernels, where that was asked for (`UOPS_VALIDATE=1`)."""

    backend: str
    version: str
    tier: Tier
    rows: str
    cells: dict[Level, dict[Cell, CellResult]] = field(default_factory=dict)
    reproducers: dict[str, Case] = field(default_factory=dict)  # case id -> case, of every failing case
    cases: int = 0
    seconds: float = 0.0
    complete: bool = True
    schedules: Schedules = field(default_factory=Schedules)
    applied: Counter[str] = field(default_factory=Counter)
    validated: Counter[str] = field(default_factory=Counter)

    def failing(self, level: Level) -> list[CellResult]:
        return [c for c in self.cells[level].values() if c.status is Status.FAIL]


def conform(
    backend: str, subject: Introduction, *, tier: Tier = Tier.SMOKE, rows: str = "*", jobs: int = 2,
    progress: Progress | None = None, limits: client.Limits = LIMITS, schedules: Schedules = CHOSEN, journal: Path | None = None,
) -> Run:  # fmt: skip
    """Run the suite on a backend of which `subject` is what it says of itself. Ctrl-C ends it early: what was decided is kept, the
    rest is `not run`, and `complete` is False. Raises OtherCampaign where the journal is of another run, and InUse."""
    start = time.monotonic()
    run = Run(backend, subject.version, tier, rows, {level: {} for level in Level})
    capable = subject.capabilities
    everything = list(cases(tier, rows))
    run.cases, run.schedules = len(everything), schedules
    wanted = [c for c in everything if capable.missing(c.row, c.dtype) is None]
    _declare(run, everything, capable)
    with nullcontext() if journal is None else closing(Journal(journal, heading(backend, run.version, tier, schedules))) as kept:
        before = {} if kept is None else known(kept, wanted)
        rest = [c for c in wanted if c.id not in before]
        fresh = _decided(rest, _outcomes(backend, rest, jobs, limits, schedules.environment), capable, kept)
        try:
            for k, case in enumerate(wanted, 1):
                _take(run, case, before.get(case.id) or next(fresh), capable)
                if progress:
                    progress(k, len(wanted))
        except KeyboardInterrupt:
            run.complete = False
    run.seconds = time.monotonic() - start + sum(d.seconds for d in before.values())
    return run


#: Ends of a program that one element may owe to another.
_ENDED = ("error", "crash", "trap")
Outcomes = list[tuple[Case, client.Outcome]]


def _outcomes(
    backend: str, wanted: list[Case], jobs: int, limits: client.Limits, environment: Mapping[str, str]
) -> Iterator[Outcomes]:  # fmt: skip
    """What to judge for each case: itself, or its classes alone."""
    sent = (_sent(c) for c in wanted)
    with client.Worker(backend, limits=limits, environment=environment) as again:
        found = client.run_all(backend, sent, jobs=jobs, batch=8, limits=limits, environment=environment)
        for case, outcome in zip(wanted, found, strict=True):
            yield _divided(case, outcome, again) if outcome.status in _ENDED else [(case, outcome)]


def _sent(case: Case) -> client.Case:
    return client.Case(show(case.graph), case.inputs)


def _divided(case: Case, outcome: client.Outcome, again: client.Worker) -> Outcomes:
    """The classes of a case that ended, each run without the others; the case itself where none of them ends alone."""
    parts = alone(case)
    found = list(zip(parts, again.run_batch([_sent(c) for c in parts]), strict=True))
    if any(o.status in _ENDED for _, o in found):
        return found
    note = f"{outcome.message} (not when its classes run alone)" if parts else outcome.message
    return [(case, replace(outcome, message=note))]


def alone(case: Case) -> list[Case]:
    """One case per segment of an elementwise case of several: the same program, the segment's elements over and over."""
    nodes = toposort(case.graph)
    n = math.prod(case.graph.shape) if case.graph.dtype is not dt.void else 0
    plain = all(u.op in ALU or u.op is Op.PARAM or u.dtype is dt.index for u in nodes)
    if not plain or len(case.segments) < 2 or any(np.shape(v) != (n,) for v in case.inputs.values()):
        return []
    return [_only(case, s, n) for s in case.segments]


def _only(case: Case, s: Segment, n: int) -> Case:
    inputs = {k: np.resize(v[s.start : s.stop], n) for k, v in case.inputs.items()}
    return replace(case, name=f"{case.name}-{s.edge}", inputs=inputs, segments=(Segment(s.edge, s.output, 0, s.stop - s.start),))


def _declare(run: Run, everything: Iterable[Case], capable: Capabilities) -> None:
    """Every required cell, before anything ran: unsupported where the backend said so, else not run."""
    for case in everything:
        missing = capable.missing(case.row, case.dtype)
        for cell in case.cells():
            for level in Level:
                status, reason = (Status.UNSUPPORTED, missing.reason) if missing else (Status.NOT_RUN, None)
                if level.value not in capable.levels:
                    status, reason = Status.UNSUPPORTED, f"declared not to be at level {level.value}"
                run.cells[level].setdefault(cell, CellResult(cell, status, reason=reason))


def _decided(
    wanted: Iterable[Case], found: Iterable[Outcomes], capable: Capabilities, journal: Journal | None
) -> Iterator[Decided]:  # fmt: skip
    """What became of each case; it is in the journal before it is given."""
    start = time.monotonic()
    for case, outcomes in zip(wanted, found, strict=True):
        applied, validated = Counter[str](), Counter[str]()
        done = Decided(case.id, applied=applied, validated=validated)
        for part, outcome in outcomes:
            applied.update(outcome.applied)
            validated.update(outcome.validated)
            expected = Expectation(part)
            levels = [level for level in Level if level.value in capable.levels]
            done.parts += [(part.id, level, verdicts(expected, outcome, level)) for level in levels]
        now = time.monotonic()
        done.seconds, start = now - start, now
        if journal is not None:
            journal.add({"decided": done.to_json()})
        yield done


def _take(run: Run, case: Case, done: Decided, capable: Capabilities) -> None:
    """Add what became of a case to the run."""
    run.applied.update(done.applied)
    run.validated.update(done.validated)
    parts = {p.id: p for p in ([case] if all(part == case.id for part, *_ in done.parts) else alone(case))}
    for part, level, found in done.parts:
        for v in found:
            _merge(run, parts[part], v, level, capable)


def verdicts(expected: Expectation, outcome: client.Outcome, level: Level) -> list[Verdict]:
    """What an outcome means for each segment of its case."""
    if outcome.status == "ok" and outcome.result is not None:
        return judge(expected, outcome.result, level)
    if outcome.status == "unsupported":
        refusal = Failure(expected.case.id, f"{REFUSED}: {outcome.message}")
        return [Verdict(s, failures=[refusal], refused=True) for s in expected.case.segments]
    message = f"{outcome.status}: {outcome.message}"
    found = []
    for s in expected.case.segments:
        n = s.stop - s.start
        found.append(Verdict(s, n, max(1, n), failures=[Failure(expected.case.id, message)]))
    return found


def _merge(run: Run, case: Case, v: Verdict, level: Level, capable: Capabilities) -> None:
    cell = case.cell(v.segment)
    r = run.cells[level][cell]
    status, reason = Status.PASS, None
    if v.refused:  # no declared deviation says so
        status, reason = Status.FAIL, REFUSED
    elif v.failed:
        deviation = capable.deviation(cell.row, dt.DTYPES[cell.dtype], level.value)
        status, reason = (Status.XFAIL, f"{deviation.reason} [{deviation.link}]") if deviation else (Status.FAIL, None)
    if v.refused or v.failed:
        run.reproducers[case.id] = case
    fresh = r.status is Status.NOT_RUN
    if fresh or v.refused or _RANK[status] > _RANK[r.status]:
        r.status, r.reason = status, reason
    r.elements += v.elements
    r.failed += v.failed
    r.max_ulp = max(r.max_ulp, v.max_ulp)
    r.failures = (r.failures + v.failures)[:10]
    for kind, n in v.sets.items():
        r.sets[kind] = r.sets.get(kind, 0) + n
