"""The exhaustive tier: every input where inputs can be listed, a million points where they cannot.

- all 2^32 float32 inputs of Exp2, Log2, Sin, Sqrt, Recip, Trunc and of Cast to every dtype;
- all 2^16 inputs of every unary op and Cast of the 16-bit dtypes are cells of the full tier already;
- float64 Exp2, Log2, Sin, Sqrt, and Pow of float32 and float64, on 10^6 points each against mpmath (extra `exhaustive`).

The references are a third opinion: NumPy's float64 functions (their error is 2^-29 of a float32 ulp), integer rounding written
here, and mpmath; neither interpreter takes part. Chunks run on a backend in processes of their own, as many at a time as `jobs`;
each chunk's verdict is added to the journal `progress.jsonl` in the report directory, so that an interrupted run resumes where it
stopped.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends import registry
from uops.backends.conformance.references import F32_REFERENCES, F64_REFERENCES, Reference, points
from uops.backends.contract import Backend
from uops.backends.testing.journal import Journal
from uops.backends.worker.client import introduction
from uops.backends.worker.frames import BadFrame, header_of
from uops.backends.worker.serve import begin
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Array = npt.NDArray[Any]
CHUNK_BITS = 22
POINTS = 1_000_000
POINT_CHUNK = 25_000
_BLOCK = 1 << 15
TIMEOUT = 300.0
#: The journal, in the report directory.
LOG = "progress.jsonl"
#: Bytes of a tally, at most.
MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """`chunk` of one function: `name` is a key of the references, such as `exp2/float32` or `cast/float32/int8`."""

    name: str
    chunk: int


@dataclass(slots=True)
class Tally:
    """What one function did over the inputs seen so far; errors are in ulp, the spacing at the correctly rounded result."""

    name: str
    inputs: int = 0
    wrong: int = 0
    inexact: int = 0  # accepted, but not the correctly rounded result
    max_ulp: float = 0.0
    worst: str = ""
    examples: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.wrong += other.wrong
        self.inexact += other.inexact
        if other.max_ulp > self.max_ulp:
            self.max_ulp, self.worst = other.max_ulp, other.worst
        self.examples = (self.examples + other.examples)[:5]


def jobs_of(names: tuple[str, ...]) -> list[Job]:
    """Every chunk of every function, small ones first."""
    found = []
    for name in names:
        n = POINTS // POINT_CHUNK if name in F64_REFERENCES else 1 << (32 - CHUNK_BITS)
        found += [Job(name, k) for k in range(n)]
    return found


def names() -> tuple[str, ...]:
    """Every function of the tier."""
    return (*F64_REFERENCES, *F32_REFERENCES)


def run(
    backend: str, jobs: int, progress: Callable[[int, int], None] | None, report_dir: Path, only: tuple[str, ...] | None = None
) -> dict[str, Tally]:
    """Run, or resume, the tier; the tallies by function. `progress(done, total)` counts chunks. Raises OtherCampaign where the
    journal in the directory is of another backend or version, InUse, and NoJournal."""
    with closing(Journal(report_dir / LOG, {"exhaustive": _header(backend)})) as journal:
        tallies, done = _resume(journal)
        todo = [j for j in jobs_of(only or names()) if j not in done]
        total = len(todo) + len(done)
        tallies = {k: v for k, v in tallies.items() if only is None or k in only}
        with ThreadPoolExecutor(jobs) as threads, _Judges(backend) as judges:
            for k, (job, tally) in enumerate(threads.map(judges.judge, todo), len(done) + 1):
                tallies.setdefault(job.name, Tally(job.name)).add(tally)
                journal.add({"chunk": {"chunk": job.chunk, **asdict(tally)}})
                if progress:
                    progress(k, total)
    return tallies


class _Judges:
    """One process per thread that runs the backend and judges what it gave: only tallies cross, not arrays.

    A process that dies or does not answer in time fails its chunk, and the next chunk gets a new one.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._path = [os.getcwd()] if ":" in backend else []
        self._mine = threading.local()
        self._all: list[tuple[BaseProcess, Connection]] = []

    def __enter__(self) -> _Judges:
        return self

    def __exit__(self, *exception: object) -> None:
        for process, _ in self._all:
            process.kill()

    def judge(self, job: Job) -> tuple[Job, Tally]:
        process, pipe = self._process()
        try:
            pipe.send(job)
            if pipe.poll(TIMEOUT):
                return job, _read_tally(job, pipe.recv_bytes(MOST))
            ended = f"no answer within {TIMEOUT} s"
        except BadFrame as e:
            ended = str(e)
        except (EOFError, OSError):
            process.join(5)
            ended = f"the process ended with status {process.exitcode}"
        process.kill()
        del self._mine.process
        n = POINT_CHUNK if job.name in F64_REFERENCES else 1 << CHUNK_BITS
        return job, Tally(job.name, inputs=n, wrong=n, examples=[ended])

    def _process(self) -> tuple[BaseProcess, Connection]:
        if not hasattr(self._mine, "process"):
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(self._backend, self._path, theirs), daemon=True)
            process.start()
            theirs.close()
            self._mine.process = process, ours
            self._all.append(self._mine.process)
        found: tuple[BaseProcess, Connection] = self._mine.process
        return found


