"""The runner of the conformance suite, which judges every cell of a backend at both levels.

Takes: a backend's name, a tier, a glob of rows. Gives: a `ConformanceRun` with one `CellResult` per required cell and level. Cases
run in worker processes. A crash, a hang, a trap or an exception fails the cells of its case, each with a reproducer, and nothing
else. So does the refusal of a declared program, of which nothing counts as judged. An elementwise case that ended so is run again
class by class, and only the classes that fail alone are failed. With a journal, each case is on the disk once it is judged, and a
case in the journal is not run again.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from uops.backends.conformance.cases import generate_cases, generate_optional_cases
from uops.backends.conformance.cases.compiled import enters_pipeline_at_or_before
from uops.backends.conformance.cases.native import translate_native_text
from uops.backends.conformance.causes.find import classify_run_without_result, judge_and_explain
from uops.backends.conformance.causes.traits import describe_traits_of_all_causes
from uops.backends.conformance.decided import CaseRecord, journal_heading, read_case_records
from uops.backends.conformance.judge import Expectation, SegmentVerdict
from uops.backends.conformance.model import (
    REFUSED,
    CellResult,
    CellStatus,
    ConformanceCase,
    ConformanceCell,
    ConformanceLevel,
    ConformanceTier,
    Failure,
    SampleOrigin,
    SchedulePolicy,
    Segment,
)
from uops.backends.contract import FLUSHES_SUBNORMALS, TENSOR_SURFACE, Capabilities, Missing
from uops.backends.registry import BackendInfo
from uops.backends.testing.journal import Journal
from uops.backends.testing.programs import has_empty_program
from uops.backends.worker import client
from uops.spec.bestiary.legalize import legalize
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.text import show
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.optional import list_nodes_outside_optional_bodies
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

LIMITS = client.Limits(timeout=60.0)
#: The default policy.
CHOSEN = SchedulePolicy()
Progress = Callable[[int, int], None]
#: Statuses of judged cells, best first; a cell has the worst status of its cases.
_RANK = {
    s: k
    for k, s in enumerate(
        (CellStatus.PASS, CellStatus.BY_TRAIT, CellStatus.XFAIL, CellStatus.UNSUPPORTED, CellStatus.NOT_RUN, CellStatus.FAIL)
    )
}


@dataclass(slots=True)
class ConformanceRun:
    """The outcome of one run; `cells[level]` has every cell of the tier, those that the backend cannot be asked among them.

    `dialect` is that in which the backend was given the programs, None for the suite's own. `subject` is the part that is judged;
    `backend` and `version` are its name and version where it is none (R171). The backend declares `surfaces` and `traits`.
    `sample` says what the cases were drawn from, if they are not all of the tier.
    `applied` counts the moves of random schedules, and `validated` the claims proved of kernels, if requested (`UOPS_VALIDATE=1`).
    """

    backend: str
    version: str
    tier: ConformanceTier
    rows: str
    cells: dict[ConformanceLevel, dict[ConformanceCell, CellResult]] = field(default_factory=dict)
    reproducers: dict[str, ConformanceCase] = field(default_factory=dict)  # case id -> case, of every failing case
    cases: int = 0
    seconds: float = 0.0
    complete: bool = True
    schedules: SchedulePolicy = field(default_factory=SchedulePolicy)
    applied: Counter[str] = field(default_factory=Counter)
    validated: Counter[str] = field(default_factory=Counter)
    surfaces: tuple[str, ...] = (TENSOR_SURFACE,)
    traits: tuple[str, ...] = ()
    subject: RowSubject = RowSubject.BACKEND
    dialect: Dialect | None = None
    sample: SampleOrigin | None = None

    def failing_cells(self, level: ConformanceLevel) -> list[CellResult]:
        """Return the failing cells at a level."""
        return [c for c in self.cells[level].values() if c.status is CellStatus.FAIL]


def run_conformance(
    backend: str, backend_info: BackendInfo, *, tier: ConformanceTier = ConformanceTier.SMOKE, rows: str = "*", jobs: int = 2,
    progress: Progress | None = None, limits: client.Limits = LIMITS, schedules: SchedulePolicy = CHOSEN,
    journal: Path | None = None, dialect: Dialect | None = None, sample: int | None = None, sample_seed: int = 0,
    subject: RowSubject = RowSubject.BACKEND,
) -> ConformanceRun:  # fmt: skip
    """Run the suite on a backend that `backend_info` describes; with `dialect`, on programs that the compiler lowers to it first.

    Programs of later dialects are then none of the suite. With the subject OPTIONAL, the suite is that of the optional rows.
    `sample` is a number of cases. `sample_seed` draws them among those that the backend can be asked.

    Ctrl-C ends the run early: judged cases are kept, the rest is `not run`, and `complete` is False. Raises JournalMismatch if the
    journal belongs to another run, and JournalInUse.
    """
    start = time.monotonic()
    run = ConformanceRun(backend, backend_info.version, tier, rows, {level: {} for level in ConformanceLevel}, subject=subject)
    capabilities = backend_info.capabilities
    generate = generate_optional_cases if subject is RowSubject.OPTIONAL else generate_cases
    required = [c for c in generate(tier, rows) if dialect is None or enters_pipeline_at_or_before(c, dialect)]
    if sample is not None:
        run.sample = SampleOrigin(sample_seed, len(required), frozenset(c.row for c in required))
        required = draw_sample([c for c in required if _is_declared(c, capabilities)], sample, sample_seed)
    run.surfaces, run.traits = capabilities.surfaces, capabilities.traits
    run.cases, run.schedules, run.dialect = len(required), schedules, dialect
    asked = [c for c in required if capabilities.can_be_asked(c.surface)]
    supported = [c for c in asked if _is_declared(c, capabilities)]
    _initialize_cells(run, required, capabilities)
    heading = journal_heading(backend, run.version, tier, schedules) | ({"dialect": dialect.value} if dialect else {})
    heading |= {"traits": list(run.traits)} if run.traits else {}
    heading |= {"subject": subject.value} if subject is not RowSubject.BACKEND else {}
    to_worker_case = functools.partial(_to_worker_case, capabilities=capabilities, dialect=dialect)
    with nullcontext() if journal is None else closing(Journal(journal, heading)) as open_journal:
        records = {} if open_journal is None else read_case_records(open_journal, supported)
        rest = [c for c in supported if c.id not in records]
        fresh = _judge_and_record_outcomes(
            rest,
            _run_cases_and_rerun_failed_by_segment(backend, rest, jobs, limits, schedules.environment, to_worker_case),
            capabilities,
            open_journal,
        )
        try:
            for k, case in enumerate(supported, 1):
                _merge_verdicts_and_counts_into_run(run, case, records.get(case.id) or next(fresh), capabilities)
                if progress:
                    progress(k, len(supported))
        except KeyboardInterrupt:
            run.complete = False
    run.seconds = time.monotonic() - start + sum(d.seconds for d in records.values())
    return run


def _is_declared(case: ConformanceCase, capabilities: Capabilities) -> bool:
    """Return True if a backend declares what a case needs."""
    return capabilities.can_be_asked(case.surface) and _find_declared_gap(case, capabilities) is None


def _find_declared_gap(case: ConformanceCase, capabilities: Capabilities) -> Missing | None:
    """Return the declared gap that covers a case: of its row and dtype, or of a dtype of another value in its program."""
    if gap := capabilities.missing(case.row, case.dtype):
        return gap
    undeclared = [d for d in dt.STORABLE if d not in capabilities.dtypes]
    used = {u.dtype for u in list_nodes_outside_optional_bodies(case.graph)} if undeclared else ()
    absent = next((d for d in undeclared if d in used), None)
    return None if absent is None else Missing(case.row, absent.name, f"no dtype {absent.name}, which a value in the program has")


def draw_sample(cases: Sequence[ConformanceCase], count: int, seed: int) -> list[ConformanceCase]:
    """Return `count` of the cases, in their order; fewer if there are no more. Whether one is drawn depends on the ids alone."""
    ranked = sorted(cases, key=lambda c: hashlib.sha256(f"{seed} {c.id}".encode()).digest())
    drawn = {c.id for c in ranked[:count]}
    return [c for c in cases if c.id in drawn]


#: Statuses of a failed program that one element's class may cause for the others.
_ENDED = ("error", "crash", "trap")
#: The parts of a case, with their outcomes.
CaseOrPartOutcomes = list[tuple[ConformanceCase, client.Outcome]]


def _run_cases_and_rerun_failed_by_segment(
    backend: str, cases: list[ConformanceCase], jobs: int, limits: client.Limits, environment: Mapping[str, str],
    to_worker_case: Callable[[ConformanceCase], client.WorkerCase],
) -> Iterator[CaseOrPartOutcomes]:  # fmt: skip
    """Yield what to judge for each case: itself, or its segments alone, with outcomes."""
    requests = map(to_worker_case, cases)
    with client.BackendWorker(backend, limits=limits, environment=environment) as rerun_worker:
        outcomes = client.run_cases_on_workers(backend, requests, jobs=jobs, batch=8, limits=limits, environment=environment)
        for case, outcome in zip(cases, outcomes, strict=True):
            yield (
                _rerun_segments_or_keep_case_if_none_fails(case, outcome, rerun_worker, to_worker_case)
                if outcome.status in _ENDED
                else [(case, outcome)]
            )


def _to_worker_case(case: ConformanceCase, capabilities: Capabilities, dialect: Dialect | None) -> client.WorkerCase:
    """Return a case as a backend takes it: in its language, in core ops if it takes no others, and in a dialect if one is given."""
    graph = translate_native_text(case, capabilities.language).graph
    if not capabilities.bestiary and infer_tensor_kernel_or_bestiary_dialect(graph) is Dialect.BESTIARY:
        graph = legalize(graph)
    return client.WorkerCase(show(graph), case.inputs, has_empty_program(graph), dialect.value if dialect else None, case.call)


def _rerun_segments_or_keep_case_if_none_fails(
    case: ConformanceCase,
    outcome: client.Outcome,
    worker: client.BackendWorker,
    to_worker_case: Callable[[ConformanceCase], client.WorkerCase],
) -> CaseOrPartOutcomes:
    """Run the segments of a failed case alone. Return their outcomes, or that of the case where no segment fails alone."""
    parts = split_elementwise_case_into_repeated_segments(case)
    outcomes = list(zip(parts, worker.run_batch([to_worker_case(c) for c in parts]), strict=True))
    if any(o.status in _ENDED for _, o in outcomes):
        return outcomes
    note = f"{outcome.message} (not when its classes run alone)" if parts else outcome.message
    return [(case, replace(outcome, message=note))]


def split_elementwise_case_into_repeated_segments(case: ConformanceCase) -> list[ConformanceCase]:
    """Split an elementwise case of several segments into one case per segment: the same program on that segment's elements,
    repeated."""
    nodes = toposort(case.graph)
    n = math.prod(case.graph.shape) if case.graph.dtype is not dt.void else 0
    is_elementwise = all(u.op in ALU or u.op is Op.PARAM or u.dtype is dt.index for u in nodes)
    if not is_elementwise or len(case.segments) < 2 or any(np.shape(v) != (n,) for v in case.inputs.values()):
        return []
    return [_restrict_to_segment(case, s, n) for s in case.segments]


def _restrict_to_segment(case: ConformanceCase, s: Segment, n: int) -> ConformanceCase:
    inputs = {k: np.resize(v[s.start : s.stop], n) for k, v in case.inputs.items()}
    return replace(case, name=f"{case.name}-{s.edge}", inputs=inputs, segments=(Segment(s.edge, s.output, 0, s.stop - s.start),))


def _initialize_cells(run: ConformanceRun, required: Iterable[ConformanceCase], capabilities: Capabilities) -> None:
    """Add every cell before the run: not askable or unsupported where the backend declares so, else not run."""
    for case in required:
        for level in ConformanceLevel:
            status, reason = _find_declared_status(case, capabilities, level)
            for cell in case.cells():
                result = run.cells[level].setdefault(cell, CellResult(cell, status, reason=reason, surface=case.surface))
                if result.status is CellStatus.NOT_RUN:  # one case that cannot be asked leaves the cell undecided
                    result.status, result.reason = status, reason


def _find_declared_status(
    case: ConformanceCase, capabilities: Capabilities, level: ConformanceLevel
) -> tuple[CellStatus, str | None]:  # fmt: skip
    """Return the status that a declaration gives a case's cells before the run, with its reason."""
    if not capabilities.can_be_asked(case.surface):
        return CellStatus.NOT_ASKABLE, f"the backend does not declare the surface {case.surface}"
    if level.value not in capabilities.levels:
        return CellStatus.UNSUPPORTED, f"declared not to be at level {level.value}"
    gap = _find_declared_gap(case, capabilities)
    return (CellStatus.UNSUPPORTED, gap.reason) if gap else (CellStatus.NOT_RUN, None)


