"""The client of worker processes, so that a backend's crash, hang or runaway allocation is a result.

`BackendWorker` runs batches in one process and restarts it when it dies. `run_cases_on_workers` drives several workers. Every
case ends in an `Outcome`: no exception of the backend, no signal and no time-out reaches the caller.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import uops.backends
from uops.backends import registry
from uops.backends.arrays import decode_result, encode_arrays
from uops.backends.registry import BackendInfo, BrokenBackend
from uops.backends.testing.calls import InvocationMode
from uops.backends.worker.frames import (
    MOST_BODY,
    MOST_WORDS,
    BadFrame,
    Frame,
    backend_name_of,
    describe_exception,
    one_line,
    pack_frame,
    parse_first_frame_and_length,
)
from uops.backends.worker.patience import PATIENCE, Patience
from uops.spec.errors import SpecValueError
from uops.spec.ir.node import UOp
from uops.spec.ir.text import show
from uops.spec.result import Result
from uops.spec.untrusted import escape_unprintable

#: The ways in which a case ends.
STATUSES = ("ok", "error", "crash", "timeout", "unsupported", "trap")
#: Bytes per read, and requested size of a pipe: large arrays cross in few reads.
_CHUNK = 1 << 20
#: Bytes of a dead process's output that its outcome quotes.
_TAIL = 2000
#: Number of cases after which a process is replaced: compilers keep memory per kernel, 1.5 MB in PoCL.
_LIFE = 300
#: Time limit for a backend to load and to send its greeting, in seconds; `UOPS_START_SECONDS` overrides it.
START = 60.0
#: Factor by which a starved start may exceed the limit (`Patience`): none, since a user sets the limit.
START_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class WorkerCase:
    """A program, as text or as a graph, and its inputs.

    With `precompile`, its empty Programs are compiled before it is read. With `dialect`, it is lowered to that dialect, by name,
    before the backend is given it (`uops.backends.testing.lowered`). `call` is the way in which it is called.
    """

    program: str | UOp
    inputs: Mapping[str, Any] = field(default_factory=dict)
    precompile: bool = False
    dialect: str | None = None
    call: InvocationMode = InvocationMode.PLAIN

    @property
    def text(self) -> str:
        """The program as text."""
        return self.program if isinstance(self.program, str) else show(self.program)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a case. `result` is set for `ok` alone; `signal` names the signal that ended the process of a `crash`, if one
    did.

    `applied` counts the moves of random schedules since the previous outcome
    (`uops.compiler.passes.optimize.search.random_schedules`), and `validated` the claims proved of kernels
    (`uops.compiler.validate`).
    """

    status: str
    result: Result | None = None
    message: str = ""
    signal: str | None = None
    seconds: float = 0.0
    applied: Mapping[str, int] = field(default_factory=dict)
    validated: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds per case, seconds to start, and bytes of address space (0: no limit).

    Seconds are counted as in `uops.backends.worker.patience`: a stopped process and a case starved of processor time get more.
    """

    timeout: float = 10.0
    start: float = field(default_factory=lambda: read_start_timeout_seconds(os.environ))
    memory: int = 4 << 30


def read_start_timeout_seconds(environment: Mapping[str, str]) -> float:
    """Read the time limit of a start from an environment, in seconds. Raises SpecValueError."""
    text = environment.get("UOPS_START_SECONDS", "") or str(START)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise SpecValueError(f"UOPS_START_SECONDS must be a positive number of seconds, got {text!r}")
    return seconds


class BackendWorker:
    """One backend in one process at a time, as a context manager. Not thread-safe."""

    def __init__(
        self, backend: str, options: Mapping[str, Any] | None = None, limits: Limits = Limits(), path: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.backend = backend
        self.limits = limits
        self.restarts = 0
        self._environment = dict(environment or {})
        search_path = [*path, os.getcwd()] if ":" in backend else list(path)  # `module:attribute` may be a file in this folder
        self._settings = {"backend": backend, "options": dict(options or {}), "memory": limits.memory, "path": search_path}
        self._process: _WorkerProcess | None = None
        self._sent = 0
        self._stopped = False

    def __enter__(self) -> BackendWorker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self._sent = 0

    def kill_for_good(self) -> None:
        """End the process at once, from any thread; later requests raise BrokenBackend."""
        self._stopped = True
        if (process := self._process) is not None:
            process.kill()

    def version(self) -> str:
        """Return the backend's version. Raises BrokenBackend."""
        return self._start_process_if_none().version

    def backend_info(self) -> BackendInfo:
        """Return the backend's BackendInfo. Raises BrokenBackend."""
        process = self._start_process_if_none()
        assert process.backend_info is not None
        return process.backend_info

    def run(self, case: WorkerCase) -> Outcome:
        """Run one case."""
        return next(self.run_batch((case,)))

    def run_batch(self, cases: Sequence[WorkerCase]) -> Iterator[Outcome]:
        """Yield one outcome per case, in order, each as soon as it is known. Raises BrokenBackend if the backend does not start.

        After a case that ended the process, a new process runs the rest. That case is run again alone. If it does not crash then,
        an earlier case caused the crash, and the message says so.
        """
        if self._sent >= _LIFE:
            self.close()
        self._sent += len(cases)
        pending = deque(cases)
        while pending:
            process = self._start_process_if_none()
            process.send_batch(list(pending), self.limits.timeout)
            for k in range(len(pending)):
                outcome = process.receive_outcome(self.limits.timeout)
                if outcome is None:
                    yield self._explain_lost_case_or_rerun_crashed_one(process, pending.popleft(), is_first_in_batch=k == 0)
                    break
                pending.popleft()
                yield outcome

    def _start_process_if_none(self) -> _WorkerProcess:
        """Return the running process, started if needed. Raises BrokenBackend."""
        if self._stopped:
            raise BrokenBackend(f"{self.backend}: the worker was stopped")
        if self._process is None:
            try:
                self._process = _WorkerProcess(
                    self._settings, self.limits, self._environment, self._record_process_and_kill_if_stopped
                )
            except BaseException:
                self._process = None
                raise
        return self._process

    def _record_process_and_kill_if_stopped(self, process: _WorkerProcess) -> None:
        """Record a process before its greeting, so that `kill_for_good` can end it."""
        self._process = process
        if self._stopped:
            process.kill()

    def _explain_lost_case_or_rerun_crashed_one(
        self, process: BackendProcess, case: WorkerCase, *, is_first_in_batch: bool
    ) -> Outcome:
        """Return the outcome of a case whose process hangs or is gone; run the case again if an earlier one may be the cause."""
        self._process = None
        self.restarts += 1
        outcome = process.end_and_explain_no_answer(self.limits.timeout)
        if outcome.status != "crash" or is_first_in_batch:
            return outcome
        rerun = self.run(case)
        if rerun.status == "crash":
            return rerun
        note = f"not when run alone ({rerun.status}): an earlier case of its batch may have damaged the process. {outcome.message}"
        return Outcome("crash", None, note, outcome.signal, outcome.seconds)


