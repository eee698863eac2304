"""Run a backend in other processes, so that a crash, a hang or a runaway allocation is data.

`Worker` is one process that lasts: it takes batches and is started again after it died. `run_all` drives several of them. Every way
a case can end is an `Outcome`; no exception of the backend, no signal and no time-out reaches the caller.
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
from uops.backends.arrays import decode_result, encode
from uops.backends.registry import BrokenBackend, Introduction
from uops.backends.worker.frames import MOST_BODY, MOST_WORDS, BadFrame, Frame, describe, name_of, one_line, pack, split_frame
from uops.backends.worker.patience import PATIENCE, Patience
from uops.spec.errors import SpecValueError
from uops.spec.ir.node import UOp
from uops.spec.ir.text import show
from uops.spec.result import Result
from uops.spec.untrusted import printable

#: How a case can end.
STATUSES = ("ok", "error", "crash", "timeout", "unsupported", "trap")
#: Bytes read at a time, and the room asked for in a pipe: large arrays cross in few turns.
_CHUNK = 1 << 20
_TAIL = 2000
#: Cases of one process, after which the next batch gets a new one: compilers keep memory for each kernel, PoCL 1.5 MB.
_LIFE = 300
#: Seconds in which a backend has to load and to say what it is; `UOPS_START_SECONDS` says otherwise.
START = 60.0
#: How many times these seconds a start may take that other processes keep from running: once, as the limit is one of the user's.
START_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """A program, as text or as a graph, and its inputs."""

    program: str | UOp
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.program if isinstance(self.program, str) else show(self.program)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`result` is there for `ok` alone; `signal` names what ended the process of a `crash`, where a signal did. `applied` counts
    the moves of schedules that were drawn since the outcome before (`uops.compiler.passes.optimize.search.random_schedules`),
    `validated` what was proved of kernels (`uops.compiler.validate.taken`)."""

    status: str
    result: Result | None = None
    message: str = ""
    signal: str | None = None
    seconds: float = 0.0
    applied: Mapping[str, int] = field(default_factory=dict)
    validated: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds per case, seconds to start, bytes of address space (0: no limit). Seconds are those of
    `uops.backends.worker.patience`: a process that is stopped gets some more, and so does a case that other processes keep from
    running."""

    timeout: float = 10.0
    start: float = field(default_factory=lambda: start_seconds(os.environ))
    memory: int = 4 << 30


def start_seconds(environment: Mapping[str, str]) -> float:
    """The seconds that an environment gives a backend to start. Raises SpecValueError."""
    text = environment.get("UOPS_START_SECONDS", "") or str(START)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise SpecValueError(f"UOPS_START_SECONDS is a positive number of seconds, got {text!r}")
    return found


class Worker:
    """One backend in one process at a time. Use as a context manager; not for use by two threads at a time."""

    def __init__(
        self, backend: str, options: Mapping[str, Any] | None = None, limits: Limits = Limits(), path: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.backend = backend
        self.limits = limits
        self.restarts = 0
        self._environment = dict(environment or {})
        where = [*path, os.getcwd()] if ":" in backend else list(path)  # `module:attribute` may be a file that lies here
        self._settings = {"backend": backend, "options": dict(options or {}), "memory": limits.memory, "path": where}
        self._process: _WorkerProcess | None = None
        self._sent = 0
        self._stopped = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self._sent = 0

    def stop(self) -> None:
        """End the process at once, from any thread; what is asked of the worker raises BrokenBackend from now on."""
        self._stopped = True
        if (process := self._process) is not None:
            process.kill()

    def version(self) -> str:
        """What the backend says that it is. Raises BrokenBackend."""
        return self._ready().version

    def introduction(self) -> Introduction:
        """The backend's Introduction. Raises BrokenBackend."""
        process = self._ready()
        assert process.introduction is not None
        return process.introduction

    def run(self, case: Case) -> Outcome:
        """Run one case."""
        return next(self.run_batch((case,)))

    def run_batch(self, cases: Sequence[Case]) -> Iterator[Outcome]:
        """One outcome per case, in order, each as soon as it is known. Raises BrokenBackend if the backend does not even start.

        After a case that ended the process, a new one takes the rest. That case is run again by itself: a crash that does not
        happen then was prepared by an earlier case, and the message says so.
        """
        if self._sent >= _LIFE:
            self.close()
        self._sent += len(cases)
        left = deque(cases)
        while left:
            process = self._ready()
            process.send(list(left), self.limits.timeout)
            for k in range(len(left)):
                outcome = process.outcome(self.limits.timeout)
                if outcome is None:
                    yield self._lost(process, left.popleft(), first=k == 0)
                    break
                left.popleft()
                yield outcome

    def _ready(self) -> _WorkerProcess:
        if self._stopped:
            raise BrokenBackend(f"{self.backend}: the worker was stopped")
        if self._process is None:
            try:
                self._process = _WorkerProcess(self._settings, self.limits, self._environment, self._begin)
            except BaseException:
                self._process = None
                raise
        return self._process

    def _begin(self, process: _WorkerProcess) -> None:
        """Know the process before it has said what it is, so that it can be stopped."""
        self._process = process
        if self._stopped:
            process.kill()

    def _lost(self, process: Process, case: Case, *, first: bool) -> Outcome:
        """The process did not answer: it hangs or is gone."""
        self._process = None
        self.restarts += 1
        outcome = process.post_mortem(self.limits.timeout)
        if outcome.status != "crash" or first:
            return outcome
        again = self.run(case)
        if again.status == "crash":
            return again
        note = f"not when run alone ({again.status}): an earlier case of its batch may have damaged the process. {outcome.message}"
        return Outcome("crash", None, note, outcome.signal, outcome.seconds)


