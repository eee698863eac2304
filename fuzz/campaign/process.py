"""A process that makes and judges cases, and comes back when it was lost.

Takes: a `Setup`. Gives: what batches of cases, single cases and samples gave. A case that ends its process, or does not end, is
run again by itself: if it ends so again it is a finding of the oracle that was being asked; if not, the batch is done once more, so
that a process that somebody killed costs time and nothing else.

What is asked in `limit_time` ends when the time is over, whatever the process is at: a batch gives the cases that were done by
then, all else raises Lost. A case that was cut off so is no finding: it is not done.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from uops.backends.worker.client import Limits, Outcome, Process, how_ended
from uops.backends.worker.frames import BadFrame, Frame, describe
from uops.fuzz.campaign.examine import MACHINE_CODE, Json, Place, Setup, Triaged, made_of
from uops.fuzz.generate.declared import EVERYTHING, Declared
from uops.fuzz.generate.kinds import KINDS, Sample
from uops.fuzz.oracles.oracles import GENERATOR, ORACLES, PROCESS
from uops.fuzz.oracles.stages import Fault
from uops.fuzz.reduce.reproducer import from_packet, to_packet
from uops.spec.errors import UopsError

T = TypeVar("T")
#: Seconds for one case, and for a bisection of one.
LIMITS = Limits(timeout=60.0)
#: Deaths of a batch that no case explains, after which the case that was at work is called the finding.
_DEATHS = 3
#: Batches that a child lives.
_LIFE = 64
#: Compiled objects are not kept: every case has others.
_ENVIRONMENT = {"UOPS_CACHE": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Batch(NamedTuple):
    """What cases gave together: coverage, and for each finding {k, oracle, fault}; `stop` is the first case that was not done."""

    counts: Counter[str]
    findings: list[Json]
    stop: int

    def include_ended(self, ended: Mapping[int, Json]) -> Batch:
        """With those that ended their process, among the cases that were done and right after them."""
        stop = self.stop
        while stop in ended:
            stop += 1
        mine = [f for k, f in ended.items() if k < stop]
        counts = self.counts.copy()
        counts.update(cases=len(mine))
        return Batch(counts, sorted([*self.findings, *mine], key=lambda f: int(f["k"])), stop)

    @classmethod
    def of(cls, told: Any) -> Batch:
        """A batch as a process tells it. Raises LookupError, TypeError or AttributeError."""
        counts = {k: of_type(int, n) for k, n in told["counts"].items()}
        return cls(Counter(counts), [_finding(f) for f in told["findings"]], of_type(int, told["stop"]))


class _Serving(Process):
    """The process, whose child may die and is followed by another."""

    module: ClassVar[str] = "uops.fuzz.campaign.serve"
    compiler = together = False
    declared = EVERYTHING

    def kill(self) -> None:
        """End both, from any thread: a child that lets no other thread run would keep the pipe open, and never end."""
        super().kill()
        self._kill_child()

    def end(self, patience: float = 2.0) -> None:
        super().end(patience)
        self._kill_child()

    def _kill_child(self) -> None:
        """The child, where it is still there: its number may be another process's by now."""
        for pid in self._pids[1:]:
            with contextlib.suppress(OSError):
                if self.module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def greeted(self, greeting: Mapping[str, Any]) -> None:
        self.declared = Declared.of_json(greeting["declared"])
        self.compiler, self.together = (of_type(bool, greeting[k]) for k in ("compiler", "together"))
        self._pids = [self._popen.pid, of_type(int, greeting["pid"])]
        of_type(str, greeting["ready"])

    def ask(self, header: Json, body: bytes, seconds: float) -> Frame:
        """The first answer. Raises Lost."""
        self.give(header, body, seconds)
        return self.answer(seconds)

    def answer(self, seconds: float) -> Frame:
        """The next answer. Raises Lost: `alive` says whether the process can be asked again."""
        found = self.receive(seconds)
        if found is None:
            raise Lost(self.post_mortem(seconds))
        if "died" in found[0]:
            with refuse_nonsense(self):
                status = int(found[0]["died"])
            self._next_child()
            raise Lost(Outcome("crash", None, *how_ended(status)), alive=True)
        return found

    def _next_child(self) -> None:
        found = self.receive(LIMITS.start)
        if found is None:
            raise Lost(self.post_mortem(LIMITS.start))
        with refuse_nonsense(self):
            self.greeted(found[0])


class Lost(Exception):
    """The process ended, or did not answer."""

    def __init__(self, outcome: Outcome, alive: bool = False) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome
        self.alive = alive

    @property
    def fault(self) -> Fault:
        """How it ended, without what differs from run to run."""
        return Fault(self.outcome.status, self.outcome.message.partition(":")[0])