class BackendProcess:
    """A running `uops.backends.worker.serve` with its pipes and its printed output.

    A subclass may start another module that sends frames and begins with a greeting.
    """

    module: ClassVar[str] = "uops.backends.worker.serve"

    def __init__(
        self, settings: Mapping[str, Any], limits: Limits, environment: Mapping[str, str],
        on_start: Callable[[Self], None] = lambda process: None,
    ) -> None:  # fmt: skip
        """Start the process in a session of its own, so that signals to a group or from the terminal reach one side alone.

        `on_start` receives the process before its greeting. Raises BrokenBackend.
        """
        read, give = _make_large_pipe()
        take, write = _make_large_pipe()
        life, life_end = os.pipe()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [sys.executable, "-m", self.module, str(read), str(write), str(life)]
        signal_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: blocked until the process unblocks it
        try:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, pass_fds=(read, write, life),
                env={**_make_environment_with_package_path(), **environment}, start_new_session=True,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
            for end in (read, write, life):
                os.close(end)
        self._pids = [self._popen.pid]
        os.set_blocking(give, False)
        self._requests = open(give, "wb", buffering=0)  # noqa: SIM115
        self._answers = open(take, "rb", buffering=0)  # noqa: SIM115
        self._life = open(life_end, "wb", buffering=0)  # noqa: SIM115
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(take, select.POLLIN)
        self._writable.register(give, select.POLLOUT)
        self._buffer = bytearray()
        self._hung = False
        self._why = self._rejection = ""
        self._most = 0  # bytes; a greeting has no body
        try:
            on_start(self)
            self.write_frame_or_mark_hung(dict(settings), b"", limits.start, START_PATIENCE)
            self.version = self._receive_greeting_and_return_version(backend_name_of(settings), limits.start)
        except BaseException:  # including Ctrl-C
            self.end(patience=0.0)
            raise
        self._most = limits.memory or MOST_BODY

    def _receive_greeting_and_return_version(self, backend_name_for_errors: str, seconds: float) -> str:
        """Receive the greeting and return the version in it. Raises BrokenBackend."""
        frame = self.receive(seconds, START_PATIENCE)
        if frame is None:
            raise BrokenBackend(
                f"{backend_name_for_errors}: its process did not start: {one_line(self.end_and_explain_no_answer(seconds).message)}"
            )
        greeting = frame[0]
        if "broken" in greeting:
            raise BrokenBackend(one_line(str(greeting["broken"])))
        try:
            self.read_greeting_fields(greeting)
        except (BadFrame, LookupError, TypeError, ValueError, AttributeError) as e:
            raise BrokenBackend(
                f"{backend_name_for_errors}: its process sent a malformed greeting: {describe_exception(e)}"
            ) from None
        return str(greeting.get("ready", ""))

    def read_greeting_fields(self, greeting: Mapping[str, Any]) -> None:
        """Read the greeting of a subclass's process that says more than a version, and set `_pids`, the processes whose time
        counts.

        Raises BadFrame, or the exception of a missing or malformed key.
        """

    def send_batch(self, cases: Sequence[WorkerCase], seconds_to_read: float) -> None:
        """Send a batch. The process reads it whole before it answers, so neither side waits for the other."""
        body = bytearray()
        headers = []
        for case in cases:
            header, data = encode_arrays(case.inputs)
            for entry in header.values():
                if "offset" in entry:
                    entry["offset"] += len(body)
            headers.append(
                {
                    "program": case.text,
                    "inputs": header,
                    "precompile": case.precompile,
                    "dialect": case.dialect,
                    "call": case.call.value,
                }
            )
            body += data
        self.write_frame_or_mark_hung({"cases": headers}, bytes(body), seconds_to_read)

    def write_frame_or_mark_hung(
        self, header: Mapping[str, Any], body: bytes, seconds_to_read: float, starved_seconds: float = PATIENCE
    ) -> None:
        """Write one frame, which the process must read within `seconds_to_read` (`Patience`).

        A time-out is reported by the missing answer, not here.
        """
        view, patience = memoryview(pack_frame(dict(header), body)), Patience(self._pids, seconds_to_read, starved_seconds)
        with contextlib.suppress(BrokenPipeError):
            while view and not self._hung:
                written = self._requests.write(view)  # None where the pipe is full
                if written is None and not patience.wait_until_ready_or_time_out(self._writable):
                    self._hung, self._why = True, patience.why
                view = view[written or 0 :]

    def receive(self, seconds: float, starved_seconds: float = PATIENCE) -> Frame | None:
        """Return the next answer, or None if the process ended, timed out (`Patience`) or wrote a malformed frame."""
        patience = Patience(self._pids, seconds, starved_seconds)
        try:
            while (split := parse_first_frame_and_length(self._buffer, self._most)) is None:
                if not self._hung and not patience.wait_until_ready_or_time_out(self._readable):
                    self._hung, self._why = True, patience.why
                if self._hung:
                    return None
                data = self._answers.read(_CHUNK)
                if not data:
                    return None
                self._buffer += data
        except BadFrame as e:
            self.kill_and_note_unreadable_answer(e)
            return None
        frame, size = split
        del self._buffer[:size]
        return frame

    def kill_and_note_unreadable_answer(self, reason: BadFrame) -> None:
        """End a process whose answer is unreadable; `end_and_explain_no_answer` returns the reason."""
        self._buffer.clear()
        self._rejection = f"its answer cannot be read: {one_line(str(reason))}"
        self.kill()

    def end_and_explain_no_answer(self, seconds_to_report: float) -> Outcome:
        """End the process, and return as an outcome why there was no answer."""
        if self._rejection:
            self.end(patience=0.0)
            return Outcome("crash", None, self._rejection)
        if self._hung:
            self.end(patience=0.0)
            return Outcome("timeout", None, self._why, None, seconds_to_report)
        try:
            status = self._popen.wait(timeout=5.0)
        except subprocess.TimeoutExpired:  # it closed its pipe but still runs
            status = None
        output = self._read_log_tail()
        self.end(patience=0.0)
        end, signal_name = ("closed its pipe", None) if status is None else describe_exit_status_and_signal(status)
        return Outcome("crash", None, f"{end}{': ' + output if output else ''}", signal_name)

    def _read_log_tail(self) -> str:
        """Return the end of what the process printed."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL))
        return escape_unprintable(self._log.read().decode(errors="replace").strip())

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """End the process at once, from any thread; a thread that waits for it sees it gone."""
        self._popen.kill()

    def end(self, patience: float = 2.0) -> None:
        """Close the pipes, which asks the process to end; after `patience` seconds, kill it and its children."""
        if self._log.closed:
            return
        self._requests.close()
        self._answers.close()
        try:
            self._popen.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._life.close()
        with contextlib.suppress(OSError):  # the pid stays the group's number while it has a process
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._log.close()


class _WorkerProcess(BackendProcess):
    """The process of a `BackendWorker`."""

    backend_info: BackendInfo | None = None

    def read_greeting_fields(self, greeting: Mapping[str, Any]) -> None:
        """Read the BackendInfo that the process sends."""
        self.backend_info = BackendInfo.of_json(dict(greeting))

    def receive_outcome(self, seconds: float) -> Outcome | None:
        """Return the outcome of the next case; None where `receive` returns None."""
        answer = self.receive(seconds)
        if answer is None:
            return None
        try:
            return _parse_outcome(*answer)
        except BadFrame as e:
            self.kill_and_note_unreadable_answer(e)
            return None


def _make_large_pipe() -> tuple[int, int]:
    """Return a pipe with a buffer of `_CHUNK` bytes, where the system allows it."""
    ends = os.pipe()
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _CHUNK)
    return ends


def _make_environment_with_package_path() -> dict[str, str]:
    """Return this process's environment, with the path that this package was imported from."""
    package_path = str(Path(uops.backends.__file__).absolute().parents[2])
    rest = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{package_path}{os.pathsep}{rest}" if rest else package_path}


