"""A process that examines cases, and is replaced when it is lost.

Takes: a `Setup`. Gives: the results of batches of cases, single cases and samples. A case that ends its process, or does not
end, is run again alone. If it ends so again, it is a finding of the oracle that was being asked. If not, the batch is done once
more: a process that somebody killed costs time and nothing else.

Questions asked inside of `limit_time_by_killing_process` end when the time is over. A batch then gives the cases that were
done; all else raises ProcessLost. A case that was interrupted is not done, and no finding.
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

from uops.backends.conformance.stage_judge import Fault
from uops.backends.worker.client import BackendProcess, Limits, Outcome, describe_exit_status_and_signal
from uops.backends.worker.frames import BadFrame, Frame, describe_exception
from uops.fuzz.campaign.examine import MACHINE_CODE, FaultLocation, Json, Setup, TriagedFinding, list_ops_and_dtypes
from uops.fuzz.generate.declared import EVERYTHING, SupportedOpDtypes
from uops.fuzz.generate.kinds import KINDS, ProgramSample
from uops.fuzz.oracles.oracles import GENERATOR, ORACLES, PROCESS
from uops.fuzz.reach.recorder import BACKEND_VARIABLE
from uops.fuzz.reduce.reproducer import from_packet, to_packet
from uops.spec.errors import UopsError

T = TypeVar("T")
#: Limits of one question: seconds for a case, or for the bisection of one.
LIMITS = Limits(timeout=60.0)
#: Number of deaths of a batch that no single case repeats, after which the last case at work is called the finding.
_DEATHS = 3
#: Number of batches after which a child is replaced. It is replaced earlier if it uses much of its memory limit.
_LIFE = 64
#: Environment of the process. Compiled objects are not cached on disk, since every case has others.
_ENVIRONMENT = {"UOPS_CACHE": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class BatchResult(NamedTuple):
    """The results of a batch of cases: coverage, and for each finding {k, oracle, fault}. `stop` is the first case that was
    not done.
    """

    counts: Counter[str]
    findings: list[Json]
    stop: int

    def include_lost_cases_up_to_gap(self, lost_findings: Mapping[int, Json]) -> BatchResult:
        """Add the cases that ended their process, as far as all cases before them were done."""
        stop = self.stop
        while stop in lost_findings:
            stop += 1
        included = [f for k, f in lost_findings.items() if k < stop]
        counts = self.counts.copy()
        counts.update(cases=len(included))
        return BatchResult(counts, sorted([*self.findings, *included], key=lambda f: int(f["k"])), stop)

    @classmethod
    def from_message(cls, message: Any) -> BatchResult:
        """Read a result from a process. Raises LookupError, TypeError or AttributeError."""
        counts = {k: require_exact_type(int, n) for k, n in message["counts"].items()}
        return cls(Counter(counts), [_parse_finding(f) for f in message["findings"]], require_exact_type(int, message["stop"]))


class _LoneCaseResult(NamedTuple):
    """The finding of a case that was run alone, and whether its process ended."""

    finding: Json | None
    process_ended: bool


class _CaseServerProcess(BackendProcess):
    """The process, whose child may die and is then replaced by another one."""

    module: ClassVar[str] = "uops.fuzz.campaign.serve"
    compiler = compiles_together = False
    declared = EVERYTHING

    def kill(self) -> None:
        """Kill the process and its child, from any thread. A child that blocks all threads would keep the pipe open
        forever.
        """
        super().kill()
        self._kill_child_if_still_ours()

    def end(self, patience: float = 2.0) -> None:
        super().end(patience)
        self._kill_child_if_still_ours()

    def _kill_child_if_still_ours(self) -> None:
        """Kill the child if it still exists. Its process id may belong to another process by now."""
        for pid in self._pids[1:]:
            with contextlib.suppress(OSError):
                if self.module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def read_greeting_fields(self, greeting: Mapping[str, Any]) -> None:
        self.declared = SupportedOpDtypes.from_json(greeting["declared"])
        self.compiler, self.compiles_together = (require_exact_type(bool, greeting[k]) for k in ("compiler", "together"))
        self._pids = [self._popen.pid, require_exact_type(int, greeting["pid"])]
        require_exact_type(str, greeting["ready"])

    def ask(self, header: Json, body: bytes, seconds: float) -> Frame:
        """Write a question and return the first answer. Raises ProcessLost."""
        self.write_frame_or_mark_hung(header, body, seconds)
        return self.read_answer_or_raise_lost(seconds)

    def read_answer_or_raise_lost(self, seconds: float) -> Frame:
        """Return the next answer. Raises ProcessLost, whose `alive` says whether the process can be asked again."""
        frame = self.receive(seconds)
        if frame is None:
            raise ProcessLost(self.end_and_explain_no_answer(seconds))
        if "died" in frame[0]:
            with end_process_on_malformed_answer(self):
                status = int(frame[0]["died"])
            self._await_greeting_of_next_child()
            raise ProcessLost(Outcome("crash", None, *describe_exit_status_and_signal(status)), alive=True)
        return frame

    def _await_greeting_of_next_child(self) -> None:
        frame = self.receive(LIMITS.start)
        if frame is None:
            raise ProcessLost(self.end_and_explain_no_answer(LIMITS.start))
        with end_process_on_malformed_answer(self):
            self.read_greeting_fields(frame[0])


class ProcessLost(Exception):
    """A process that ended or did not answer, or a question that is not asked any more. `alive` says that no process ended, or
    only its child.
    """

    def __init__(self, outcome: Outcome, alive: bool = False) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome
        self.alive = alive

    @property
    def fault(self) -> Fault:
        """The way in which the process ended, without details that differ from run to run."""
        return Fault(self.outcome.status, self.outcome.message.partition(":")[0])


@contextmanager
def end_process_on_malformed_answer(process: BackendProcess) -> Iterator[None]:
    """Read answers of a process inside the context. An answer that is not as expected ends the process and raises ProcessLost."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, UopsError) as e:
        process.kill_and_note_unreadable_answer(BadFrame(describe_exception(e)))
        raise ProcessLost(process.end_and_explain_no_answer(0.0)) from None