class Process:
    """A started `uops.backends.worker.serve`, its pipes, and what it printed. A subclass may start another module that speaks in
    frames and greets with what it is."""

    module: ClassVar[str] = "uops.backends.worker.serve"

    def __init__(
        self, settings: Mapping[str, Any], limits: Limits, environment: Mapping[str, str],
        begun: Callable[[Self], None] = lambda process: None,
    ) -> None:  # fmt: skip
        """Start it in a session of its own: a signal to its group, or from the terminal, reaches one side alone. `begun` hears of
        the process before it has said what it is. Raises BrokenBackend."""
        read, give = _pipe()
        take, write = _pipe()
        life, ours = os.pipe()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [sys.executable, "-m", self.module, str(read), str(write), str(life)]
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: held until the process asks for it
        try:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, pass_fds=(read, write, life),
                env={**_environment(), **environment}, start_new_session=True,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            for end in (read, write, life):
                os.close(end)
        self._pids = [self._popen.pid]
        os.set_blocking(give, False)
        self._requests = open(give, "wb", buffering=0)  # noqa: SIM115
        self._answers = open(take, "rb", buffering=0)  # noqa: SIM115
        self._life = open(ours, "wb", buffering=0)  # noqa: SIM115
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(take, select.POLLIN)
        self._writable.register(give, select.POLLOUT)
        self._buffer = bytearray()
        self._hung = False
        self._why = self._babbled = ""
        self._most = 0  # a greeting has no body
        try:
            begun(self)
            self.give(dict(settings), b"", limits.start, START_PATIENCE)
            self.version = self._greeting(name_of(settings), limits.start)
        except BaseException:  # Ctrl-C as well
            self.end(patience=0.0)
            raise
        self._most = limits.memory or MOST_BODY

    def _greeting(self, name: str, seconds: float) -> str:
        first = self.receive(seconds, START_PATIENCE)
        if first is None:
            raise BrokenBackend(f"{name}: its process did not start: {one_line(self.post_mortem(seconds).message)}")
        greeting = first[0]
        if "broken" in greeting:
            raise BrokenBackend(one_line(str(greeting["broken"])))
        try:
            self.greeted(greeting)
        except (BadFrame, LookupError, TypeError, ValueError, AttributeError) as e:
            raise BrokenBackend(f"{name}: its process did not say what it is: {describe(e)}") from None
        return str(greeting.get("ready", ""))

    def greeted(self, greeting: Mapping[str, Any]) -> None:
        """For a subclass whose process says more of itself than its version; `_pids` are the processes whose time counts. Raises
        BadFrame, or what a key or a value that is not there raises."""

    def send(self, cases: Sequence[Case], seconds: float) -> None:
        """Give a batch. The process reads it whole before it answers, so neither side waits for the other."""
        body = bytearray()
        headers = []
        for case in cases:
            header, data = encode(case.inputs)
            for entry in header.values():
                if "offset" in entry:
                    entry["offset"] += len(body)
            headers.append({"program": case.text, "inputs": header})
            body += data
        self.give({"cases": headers}, bytes(body), seconds)

    def give(self, header: Mapping[str, Any], body: bytes, seconds: float, starved: float = PATIENCE) -> None:
        """Write one frame, which the process has `seconds` to read (`Patience`); the missing answer reports that it did not."""
        view, patience = memoryview(pack(dict(header), body)), Patience(self._pids, seconds, starved)
        with contextlib.suppress(BrokenPipeError):
            while view and not self._hung:
                written = self._requests.write(view)  # None where the pipe is full
                if written is None and not patience.is_ready_in_time(self._writable):
                    self._hung, self._why = True, patience.why
                view = view[written or 0 :]

    def receive(self, seconds: float, starved: float = PATIENCE) -> Frame | None:
        """The next answer, or None if the process ended, had `seconds` (`Patience`) or wrote what is no frame."""
        patience = Patience(self._pids, seconds, starved)
        try:
            while (found := split_frame(self._buffer, self._most)) is None:
                if not self._hung and not patience.is_ready_in_time(self._readable):
                    self._hung, self._why = True, patience.why
                if self._hung:
                    return None
                data = self._answers.read(_CHUNK)
                if not data:
                    return None
                self._buffer += data
        except BadFrame as e:
            self.reject(e)
            return None
        frame, size = found
        del self._buffer[:size]
        return frame

    def reject(self, e: BadFrame) -> None:
        """End a process whose answer cannot be read; `post_mortem` gives the reason."""
        self._buffer.clear()
        self._babbled = f"its answer cannot be read: {one_line(str(e))}"
        self.kill()

    def post_mortem(self, timeout: float) -> Outcome:
        """Why there was no answer; the process is gone afterwards."""
        if self._babbled:
            self.end(patience=0.0)
            return Outcome("crash", None, self._babbled)
        if self._hung:
            self.end(patience=0.0)
            return Outcome("timeout", None, self._why, None, timeout)
        try:
            status = self._popen.wait(timeout=5.0)
        except subprocess.TimeoutExpired:  # it has closed its pipe and goes on
            status = None
        text = self._printed()
        self.end(patience=0.0)
        how, name = ("closed its pipe", None) if status is None else how_ended(status)
        return Outcome("crash", None, f"{how}{': ' + text if text else ''}", name)

    def _printed(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL))
        return printable(self._log.read().decode(errors="replace").strip())

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """End the process now, from any thread; whoever waits for it finds it gone."""
        self._popen.kill()

    def end(self, patience: float = 2.0) -> None:
        """Close the pipes, which asks the process to end; kill it if it does not, and what it has started."""
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
        with contextlib.suppress(OSError):  # its number stays that of the group while a process is in it
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._log.close()


