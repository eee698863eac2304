"""The exhaustive tier: every input where inputs can be enumerated, a million points where they cannot.

- all 2^32 float32 inputs of Exp2, Log2, Sin, Sqrt, Recip, Trunc and of Cast to every dtype;
- all 2^16 inputs of every unary op and Cast of the 16-bit dtypes are cells of the full tier already;
- float64 Exp2, Log2, Sin, Sqrt, and Pow of float32 and float64, on 10^6 points each against mpmath (extra `exhaustive`).

The references are independent of both interpreters: NumPy's float64 functions, whose error is 2^-29 of a float32 ulp, integer
rounding written here, and mpmath. Chunks run on a backend in processes of their own, `jobs` at a time, or on the workers of a
cluster. Each chunk's verdict goes to the journal `progress.jsonl` in the report directory, from which an interrupted run resumes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends import registry
from uops.backends.arrays import STORAGE
from uops.backends.conformance.judge import format_value_with_bits
from uops.backends.conformance.references import (
    F32_REFERENCES,
    F64_REFERENCES,
    ReferenceFunction,
    draw_random_and_hard_operands_of_chunk,
)
from uops.backends.contract import Backend
from uops.backends.testing.cluster import Cluster
from uops.backends.testing.journal import Journal, digest_sources
from uops.backends.worker.client import query_info_isolating_foreign_backend
from uops.backends.worker.frames import BadFrame, parse_header_and_escape_texts
from uops.backends.worker.serve import tie_to_parent_and_raise_oom_score
from uops.compiler.config import Config
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

Array = npt.NDArray[Any]
#: Logarithm of the number of float32 inputs per chunk.
CHUNK_BITS = 22
#: Number of points per function, and per chunk, where inputs cannot be enumerated.
POINTS = 1_000_000
POINT_CHUNK = 25_000
#: Number of elements judged at a time, which stay in cache.
_BLOCK = 1 << 15
#: Time limit for one chunk, in seconds.
TIMEOUT = 300.0
#: Name of the journal in the report directory.
LOG = "progress.jsonl"
#: Largest size of an encoded tally, in bytes.
MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class ExhaustiveChunk:
    """One chunk of a function: `name` is a key of the references, such as `exp2/float32` or `cast/float32/int8`."""

    name: str
    chunk: int


@dataclass(slots=True)
class Tally:
    """The counts of one function over the inputs judged so far; errors are in ulp, the spacing at the correctly rounded result."""

    name: str
    inputs: int = 0
    wrong: int = 0
    inexact: int = 0  # accepted, but not the correctly rounded result
    max_ulp: float = 0.0
    worst: str = ""
    examples: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the counts of another tally of the same function."""
        self.inputs += other.inputs
        self.wrong += other.wrong
        self.inexact += other.inexact
        if other.max_ulp > self.max_ulp:
            self.max_ulp, self.worst = other.max_ulp, other.worst
        self.examples = (self.examples + other.examples)[:5]


def list_chunks(functions: tuple[str, ...]) -> list[ExhaustiveChunk]:
    """Return every chunk of every function."""
    chunks = []
    for name in functions:
        n = POINTS // POINT_CHUNK if name in F64_REFERENCES else 1 << (32 - CHUNK_BITS)
        chunks += [ExhaustiveChunk(name, k) for k in range(n)]
    return chunks


def function_names() -> tuple[str, ...]:
    """Return the name of every function of the tier."""
    return (*F64_REFERENCES, *F32_REFERENCES)


def run_or_resume_exhaustive_tier(
    backend: str,
    jobs: int,
    progress: Callable[[int, int], None] | None,
    report_dir: Path,
    only_functions: tuple[str, ...] | None = None,
    cluster: str | None = None,
) -> dict[str, Tally]:
    """Run, or resume, the tier, and return the tallies by function. `progress(done, total)` counts chunks.

    With the address of a scheduler in `cluster`, its workers judge, and `jobs` is ignored. Raises JournalMismatch if the journal in
    the directory belongs to another backend, version, setting or state of the sources, JournalInUse, BadJournal, and NoCluster.
    """
    header = _make_journal_header(backend)
    with closing(Journal(report_dir / LOG, {"exhaustive": header})) as journal:
        tallies, done = _read_finished_chunks(journal)
        functions = function_names() if only_functions is None else only_functions
        wanted = list_chunks(functions)
        todo = [j for j in wanted if j not in done]
        tallies = {k: v for k, v in tallies.items() if k in functions}
        with _judge_here_or_on_cluster(backend, jobs, cluster, header) as answers_of:
            for k, (job, tally) in enumerate(answers_of(todo), len(wanted) - len(todo) + 1):
                tallies.setdefault(job.name, Tally(job.name)).add(tally)
                journal.add({"chunk": {"chunk": job.chunk, **asdict(tally)}})
                if progress:
                    progress(k, len(wanted))
    return tallies


_Answers = Callable[[list[ExhaustiveChunk]], Iterator[tuple[ExhaustiveChunk, Tally]]]