def describe_exit_status_and_signal(status: int) -> tuple[str, str | None]:
    """Describe an exit status, and return the name of the signal, if one ended the process."""
    name = _signal_name(-status) if status < 0 else None
    if name == "SIGKILL":
        return "ended by SIGKILL, as the system ends a process when memory is short", name
    return (f"ended by {name}", name) if name else (f"exited with status {status}", None)


def _signal_name(signal_number: int) -> str:
    try:
        return signal.Signals(signal_number).name
    except ValueError:
        return f"signal {signal_number}"


def _parse_outcome(header: dict[str, Any], body: bytes) -> Outcome:
    """Read an answer, which foreign code may have written. Raises BadFrame."""
    status, message, seconds = header.get("status"), header.get("message"), header.get("seconds")
    if status not in STATUSES or not isinstance(message, str) or not isinstance(seconds, float) or seconds < 0:
        raise BadFrame(f"expected an outcome, got status {status!r:.80}, message {message!r:.80}, seconds {seconds!r:.80}")
    result = decode_result(header.get("result"), body) if status == "ok" else None
    return Outcome(
        status, result, message[:MOST_WORDS], None, seconds, _read_counts(header, "applied"), _read_counts(header, "validated")
    )


def _read_counts(header: dict[str, Any], field_name: str) -> dict[str, int]:
    """Return the named counts of an answer. Raises BadFrame."""
    counts = header.get(field_name, {})
    if not isinstance(counts, dict) or not all(type(n) is int and n >= 0 for n in counts.values()):
        raise BadFrame(f"{field_name} holds {counts!r:.80}, expected counts")
    return counts


