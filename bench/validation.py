"""What validating kernels takes, and what decides their obligations.

    python bench/validation.py [--backend NAME]... [--programs GLOB] [--jobs N] [--journal FILE] [--json FILE]
    python bench/validation.py --certificates [--backend NAME]... [--programs GLOB]

For each backend: every distinct kernel of the conformance suite (tier full), of the workloads in their full sizes and of the
examples, with the schedules that heuristics choose. A row has the programs, those that the target refuses, the kernels, the
obligations by what decided them, those that nothing decided, and milliseconds per kernel: the median, the 95th percentile and the
greatest, of processor time, the solver's included; and the seconds of all. Kernels are the same where their bodies before and
after are: each counts once, with the longest that it took, as a process does not validate a kernel twice.

A journal holds what was found per program, so that a run goes on where it was stopped; what a changed compiler makes of a program
is another journal's. With `--certificates`, of some workloads: how many claims their certificates have, seconds of processor time
to make one and to check it, and its size. Status 1 where an obligation is refuted or not decided, or a program fails.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import resource
import runpy
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from workloads import WORKLOADS, build

import uops.compiler.validate as validation
from uops.backends.conformance.cases import cases
from uops.backends.conformance.model import Tier
from uops.backends.registry import get
from uops.backends.testing.journal import Journal
from uops.compiler import config
from uops.compiler.pipeline import record_lowering
from uops.compiler.target import Target
from uops.compiler.tensor import use
from uops.compiler.tensor.realize import capture
from uops.compiler.validate.certificate import Uncertified, certify, check, dump
from uops.compiler.validate.launch import _PROCESS, Report, validate
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.text import parse_file, show

BACKENDS = ("llvm", "c", "opencl")
EXAMPLES = Path(__file__).parents[1] / "examples"
Json = dict[str, Any]
#: The reports of a program for a backend.
Program = Callable[[str], Iterable[Report]]


def programs() -> Iterator[tuple[str, Program]]:
    for name in WORKLOADS:
        yield f"workload {name}", lambda backend, name=name: _of(capture(build(name, full=True).output).graph, backend)
    for path in sorted(EXAMPLES.glob("programs/*.uops")):
        yield f"example {path.stem}", lambda backend, path=path: _of(parse_file(str(path)), backend)
    for path in sorted(EXAMPLES.glob("tensor/*.py")):
        yield f"example {path.stem}", partial(_script, path)
    for case in cases(Tier.FULL):
        yield f"suite {case.id}", partial(_of, case.graph)


def _of(graph: UOp, backend: str) -> list[Report]:
    return [validate(*record_lowering(graph, _target(backend), config.Config(reuse=False)))]


def _target(backend: str) -> Target:
    found: Target = get(backend).target  # type: ignore[attr-defined]
    return found


def _script(path: Path, backend: str) -> list[Report]:
    """Of a script: of every program that it has compiled."""
    heard: list[Report] = []

    def listening(*args: Any) -> Report:
        heard.append(validate(*args))
        return heard[-1]

    os.environ |= {"UOPS_VALIDATE": "1", "UOPS_REUSE": "0"}
    config.default.cache_clear()
    kept, validation.validate = validation.validate, listening
    try:
        with use(backend), contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(path))
    finally:
        validation.validate = kept
    return heard


_EVERYTHING: dict[str, Program] = {}


def examined(task: tuple[str, str]) -> Json:
    """What is found of one program on one backend."""
    backend, name = task
    found: Json = {"backend": backend, "program": name}
    try:
        reports = list(_EVERYTHING[name](backend))
    except (CompileError, Unsupported) as e:
        return found | {"refused": str(e)[:200]}
    except Exception as e:
        return found | {"wrong": [f"{type(e).__name__}: {e}"[:400]]}
    plans = Counter(v.by.value if v.proved and v.by else "not decided" for r in reports for v in r.plan)
    wrong = [str(v) for r in reports for v in r.verdicts if not v.proved]
    kernels = {}
    for k in (k for r in reports for k in r.kernels):
        decided = Counter(v.by.value if v.proved and v.by else "not decided" for v in k.verdicts)
        kernels[_digest(k.before, k.after)] = [k.name, round(k.seconds * 1e3, 3), decided]
    return found | {"plans": plans, "wrong": wrong, "kernels": kernels}


def _digest(*bodies: UOp) -> str:
    return hashlib.sha256("\n".join(map(show, bodies)).encode()).hexdigest()[:20]


def run(names: Sequence[str], backends: Sequence[str], jobs: int, journal: Path | None) -> Iterator[Json]:
    """What was found of every program, that of the journal first."""
    kept = None if journal is None else Journal(journal, {"programs": len(_EVERYTHING)})
    known = {} if kept is None else {(f["backend"], f["program"]): f for f in kept.of("found")}
    wanted = [(b, n) for b in backends for n in names]
    yield from (known[t] for t in wanted if t in known)
    todo = [t for t in wanted if t not in known]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for found in pool.imap_unordered(examined, todo):
            if kept is not None:
                kept.add({"found": found})
            yield found


def row(backend: str, found: Sequence[Json]) -> Json:
    """The row of one backend."""
    decided: Counter[str] = Counter()
    took: dict[str, tuple[float, str]] = {}
    for f in found:
        decided.update(f.get("plans", {}))
        for key, (name, milliseconds, by) in f.get("kernels", {}).items():
            if key not in took:
                decided.update(by)
            took[key] = max(took.get(key, (0.0, "")), (milliseconds, f"{f['program']}, kernel {name}"))
    times = sorted(t for t, _ in took.values()) or [0.0]
    spread = {q: times[min(len(times) - 1, int(len(times) * q / 100))] for q in (50, 95, 100)}
    return {
        "backend": backend, "programs": sum("kernels" in f for f in found), "refused": sum("refused" in f for f in found),
        "kernels": len(took), "decided": dict(sorted(decided.items())), "p50 ms": spread[50], "p95 ms": spread[95],
        "max ms": spread[100], "seconds": round(sum(times) / 1e3, 1), "slowest": sorted(took.values(), reverse=True)[:10],
        "failed": [f"{f['program']}: {why}" for f in found for why in f.get("wrong", ())],
    }  # fmt: skip


def table(rows: Sequence[Json]) -> str:
    """The rows as Markdown."""
    means = sorted({m for r in rows for m in r["decided"]} | {"not decided"})
    columns = ["backend", "programs", "refused", "kernels", *means, "p50 ms", "p95 ms", "max ms", "seconds"]
    lines = [columns, ["---"] * len(columns)]
    lines += [[f"{r['decided'].get(c, 0):,}" if c in means else _spelled(r[c]) for c in columns] for r in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _spelled(x: Any) -> str:
    return x if isinstance(x, str) else f"{x:,}" if isinstance(x, int) else f"{x:,.1f}"


# Certificates

#: Workloads that are certified; of the encoder, one layer.
CERTIFIED = ("softmax", "layernorm", "gemm-512", "attention", "encoder")


def certificates(backend: str, names: str) -> Iterator[list[str]]:
    """The rows of the table of certificates."""
    for name in fnmatch.filter(CERTIFIED, names.removeprefix("workload ")):
        workload = WORKLOADS[name]
        sizes = (1, *workload.full[1:]) if name == "encoder" else workload.full
        graph = capture(workload.make(sizes, np.random.default_rng(0)).output).graph
        start = _spent()
        try:
            made = certify(graph, _target(backend), config.Config(reuse=False))
        except Uncertified as e:
            yield [backend, name, "", "", f"none: {e}", "", ""]
            continue
        between = _spent()
        wrong = check(made)
        numbers = (len(made["steps"]), len(made["claims"]), between - start, _spent() - between, len(dump(made)) / 1024)
        yield [backend, name if not wrong else f"{name}: {wrong[0]}", *map(_spelled, numbers)]


def _spent() -> float:
    """Seconds of processor time of this process and of its solvers."""
    _PROCESS.worker.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", action="append", choices=BACKENDS)
    parser.add_argument("--programs", default="*", help="only those whose name (as `workload encoder`) matches")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--journal", type=Path, help="where what was found is written, and read again")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--certificates", action="store_true", help="make and check certificates instead")
    asked = parser.parse_args()
    if asked.certificates:
        columns = ["backend", "workload", "kernels", "claims", "s to make", "s to check", "KiB"]
        certified = (r for b in asked.backend or BACKENDS for r in certificates(b, asked.programs))
        for line in itertools.chain((columns, ["---"] * len(columns)), certified):
            print("| " + " | ".join(line) + " |", flush=True)
        return
    _EVERYTHING.update(programs())
    names = [n for n in _EVERYTHING if fnmatch.fnmatchcase(n, asked.programs)]
    backends = asked.backend or BACKENDS
    found: list[Json] = []
    start = time.monotonic()
    for f in run(names, backends, asked.jobs, asked.journal):
        found.append(f)
        said = f"{len(found)} of {len(names) * len(backends)}, {time.monotonic() - start:.0f} s"
        print(f"\r{said}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = [row(b, [f for f in found if f["backend"] == b]) for b in backends]
    print(table(rows))
    for r in rows:
        print(f"\nslowest on {r['backend']}: " + "; ".join(f"{t:.0f} ms {name}" for t, name in r["slowest"]))
        print("".join(f"  {line[:300]}\n" for line in r["failed"]), end="")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(any(r["failed"] for r in rows))


if __name__ == "__main__":
    main()