@contextmanager
def _judge_here_or_on_cluster(backend: str, jobs: int, address: str | None, header: dict[str, Any]) -> Iterator[_Answers]:
    """Give the function that judges chunks, in their order. Raises NoCluster."""
    if address is None:
        with ThreadPoolExecutor(jobs) as threads, _ChunkJudges(backend) as judges:
            yield lambda todo: threads.map(judges.judge_chunk_in_process, todo)
        return
    cluster = Cluster(address)
    try:
        cluster.require_same_on_workers(_make_journal_header, backend, here=header)

        def judge(job: ExhaustiveChunk) -> tuple[ExhaustiveChunk, Tally]:
            return job, Tally(**cluster.call(judge_chunk_on_worker, backend, job.name, job.chunk))

        with ThreadPoolExecutor(cluster.thread_count) as threads:
            try:
                yield lambda todo: threads.map(judge, todo)
            except BaseException:
                cluster.stop()
                raise
    finally:
        cluster.close()


class _JudgeProcess:
    """A process that runs the backend and judges its results, and the pipe to it."""

    def __init__(self, backend: str, path: list[str]) -> None:
        self.pipe, child_end = multiprocessing.Pipe()
        life_of_child, self._life = os.pipe()  # closed when this process ends, which ends the child
        arguments = [json.dumps([backend, [*sys.path, *path]]), str(child_end.fileno()), str(life_of_child)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, *arguments], pass_fds=(child_end.fileno(), life_of_child), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        child_end.close()
        os.close(life_of_child)

    def end(self) -> None:
        """Kill the process, if it still runs, and close the pipes."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        os.close(self._life)


#: The command of a judge's process. It gets the parent's import path, as the backend may be a module of the caller's.
_SERVE = """
import json, sys
backend, path = json.loads(sys.argv[1])
sys.path[:] = path
from uops.backends.conformance.exhaustive import serve_chunks
serve_chunks(backend, int(sys.argv[2]), int(sys.argv[3]))
"""


class _ChunkJudges:
    """One process per thread that runs the backend and judges its results: only tallies cross processes, not arrays.

    A process that dies or does not answer in time fails its chunk, and the next chunk gets a new one.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._path = [os.getcwd()] if ":" in backend else []
        self._mine = threading.local()
        self._all: list[_JudgeProcess] = []

    def __enter__(self) -> _ChunkJudges:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._all:
            process.end()

    def judge_chunk_in_process(self, job: ExhaustiveChunk) -> tuple[ExhaustiveChunk, Tally]:
        """Judge a chunk in this thread's process."""
        if not hasattr(self._mine, "judge"):
            self._mine.judge = _JudgeProcess(self._backend, self._path)
            self._all.append(self._mine.judge)
        judge: _JudgeProcess = self._mine.judge
        try:
            judge.pipe.send([job.name, job.chunk])
            if judge.pipe.poll(TIMEOUT):
                return job, _parse_tally_of_chunk(job, judge.pipe.recv_bytes(MOST))
            ended = f"no answer within {TIMEOUT} s"
        except BadFrame as e:
            ended = str(e)
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                judge.process.wait(5)
            ended = f"the process ended with status {judge.process.poll()}"
        del self._mine.judge
        self._all.remove(judge)
        judge.end()
        n = POINT_CHUNK if job.name in F64_REFERENCES else 1 << CHUNK_BITS
        return job, Tally(job.name, inputs=n, wrong=n, examples=[ended])


#: The judges of the threads of a cluster's worker, by backend.
_judges_on_worker: dict[str, _ChunkJudges] = {}


def judge_chunk_on_worker(backend: str, function_name: str, chunk: int) -> dict[str, Any]:
    """Judge a chunk on a worker of a cluster, in the process that belongs to this thread; return the fields of the tally."""
    judges = _judges_on_worker.setdefault(backend, _ChunkJudges(backend))
    return asdict(judges.judge_chunk_in_process(ExhaustiveChunk(function_name, chunk))[1])


def _parse_tally_of_chunk(job: ExhaustiveChunk, text: bytes) -> Tally:
    """Read the tally of a chunk from another process. Raises BadFrame for anything else."""
    tally = parse_header_and_escape_texts(text)
    types = {f.name: type(getattr(Tally(job.name), f.name)) for f in fields(Tally)}
    if {k: type(v) for k, v in tally.items()} != types or not all(isinstance(e, str) for e in tally["examples"]):
        raise BadFrame(f"its answer is not a tally: {tally!r:.200}")
    return Tally(**tally)


def serve_chunks(backend: str, pipe_fd: int, life_fd: int) -> None:
    """Serve as a judge's process: return a Tally for every chunk received, until the parent closes its ends."""
    tie_to_parent_and_raise_oom_score(life_fd)
    instance, pipe = registry.create_backend(backend), Connection(pipe_fd)
    while True:
        try:
            name, chunk = pipe.recv()
        except EOFError:
            return
        pipe.send_bytes(json.dumps(asdict(_run_and_judge_chunk(instance, ExhaustiveChunk(name, chunk)))).encode())


