"""The jobs of a campaign, which any process can do: each job gives one line of the journal.

`perform_job(job, examiner)` is a pure function of the job, so it does not matter who does a job, or how often. A `WorkerPool`
does jobs: `LocalPool` in children of this process, `uops.fuzz.campaign.cluster` on a cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from uops import __version__
from uops.backends.worker.client import Limits
from uops.fuzz.campaign.examine import Json, Setup, TriagedFinding
from uops.fuzz.campaign.process import Examiner, ProcessLost
from uops.fuzz.generate import kinds
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.oracles.oracles import GENERATOR
from uops.fuzz.reduce.reduce import MOST, reduce_sample
from uops.fuzz.reduce.reproducer import Reproducer, count_nodes, format_reproducer

#: Number of cases in a batch, which is one line of the journal.
BATCH = 32


@dataclass(frozen=True, slots=True)
class CampaignJob:
    """A job of a campaign. A `batch` examines the cases from `start` to before `stop`, all of one batch.

    `triaged` and `reduced` look into case `number`, to which `oracle` objected; `triaged` holds the result of its triage. A
    reduction asks at most `max_questions`. The job ends after `seconds`, done or not.
    """

    task_kind: str
    number: int
    setup: Setup
    stop: int = 0
    oracle: str = ""
    triaged: Json | None = None
    max_questions: int = MOST
    start: int = 0
    seconds: float | None = None


class SubjectInfo(NamedTuple):
    """The version that a subject reports, and the cells that its cases are drawn from."""

    version: str
    declared: SupportedOpDtypes


class JobRunner(Protocol):
    """A runner of jobs, one at a time."""

    def run_job(self, job: CampaignJob) -> Json | None:
        """Run a job; return its line, or None if its time was over. Raises ProcessLost if the pool was stopped."""
        ...


class WorkerPool(Protocol):
    """A pool of workers that run `jobs` jobs at a time."""

    jobs: int

    @property
    def restarts(self) -> int:
        """The number of processes that were lost."""
        ...

    def query_common_subject_info(self) -> SubjectInfo:
        """Return the subject's description. Raises BrokenBackend."""
        ...

    def acquire_runner(self) -> AbstractContextManager[JobRunner]:
        """Reserve a runner for one thread inside the context."""
        ...

    @property
    def missing_workers_message(self) -> str:
        """The reason why the pool does not go on, such as no workers; "" if it works."""
        ...

    def stop(self) -> None:
        """End all running jobs, from any thread."""
        ...

    def close(self) -> None:
        """Free all resources; the pool is not used afterwards."""
        ...


def perform_job(job: CampaignJob, examiner: Examiner) -> Json | None:
    """Do a job and return its line of the journal. If the time is over, return the part of a batch that is done, or None."""
    with examiner.limit_time_by_killing_process(job.seconds):
        try:
            return _PERFORM[job.task_kind](job, examiner)
        except ProcessLost:
            if job.seconds is not None and examiner.is_over:
                return None
            raise


def _perform_batch(job: CampaignJob, examiner: Examiner) -> Json:
    started = time.monotonic()
    result = examiner.run_batch_isolating_crashes(job.start, job.stop)
    return {"number": job.number, "start": job.start, "cases": result.stop - job.start,
            "counts": dict(sorted(result.counts.items())), "findings": result.findings,
            "seconds": round(time.monotonic() - started, 3)}  # fmt: skip


def draw_case(examiner: Examiner, setup: Setup, k: int) -> tuple[kinds.ProgramSample, int]:
    """Return case `k`, and the seed of the oracles' choices for it."""
    return kinds.sample(setup.seed, k, setup.kinds, examiner.declared_cells()), kinds.stable_hash(setup.seed, k)


def _perform_triage(job: CampaignJob, examiner: Examiner) -> Json:
    if job.oracle == GENERATOR:  # the case cannot be drawn in this process
        finding = examiner.triage_generator_failure(job.number)
    else:
        finding = examiner.judge_and_locate_fault(
            *freeze_oracle_draws_for_triage(examiner, *draw_case(examiner, job.setup, job.number), job.oracle)
        )
    return {"k": job.number, "triaged": finding and finding.to_json()}


