"""Run a backend in other processes, so that a crash, a hang or a runaway allocation is data.

`Worker` is one process that lasts: it takes batches and is started again after it died. `run_all` drives several of them. Every way
a case can end is an `Outcome`; no exception of the backend, no signal and no time-out reaches the caller.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, ClassVar

import uops.backends
from uops.backends.arrays import decode_result, encode
from uops.backends.registry import BrokenBackend
from uops.backends.serve import Frame, pack, split_frame
from uops.spec.node import UOp
from uops.spec.result import Result
from uops.spec.text import show

#: How a case can end.
STATUSES = ("ok", "error", "crash", "timeout", "unsupported", "trap")
#: Bytes read at a time, and the room asked for in a pipe: large arrays cross in few turns.
_CHUNK = 1 << 20
_TAIL = 2000
#: Cases of one process, after which the next batch gets a new one: compilers keep memory for each kernel, PoCL 1.5 MB.
_LIFE = 300
#: How many times its seconds a process is waited for that others keep from running.
_PATIENCE = 30


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
    the moves of schedules that were drawn since the outcome before (`uops.compiler.optimize.forced`), `validated` what was proved
    of kernels (`uops.compiler.validate.taken`)."""

    status: str
    result: Result | None = None
    message: str = ""
    signal: str | None = None
    seconds: float = 0.0
    applied: Mapping[str, int] = field(default_factory=dict)
    validated: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds per case, seconds to start, bytes of address space (0: no limit). A process that others keep from running gets its
    seconds of processor time all the same, unless that takes thirty times as long."""

    timeout: float = 10.0
    start: float = 60.0
    memory: int = 4 << 30


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
        self._process: Process | None = None
        self._sent = 0

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

    def version(self) -> str:
        """What the backend says of itself. Raises BrokenBackend."""
        return self._ready().version

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
                answer = process.receive(self.limits.timeout)
                if answer is None:
                    yield self._lost(process, left.popleft(), first=k == 0)
                    break
                left.popleft()
                yield _outcome(*answer)

    def _ready(self) -> Process:
        if self._process is None:
            self._process = Process(self._settings, self.limits, self._environment)
        return self._process

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
    """A started `uops.backends.serve`, its pipes, and what it printed. A subclass may start another module that speaks in frames
    and greets with what it is."""

    module: ClassVar[str] = "uops.backends.serve"

    def __init__(self, settings: Mapping[str, Any], limits: Limits, environment: Mapping[str, str]) -> None:
        read, give = _pipe()
        take, write = _pipe()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [sys.executable, "-m", self.module, str(read), str(write)]
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: Ctrl-C is for us, who end the process
        try:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, pass_fds=(read, write),
                env={**_environment(), **environment},
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            os.close(read)
            os.close(write)
        self._pids = [self._popen.pid]
        os.set_blocking(give, False)
        self._requests = open(give, "wb", buffering=0)  # noqa: SIM115
        self._answers = open(take, "rb", buffering=0)  # noqa: SIM115
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(take, select.POLLIN)
        self._writable.register(give, select.POLLOUT)
        self._buffer = bytearray()
        self._hung = False
        self.give(dict(settings), b"", limits.start)
        self.version = self._greeting(limits.start)

    def _greeting(self, seconds: float) -> str:
        first = self.receive(seconds)
        if first is None:
            raise BrokenBackend(f"the backend's process did not start: {self.post_mortem(seconds).message}")
        if "broken" in first[0]:
            self.end()
            raise BrokenBackend(str(first[0]["broken"]))
        self.greeted(first[0])
        return str(first[0]["ready"])

    def greeted(self, greeting: Mapping[str, Any]) -> None:
        """For a subclass whose process says more of itself than its version; `_pids` are the processes whose time counts."""

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

    def give(self, header: Mapping[str, Any], body: bytes, seconds: float) -> None:
        """Write one frame, which the process has `seconds` to read (`Limits`); the missing answer reports that it did not."""
        view, patience = memoryview(pack(dict(header), body)), _Patience(self._pids, seconds)
        with contextlib.suppress(BrokenPipeError):
            while view and not self._hung:
                written = self._requests.write(view)  # None where the pipe is full
                self._hung = written is None and not patience.sees(self._writable)
                view = view[written or 0 :]

    def receive(self, seconds: float) -> Frame | None:
        """The next answer, or None if the process ended or had `seconds` (`Limits`)."""
        patience = _Patience(self._pids, seconds)
        while (found := split_frame(self._buffer)) is None:
            self._hung = self._hung or not patience.sees(self._readable)
            if self._hung:
                return None
            data = self._answers.read(_CHUNK)
            if not data:
                return None
            self._buffer += data
        frame, size = found
        del self._buffer[:size]
        return frame

    def post_mortem(self, timeout: float) -> Outcome:
        """Why there was no answer; the process is gone afterwards."""
        if self._hung:
            self.end(patience=0.0)
            return Outcome("timeout", None, f"no answer within {timeout:g} s", None, timeout)
        try:
            status = self._popen.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            status = 0
        text = self._printed()
        self.end(patience=0.0)
        how, name = how_ended(status)
        return Outcome("crash", None, f"{how}{': ' + text if text else ''}", name)

    def _printed(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL))
        return self._log.read().decode(errors="replace").strip()

    def kill(self) -> None:
        """End the process now, from any thread; whoever waits for it finds it gone."""
        self._popen.kill()

    def end(self, patience: float = 2.0) -> None:
        """Close the pipes, which asks the process to end; kill it if it does not."""
        self._requests.close()
        self._answers.close()
        try:
            self._popen.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._log.close()


def _pipe() -> tuple[int, int]:
    """A pipe, as large as the system lets it be."""
    ends = os.pipe()
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _CHUNK)
    return ends


class _Patience:
    """The seconds that processes have together (`Limits`), from now on."""

    def __init__(self, pids: Sequence[int], seconds: float) -> None:
        self._pids, self._seconds = tuple(pids), seconds
        self._used = self._told()[0]
        now = time.monotonic()
        self._deadline, self._last = now + seconds, now + seconds * _PATIENCE

    def sees(self, poll: select.poll) -> bool:
        """Whether what is asked for happens in time."""
        while not poll.poll(max(0.0, self._deadline - time.monotonic()) * 1000):
            now, kept = self._told()
            if not kept or now - self._used >= self._seconds or self._deadline >= self._last:
                return False
            self._deadline = min(self._last, time.monotonic() + 1.0)
        return True

    def _told(self) -> tuple[float, bool]:
        """Of all of them, what `_used` says of one."""
        told = [_used(pid) for pid in self._pids]
        return sum(used for used, _ in told), any(kept for _, kept in told)


def _used(pid: int) -> tuple[float, bool]:
    """Seconds of processor time of a process, and whether a thread of it would run if it could, or is stopped; (0.0, False) where
    the system does not tell."""
    try:
        told = _stat(f"/proc/{pid}/stat")
        states = {_stat(f"{task.path}/stat")[0] for task in os.scandir(f"/proc/{pid}/task")}
    except OSError:
        return 0.0, False
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK"), not states.isdisjoint("RT")


def _stat(path: str) -> list[str]:
    """The fields after the name, which may have any character."""
    return Path(path).read_text().rpartition(")")[2].split()


def _environment() -> dict[str, str]:
    """Ours, with the place this package was imported from."""
    ours = str(Path(uops.backends.__file__).absolute().parents[2])
    rest = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{ours}{os.pathsep}{rest}" if rest else ours}


def how_ended(status: int) -> tuple[str, str | None]:
    """An exit status in words, and the name of the signal, if one ended the process."""
    name = _signal_name(-status) if status < 0 else None
    return (f"ended by {name}", name) if name else (f"exited with status {status}", None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _outcome(header: dict[str, Any], body: bytes) -> Outcome:
    result = decode_result(header["result"], body) if header["status"] == "ok" else None
    counted = header.get("applied", {}), header.get("validated", {})
    return Outcome(header["status"], result, header["message"], None, header["seconds"], *counted)


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
    local = threading.local()
    workers: list[Worker] = []

    def work(chunk: list[Case]) -> list[Outcome]:
        if not hasattr(local, "worker"):
            local.worker = Worker(backend, options, limits, path, environment)
            workers.append(local.worker)
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
        finally:
            for waiting in pending:
                waiting.cancel()
            threads.shutdown(wait=True)
            for worker in workers:
                worker.close()
