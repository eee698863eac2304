"""The solver's door: queries go to worker processes, which are killed where their time is over.

Takes: the text of queries. Gives: `Answer`s; a query that takes too long, too much memory, or the life of its process is "unknown".
`Pool` runs several workers side by side; `each` yields answers in the order of their ends.
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
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import metadata
from importlib.util import find_spec
from typing import Generic, TypeVar

from uops.spec.errors import UopsError
from uops.spec.extras import how_to_install
from uops.spec.ir.record import dataclass as record

#: Seconds that a query may take at most, however busy the machine is; and how much longer until its process is killed.
LONGEST = 120.0
GRACE = 5.0
_START = 60.0
#: Bytes that are written or read at once.
_PIECE = 1 << 16

#: A value of a model: a real number is a Fraction.
Number = bool | int | Fraction

T = TypeVar("T")
R = TypeVar("R")


class NoSolver(UopsError):
    """Z3 is not installed."""


def version() -> str:
    """The solver, as it enters ledger keys."""
    try:
        return f"z3-solver {metadata.version('z3-solver')}"
    except metadata.PackageNotFoundError:
        raise NoSolver(f"the prover needs Z3: {how_to_install('prove')}") from None


@record(frozen=True, slots=True)
class Answer:
    """ "unsat", "sat" with the values asked for, or "unknown" with the reason; `steps` is what it took."""

    result: str
    model: Mapping[str, Number]
    reason: str = ""
    steps: int = 0


@dataclass(slots=True)
class Worker:
    """One solver process, started when first asked and again after a death. `spent`: seconds of processor time of its answers."""

    seed: int = 0
    seconds: float = LONGEST
    process: subprocess.Popen[bytes] | None = None
    spent: float = 0.0
    _rest: bytes = b""

    def ask(self, query: str, steps: int, wanted: Sequence[str] = ()) -> Answer:
        """The answer to one query."""
        task = {"query": query, "steps": steps, "seconds": self.seconds, "seed": self.seed, "ask": list(wanted)}
        self._started()
        try:
            found = json.loads(self._line(self.seconds + GRACE, json.dumps(task).encode() + b"\n"))
        except (BrokenPipeError, EOFError):
            self.close()
            return Answer("unknown", {}, "the solver's process died")
        except TimeoutError:
            self.close()
            return Answer("unknown", {}, "killed after its time")
        except ValueError:
            self.close()
            return Answer("unknown", {}, "the solver's process gave no answer but other text")
        self.spent += found["spent"]
        model = {name: Fraction(v) if isinstance(v, str) else v for name, v in found["model"].items()}
        return Answer(found["result"], model, found["reason"], found["steps"])

    def _started(self) -> None:
        if self.process is None:
            if find_spec("z3") is None:
                raise NoSolver(f"the prover needs Z3: {how_to_install('prove')}")
            command = [sys.executable, "-P", "-m", "uops.compiler.prove.solver.worker"]
            path = os.pathsep.join(p for p in sys.path if p)
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
            )
            self._rest = b""
            try:
                self._line(_START)
            except (EOFError, TimeoutError) as e:
                self.close()
                raise NoSolver(f"the solver's process does not start: {type(e).__name__}") from e

    def _line(self, seconds: float, said: bytes = b"") -> bytes:
        """One line of the worker, once it has taken what is `said`, within some seconds for both: it may neither read nor answer,
        or write without an end. Raises TimeoutError, EOFError or BrokenPipeError."""
        assert self.process is not None and self.process.stdout is not None and self.process.stdin is not None
        out, into = self.process.stdout.fileno(), self.process.stdin.fileno()
        os.set_blocking(into, False)
        end = time.monotonic() + seconds
        while said or b"\n" not in self._rest:
            ready, takes, _ = select.select([out], [into] if said else [], [], max(0.0, end - time.monotonic()))
            if (not ready and not takes) or time.monotonic() > end:
                raise TimeoutError
            if takes:
                said = said[os.write(into, said[:_PIECE]) :]
            if ready:
                data = os.read(out, _PIECE)
                if not data:
                    raise EOFError
                self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):  # of what it was still to be told
                        stream.close()
            self.process = None


@dataclass(slots=True)
class Pool(Generic[T, R]):
    """`work(worker, item)` for many items on `jobs` workers."""

    work: Callable[[Worker, T], R]
    jobs: int = 1
    seed: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def each(self, items: Iterable[T]) -> Iterator[R]:
        """Results in the order of their ends; the first error of a worker is raised here."""
        todo: queue.SimpleQueue[T] = queue.SimpleQueue()
        count = 0
        for item in items:
            todo.put(item)
            count += 1
        done: queue.SimpleQueue[R | BaseException] = queue.SimpleQueue()
        threads = [threading.Thread(target=self._run, args=(todo, done), daemon=True) for _ in range(min(self.jobs, count))]
        for t in threads:
            t.start()
        try:
            for _ in range(count):
                result = done.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            self._stop.set()
            for t in threads:
                t.join()

    def _run(self, todo: queue.SimpleQueue[T], done: queue.SimpleQueue[R | BaseException]) -> None:
        worker = Worker(self.seed)
        try:
            while not self._stop.is_set():
                try:
                    item = todo.get_nowait()
                except queue.Empty:
                    return
                done.put(self.work(worker, item))
        except BaseException as e:
            done.put(e)
        finally:
            worker.close()