@contextmanager
def refuse_nonsense(process: Process) -> Iterator[None]:
    """Read what a process answers. Raises Lost, and ends the process, where that is not what was asked for."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, UopsError) as e:
        process.reject(BadFrame(describe(e)))
        raise Lost(process.post_mortem(0.0)) from None


def of_type(kind: type[T], value: Any) -> T:
    """Return `value`. Raises TypeError if it is of another type."""
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")
    return value


def _fault(found: Any) -> Fault:
    """A fault as a process tells it. Raises TypeError."""
    fault = Fault(**found)
    of_type(str, fault.kind), of_type(str, fault.message)
    if not all(v is None or type(v) in kinds for v, kinds in zip(fault[2:], _REST, strict=True)):
        raise TypeError(f"no fault has {found!r:.200}")
    return fault


#: The types of what a fault may say beyond its kind and its message.
_REST = ((int, str), (int,), (str,), (str,))


def _place(found: Any) -> Place:
    """A place as a process tells it. Raises TypeError."""
    place = Place(*found)
    of_type(str, place.stage), of_type(str, place.pass_)
    if not all(v is None or type(v) is str for v in place):
        raise TypeError(f"no place has {found!r:.200}")
    return place


def _sample(header: Any, body: bytes) -> Sample:
    """A sample as a process tells it. Raises LookupError, TypeError, BadFrame or SpecError."""
    found = from_packet(header, body)
    if found.opts is not None:
        of_type(str, found.opts)
    return found._replace(kind=KINDS[found.kind].name)


def _finding(found: Any) -> Json:
    """A finding as a process tells it. Raises LookupError or TypeError."""
    return {"k": of_type(int, found["k"]), "oracle": of_type(str, found["oracle"]), "fault": _fault(found["fault"])._asdict()}


class Examiner:
    """One process that lasts. Use as a context manager; not for two threads at a time."""

    def __init__(self, setup: Setup, limits: Limits = LIMITS) -> None:
        self.setup = setup
        self.limits = limits
        self.restarts = 0
        self._process: _Serving | None = None
        self._closed = False
        self._over: threading.Event | None = None  # set when the time of what is asked is over
        self._batches = 0
        self._done = Batch(Counter(), [], 0)  # of the batch at work

    def __enter__(self) -> Examiner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._closed = True
        if self._process is not None:
            self._process.end()
            self._process = None

    def stop(self) -> None:
        """End the process at once, from another thread: what it was asked for ends with Lost."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()

    @contextmanager
    def limit_time(self, seconds: float | None) -> Iterator[None]:
        """End what is asked inside after `seconds` at the latest; None for no end."""
        if seconds is None:
            yield
            return
        over = self._over = threading.Event()
        timer = threading.Timer(min(max(0.0, seconds), threading.TIMEOUT_MAX), self._cut, (over,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            self._over = None
            if over.is_set() and self._process is not None:
                self._process.end(patience=0.0)
                self._process = None

    def _cut(self, over: threading.Event) -> None:
        over.set()
        if (process := self._process) is not None:
            process.kill()

    @property
    def is_over(self) -> bool:
        """True if nothing is answered any more: it was closed, or the time of what is asked is over."""
        return self._closed or (self._over is not None and self._over.is_set())

    def require_open(self) -> None:
        """Raise Lost if nothing is answered any more."""
        if self.is_over:
            raise Lost(Outcome("closed", message="the campaign ends"))

    def compiles(self) -> bool:
        """Whether the subject is a target of our compiler. Raises BrokenBackend."""
        return self._ready().compiler

    def version(self) -> str:
        """What the subject says of itself. Raises BrokenBackend."""
        return self._ready().version

    def declared(self) -> Declared:
        """What cases are drawn from: what the subject declares, and the second backend. Raises BrokenBackend."""
        return self._ready().declared

    def batch(self, first: int, stop: int) -> Batch:
        """Cases [first, stop); where this is over before, those that were done. Raises Lost where none was."""
        self._batches += 1
        if self._batches % _LIFE == 0:
            self.renew()
        ended: dict[int, Json] = {}
        deaths = 0
        together = self._ready().together
        self._done = Batch(Counter(), [], first)
        while True:
            at = [first]
            try:
                return self._batch(first, stop, list(ended), at, together).include_ended(ended)
            except Lost as lost:
                try:
                    self._lost(lost)
                    if together:  # which case it was shows where there is one at a time
                        together = False
                        continue
                    deaths += 1
                    alone = self._alone(at[0])
                except Lost:
                    if (found := self._done.include_ended(ended)).stop > first:
                        return found
                    raise
                if alone is None and deaths >= _DEATHS:
                    alone = {"k": at[0], "oracle": PROCESS, "fault": lost.fault._asdict()}
                if alone is not None:
                    ended[at[0]] = alone

    def settle(self, sample: Sample, seed: int, oracle: str) -> tuple[Sample, str]:
        """What reduction starts from: a sample that holds what the oracle drew, and its oracle, if that objects too."""
        header, body = to_packet(sample)
        try:
            process = self._ready()
            asked = {"do": "settle", "sample": header, "seed": seed, "oracle": oracle}
            answer, data = process.ask(asked, body, self.limits.timeout)
            with refuse_nonsense(process):
                found = _sample(answer["settled"], data), of_type(str, answer["oracle"])
        except Lost as lost:
            self._lost(lost)
            return sample, oracle
        if found[0].graph is sample.graph and found[0].opts == sample.opts:
            return sample, oracle
        return found if self._fault(found[0], seed, found[1]) else (sample, oracle)

    def triage(self, sample: Sample, seed: int, oracle: str) -> Triaged | None:
        """What the oracle objects to in a sample and where that comes from; None if it does not."""
        fault = self._fault(sample, seed, oracle)
        if fault is None:
            return None
        return Triaged(oracle, fault, self._place(sample, seed, oracle), made_of(sample.graph))

    def _fault(self, sample: Sample, seed: int, oracle: str) -> Fault | None:
        header, body = to_packet(sample)
        try:
            asked = {"do": "judge", "sample": header, "seed": seed, "oracle": oracle}
            return self._ask(asked, body, lambda answer: None if answer["judged"] is None else _fault(answer["judged"]))
        except Lost as lost:
            self._lost(lost)
            return lost.fault

    def _place(self, sample: Sample, seed: int, oracle: str) -> Place | None:
        if not self._ready().compiler:
            return None
        header, body = to_packet(sample)
        try:
            asked = {"do": "bisect", "sample": header, "seed": seed, "oracle": oracle}
            return self._ask(asked, body, lambda answer: None if answer["bisected"] is None else _place(answer["bisected"]))
        except Lost as lost:
            self._lost(lost)
            return None if lost.outcome.signal is None else MACHINE_CODE

    def _batch(self, first: int, stop: int, skip: list[int], at: list[int], together: bool) -> Batch:
        """The cases but those to skip; `at[0]` is the one at work, and `_done` has those that are done."""
        process = self._ready()
        asked = {"do": "batch", "first": first, "stop": stop, "skip": skip, "together": together}
        answer = process.ask(asked, b"", self.limits.timeout)[0]
        for _ in range(3 * (stop - first)):  # each case is begun, and judged, and told of with those before it
            if "batch" in answer:
                break
            with refuse_nonsense(process):
                at[0] = of_type(int, answer.get("at", at[0]))
                if "done" in answer and (done := Batch.of(answer["done"])).stop > self._done.stop:
                    self._done = done
            answer = process.answer(self.limits.timeout)[0]
        with refuse_nonsense(process):
            return Batch.of(answer["batch"])

    def _alone(self, k: int) -> Json | None:
        """The finding of a case whose process ends again, in a process of its own; None where it does not end so."""
        found, ended = self._case(k)
        return found if ended else None

    def generator(self, k: int) -> Triaged | None:
        """What ends the making of a case, which is done by the process alone; None if the case can be made."""
        found = self._case(k)[0]
        if found is None or found["oracle"] != GENERATOR:
            return None
        return Triaged(GENERATOR, Fault(**found["fault"]), None, ())

    def _case(self, k: int) -> tuple[Json | None, bool]:
        """The finding of a case by itself, and whether the process ended."""
        oracle = GENERATOR
        process = self._ready()
        try:
            answer = process.ask({"do": "case", "k": k}, b"", self.limits.timeout)[0]
            for _ in range(len(ORACLES) + 1):
                if "case" in answer:
                    break
                with refuse_nonsense(process):
                    oracle = of_type(str, answer["oracle"])
                answer = process.answer(self.limits.timeout)[0]
            with refuse_nonsense(process):
                return None if answer["case"] is None else _finding(answer["case"]), False
        except Lost as lost:
            self._lost(lost)
            return {"k": k, "oracle": oracle, "fault": lost.fault._asdict()}, True

    def renew(self) -> None:
        """A new child: what compiled code and interned nodes leave behind goes with the old one."""
        try:
            self._ask({"do": "renew"}, b"", lambda answer: None)
        except Lost as lost:
            if not lost.alive:
                self._process = None

    def _ask(self, header: Json, body: bytes, read: Callable[[Json], T]) -> T:
        """What `read` makes of the answer. Raises Lost."""
        process = self._ready()
        answer = process.ask(header, body, self.limits.timeout)[0]
        with refuse_nonsense(process):
            return read(answer)

    def _ready(self) -> _Serving:
        self.require_open()
        if self._process is None:
            settings: dict[str, Any] = {"setup": self.setup.to_json(), "memory": self.limits.memory, "path": self.setup.path}
            try:
                self._process = _Serving(settings, self.limits, _ENVIRONMENT, self._begun)
            except BaseException:
                self._process = None
                self.require_open()
                raise
        return self._process

    def _begun(self, process: _Serving) -> None:
        self._process = process
        if self.is_over:  # it was not there yet to be killed
            process.kill()

    def _lost(self, lost: Lost) -> None:
        """Count, and forget a process that is gone; another takes its place when it is needed. Raises it again at the end."""
        if not lost.alive:
            self._process = None
        if self.is_over:
            raise lost
        self.restarts += 1
