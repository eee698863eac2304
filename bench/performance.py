"""The workloads beside the peers, in one run, as a table.

    python bench/performance.py [NAME...] [--peers P,...] [--python PYTHON] [--threads N] [--rounds R] [--seconds S]
                                [--odd N] [--gradients] [--seed S] [--json FILE]

Every peer runs in a process of its own, with `--threads` threads, and gets the same seeded arrays. Blocks of `--seconds` rotate
among the peers, `--rounds` times, so that a slow minute of the machine affects all of them. A figure is the best block's median;
the ratio is the best peer's time over ours (above 1: faster than every peer). Results are first compared with NumPy's in float64,
and a wrong one has no figure. `--python` runs the peers (an environment with the extra `bench`); a peer that cannot be imported is
listed as absent. `--odd N` measures N seeded shapes that are in no list: primes, transposed and strided operands.

`--gradients` measures each workload together with the gradients of its operands, for a random cotangent. A row's figure counts the
operations of the result alone. The reference is then ours in float64, with which torch and JAX must agree, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from workloads import WORKLOADS, Workload, WorkloadInstance, relative_error

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "peers"))

from protocol import LAYOUTS, to_float64, to_layout, write_operands  # noqa: E402, the folder of the peers is no package
from uops_peer import prepare_gradient  # noqa: E402

PEERS = ("numpy", "torch", "jax", "ort", "tinygrad")
OURS = "uops"
#: Least ratio to the best peer, and the same for odd shapes.
BAR, ODD_BAR = 0.8, 0.5
#: Error of a float result that every peer may have, and greatest error of a gradient, as a share of the greatest element.
FLOAT_TOLERANCE = 1e-4
#: Workloads that are measured with their gradients if none is named.
WITH_GRADIENTS = ("gemm-512", "gemm-1024", "conv2d", "softmax", "layernorm", "attention", "encoder", "resnet18")


@dataclass(frozen=True)
class BenchCase:
    """A workload at given sizes, its operands in a memory layout."""

    name: str
    sizes: tuple[int, ...]
    layout: str = "plain"
    seed: int = 0
    has_gradients: bool = False

    @property
    def workload(self) -> Workload:
        """The workload of that name."""
        return WORKLOADS[self.name]

    def __str__(self) -> str:
        standard = self.sizes == self.workload.full
        name = f"{self.name} and gradients" if self.has_gradients else self.name
        return name if standard else f"{name} {'x'.join(map(str, self.sizes))} {self.layout}"


@dataclass
class Row:
    """The results of one case: seconds by peer, and the reason why a peer has none."""

    case: str
    name: str
    unit: str
    work: float
    times: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str | None:
        """The fastest peer, or None."""
        others = {p: t for p, t in self.times.items() if p != OURS}
        return min(others, key=lambda p: others[p]) if others else None

    @property
    def ratio(self) -> float | None:
        """The best peer's time over ours."""
        return self.times[self.best] / self.times[OURS] if self.best and OURS in self.times else None