def freeze_oracle_draws_for_triage(
    examiner: Examiner, sample: kinds.ProgramSample, seed: int, oracle: str
) -> tuple[kinds.ProgramSample, int, str]:
    """Return the arguments of a triage: a sample that holds what the oracle drew, the seed, and the oracle that judges it."""
    frozen, judge = examiner.move_oracle_draws_into_sample_if_still_faulty(sample, seed, oracle)
    return frozen, seed, judge


def _perform_reduction(job: CampaignJob, examiner: Examiner) -> Json:
    assert job.triaged is not None
    first = TriagedFinding.from_json(job.triaged)
    sample, seed, _ = freeze_oracle_draws_for_triage(examiner, *draw_case(examiner, job.setup, job.number), job.oracle)
    triaged = first

    def record_if_fails_alike(s: kinds.ProgramSample) -> bool:
        nonlocal triaged
        finding = examiner.judge_and_locate_fault(s, seed, first.oracle)
        if finding is None or not finding.has_same_oracle_and_pass_or_fault(first):
            return False
        triaged = finding
        return True

    def fails_in_new_process(s: kinds.ProgramSample) -> bool:
        examiner.restart_child()  # earlier questions to a child may influence the answer
        return record_if_fails_alike(s)

    reduced = reduce_sample(sample, record_if_fails_alike, job.max_questions, fails_in_new_process, examiner.require_open)
    triaged = first if reduced is sample else triaged
    setup = replace(job.setup, records_reach=False)
    about = {"oracle": first.oracle, "setup": setup.to_json(), "seed": seed, "case": job.number, "subject": examiner.version(),
             "uops": __version__, "generator": kinds.VERSION, "found": triaged.to_json()}  # fmt: skip
    return {
        "k": job.number,
        "triaged": triaged.to_json(),
        "nodes": count_nodes(reduced),
        "text": format_reproducer(Reproducer(reduced, about)),
    }


def query_subject(examiner: Examiner) -> SubjectInfo:
    """Return the description of an examiner's subject. Raises BrokenBackend."""
    return SubjectInfo(examiner.version(), examiner.declared_cells())


#: Kind of a job, which is the key of its line in the journal -> its function.
_PERFORM = {"batch": _perform_batch, "triaged": _perform_triage, "reduced": _perform_reduction}


class LocalPool:
    """A pool of processes on this machine."""

    def __init__(self, setup: Setup, limits: Limits, jobs: int) -> None:
        self.setup, self.limits, self.jobs = setup, limits, jobs
        self._lock = threading.Lock()
        self._examiners = [Examiner(setup, limits)]
        self._free_examiners = list(self._examiners)

    @property
    def restarts(self) -> int:
        """The number of processes that were lost."""
        return sum(e.restarts for e in self._examiners)

    def query_common_subject_info(self) -> SubjectInfo:
        """Return the subject's description. Raises BrokenBackend."""
        return query_subject(self._examiners[0])

    @contextmanager
    def acquire_runner(self) -> Iterator[JobRunner]:
        """Reserve a process for one thread inside the context."""
        with self._lock:
            if not self._free_examiners:
                self._free_examiners.append(Examiner(self.setup, self.limits))
                self._examiners.append(self._free_examiners[-1])
            examiner = self._free_examiners.pop()
        with examiner:
            yield _LocalRunner(examiner)

    @property
    def missing_workers_message(self) -> str:
        """Always "": processes are started on demand."""
        return ""

    def stop(self) -> None:
        """End all running jobs, from any thread."""
        for e in list(self._examiners):
            e.kill_for_good()

    def close(self) -> None:
        """End all processes."""
        for e in self._examiners:
            e.close()


@dataclass(frozen=True, slots=True)
class _LocalRunner:
    examiner: Examiner

    def run_job(self, job: CampaignJob) -> Json | None:
        return perform_job(job, self.examiner)
