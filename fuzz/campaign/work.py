"""The work of a campaign, as jobs that any process can do: each gives one line of the journal.

`line(job, examiner)` is a function of the job and of nothing else, so that it does not matter who does it, nor how often. A `Crew`
does jobs: one in this process's children (`Local`), one on a cluster (`uops.fuzz.campaign.cluster`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from uops import __version__
from uops.backends.worker.client import Limits
from uops.fuzz.campaign.examine import Json, Setup, Triaged
from uops.fuzz.campaign.process import Examiner, Lost
from uops.fuzz.generate import kinds
from uops.fuzz.generate.declared import Declared
from uops.fuzz.oracles.oracles import GENERATOR
from uops.fuzz.reduce.reduce import MOST, reduce
from uops.fuzz.reduce.reproducer import Reproducer, size, text

#: Cases between two lines of the journal.
BATCH = 32


@dataclass(frozen=True, slots=True)
class Job:
    """`about` says what is asked for: `batch`, of the cases [start, stop), all of one batch; `triaged` or `reduced`, of case
    `number`, to which `oracle` objected, and of which `first` is what triage gave. `most` questions are asked to reduce it. After
    `seconds` it is over, done or not."""

    about: str
    number: int
    setup: Setup
    stop: int = 0
    oracle: str = ""
    first: Json | None = None
    most: int = MOST
    start: int = 0
    seconds: float | None = None


class Said(NamedTuple):
    """What a subject says of itself, and what its cases are drawn from."""

    version: str
    declared: Declared


class Hand(Protocol):
    """Does jobs, one at a time; None where its time was over before one was done. Raises Lost where the crew was stopped."""

    def line(self, job: Job) -> Json | None: ...


class Crew(Protocol):
    """`jobs`: how many jobs it does at a time."""

    jobs: int

    @property
    def restarts(self) -> int:
        """Processes that were lost."""
        ...

    def subject(self) -> Said:
        """Raises BrokenBackend."""
        ...

    def hand(self) -> AbstractContextManager[Hand]:
        """One of them, for one thread."""
        ...

    @property
    def waits(self) -> str:
        """What it waits for before anything goes on; "" if it works."""
        ...

    def stop(self) -> None:
        """End what is being done, from any thread."""
        ...

    def close(self) -> None:
        """The last word."""
        ...


def line(job: Job, examiner: Examiner) -> Json | None:
    """What the journal says of a job; of a batch whose time was over, of the cases that were done; None where nothing was."""
    with examiner.limit_time(job.seconds):
        try:
            return {"batch": _batch, "triaged": _triaged, "reduced": _reduced}[job.about](job, examiner)
        except Lost:
            if job.seconds is not None and examiner.is_over:
                return None
            raise


def _batch(job: Job, examiner: Examiner) -> Json:
    began = time.monotonic()
    found = examiner.batch(job.start, job.stop)
    return {"number": job.number, "start": job.start, "cases": found.stop - job.start, "counts": dict(sorted(found.counts.items())),
            "findings": found.findings, "seconds": round(time.monotonic() - began, 3)}  # fmt: skip


def drawn(examiner: Examiner, setup: Setup, k: int) -> tuple[kinds.Sample, int]:
    """Case `k`, and what the oracles' choices for it depend on."""
    return kinds.sample(setup.seed, k, setup.kinds, examiner.declared()), kinds.number(setup.seed, k)


def _triaged(job: Job, examiner: Examiner) -> Json:
    if job.oracle == GENERATOR:  # there is no case to draw here
        found = examiner.generator(job.number)
    else:
        found = examiner.triage(*settled(examiner, *drawn(examiner, job.setup, job.number), job.oracle))
    return {"k": job.number, "triaged": found and found.to_json()}


def settled(examiner: Examiner, case: kinds.Sample, seed: int, oracle: str) -> tuple[kinds.Sample, int, str]:
    """What triage is asked: a sample that holds what the oracle drew, the seed, and who judges it."""
    sample, judge = examiner.settle(case, seed, oracle)
    return sample, seed, judge


def _reduced(job: Job, examiner: Examiner) -> Json:
    assert job.first is not None
    first = Triaged.of(job.first)
    sample, seed, _ = settled(examiner, *drawn(examiner, job.setup, job.number), job.oracle)
    last = first

    def fails(s: kinds.Sample) -> bool:
        nonlocal last
        found = examiner.triage(s, seed, first.oracle)
        if found is None or not found.like(first):
            return False
        last = found
        return True

    def again(s: kinds.Sample) -> bool:
        examiner.renew()  # what a child was asked before may have a say
        return fails(s)

    small = reduce(sample, fails, job.most, again, examiner.require_open)
    last = first if small is sample else last
    about = {"oracle": first.oracle, "setup": job.setup.to_json(), "seed": seed, "case": job.number, "subject": examiner.version(),
             "uops": __version__, "generator": kinds.VERSION, "found": last.to_json()}  # fmt: skip
    return {"k": job.number, "triaged": last.to_json(), "nodes": size(small), "text": text(Reproducer(small, about))}


def said(examiner: Examiner) -> Said:
    """What the subject of an examiner says. Raises BrokenBackend."""
    return Said(examiner.version(), examiner.declared())


class Local:
    """A crew of processes of this machine."""

    def __init__(self, setup: Setup, limits: Limits, jobs: int) -> None:
        self.setup, self.limits, self.jobs = setup, limits, jobs
        self._lock = threading.Lock()
        self._examiners = [Examiner(setup, limits)]
        self._idle = list(self._examiners)

    @property
    def restarts(self) -> int:
        return sum(e.restarts for e in self._examiners)

    def subject(self) -> Said:
        return said(self._examiners[0])

    @contextmanager
    def hand(self) -> Iterator[Hand]:
        with self._lock:
            if not self._idle:
                self._idle.append(Examiner(self.setup, self.limits))
                self._examiners.append(self._idle[-1])
            examiner = self._idle.pop()
        with examiner:
            yield _Own(examiner)

    @property
    def waits(self) -> str:
        return ""

    def stop(self) -> None:
        for e in list(self._examiners):
            e.stop()

    def close(self) -> None:
        for e in self._examiners:
            e.close()


@dataclass(frozen=True, slots=True)
class _Own:
    examiner: Examiner

    def line(self, job: Job) -> Json | None:
        return line(job, self.examiner)
