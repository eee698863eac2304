"""Solver processes: queries go to workers, which are killed when their time is over.

Takes: the text of queries. Gives: `SolverAnswer`s. A query that exceeds its time or memory, or ends its process, is "unknown".
`SolverPool` runs several workers side by side; `map_unordered` yields answers as they complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import metadata
from importlib.util import find_spec
from typing import Generic, TypeVar

from uops.spec.errors import SpecError, UopsError
from uops.spec.extras import install_command
from uops.spec.ir.record import dataclass as record

#: Time limit of a query on any machine, in seconds, and the further time until its process is killed.
LONGEST = 120.0
GRACE = 5.0
#: Time limit for the start of a process, in seconds.
_START = 60.0
#: Greatest number of bytes per write or read.
_PIECE = 1 << 16

#: A value in a solver's model; a real number is a Fraction.
Number = bool | int | Fraction

T = TypeVar("T")
R = TypeVar("R")


class NoSolver(UopsError):
    """Z3 is not installed."""


def solver_version() -> str:
    """Return the solver and its version, which are part of every ledger key. Raises NoSolver."""
    try:
        return f"z3-solver {metadata.version('z3-solver')}"
    except metadata.PackageNotFoundError:
        raise NoSolver(f"the prover needs Z3: {install_command('prove')}") from None


@record(frozen=True, slots=True)
class SolverAnswer:
    """The result "unsat", "sat" with the values of constants, or "unknown" with the reason; `steps` is what the query took."""

    result: str
    model: Mapping[str, Number]
    reason: str = ""
    steps: int = 0


@dataclass(slots=True)
class SolverWorker:
    """One solver process, started by the first query and again after it died.

    `cpu_seconds` is the processor time of all its answers.
    """

    seed: int = 0
    seconds: float = LONGEST
    process: subprocess.Popen[bytes] | None = None
    cpu_seconds: float = 0.0
    _unread: bytes = b""

    def run_query(self, query: str, max_steps: int, constants_to_evaluate: Sequence[str] = ()) -> SolverAnswer:
        """Run one query within `max_steps` of the solver; on "sat", return the values of `constants_to_evaluate`. Raises
        NoSolver."""
        task = {"query": query, "steps": max_steps, "seconds": self.seconds, "seed": self.seed, "ask": list(constants_to_evaluate)}
        self._start_process_unless_running()
        try:
            line = self._send_and_read_line(self.seconds + GRACE, json.dumps(task).encode() + b"\n")
            answer, cpu_seconds = _parse_answer(line)
        except (BrokenPipeError, EOFError):
            self.close()
            return SolverAnswer("unknown", {}, "the solver's process died")
        except TimeoutError:
            self.close()
            return SolverAnswer("unknown", {}, "killed after its time")
        except ValueError:
            self.close()
            return SolverAnswer("unknown", {}, "the solver's process gave no answer but other text")
        except BaseException:  # Ctrl-C: the answer that is still to come belongs to no later query
            self.close()
            raise
        self.cpu_seconds += cpu_seconds
        return answer

    def _start_process_unless_running(self) -> None:
        """Start the process, unless it runs. Raises NoSolver."""
        if self.process is None:
            if find_spec("z3") is None:
                raise NoSolver(f"the prover needs Z3: {install_command('prove')}")
            command = [sys.executable, "-P", "-m", "uops.compiler.prove.solver.worker"]
            path = os.pathsep.join(p for p in sys.path if p)
            self._unread = b""
            try:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
                )
                self._send_and_read_line(_START)
            except (EOFError, TimeoutError) as e:
                self.close()
                raise NoSolver(f"the solver's process does not start: {type(e).__name__}") from e
            except BaseException:  # Ctrl-C: its first line is no answer
                self.close()
                raise

    def _send_and_read_line(self, seconds_for_both: float, request: bytes = b"") -> bytes:
        """Write `request` and return one line of the process, within `seconds_for_both` for both.

        The process may fail to read or to answer, or may write without end. Raises TimeoutError, EOFError or BrokenPipeError.
        """
        assert self.process is not None and self.process.stdout is not None and self.process.stdin is not None
        out, into = self.process.stdout.fileno(), self.process.stdin.fileno()
        os.set_blocking(into, False)
        end = time.monotonic() + seconds_for_both
        while request or b"\n" not in self._unread:
            ready, takes, _ = select.select([out], [into] if request else [], [], max(0.0, end - time.monotonic()))
            if (not ready and not takes) or time.monotonic() > end:
                raise TimeoutError
            if takes:
                request = request[os.write(into, request[:_PIECE]) :]
            if ready:
                data = os.read(out, _PIECE)
                if not data:
                    raise EOFError
                self._unread += data
        line, self._unread = self._unread.split(b"\n", 1)
        return line

    def close(self) -> None:
        """Kill the process, if it runs."""
        process, self.process = self.process, None  # first: Ctrl-C may come at any time
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):  # a request that it has not read
                        stream.close()


def _parse_answer(line: bytes) -> tuple[SolverAnswer, float]:
    """Return the answer that a process wrote, and the processor seconds that it took. Raises ValueError for other text."""
    try:
        fields = json.loads(line)
        model = {name: Fraction(v) if isinstance(v, str) else v for name, v in fields["model"].items()}
        return SolverAnswer(fields["result"], model, fields["reason"], fields["steps"]), fields["spent"]
    except (KeyError, TypeError) as e:
        raise ValueError("the line is JSON but no answer") from e


@dataclass(slots=True)
class SolverPool(Generic[T, R]):
    """Parallel map of `work(worker, item)` over many items on `jobs` workers."""

    work: Callable[[SolverWorker, T], R]
    jobs: int = 1
    seed: int = 0

    def map_unordered(self, items: Iterable[T]) -> Iterator[R]:
        """Yield results as they complete. Raises the first error of a worker, and SpecError without a worker."""
        if self.jobs < 1:
            raise SpecError(f"jobs must be at least 1, got {self.jobs}")
        todo: queue.SimpleQueue[T] = queue.SimpleQueue()
        count = 0
        for item in items:
            todo.put(item)
            count += 1
        done: queue.SimpleQueue[R | BaseException] = queue.SimpleQueue()
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._work_until_empty_or_stopped, args=(todo, done, stop), daemon=True)
            for _ in range(min(self.jobs, count))
        ]
        for t in threads:
            t.start()
        try:
            for _ in range(count):
                result = done.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            stop.set()
            for t in threads:
                t.join()

    def _work_until_empty_or_stopped(
        self, items_to_take: queue.SimpleQueue[T], results_or_error: queue.SimpleQueue[R | BaseException], stop: threading.Event
    ) -> None:
        """Process items until none is left or `stop` is set; the body of a thread."""
        worker = SolverWorker(self.seed)
        try:
            while not stop.is_set():
                try:
                    item = items_to_take.get_nowait()
                except queue.Empty:
                    return
                results_or_error.put(self.work(worker, item))
        except BaseException as e:
            results_or_error.put(e)
        finally:
            worker.close()