def _judge_and_record_outcomes(
    cases: Iterable[ConformanceCase], case_outcomes: Iterable[CaseOrPartOutcomes], capabilities: Capabilities,
    journal: Journal | None
) -> Iterator[CaseRecord]:  # fmt: skip
    """Yield the record of each case, after writing it to the journal."""
    start = time.monotonic()
    for case, outcomes in zip(cases, case_outcomes, strict=True):
        applied, validated = Counter[str](), Counter[str]()
        record = CaseRecord(case.id, applied=applied, validated=validated)
        for part, outcome in outcomes:
            applied.update(outcome.applied)
            validated.update(outcome.validated)
            expected = Expectation(part, flushes_subnormals=FLUSHES_SUBNORMALS in capabilities.traits)
            levels = [level for level in ConformanceLevel if level.value in capabilities.levels]
            record.parts += [(part.id, level, judge_outcome(expected, outcome, level)) for level in levels]
        now = time.monotonic()
        record.seconds, start = now - start, now
        if journal is not None:
            journal.add({"decided": record.to_json()})
        yield record


def _merge_verdicts_and_counts_into_run(
    run: ConformanceRun, case: ConformanceCase, record: CaseRecord, capabilities: Capabilities
) -> None:
    """Add the record of a case to the run."""
    run.applied.update(record.applied)
    run.validated.update(record.validated)
    parts = {
        p.id: p
        for p in (
            [case] if all(part == case.id for part, *_ in record.parts) else split_elementwise_case_into_repeated_segments(case)
        )
    }
    for part, level, verdicts in record.parts:
        for v in verdicts:
            _merge_verdict_into_cell(run, parts[part], v, level, capabilities)