def _make_journal_header(backend: str) -> dict[str, Any]:
    """Return everything but the functions that decides the tallies of a run."""
    return {
        "backend": backend,
        "version": query_info_isolating_foreign_backend(backend).version,
        "chunk_bits": CHUNK_BITS,
        "points": POINT_CHUNK,
        "settings": asdict(Config.from_environment(os.environ)),
        "sources": digest_sources(),
    }


def _read_finished_chunks(journal: Journal) -> tuple[dict[str, Tally], set[ExhaustiveChunk]]:
    """Return the tallies and chunks that an earlier run of the same backend finished."""
    tallies: dict[str, Tally] = {}
    done: set[ExhaustiveChunk] = set()
    with journal.refuse_malformed_lines():
        for entry in journal.entries_under("chunk"):
            job = ExhaustiveChunk(entry["name"], entry.pop("chunk"))
            if job not in done:
                done.add(job)
                tallies.setdefault(job.name, Tally(job.name)).add(Tally(**entry))
    return tallies, done


def _run_and_judge_chunk(backend: Backend, job: ExhaustiveChunk) -> Tally:
    reference = (F32_REFERENCES | F64_REFERENCES)[job.name]
    operands = tuple(_generate_one_array_per_operand(job, reference))
    tally = Tally(job.name, inputs=len(operands[0]))
    try:
        result = backend.run(_make_function_graph(reference, len(operands[0])), {f"p{k}": v for k, v in enumerate(operands)})
        wrong = _describe_wrong_form(reference, len(operands[0]), result)
    except Exception as e:  # any exception of a backend is a failure of its chunk
        wrong = f"{type(e).__name__}: {e}"
    if wrong:
        tally.wrong = tally.inputs
        tally.examples.append(wrong[:500])
        return tally
    _tally_result_in_blocks(tally, reference, operands, np.asarray(result.values[0]))
    return tally


def _describe_wrong_form(reference: ReferenceFunction, n: int, result: Result) -> str | None:
    """Describe a result that is not one array of `n` elements of the reference's dtype; None if it is."""
    got = [(a.dtype, a.shape) for a in map(np.asarray, result.values)]
    if got == [(STORAGE[reference.result], (n,))]:
        return None
    values = ", ".join(f"{dtype} of shape {shape}" for dtype, shape in got) or "no value"
    return f"expected {STORAGE[reference.result]} of shape {(n,)}, got {values}"


def _generate_one_array_per_operand(job: ExhaustiveChunk, reference: ReferenceFunction) -> Iterator[Array]:
    if job.name in F64_REFERENCES:
        yield from draw_random_and_hard_operands_of_chunk(job.name, reference, job.chunk, POINT_CHUNK)
        return
    start = job.chunk << CHUNK_BITS
    yield (np.arange(1 << CHUNK_BITS, dtype=np.uint32) + np.uint32(start)).view(np.float32)


def _make_function_graph(reference: ReferenceFunction, n: int) -> UOp:
    params = [b.param(k, (n,), d) for k, d in enumerate(reference.operands)]
    return b.cast(params[0], reference.result) if reference.op is Op.CAST else UOp(reference.op, tuple(params))


def _tally_result_in_blocks(tally: Tally, reference: ReferenceFunction, operands: tuple[Array, ...], got: Array) -> None:
    """Count the elements outside the reference's bound, in blocks that stay in cache."""
    for start in range(0, len(got), _BLOCK):
        block = slice(start, start + _BLOCK)
        with np.errstate(all="ignore"):
            is_correct, error = reference.judge(tuple(o[block] for o in operands), got[block])
        if not is_correct.all() or error.any():
            _tally_wrong_and_inexact_of_block(tally, reference, tuple(o[block] for o in operands), got[block], is_correct, error)


def _tally_wrong_and_inexact_of_block(
    tally: Tally, reference: ReferenceFunction, operands: tuple[Array, ...], got: Array, is_correctly_rounded: Array, error: Array
) -> None:
    accepted = error <= reference.ulp
    tally.wrong += int(np.count_nonzero(~accepted))
    tally.inexact += int(np.count_nonzero(accepted & ~is_correctly_rounded))
    finite = np.where(np.isfinite(error), error, 0.0)
    k = int(np.argmax(finite))
    if finite[k] > tally.max_ulp:
        tally.max_ulp = float(finite[k])
        tally.worst = ", ".join(format_value_with_bits(o[k]) for o in operands)
    for k in np.flatnonzero(~accepted)[: max(0, 3 - len(tally.examples))]:
        given = ", ".join(format_value_with_bits(o[k]) for o in operands)
        tally.examples.append(f"f({given}) gave {format_value_with_bits(got[k])}, error {error[k]} ulp")


def render_ulp_table(tallies: dict[str, Tally]) -> str:
    """Render the ULP table as Markdown."""
    lines = ["| function | inputs | wrong | not correctly rounded | largest error, ulp | at |", "|---|---|---|---|---|---|"]
    for tally in tallies.values():
        worst = tally.worst if tally.max_ulp else ""
        lines.append(f"| {tally.name} | {tally.inputs:,} | {tally.wrong:,} | {tally.inexact:,} | {tally.max_ulp:.3f} | {worst} |")
    return "\n".join(lines) + "\n"
