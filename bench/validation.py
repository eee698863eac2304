"""Cost of validating kernels, and the means that decide their obligations.

    python bench/validation.py [--backend NAME]... [--programs GLOB] [--jobs N] [--journal FILE] [--json FILE]
    python bench/validation.py --certificates [--backend NAME]... [--programs GLOB]

For each backend, it validates every distinct kernel of the conformance suite (tier full), of the workloads in their full sizes and
of the examples, with the schedules that heuristics choose. A row has the programs, those that the target refuses, the kernels, the
obligations by what decided them, and those that nothing decided. Then come milliseconds per kernel (the median, the 95th
percentile and the greatest, of processor time with the solver's) and the seconds of all. Kernels are equal if their bodies before
and after are: each counts once, with its longest time, as a process does not validate a kernel twice.

A journal keeps the results per program, so that an interrupted run continues; a changed compiler needs another journal. With
`--certificates`, rows have the claims of some workloads' certificates, the seconds of processor time to make and to check one, and
its size. The status is 1 if an obligation is refuted or not decided, or if a program fails.
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
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from workloads import WORKLOADS, build

import uops.compiler.validate as validation
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.model import ConformanceTier
from uops.backends.registry import BUILT_IN, create_backend
from uops.backends.testing.journal import Journal
from uops.compiler import config
from uops.compiler.pipeline import lower
from uops.compiler.target import Target
from uops.compiler.tensor import use
from uops.compiler.tensor.realize import capture
from uops.compiler.validate.certificate import Uncertified, certify, check_certificate_and_list_faults, dump_certificate
from uops.compiler.validate.launch import _PROCESS, KernelValidation, ValidationReport, validate
from uops.compiler.validate.model import DecisionMethod, ObligationKind
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.text import parse_file, show
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

BACKENDS = ("llvm", "c", "opencl")
#: All that may be named: the targets of the compiler that come with the package.
COMPILED = tuple(name for name, b in BUILT_IN.items() if not b.is_subject and name != "interp")
EXAMPLES = Path(__file__).parents[1] / "examples"
Json = dict[str, Any]
#: Returns the reports of a program for a backend.
Program = Callable[[str], Iterable[ValidationReport]]


def list_programs() -> Iterator[tuple[str, Program]]:
    """Yield every program by name, as a function from a backend to reports."""
    for name in WORKLOADS:
        yield f"workload {name}", lambda backend, name=name: _validate_graph(capture(build(name, full=True).output).graph, backend)
    for path in sorted(EXAMPLES.glob("programs/*.uops")):
        yield f"example {path.stem}", lambda backend, path=path: _validate_graph(parse_file(str(path)), backend)
    for path in sorted(EXAMPLES.glob("tensor/*.py")):
        yield f"example {path.stem}", partial(_validate_script, path)
    for case in generate_cases(ConformanceTier.FULL):
        yield f"suite {case.id}", partial(_validate_graph, case.graph)


def _validate_graph(graph: UOp, backend: str) -> list[ValidationReport]:
    """Lower a graph of any dialect with validation, and return the reports; none of a dialect that is not validated."""
    with _record_reports() as reports:
        lower(
            graph,
            _target(backend),
            "plan",
            config.Config(reuse=False, validate=True),
            dialect=infer_tensor_kernel_or_bestiary_dialect(graph),
        )
    return reports


@contextlib.contextmanager
def _record_reports() -> Iterator[list[ValidationReport]]:
    """Yield the list to which the report of each validation within the context is added."""
    reports: list[ValidationReport] = []

    def record_report(*args: Any) -> ValidationReport:
        reports.append(validate(*args))
        return reports[-1]

    original, validation.validate = validation.validate, record_report
    try:
        yield reports
    finally:
        validation.validate = original


@cache
def _target(backend: str) -> Target:
    """Return the target of a backend, which stays open."""
    target: Target = create_backend(backend).target  # type: ignore[attr-defined]
    return target


def _validate_script(path: Path, backend: str) -> list[ValidationReport]:
    """Run a script and return the reports of every program that it compiles."""
    os.environ |= {"UOPS_VALIDATE": "1", "UOPS_REUSE": "0"}
    config.reload_default_config()
    with _record_reports() as reports, use(backend), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(path))
    return reports


_EVERYTHING: dict[str, Program] = {}


def examine_program(task: tuple[str, str]) -> Json:
    """Return the JSON of one program on one backend: decisions, failures and times."""
    backend, name = task
    result: Json = {"backend": backend, "program": name}
    try:
        reports = list(_EVERYTHING[name](backend))
    except (CompileError, Unsupported) as e:
        return result | {"refused": str(e)[:200]}
    except Exception as e:
        return result | {"wrong": [f"{type(e).__name__}: {e}"[:400]]}
    plans = Counter(v.by.value if v.is_proved and v.by else "not decided" for r in reports for v in r.plan)
    wrong = [str(v) for r in reports for v in r.verdicts if not v.is_proved]
    kernels = {}
    for k in (k for r in reports for k in r.kernels):
        decided = Counter(v.by.value if v.is_proved and v.by else "not decided" for v in k.verdicts)
        kernels[_digest(k.before, k.after)] = [k.name, round(k.seconds * 1e3, 3), decided, _reason_of_unproved_values(k)]
    return result | {"plans": plans, "wrong": wrong, "kernels": kernels}


def _reason_of_unproved_values(kernel: KernelValidation) -> str:
    """Return the first pass whose effect on values is not proved, with the reason; "" if all are proved."""
    values = [v for v in kernel.verdicts if v.kind is ObligationKind.VALUE]
    left = next((v for v in values if v.by is DecisionMethod.INTERPRETER or not v.is_proved), None)
    if left is None:
        return ""
    return f"{left.place}: {left.why.rpartition('(')[2].rstrip(')')}"


def _digest(*bodies: UOp) -> str:
    """Return a digest of bodies."""
    return hashlib.sha256("\n".join(map(show, bodies)).encode()).hexdigest()[:20]


def examine_programs(names: Sequence[str], backends: Sequence[str], jobs: int, journal: Path | None) -> Iterator[Json]:
    """Yield the results of every program, those of the journal first."""
    stored_results = None if journal is None else Journal(journal, {"programs": len(_EVERYTHING)})
    stored = {} if stored_results is None else {(f["backend"], f["program"]): f for f in stored_results.entries_under("found")}
    wanted = [(b, n) for b in backends for n in names]
    yield from (stored[t] for t in wanted if t in stored)
    todo = [t for t in wanted if t not in stored]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for result in pool.imap_unordered(examine_program, todo):
            if stored_results is not None:
                stored_results.add({"found": result})
            yield result


def summarize_backend(backend: str, results: Sequence[Json]) -> Json:
    """Return the row of one backend."""
    decided: Counter[str] = Counter()
    took: dict[str, tuple[float, str]] = {}
    for f in results:
        decided.update(f.get("plans", {}))
        for key, (name, milliseconds, by, _) in f.get("kernels", {}).items():
            if key not in took:
                decided.update(by)
            took[key] = max(took.get(key, (0.0, "")), (milliseconds, f"{f['program']}, kernel {name}"))
    times = sorted(t for t, _ in took.values()) or [0.0]
    spread = {q: times[min(len(times) - 1, int(len(times) * q / 100))] for q in (50, 95, 100)}
    return {
        "backend": backend, "programs": sum("kernels" in f for f in results), "refused": sum("refused" in f for f in results),
        "kernels": len(took), "decided": dict(sorted(decided.items())), "p50 ms": spread[50], "p95 ms": spread[95],
        "max ms": spread[100], "seconds": round(sum(times) / 1e3, 1), "slowest": sorted(took.values(), reverse=True)[:10],
        "failed": [f"{f['program']}: {why}" for f in results for why in f.get("wrong", ())],
    }  # fmt: skip


def summarize_values(backend: str, results: Sequence[Json]) -> Iterator[Json]:
    """Yield the row of each group of programs: the kernels whose values are proved from the tensor graph on, and reasons."""
    for group in ("suite", "workload", "example"):
        kernels = {k: v for f in results if f["program"].startswith(group) for k, v in f.get("kernels", {}).items()}
        if not kernels:
            continue
        reasons = Counter(why for _, _, _, why in kernels.values() if why)
        times = sorted(milliseconds for _, milliseconds, _, _ in kernels.values())
        yield {
            "backend": backend, "group": group, "kernels": len(kernels), "proved": len(kernels) - reasons.total(),
            "share %": 100 - 100 * reasons.total() / len(kernels), "p95 ms": times[int(len(times) * 0.95)],
            "left": "; ".join(f"{n} {why}" for why, n in reasons.most_common()),
        }  # fmt: skip


def format_values(rows: Sequence[Json]) -> str:
    """Return the rows of `summarize_values` as Markdown."""
    lines = [[*rows[0]], ["---"] * len(rows[0])] + [[_format_number(x) for x in r.values()] for r in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def format_table(rows: Sequence[Json]) -> str:
    """Return the rows as Markdown."""
    means = sorted({m for r in rows for m in r["decided"]} | {"not decided"})
    columns = ["backend", "programs", "refused", "kernels", *means, "p50 ms", "p95 ms", "max ms", "seconds"]
    lines = [columns, ["---"] * len(columns)]
    lines += [[f"{r['decided'].get(c, 0):,}" if c in means else _format_number(r[c]) for c in columns] for r in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _format_number(x: Any) -> str:
    """Return a cell of the table as text."""
    return x if isinstance(x, str) else f"{x:,}" if isinstance(x, int) else f"{x:,.1f}"


# Certificates

#: Workloads that are certified; of the encoder, one layer.
CERTIFIED = ("softmax", "layernorm", "gemm-512", "attention", "encoder")


def certify_workloads(backend: str, names: str) -> Iterator[list[str]]:
    """Yield the rows of the table of certificates."""
    for name in fnmatch.filter(CERTIFIED, names.removeprefix("workload ")):
        workload = WORKLOADS[name]
        sizes = (1, *workload.full[1:]) if name == "encoder" else workload.full
        graph = capture(workload.make(sizes, np.random.default_rng(0)).output).graph
        start = _processor_seconds()
        try:
            certificate = certify(graph, _target(backend), config.Config(reuse=False))
        except Uncertified as e:
            yield [backend, name, "", "", f"none: {e}", "", ""]
            continue
        between = _processor_seconds()
        wrong = check_certificate_and_list_faults(certificate)
        numbers = (
            len(certificate["steps"]),
            len(certificate["claims"]),
            between - start,
            _processor_seconds() - between,
            len(dump_certificate(certificate)) / 1024,
        )
        yield [backend, name if not wrong else f"{name}: {wrong[0]}", *map(_format_number, numbers)]


def _processor_seconds() -> float:
    """Return the processor seconds of this process and of its solvers."""
    _PROCESS.worker.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", action="append", choices=COMPILED)
    parser.add_argument("--programs", default="*", help="only those whose name (as `workload encoder`) matches")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--journal", type=Path, help="where what was found is written, and read again")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--certificates", action="store_true", help="make and check certificates instead")
    options = parser.parse_args()
    if options.certificates:
        columns = ["backend", "workload", "kernels", "claims", "s to make", "s to check", "KiB"]
        certified = (r for b in options.backend or BACKENDS for r in certify_workloads(b, options.programs))
        for line in itertools.chain((columns, ["---"] * len(columns)), certified):
            print("| " + " | ".join(line) + " |", flush=True)
        return
    _EVERYTHING.update(list_programs())
    names = [n for n in _EVERYTHING if fnmatch.fnmatchcase(n, options.programs)]
    backends = options.backend or BACKENDS
    results: list[Json] = []
    start = time.monotonic()
    for f in examine_programs(names, backends, options.jobs, options.journal):
        results.append(f)
        progress = f"{len(results)} of {len(names) * len(backends)}, {time.monotonic() - start:.0f} s"
        print(f"\r{progress}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = [summarize_backend(b, [f for f in results if f["backend"] == b]) for b in backends]
    print(format_table(rows))
    by_group = [r for b in backends for r in summarize_values(b, [f for f in results if f["backend"] == b])]
    if by_group:
        print(f"\nvalues from the tensor graph to instructions:\n\n{format_values(by_group)}")
    for r in rows:
        print(f"\nslowest on {r['backend']}: " + "; ".join(f"{t:.0f} ms {name}" for t, name in r["slowest"]))
        print("".join(f"  {line[:300]}\n" for line in r["failed"]), end="")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(any(r["failed"] for r in rows))


if __name__ == "__main__":
    main()
