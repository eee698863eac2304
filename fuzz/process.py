"""A process that makes and judges cases, and comes back when it was lost.

Takes: a `Setup`. Gives: what batches of cases, single cases and samples gave. A case that ends its process, or does not end, is
run again by itself: if it ends so again it is a finding of the oracle that was being asked; if not, the batch is done once more, so
that a process that somebody killed costs time and nothing else.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, NamedTuple

from uops.backends.serve import Frame
from uops.backends.worker import Limits, Outcome, Process
from uops.fuzz.examine import MACHINE_CODE, Json, Place, Setup, Triaged, made_of
from uops.fuzz.kinds import Sample
from uops.fuzz.reproducer import to_packet
from uops.fuzz.stages import Fault

#: Seconds for one case, and for a bisection of one.
LIMITS = Limits(timeout=60.0)
#: Deaths of a batch that no case explains, after which the case that was at work is called the finding.
_DEATHS = 3
#: Compiled objects are not kept: every case has others.
_ENVIRONMENT = {"UOPS_CACHE": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Batch(NamedTuple):
    """What cases gave together: coverage, and for each finding {k, oracle, fault}."""

    counts: Counter[str]
    findings: list[Json]


class _Serving(Process):
    module: ClassVar[str] = "uops.fuzz.serve"


class Lost(Exception):
    """The process ended, or did not answer."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome

    @property
    def fault(self) -> Fault:
        """How it ended, without what differs from run to run."""
        return Fault(self.outcome.status, self.outcome.message.partition(":")[0])


class Examiner:
    """One process that lasts. Use as a context manager; not for two threads at a time."""

    def __init__(self, setup: Setup, limits: Limits = LIMITS) -> None:
        self.setup = setup
        self.limits = limits
        self.restarts = 0
        self._process: _Serving | None = None
        self._closed = False

    def __enter__(self) -> Examiner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._closed = True
        self._restart()

    def stop(self) -> None:
        """End the process at once, from another thread: what it was asked for ends with Lost."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()

    def version(self) -> str:
        """What the subject says of itself. Raises BrokenBackend."""
        return self._ready().version

    def batch(self, first: int, stop: int) -> Batch:
        """Cases [first, stop)."""
        ended: dict[int, Json] = {}
        deaths = 0
        while True:
            try:
                found = self._batch(first, stop, list(ended))
            except _LostAt as lost:
                if self._closed:
                    raise
                deaths += 1
                alone = self._alone(lost.k)
                if alone is None and deaths >= _DEATHS:
                    alone = {"k": lost.k, "oracle": "process", "fault": lost.fault._asdict()}
                if alone is not None:
                    ended[lost.k] = alone
                continue
            found.counts.update(cases=len(ended))
            return Batch(found.counts, sorted([*found.findings, *ended.values()], key=lambda f: int(f["k"])))

    def triage(self, sample: Sample, seed: int, oracle: str) -> Triaged | None:
        """What the oracle objects to in a sample and where that comes from; None if it does not."""
        header, body = to_packet(sample)
        asked = {"sample": header, "seed": seed, "oracle": oracle}
        try:
            judged = self._ask({"do": "judge", **asked}, body)[0]["judged"]
            fault = judged and Fault(**judged)
        except Lost as lost:
            fault = lost.fault
        if fault is None:
            return None
        return Triaged(oracle, fault, self._place(asked, body), made_of(sample.graph))

    def _place(self, asked: Json, body: bytes) -> Place | None:
        try:
            found = self._ask({"do": "bisect", **asked}, body)[0]["bisected"]
        except Lost as lost:
            return MACHINE_CODE if lost.outcome.status == "crash" else None
        return found and Place(*found)

    def _batch(self, first: int, stop: int, skip: list[int]) -> Batch:
        process = self._ready()
        process.give({"do": "batch", "first": first, "stop": stop, "skip": skip})
        k = first
        while True:
            answer = process.receive(self.limits.timeout)
            if answer is None:
                raise _LostAt(self._gone(process), k)
            if "batch" in answer[0]:
                found = answer[0]["batch"]
                return Batch(Counter(found["counts"]), found["findings"])
            k = answer[0]["at"]

    def _alone(self, k: int) -> Json | None:
        """The finding of a case whose process ends again, in a process of its own; None where it does not end so."""
        self._restart()
        process = self._ready()
        process.give({"do": "case", "k": k})
        oracle = "generator"
        while True:
            answer = process.receive(self.limits.timeout)
            if answer is None:
                return {"k": k, "oracle": oracle, "fault": Lost(self._gone(process)).fault._asdict()}
            if "case" in answer[0]:
                return None
            oracle = answer[0]["oracle"]

    def _ask(self, header: Json, body: bytes) -> Frame:
        process = self._ready()
        process.give(header, body)
        answer = process.receive(self.limits.timeout)
        if answer is None:
            raise Lost(self._gone(process))
        return answer

    def _ready(self) -> _Serving:
        if self._closed:
            raise Lost(Outcome("closed", message="the campaign ends"))
        if self._process is None:
            settings: dict[str, Any] = {"setup": self.setup.to_json(), "memory": self.limits.memory, "path": self.setup.path}
            self._process = _Serving(settings, self.limits, _ENVIRONMENT)
        return self._process

    def _gone(self, process: _Serving) -> Outcome:
        """Why it did not answer; a new one takes its place when it is needed."""
        self._process = None
        self.restarts += 1
        return process.post_mortem(self.limits.timeout)

    def _restart(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _LostAt(Lost):
    """The process was lost at case `k`."""

    def __init__(self, outcome: Outcome, k: int) -> None:
        super().__init__(outcome)
        self.k = k