class PeerProcess:
    """One peer in a process of its own."""

    def __init__(self, name: str, python: str, threads: int, folder: Path) -> None:
        self.name, self.folder = name, folder
        folder.mkdir()
        environment = {
            **os.environ,
            **dict.fromkeys(
                ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "UOPS_THREADS", "BENCH_THREADS"), str(threads)
            ),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")))),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()}",
        }
        cores = sorted(os.sched_getaffinity(0))[:threads]
        self.process = subprocess.Popen(
            [python, str(HERE / "peers" / f"{name}_peer.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("w"),
            text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request; an error if the process has died."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            last = (self.folder / "stderr").read_text().strip().splitlines()[-1:]
            return {"error": last[0] if last else "the process ended"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def prepare_and_check(self, case: BenchCase, arrays: Sequence[Any], expected: Expected) -> str | None:
        """Prepare a case and return what is wrong with its result, or None."""
        write_operands(self.folder, list(arrays))
        request = {"name": case.name, "folder": str(self.folder), "layout": case.layout, "targets": expected.targets}
        answer = self.ask(do="prepare", **request)
        if "error" in answer:
            return str(answer["error"])
        result = np.load(self.folder / "result.npy")
        if result.shape != expected.reference.shape:
            return f"shape {result.shape} instead of {expected.reference.shape}"
        error = relative_error(result, expected.reference, expected.scale)
        return None if error <= expected.limit else f"wrong by {error:.1e}"

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Expected:
    """What the result of a case must be: its reference, the unit of errors, the greatest error, and whose gradients it has."""

    reference: Any
    scale: Any
    limit: float
    targets: list[int] = field(default_factory=list)


def expect_result(case: BenchCase, built: WorkloadInstance) -> Expected:
    """Return what NumPy computes for a case, in float64."""
    reference, limit = np.asarray(built.reference()), case.workload.tolerance
    if limit and built.magnitude is None:
        limit = max(limit, FLOAT_TOLERANCE)
    return Expected(reference, built.scale(reference), limit)


def expect_gradients(case: BenchCase, built: WorkloadInstance, arrays: Sequence[Any]) -> Expected:
    """Return what we compute in float64 for a case and its gradients, in one dimension. The last array is the cotangent."""
    wide = [a if a.dtype.kind in "iu" else a.astype(np.float64) for a in arrays]
    values = [np.asarray(v) for v in prepare_gradient(case.name, wide, built.targets)()]
    scale = np.concatenate([np.full(v.size, np.abs(v).max()) for v in values])
    return Expected(to_float64(values), scale, FLOAT_TOLERANCE, built.targets)


def measure_case(case: BenchCase, peers: Sequence[PeerProcess], rounds: int, seconds: float) -> Row:
    """Return one row: every peer is prepared and checked, then timed in rotating blocks."""
    built = case.workload.make(case.sizes, np.random.default_rng(case.seed))
    arrays = [to_layout(t.numpy(), case.layout) for t in built.inputs]
    if case.has_gradients:
        arrays.append(np.random.default_rng(case.seed + 1).standard_normal(built.output.shape, np.float32))
        expected = expect_gradients(case, built, arrays)
    else:
        expected = expect_result(case, built)
    row = Row(str(case), case.name, case.workload.unit, case.workload.work(case.sizes))
    ready = []
    for p in peers:
        wrong = p.prepare_and_check(case, arrays, expected)
        if wrong is None:
            ready.append(p)
        else:
            row.absent[p.name] = wrong
    blocks: dict[str, list[float]] = {p.name: [] for p in ready}
    for _ in range(rounds):
        for p in ready:
            blocks[p.name].append(statistics.median(p.ask(do="run", seconds=seconds)["times"]))
    row.times = {name: min(medians) for name, medians in blocks.items()}
    return row


def generate_odd_cases(n: int, seed: int) -> Iterator[BenchCase]:
    """Yield seeded shapes and layouts: every kernel in turn, with prime extents up to those of its row."""
    rng = np.random.default_rng(seed)
    names = [w for w in WORKLOADS if w not in ("encoder", "resnet18", "gemm-2048", "gemm-bf16")]
    for k in range(n):
        name = names[k % len(names)]
        full = WORKLOADS[name].full
        sizes = tuple(1 if d == 1 else _largest_prime(int(d * rng.uniform(0.4, 1.0))) for d in full)
        plain = name in ("conv2d", "gather")
        yield BenchCase(name, sizes, "plain" if plain else LAYOUTS[int(rng.integers(len(LAYOUTS)))], seed + k)


def _largest_prime(n: int) -> int:
    """Return the largest prime up to n, 2 at least."""
    return next((p for p in range(n, 2, -1) if all(p % d for d in range(2, int(p**0.5) + 1))), 2)


def describe_machine() -> str:
    """Return one line about this machine."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), platform.processor())
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def build_table(rows: Sequence[Row], names: Sequence[str]) -> Table:
    """Return the table of the rows."""
    rendered = Table(box=box.MARKDOWN)
    for heading in ("workload", "unit", *names, "best peer", "ratio"):
        rendered.add_column(heading, justify="left" if heading in ("workload", "unit") else "right")
    for r in rows:
        cells = [f"{r.work / r.times[p] / 1e9:.1f}" if p in r.times else "-" for p in names]
        rendered.add_row(r.case, r.unit, *cells, r.best or "-", "-" if r.ratio is None else f"{r.ratio:.2f}")
    return rendered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"workloads, all by default: {', '.join(WORKLOADS)}")
    parser.add_argument("--peers", default=",".join(PEERS), help="peers by name")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--odd", type=int, default=0, metavar="N")
    parser.add_argument("--gradients", action="store_true", help=f"with gradients; by default of {', '.join(WITH_GRADIENTS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    o = parser.parse_args()
    if unknown := [n for n in o.names if n not in WORKLOADS]:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    names = [p for p in o.peers.split(",") if p and p != OURS]
    default = [] if o.odd else WITH_GRADIENTS if o.gradients else WORKLOADS
    cases = [BenchCase(n, WORKLOADS[n].full, has_gradients=o.gradients) for n in o.names or default]
    cases += generate_odd_cases(o.odd, o.seed)
    rows: list[Row] = []
    console = Console(width=160)
    with ExitStack() as stack, Progress(console=Console(stderr=True)) as progress:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peers = [PeerProcess(p, o.python if p != OURS else sys.executable, o.threads, folder / p) for p in (OURS, *names)]
        for p in peers:
            stack.callback(p.close)
        versions = {p.name: p.ask(do="version").get("version", "absent") for p in peers}
        for case in progress.track(cases, description="workloads"):
            rows.append(measure_case(case, peers, o.rounds, o.seconds))
    console.print(
        f"{o.threads} thread(s); {describe_machine()}; " + ", ".join(f"{p} {v}" for p, v in versions.items()), soft_wrap=True
    )
    console.print(build_table(rows, (OURS, *names)), "")
    for r in rows:
        for p, why in r.absent.items():
            console.print(f"- {r.case}, {p}: {why}", soft_wrap=True)
    if o.json:
        about = {"machine": describe_machine(), "versions": versions, "threads": o.threads, "seed": o.seed}
        o.json.write_text(
            json.dumps({**about, "rows": [{**asdict(r), "best": r.best, "ratio": r.ratio} for r in rows]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