def require_exact_type(expected_type: type[T], value: Any) -> T:
    """Return `value`. Raises TypeError if it is of another type."""
    if type(value) is not expected_type:
        raise TypeError(f"expected {expected_type.__name__}, got {value!r:.80}")
    return value


def _parse_fault(message: Any) -> Fault:
    """Read a fault from a process. Raises TypeError."""
    fault = Fault(**message)
    require_exact_type(str, fault.kind), require_exact_type(str, fault.message)
    if not all(v is None or type(v) in types for v, types in zip(fault[2:], _OPTIONAL_TYPES, strict=True)):
        raise TypeError(f"no fault has {message!r:.200}")
    return fault


#: The types of a fault's optional fields, in order.
_OPTIONAL_TYPES = ((int, str), (int,), (str,), (str,))


def _parse_location(message: Any) -> FaultLocation:
    """Read a location from a process. Raises TypeError."""
    location = FaultLocation(*require_exact_type(list, message))
    require_exact_type(str, location.stage), require_exact_type(str, location.pass_)
    if not all(v is None or type(v) is str for v in location):
        raise TypeError(f"no place has {message!r:.200}")
    return location


def _parse_sample(message: Any, body: bytes) -> ProgramSample:
    """Read a sample from a process. Raises LookupError, TypeError, BadFrame or SpecError."""
    sample = from_packet(message, body)
    if sample.opts is not None:
        require_exact_type(str, sample.opts)
    for choice in sample.choices or ():
        require_exact_type(int, choice)
    return sample._replace(kind=KINDS[sample.kind].name)


def _parse_finding(message: Any) -> Json:
    """Read a finding from a process. Raises LookupError or TypeError."""
    return {
        "k": require_exact_type(int, message["k"]),
        "oracle": require_exact_type(str, message["oracle"]),
        "fault": _parse_fault(message["fault"])._asdict(),
    }


class _RecordingCaseServerProcess(_CaseServerProcess):
    """The process, in which functions record their calls."""

    module: ClassVar[str] = "uops.fuzz.reach.serve"


