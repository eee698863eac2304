"""Compiled workloads beside NumPy, in one run.

    OPENBLAS_NUM_THREADS=1 python bench/kernels.py [NAME...] [--backend B] [--seconds S] [--fast-math]

For each workload of `bench/workloads.py` at full size, a line has the processor time of the first call (lowering, machine code and
run), the best speed, NumPy's best on the same arrays, and the ratio (above 1: faster than NumPy). Results are first checked
against NumPy in float64; a wrong one has no figure. `--fast-math` also compiles with `fast_math` and shows its speed-up, timed in
turns of a tenth of the time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from workloads import WORKLOADS, Workload, build, relative_error

import uops
from uops.compiler.tensor.realize import capture


def best_seconds(action: Callable[[], object], seconds: float) -> float:
    """Return the least wall time of a call, among those that fit into `seconds`, three at least."""
    least, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while runs < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        action()
        least, runs = min(least, time.perf_counter() - start), runs + 1
    return least


def measure_workload(w: Workload, backend: str, seconds: float, fast_math: bool = False) -> str:
    """Return the line of one workload: speed, first call and error, beside NumPy."""
    instance = build(w.name, full=True)
    graph, inputs = capture(instance.output)
    start = time.process_time()
    program = uops.compile(graph, backend=backend)
    value = program(inputs).values[0]
    first = time.process_time() - start
    expected = instance.reference()
    error = relative_error(value, expected, instance.scale(expected))
    if not error <= w.tolerance:
        return f"{w.name:12} WRONG: {error:.1e} of what errors are measured by"
    ours = best_seconds(lambda: program(inputs), seconds)
    line = f"{w.name:12} {w.work(w.full) / ours / 1e9:8.1f} {w.unit:8} first {first:6.2f} s  error {error:.0e}"
    if fast_math:
        relaxed = uops.compile(graph, backend=backend, fast_math=True)
        error = relative_error(relaxed(inputs).values[0], expected, instance.scale(expected))
        turns = [[best_seconds(lambda p=p: p(inputs), seconds / 10) for p in (program, relaxed)] for _ in range(10)]
        plain, faster = map(min, zip(*turns))
        line += f"  fast-math {plain / faster:5.2f} times, error {error:.0e}"
    if instance.peer is None or (instance.peer().dtype != value.dtype and value.dtype.kind == "f"):
        return line
    theirs = best_seconds(instance.peer, seconds)
    return f"{line}  NumPy {w.work(w.full) / theirs / 1e9:8.1f}  ratio {theirs / ours:5.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(WORKLOADS), metavar="NAME")
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--fast-math", action="store_true")
    options = parser.parse_args()
    for name in options.names:
        print(measure_workload(WORKLOADS[name], options.backend, options.seconds, options.fast_math), flush=True)


if __name__ == "__main__":
    main()