class _WorkerProcess(Process):
    """The process of a `Worker`."""

    introduction: Introduction | None = None

    def greeted(self, greeting: Mapping[str, Any]) -> None:
        self.introduction = Introduction.of_json(dict(greeting))

    def outcome(self, seconds: float) -> Outcome | None:
        """The outcome of the next case; None where `receive` gives None."""
        answer = self.receive(seconds)
        if answer is None:
            return None
        try:
            return _outcome(*answer)
        except BadFrame as e:
            self.reject(e)
            return None


def _pipe() -> tuple[int, int]:
    """A pipe, as large as the system lets it be."""
    ends = os.pipe()
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _CHUNK)
    return ends


def _environment() -> dict[str, str]:
    """Ours, with the place this package was imported from."""
    ours = str(Path(uops.backends.__file__).absolute().parents[2])
    rest = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{ours}{os.pathsep}{rest}" if rest else ours}


def how_ended(status: int) -> tuple[str, str | None]:
    """An exit status in words, and the name of the signal, if one ended the process."""
    name = _signal_name(-status) if status < 0 else None
    if name == "SIGKILL":
        return "ended by SIGKILL, as the system ends a process when memory is short", name
    return (f"ended by {name}", name) if name else (f"exited with status {status}", None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _outcome(header: dict[str, Any], body: bytes) -> Outcome:
    """Read an answer, whoever wrote it. Raises BadFrame."""
    status, message, seconds = header.get("status"), header.get("message"), header.get("seconds")
    if status not in STATUSES or not isinstance(message, str) or not isinstance(seconds, float) or seconds < 0:
        raise BadFrame(f"no outcome has status {status!r:.80}, message {message!r:.80} and seconds {seconds!r:.80}")
    result = decode_result(header.get("result"), body) if status == "ok" else None
    return Outcome(
        status, result, message[:MOST_WORDS], None, seconds, _read_counts(header, "applied"), _read_counts(header, "validated")
    )


def _read_counts(header: dict[str, Any], name: str) -> dict[str, int]:
    found = header.get(name, {})
    if not isinstance(found, dict) or not all(type(n) is int and n >= 0 for n in found.values()):
        raise BadFrame(f"{name} holds {found!r:.80}, expected counts")
    return found


def introduction(backend: str, limits: Limits | None = None, path: Sequence[str] = ()) -> Introduction:
    """The Introduction of a backend, from this process if it is ours, else from one of its own. Raises UnknownBackend and
    BrokenBackend."""
    registry.locate(backend)
    if not registry.is_foreign(backend):
        return registry.introduce(backend, registry.get(backend))
    with Worker(backend, limits=limits or Limits(), path=path) as worker:
        return worker.introduction()


def run_all(
    backend: str,
    cases: Iterable[Case],
    *,
    jobs: int = 1,
    batch: int = 32,
    options: Mapping[str, Any] | None = None,
    limits: Limits = Limits(),
    path: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Outcome]:
    """Outcomes in the order of `cases`, from `jobs` workers that take `batch` cases at a time. `cases` is read as it is needed.
    `environment` is what their processes have beside ours."""
    local, over = threading.local(), threading.Event()
    workers: list[Worker] = []

    def work(chunk: list[Case]) -> list[Outcome]:
        if not hasattr(local, "worker"):
            local.worker = Worker(backend, options, limits, path, environment)
            workers.append(local.worker)
        if over.is_set():
            local.worker.stop()
        return list(local.worker.run_batch(chunk))

    source = iter(cases)
    chunks = iter(lambda: list(islice(source, batch)), [])
    pending: deque[Future[list[Outcome]]] = deque()
    with ThreadPoolExecutor(jobs) as threads:
        try:
            for chunk in chunks:
                pending.append(threads.submit(work, chunk))
                if len(pending) > 2 * jobs:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        except BaseException:  # Ctrl-C, or nobody wants more: what is at work is not waited for
            over.set()
            for worker in list(workers):
                worker.stop()
            raise
        finally:
            for waiting in pending:
                waiting.cancel()
            threads.shutdown(wait=True)
            for worker in workers:
                worker.close()