class Examiner:
    """A lasting process that examines cases. Use as a context manager, and from one thread at a time."""

    def __init__(self, setup: Setup, limits: Limits = LIMITS) -> None:
        self.setup = setup
        self.limits = limits
        self.restarts = 0
        self._process: _CaseServerProcess | None = None
        self._closed = False
        self._time_over: threading.Event | None = None  # set when the time limit is over
        self._batches = 0
        self._is_child_full = False  # it uses much of its memory limit
        self._batch_so_far = BatchResult(Counter(), [], 0)  # the part of the current batch that is done

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

    def kill_for_good(self) -> None:
        """End the process at once, from another thread: the question at work raises ProcessLost."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()

    @contextmanager
    def limit_time_by_killing_process(self, seconds: float | None) -> Iterator[None]:
        """End questions inside the context after `seconds` at the latest; None sets no limit."""
        if seconds is None:
            yield
            return
        over = self._time_over = threading.Event()
        timer = threading.Timer(min(max(0.0, seconds), threading.TIMEOUT_MAX), self._kill_when_over, (over,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            self._time_over = None
            if over.is_set() and self._process is not None:
                self._process.end(patience=0.0)
                self._process = None

    def _kill_when_over(self, over: threading.Event) -> None:
        over.set()
        if (process := self._process) is not None:
            process.kill()

    @property
    def is_over(self) -> bool:
        """True if no question is answered any more: the examiner was closed, or the time limit is over."""
        return self._closed or (self._time_over is not None and self._time_over.is_set())

    def require_open(self) -> None:
        """Raise ProcessLost if no question is answered any more."""
        if self.is_over:
            raise ProcessLost(Outcome("closed", message="the campaign ends"), alive=True)

    def is_compiler_target(self) -> bool:
        """Return True if the subject is a target of our compiler. Raises BrokenBackend."""
        return self._ensure_process().compiler

    def version(self) -> str:
        """Return the version that the subject reports. Raises BrokenBackend."""
        return self._ensure_process().version

    def declared_cells(self) -> SupportedOpDtypes:
        """Return the cells that cases are drawn from, which both backends declare. Raises BrokenBackend."""
        return self._ensure_process().declared

    def run_batch_isolating_crashes(self, first: int, stop: int) -> BatchResult:
        """Examine the cases from `first` to before `stop`; at the end of the time limit, return those that were done.
        Raises ProcessLost if none was.
        """
        self._batches += 1
        if self._batches % _LIFE == 0 or self._is_child_full:
            self.restart_child()
            self._is_child_full = False
        lost_findings: dict[int, Json] = {}
        deaths = 0
        together = self._ensure_process().compiles_together
        self._batch_so_far = BatchResult(Counter(), [], first)
        while True:
            current_case = [first]
            try:
                result = self._run_batch_once(first, stop, list(lost_findings), current_case, together)
                return result.include_lost_cases_up_to_gap(lost_findings)
            except ProcessLost as lost:
                try:
                    self._count_loss_or_reraise_if_over(lost)
                    if together:  # one case at a time shows which case it is
                        together = False
                        continue
                    finding = self._rerun_alone(current_case[0])
                    deaths += finding is None
                except ProcessLost:
                    if (partial := self._batch_so_far.include_lost_cases_up_to_gap(lost_findings)).stop > first:
                        return partial
                    raise
                if finding is None and deaths >= _DEATHS:
                    finding = {"k": current_case[0], "oracle": PROCESS, "fault": lost.fault._asdict()}
                if finding is not None:
                    lost_findings[current_case[0]] = finding

    def move_oracle_draws_into_sample_if_still_faulty(
        self, sample: ProgramSample, seed: int, oracle: str
    ) -> tuple[ProgramSample, str]:
        """Return the sample that reduction starts from, and its oracle. It is the one that holds what the oracle drew
        if its oracle objects, too.
        """
        header, body = to_packet(sample)
        try:
            process = self._ensure_process()
            question = {"do": "freeze_choices", "sample": header, "seed": seed, "oracle": oracle}
            answer, data = process.ask(question, body, self.limits.timeout)
            with end_process_on_malformed_answer(process):
                frozen = _parse_sample(answer["frozen"], data), require_exact_type(str, answer["oracle"])
        except ProcessLost as lost:
            self._count_loss_or_reraise_if_over(lost)
            return sample, oracle
        if frozen[0].graph is sample.graph and frozen[0].opts == sample.opts:
            return sample, oracle
        return frozen if self._query_fault_or_process_loss(frozen[0], seed, frozen[1]) else (sample, oracle)

    def judge_and_locate_fault(self, sample: ProgramSample, seed: int, oracle: str) -> TriagedFinding | None:
        """Return the oracle's fault in a sample with its location, or None if the oracle does not object."""
        fault = self._query_fault_or_process_loss(sample, seed, oracle)
        if fault is None:
            return None
        return TriagedFinding(
            oracle, fault, self._query_location_else_machine_code_on_crash(sample, seed, oracle), list_ops_and_dtypes(sample.graph)
        )

    def _query_fault_or_process_loss(self, sample: ProgramSample, seed: int, oracle: str) -> Fault | None:
        header, body = to_packet(sample)
        try:
            question = {"do": "judge", "sample": header, "seed": seed, "oracle": oracle}
            return self._ask_and_parse(
                question, body, lambda answer: None if answer["judged"] is None else _parse_fault(answer["judged"])
            )
        except ProcessLost as lost:
            self._count_loss_or_reraise_if_over(lost)
            return lost.fault

    def _query_location_else_machine_code_on_crash(self, sample: ProgramSample, seed: int, oracle: str) -> FaultLocation | None:
        if not self._ensure_process().compiler:
            return None
        header, body = to_packet(sample)
        try:
            question = {"do": "bisect", "sample": header, "seed": seed, "oracle": oracle}
            return self._ask_and_parse(
                question, body, lambda answer: None if answer["bisected"] is None else _parse_location(answer["bisected"])
            )
        except ProcessLost as lost:
            self._count_loss_or_reraise_if_over(lost)
            return None if lost.outcome.signal is None else MACHINE_CODE

    def _run_batch_once(
        self, first: int, stop: int, skipped_cases: list[int], current_case: list[int], compile_cases_together: bool
    ) -> BatchResult:
        """Examine the cases except those to skip. `current_case[0]` is the case at work, `_batch_so_far` the part that
        is done.
        """
        process = self._ensure_process()
        question = {"do": "batch", "first": first, "stop": stop, "skip": skipped_cases, "together": compile_cases_together}
        answer = process.ask(question, b"", self.limits.timeout)[0]
        for _ in range(3 * (stop - first)):  # per case at most an "at" for preparing, one for judging, and a "done"
            if "batch" in answer:
                break
            with end_process_on_malformed_answer(process):
                current_case[0] = require_exact_type(int, answer.get("at", current_case[0]))
                if "done" in answer and (partial := BatchResult.from_message(answer["done"])).stop > self._batch_so_far.stop:
                    self._batch_so_far = partial
            answer = process.read_answer_or_raise_lost(self.limits.timeout)[0]
        with end_process_on_malformed_answer(process):
            self._is_child_full = require_exact_type(bool, answer["full"])
            return BatchResult.from_message(answer["batch"])

    def _rerun_alone(self, case_number: int) -> Json | None:
        """Run a case alone; return its finding if its process ends again, else None."""
        result = self._run_one_case_in_current_child(case_number)
        return result.finding if result.process_ended else None

    def triage_generator_failure(self, case_number: int) -> TriagedFinding | None:
        """Run a case alone; return the finding of the generator, or None if the case can be generated."""
        finding = self._run_one_case_in_current_child(case_number).finding
        if finding is None or finding["oracle"] != GENERATOR:
            return None
        return TriagedFinding(GENERATOR, Fault(**finding["fault"]), None, ())

    def _run_one_case_in_current_child(self, case_number: int) -> _LoneCaseResult:
        """Run a case alone, in no batch."""
        oracle = GENERATOR
        process = self._ensure_process()
        try:
            answer = process.ask({"do": "case", "k": case_number}, b"", self.limits.timeout)[0]
            for _ in range(len(ORACLES) + 1):
                if "case" in answer:
                    break
                with end_process_on_malformed_answer(process):
                    oracle = require_exact_type(str, answer["oracle"])
                answer = process.read_answer_or_raise_lost(self.limits.timeout)[0]
            with end_process_on_malformed_answer(process):
                return _LoneCaseResult(None if answer["case"] is None else _parse_finding(answer["case"]), False)
        except ProcessLost as lost:
            self._count_loss_or_reraise_if_over(lost)
            return _LoneCaseResult({"k": case_number, "oracle": oracle, "fault": lost.fault._asdict()}, True)

    def restart_child(self) -> None:
        """Replace the child, which frees what compiled code and interned nodes leave behind."""
        try:
            self._ask_and_parse({"do": "renew"}, b"", lambda answer: None)
        except ProcessLost as lost:
            if not lost.alive:
                self._process = None

    def _ask_and_parse(self, header: Json, body: bytes, parse_answer: Callable[[Json], T]) -> T:
        """Ask a question; return what `parse_answer` makes of the answer. Raises ProcessLost."""
        process = self._ensure_process()
        answer = process.ask(header, body, self.limits.timeout)[0]
        with end_process_on_malformed_answer(process):
            return parse_answer(answer)

    def _ensure_process(self) -> _CaseServerProcess:
        self.require_open()
        if self._process is None:
            settings: dict[str, Any] = {"setup": self.setup.to_json(), "memory": self.limits.memory, "path": self.setup.path}
            start, environment = _CaseServerProcess, _ENVIRONMENT
            if self.setup.records_reach:
                start, environment = _RecordingCaseServerProcess, {**_ENVIRONMENT, BACKEND_VARIABLE: self.setup.backend}
            try:
                self._process = start(settings, self.limits, environment, self._adopt_process)
            except BaseException:
                self._process = None
                self.require_open()
                raise
        return self._process

    def _adopt_process(self, process: _CaseServerProcess) -> None:
        self._process = process
        if self.is_over:  # the process did not exist yet when it was to be killed
            process.kill()

    def _count_loss_or_reraise_if_over(self, lost: ProcessLost) -> None:
        """Count a loss, and forget a process that is gone; it is replaced when the next question is asked. Raises the
        loss again if the time is over.
        """
        if not lost.alive:
            self._process = None
        if self.is_over:
            raise lost
        self.restarts += 1
