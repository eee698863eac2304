"""Run a backend over the suite and decide every cell at both levels.

Takes: a backend's name, a tier, a glob of rows. Gives: `Run`, with one `CellResult` per required cell and level. Cases run in
worker processes: a crash, a hang, a trap or an exception fails the cells of its case, each with a reproducer, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from uops.backends import worker
from uops.backends.conformance.cases import cases
from uops.backends.conformance.judge import Expectation, Verdict, judge
from uops.backends.conformance.model import Case, Cell, CellResult, Failure, Level, Status, Tier
from uops.backends.contract import Backend, Capabilities
from uops.spec import dtypes as dt
from uops.spec.text import show

LIMITS = worker.Limits(timeout=60.0)
Progress = Callable[[int, int], None]
_RANK = {Status.PASS: 0, Status.XFAIL: 1, Status.UNSUPPORTED: 2, Status.NOT_RUN: 3, Status.FAIL: 4}


@dataclass(slots=True)
class Run:
    """The outcome of one run; `cells[level]` has every required cell of the tier."""

    backend: str
    version: str
    tier: Tier
    rows: str
    cells: dict[Level, dict[Cell, CellResult]] = field(default_factory=dict)
    reproducers: dict[str, Case] = field(default_factory=dict)  # case id -> case, of every failing case
    cases: int = 0
    seconds: float = 0.0
    complete: bool = True

    def failing(self, level: Level) -> list[CellResult]:
        return [c for c in self.cells[level].values() if c.status is Status.FAIL]


def conform(
    backend: str, instance: Backend, *, tier: Tier = Tier.SMOKE, rows: str = "*", jobs: int = 2, progress: Progress | None = None,
    limits: worker.Limits = LIMITS,
) -> Run:  # fmt: skip
    """Run the suite. Ctrl-C ends it early: what was decided is kept, the rest is `not run`, and `complete` is False."""
    start = time.monotonic()
    run = Run(backend, instance.version(), tier, rows, {level: {} for level in Level})
    capable = instance.capabilities()
    everything = list(cases(tier, rows))
    run.cases = len(everything)
    wanted = [c for c in everything if capable.missing(c.row, c.dtype) is None]
    _declare(run, everything, capable)
    try:
        for k, (case, outcome) in enumerate(_outcomes(backend, wanted, jobs, limits), 1):
            _decide(run, case, outcome, capable)
            if progress:
                progress(k, len(wanted))
    except KeyboardInterrupt:
        run.complete = False
    run.seconds = time.monotonic() - start
    return run


def _outcomes(backend: str, wanted: list[Case], jobs: int, limits: worker.Limits) -> Iterator[tuple[Case, worker.Outcome]]:
    sent = (worker.Case(show(c.graph), c.inputs) for c in wanted)
    return zip(wanted, worker.run_all(backend, sent, jobs=jobs, batch=8, limits=limits), strict=True)


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


def _decide(run: Run, case: Case, outcome: worker.Outcome, capable: Capabilities) -> None:
    expected = Expectation(case)
    for level in Level:
        if level.value not in capable.levels:
            continue
        for v in verdicts(expected, outcome, level):
            _merge(run, case, v, level, capable)


def verdicts(expected: Expectation, outcome: worker.Outcome, level: Level) -> list[Verdict]:
    """What an outcome means for each segment of its case."""
    if outcome.status == "ok" and outcome.result is not None:
        return judge(expected, outcome.result, level)
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
    if v.failed:
        deviation = capable.deviation(cell.row, dt.DTYPES[cell.dtype], level.value)
        status, reason = (Status.XFAIL, f"{deviation.reason} [{deviation.link}]") if deviation else (Status.FAIL, None)
        run.reproducers[case.id] = case
    fresh = r.status is Status.NOT_RUN
    if fresh or _RANK[status] > _RANK[r.status]:
        r.status, r.reason = status, reason
    r.elements += v.elements
    r.failed += v.failed
    r.max_ulp = max(r.max_ulp, v.max_ulp)
    r.failures = (r.failures + v.failures)[:10]
    for kind, n in v.sets.items():
        r.sets[kind] = r.sets.get(kind, 0) + n
