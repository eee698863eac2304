"""The run of the cells of one subject that is no backend.

Takes: the subject, a tier, a glob of rows; of the compiler, the target too. Gives: a `ConformanceRun` as that of a backend, whose
surface is the subject. Cases run in forks of this process, or in it if there is to be only one. A cell fails if an answer of one
of its cases is a fault, or if its case raises. It has passed only if it has an answer. With a journal, each case is on the disk
once it is judged, and a case in the journal is not asked again.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from uops.backends.conformance.decided import journal_heading
from uops.backends.conformance.model import (
    CellResult,
    CellStatus,
    ConformanceCase,
    ConformanceCell,
    ConformanceLevel,
    ConformanceTier,
    Failure,
    SchedulePolicy,
)
from uops.backends.conformance.runner import CHOSEN, ConformanceRun, Progress
from uops.backends.conformance.subjects.functions import DTYPES, generate_function_cases
from uops.backends.conformance.subjects.gradients import generate_float64_gradient_cases_per_op
from uops.backends.conformance.subjects.model import SubjectCase
from uops.backends.conformance.subjects.properties import generate_property_cases
from uops.backends.conformance.subjects.stages import generate_stage_cases
from uops.backends.testing.journal import Journal
from uops.compiler.config import Config
from uops.compiler.target import Target
from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.rows.named.base import RowSubject

#: Number of faults kept of a case's cell.
_MOST_FAULTS = 5


@dataclass(slots=True)
class _CellTally:
    """The answers of one case about one cell: how many, how many faults, and the first of these."""

    cell: ConformanceCell
    asked: int = 0
    failed: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, fault: str | None) -> None:
        self.asked += 1
        if fault is not None:
            self.failed += 1
            self.faults = [*self.faults, fault][:_MOST_FAULTS]


def run_subject(
    subject: RowSubject, *, name: str, version: str, target: Target | None = None, tier: ConformanceTier = ConformanceTier.SMOKE,
    rows: str = "*", schedules: SchedulePolicy = CHOSEN, progress: Progress | None = None, journal: Path | None = None,
    jobs: int = 1,
) -> ConformanceRun:  # fmt: skip
    """Judge a subject in `jobs` processes; `name` and `version` are those of what is judged. The compiler needs a target.

    Ctrl-C ends the run early: judged cases are kept, the rest is `not run`, and `complete` is False. Raises Crash if one of the
    processes ends by itself, JournalMismatch if the journal belongs to another run, and JournalInUse.
    """
    start = time.monotonic()
    run = ConformanceRun(name, version, tier, rows, {level: {} for level in ConformanceLevel}, schedules=schedules, subject=subject)
    run.surfaces = (subject.value,)
    cases = [c for c in _generate_cases(subject, tier, target, schedules) if any(_matches(cell, rows) for cell in c.cells)]
    run.cases = len(cases)
    for cell in {cell: None for c in cases for cell in c.cells if _matches(cell, rows)}:
        for level in ConformanceLevel:
            run.cells[level][cell] = CellResult(cell, CellStatus.NOT_RUN, surface=subject.value)
    heading = journal_heading(name, version, tier, schedules) | {"subject": subject.value}
    with nullcontext() if journal is None else closing(Journal(journal, heading)) as open_journal:
        earlier = {} if open_journal is None else _read_tallies(open_journal)
        try:
            with closing(_ask_in_order([c for c in cases if c.name not in earlier], jobs)) as answers:
                for k, case in enumerate(cases, 1):
                    tallies = earlier.get(case.name)
                    if tallies is None:
                        tallies = next(answers)
                        if open_journal is not None:
                            open_journal.add({"answered": {"case": case.name, "tallies": [asdict(t) for t in tallies]}})
                    _merge_tallies_into_run(run, case, tallies)
                    if progress:
                        progress(k, len(cases))
        except KeyboardInterrupt:
            run.complete = False
    run.seconds = time.monotonic() - start
    return run


def _matches(cell: ConformanceCell, rows: str) -> bool:
    return fnmatch.fnmatchcase(cell.row, rows)


def _generate_cases(
    subject: RowSubject, tier: ConformanceTier, target: Target | None, schedules: SchedulePolicy
) -> Iterator[SubjectCase]:
    match subject:
        case RowSubject.FRONT_END:
            dtypes = DTYPES if tier is ConformanceTier.SMOKE else tuple(dt.STORABLE)
            return itertools.chain(generate_function_cases(dtypes), generate_float64_gradient_cases_per_op())
        case RowSubject.COMPILER:
            assert target is not None
            return generate_stage_cases(tier, target, Config.from_environment({**os.environ, **schedules.environment}))
        case RowSubject.SPECIFICATION:
            return generate_property_cases(tier)
        case RowSubject.BACKEND | RowSubject.OPTIONAL:
            raise ValueError("cells of a backend are run by uops.backends.conformance.runner")


#: In a fork, the cases that it asks: they hold functions, which no message carries.
_cases_of_fork: Sequence[SubjectCase] = ()


def _ask_in_order(cases: Sequence[SubjectCase], jobs: int) -> Generator[list[_CellTally], None, None]:
    """Yield the answers of each case, asked by that many processes. Raises Crash if one of them ends by itself."""
    if jobs == 1 or len(cases) < 2:
        yield from map(_ask, cases)
        return
    pool = ProcessPoolExecutor(min(jobs, len(cases)), get_context("fork"), _begin_fork, (cases,))
    try:
        yield from pool.map(_ask_in_fork, range(len(cases)))
    except BrokenProcessPool as e:
        raise Crash("a process that judged cases ended: --jobs 1 judges them in one process, and shows where") from e
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_fork(cases: Sequence[SubjectCase]) -> None:
    """Take the cases, and leave Ctrl-C to the process that forked this one."""
    global _cases_of_fork
    _cases_of_fork = cases
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ask_in_fork(number: int) -> list[_CellTally]:
    return _ask(_cases_of_fork[number])


def _ask(case: SubjectCase) -> list[_CellTally]:
    """Return the answers of a case by cell. If it raises, all of its cells fail with what it raised: none was asked to its end."""
    tallies = {cell: _CellTally(cell) for cell in case.cells}
    try:
        with np.errstate(all="ignore"):
            for answer in case.ask():
                tallies[answer.cell].add(answer.fault)
    except Exception as e:
        for t in tallies.values():
            t.add(f"{type(e).__name__}: {e}")
    return list(tallies.values())


def _read_tallies(journal: Journal) -> dict[str, list[_CellTally]]:
    with journal.refuse_malformed_lines():
        return {line["case"]: [_tally_from_json(t) for t in line["tallies"]] for line in journal.entries_under("answered")}


def _tally_from_json(line: dict[str, Any]) -> _CellTally:
    return _CellTally(**line | {"cell": ConformanceCell(**line["cell"])})


def _merge_tallies_into_run(run: ConformanceRun, case: SubjectCase, tallies: list[_CellTally]) -> None:
    for t in tallies:
        if not t.asked or not _matches(t.cell, run.rows):
            continue
        if t.failed and case.graph is not None:
            run.reproducers[case.name] = ConformanceCase(
                t.cell.row, dt.DTYPES[t.cell.dtype], case.name, case.graph, dict(case.inputs), ()
            )
        for level in ConformanceLevel:
            result = run.cells[level][t.cell]
            if result.status is not CellStatus.FAIL:
                result.status = CellStatus.FAIL if t.failed else CellStatus.PASS
            result.elements += t.asked
            result.failed += t.failed
            result.failures = (result.failures + [Failure(case.name, fault) for fault in t.faults])[:10]