def judge_outcome(expected: Expectation, outcome: client.Outcome, level: ConformanceLevel) -> list[SegmentVerdict]:
    """Return the verdict of an outcome on each segment of its case."""
    if outcome.status == "ok" and outcome.result is not None:
        return judge_and_explain(expected, outcome.result, level)
    cause = classify_run_without_result(outcome.status, outcome.message)
    if outcome.status == "unsupported":
        refusal = Failure(expected.case.id, f"{REFUSED}: {outcome.message}", cause=cause)
        return [SegmentVerdict(s, failures=[refusal], refused=True, causes={cause: 1}) for s in expected.case.segments]
    message = f"{outcome.status}: {outcome.message}"
    verdicts = []
    for s in expected.case.segments:
        n = s.stop - s.start
        failures = [Failure(expected.case.id, message, cause=cause)]
        verdicts.append(SegmentVerdict(s, n, max(1, n), failures=failures, causes={cause: max(1, n)}))
    return verdicts


def _find_status_of_failure(
    cell: ConformanceCell, verdict: SegmentVerdict, level: ConformanceLevel, capabilities: Capabilities
) -> tuple[CellStatus, str | None]:  # fmt: skip
    """Return the status of a cell with wrong elements, and the declaration that covers them."""
    if traits := describe_traits_of_all_causes(capabilities.traits, verdict.causes):
        return CellStatus.BY_TRAIT, traits
    deviation = capabilities.deviation(cell.row, dt.DTYPES[cell.dtype], level.value)
    return (CellStatus.XFAIL, f"{deviation.reason} [{deviation.link}]") if deviation else (CellStatus.FAIL, None)


def _merge_verdict_into_cell(
    run: ConformanceRun, case: ConformanceCase, verdict: SegmentVerdict, level: ConformanceLevel, capabilities: Capabilities
) -> None:
    cell = case.cell(verdict.segment)
    result = run.cells[level][cell]
    status, reason = CellStatus.PASS, None
    if verdict.refused:  # no declared deviation covers a refusal
        status, reason = CellStatus.FAIL, REFUSED
    elif verdict.failed:
        status, reason = _find_status_of_failure(cell, verdict, level, capabilities)
    if verdict.refused or verdict.failed:
        run.reproducers[case.id] = translate_native_text(case, capabilities.language)
    fresh = result.status is CellStatus.NOT_RUN
    if fresh or verdict.refused or _RANK[status] > _RANK[result.status]:
        result.status, result.reason = status, reason
    result.elements += verdict.elements
    result.failed += verdict.failed
    result.max_ulp = max(result.max_ulp, verdict.max_ulp)
    result.failures = (result.failures + verdict.failures)[:10]
    for kind, n in verdict.sets.items():
        result.sets[kind] = result.sets.get(kind, 0) + n
    for cause, n in verdict.causes.items():
        result.causes[cause] = result.causes.get(cause, 0) + n