def query_info_isolating_foreign_backend(backend: str, limits: Limits | None = None, path: Sequence[str] = ()) -> BackendInfo:
    """Return the BackendInfo of a backend: from this process if it is built in, else from a process of its own.

    Raises UnknownBackend and BrokenBackend.
    """
    registry.locate_factory(backend)
    if not registry.is_foreign(backend):
        return registry.describe_backend(backend, registry.create_backend(backend))
    with BackendWorker(backend, limits=limits or Limits(), path=path) as worker:
        return worker.backend_info()


def run_cases_on_workers(
    backend: str,
    cases: Iterable[WorkerCase],
    *,
    jobs: int = 1,
    batch: int = 32,
    options: Mapping[str, Any] | None = None,
    limits: Limits = Limits(),
    path: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Outcome]:
    """Yield the outcomes of cases in their order, from `jobs` workers that take `batch` cases at a time.

    `cases` is read lazily. `environment` is added to the environment of the worker processes.
    """
    local, stopped = threading.local(), threading.Event()
    workers: list[BackendWorker] = []

    def run_chunk(chunk: list[WorkerCase]) -> list[Outcome]:
        worker: BackendWorker | None = getattr(local, "worker", None)
        if worker is None:
            worker = local.worker = BackendWorker(backend, options, limits, path, environment)
            workers.append(worker)
        if stopped.is_set():
            worker.kill_for_good()
        return list(worker.run_batch(chunk))

    source = iter(cases)
    chunks = iter(lambda: list(islice(source, batch)), [])
    pending: deque[Future[list[Outcome]]] = deque()
    with ThreadPoolExecutor(jobs) as threads:
        try:
            for chunk in chunks:
                pending.append(threads.submit(run_chunk, chunk))
                if len(pending) > 2 * jobs:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        except BaseException:  # Ctrl-C, or the caller stopped reading: do not wait for running cases
            stopped.set()
            for worker in list(workers):
                worker.kill_for_good()
            raise
        finally:
            for waiting in pending:
                waiting.cancel()
            threads.shutdown(wait=True)
            for worker in workers:
                worker.close()