def _read_tally(job: Job, text: bytes) -> Tally:
    """Read the Tally that a process gives of a chunk. Raises BadFrame for anything else."""
    found = header_of(text)
    kinds = {f.name: type(getattr(Tally(job.name), f.name)) for f in fields(Tally)}
    if {k: type(v) for k, v in found.items()} != kinds or not all(isinstance(e, str) for e in found["examples"]):
        raise BadFrame(f"its answer is no tally: {found!r:.200}")
    return Tally(**found)


def _serve(backend: str, path: list[str], pipe: Connection) -> None:
    """A judge's process: a Tally for every Job that comes."""
    nowhere = os.open(os.devnull, os.O_RDWR)  # what foreign code prints is no part of ours
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.setsid()  # a signal to its group, or from the terminal, reaches one side alone
    parent = multiprocessing.parent_process()
    assert parent is not None
    begin(parent.sentinel)
    sys.path.extend(path)
    instance = registry.get(backend)
    while True:
        try:
            pipe.send_bytes(json.dumps(asdict(_chunk(instance, pipe.recv()))).encode())
        except EOFError:
            return


def _header(backend: str) -> dict[str, object]:
    """What a log's tallies are tallies of."""
    return {"backend": backend, "version": introduction(backend).version, "chunk_bits": CHUNK_BITS, "points": POINT_CHUNK}


def _resume(journal: Journal) -> tuple[dict[str, Tally], set[Job]]:
    """What an earlier run of the same backend had finished."""
    tallies: dict[str, Tally] = {}
    done: set[Job] = set()
    with journal.refuse_other_forms():
        for entry in journal.of("chunk"):
            job = Job(entry["name"], entry.pop("chunk"))
            if job not in done:
                done.add(job)
                tallies.setdefault(job.name, Tally(job.name)).add(Tally(**entry))
    return tallies, done


def _chunk(backend: Backend, job: Job) -> Tally:
    reference = (F32_REFERENCES | F64_REFERENCES)[job.name]
    operands = tuple(_operands(job, reference))
    tally = Tally(job.name, inputs=len(operands[0]))
    try:
        result = backend.run(_graph(reference, len(operands[0])), {f"p{k}": v for k, v in enumerate(operands)})
    except Exception as e:  # whatever a stranger's backend raises is a verdict on it
        tally.wrong = tally.inputs
        tally.examples.append(f"{type(e).__name__}: {e}"[:500])
        return tally
    _judge(tally, reference, operands, np.asarray(result.values[0]))
    return tally


def _operands(job: Job, reference: Reference) -> Iterator[Array]:
    if job.name in F64_REFERENCES:
        yield from points(job.name, reference, job.chunk, POINT_CHUNK)
        return
    start = job.chunk << CHUNK_BITS
    yield (np.arange(1 << CHUNK_BITS, dtype=np.uint32) + np.uint32(start)).view(np.float32)


def _graph(reference: Reference, n: int) -> UOp:
    params = [b.param(k, (n,), d) for k, d in enumerate(reference.operands)]
    return b.cast(params[0], reference.result) if reference.op is Op.CAST else UOp(reference.op, tuple(params))


def _judge(tally: Tally, reference: Reference, operands: tuple[Array, ...], got: Array) -> None:
    """Count what is outside the reference's bound, in blocks that stay in cache."""
    for start in range(0, len(got), _BLOCK):
        block = slice(start, start + _BLOCK)
        with np.errstate(all="ignore"):
            right, error = reference.judge(tuple(o[block] for o in operands), got[block])
        if not right.all() or error.any():
            _count(tally, reference, tuple(o[block] for o in operands), got[block], right, error)


def _count(tally: Tally, reference: Reference, operands: tuple[Array, ...], got: Array, right: Array, error: Array) -> None:
    accepted = error <= reference.ulp
    tally.wrong += int(np.count_nonzero(~accepted))
    tally.inexact += int(np.count_nonzero(accepted & ~right))
    finite = np.where(np.isfinite(error), error, 0.0)
    k = int(np.argmax(finite))
    if finite[k] > tally.max_ulp:
        tally.max_ulp = float(finite[k])
        tally.worst = ", ".join(_spell(o[k]) for o in operands)
    for k in np.flatnonzero(~accepted)[: max(0, 3 - len(tally.examples))]:
        given = ", ".join(_spell(o[k]) for o in operands)
        tally.examples.append(f"f({given}) gave {_spell(got[k])}, error {error[k]} ulp")


def _spell(x: Any) -> str:
    a = np.asarray(x)
    return f"{a.item()!r} (0x{int.from_bytes(a.tobytes(), 'little'):0{2 * a.dtype.itemsize}x})"


def table(tallies: dict[str, Tally]) -> str:
    """The ULP table as Markdown."""
    lines = ["| function | inputs | wrong | not correctly rounded | largest error, ulp | at |", "|---|---|---|---|---|---|"]
    for t in tallies.values():
        worst = t.worst if t.max_ulp else ""
        lines.append(f"| {t.name} | {t.inputs:,} | {t.wrong:,} | {t.inexact:,} | {t.max_ulp:.3f} | {worst} |")
    return "\n".join(lines) + "\n"
