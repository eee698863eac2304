"""Cost of compiling: processor time by pass, beside tinygrad's own Python, and the encoder's first result beside jax.jit.

    python bench/compile_time.py [NAME...] [--python PYTHON] [--rounds N] [--graphs N] [--json FILE]

Every figure is from a new process, after imports and without any cache. Processes of the peers alternate with ours, and the least
of `--rounds` is shown. `ours` is capture and all passes, without the native compiler (`native`) and without linking (`load`).
tinygrad's figure is the Python part of its schedule and code generation for the same workload, serially, on its clang backend.
`--python` runs the peers (an environment with the extra `bench`); a peer that cannot be imported is listed as absent.

Small graphs: `random` is the mean over graphs of the generator with 12 live nodes (as in `interp_speed.py`). `chain` is the mean
over chains of 12 elementwise operations on 1000 floats, each with other constants. All are compiled in one process, after one
other graph. The median stands beside the mean, which other work of the machine increases.

First result: from the operands in memory to the result in memory, expression and run included, as wall and as processor time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "peers"))

NAMES = ("gemm-512", "softmax", "layernorm", "encoder")
#: Least ratio of tinygrad's time to ours, and most milliseconds for a small graph.
BAR, SMALL_MS = 5.0, 2.5
clock = time.process_time
Figures = dict[str, Any]


# In processes of their own: imports are late, since the harness needs none of them


def time_passes(graph: Any, target: Any) -> Figures:
    """Return the seconds of each pass; those of the native compiler are apart."""
    from uops.backends.llvm import binding
    from uops.compiler.config import Config
    from uops.compiler.pipeline import PIPELINE, LoweringState, run_pass_and_verify

    native, compile_object = [0.0], binding.compile_object

    def compile_object_timed(*arguments: Any) -> bytes:
        start = clock()
        try:
            return compile_object(*arguments)
        finally:
            native[0] += clock() - start

    binding.compile_object = compile_object_timed
    state, seconds_of = LoweringState(target, Config(reuse=False)), {}
    for p in PIPELINE:
        start, before = clock(), native[0]
        graph = run_pass_and_verify(p, graph, state)
        seconds_of[p.name] = clock() - start - (native[0] - before)
    binding.compile_object = compile_object
    programs = list(dict.fromkeys(call.body for call in graph.instructions))
    start = clock()
    kernels = [target.load(p.binary.arg.data) for p in programs]
    load = clock() - start
    return {"passes": seconds_of, "native": native[0], "load": load, "kernels": len(graph.src), "compiled": len(kernels)}


def total_pass_seconds(figures: Figures) -> float:
    """Return the seconds of all passes."""
    return float(sum(figures["passes"].values()))


def measure_workload(name: str) -> Figures:
    """Time the passes for a workload, the first compiled in its process."""
    from workloads import build

    from uops.backends.llvm.target import LlvmTarget
    from uops.compiler.tensor.realize import capture

    target, instance = LlvmTarget(), build(name, full=True)
    gc.collect()
    start = clock()
    graph = capture(instance.output).graph
    captured = clock() - start
    figures = time_passes(graph, target)
    figures["passes"] = {"capture": captured, **figures["passes"]}
    return figures


def build_elementwise_chain(k: int) -> Any:
    """Return a chain of 12 elementwise operations on 1000 floats, with constants of its own."""
    from uops.spec.ir import build as b
    from uops.spec.ir import dtypes as dt

    u = b.param(0, (1000,), dt.float32)
    steps: tuple[Callable[[Any], Any], ...] = (
        lambda u: b.add(u, 1.0 + k), lambda u: b.mul(u, 0.5 + k), b.sqrt,
        lambda u: b.sub(u, 2.0 + k), b.neg, lambda u: b.maximum(u, -3.0 - k),
    )  # fmt: skip
    for f in (*steps, *steps):
        u = f(u)
    return u


def is_single_device(graph: Any) -> bool:
    """Return True if the compiler accepts the graph: it is on one device."""
    from uops.spec.ir.node import toposort

    return not any(isinstance(u.device, tuple) for u in toposort(graph))


def measure_small_graphs(kind: str, count: int) -> Figures:
    """Return the means over `count` graphs, after one other graph."""
    from interp_speed import generate_cases

    from uops.backends.llvm.target import LlvmTarget

    target = LlvmTarget()
    graphs = (
        [c.graph for c in generate_cases(0, 2 * count) if is_single_device(c.graph)]
        if kind == "random"
        else [build_elementwise_chain(k) for k in range(count + 1)]
    )
    time_passes(graphs[0], target)
    gc.collect()
    figures = [time_passes(g, target) for g in graphs[1 : count + 1]]
    mean: Figures = {k: sum(f[k] for f in figures) / count for k in ("native", "load", "kernels", "compiled")}
    mean["passes"] = {p: sum(f["passes"][p] for f in figures) / count for p in figures[0]["passes"]}
    mean["median"], mean["worst"] = median(map(total_pass_seconds, figures)), max(map(total_pass_seconds, figures))
    return mean


def measure_first_result(name: str) -> Figures:
    """Time the first result of a workload."""
    from workloads import build

    import uops

    build(name)  # the small sizes: imports
    uops.backends.registry.create_backend("llvm")
    operands = [t.numpy() for t in build(name, full=True).inputs]
    from uops_peer import TABLE

    tensors = [uops.Tensor.from_numpy(a) for a in operands]
    return time_action(lambda: TABLE[name](*tensors).numpy())


def time_action(action: Callable[[], Any]) -> Figures:
    """Return the wall and processor seconds of an action."""
    gc.collect()
    wall, cpu = time.perf_counter(), clock()
    action()
    return {"wall": time.perf_counter() - wall, "cpu": clock() - cpu}


ONE: dict[str, Callable[..., Figures]] = {
    "workload": measure_workload,
    "small": lambda k, n: measure_small_graphs(k, int(n)),
    "first": measure_first_result,
}


# The harness


def run_and_parse_json(python: str, *arguments: object, **environment: str) -> Figures:
    """Run another process and return the JSON of its last line, or the reason under `absent` if it fails."""
    process = subprocess.run(
        [python, *map(str, arguments)], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if process.returncode:
        return {"absent": (process.stderr.strip().splitlines() or ["no reason given"])[-1]}
    return dict(json.loads(process.stdout.splitlines()[-1]))


def run_ours(*arguments: object) -> Figures:
    """Run one measurement of this file in a new process."""
    return run_and_parse_json(sys.executable, __file__, "--one", *arguments, UOPS_CACHE="0", UOPS_VERIFY="0")


def pick_least(figures: list[Figures], key: Callable[[Figures], float]) -> Figures:
    """Return the least of the figures that are not absent."""
    present = [f for f in figures if "absent" not in f]
    return min(present, key=key) if present else figures[0]


def compare_with_tinygrad(name: str, python: str, rounds: int) -> Figures:
    """Measure ours and tinygrad's passes in turn."""
    from protocol import write_operands
    from workloads import build

    mine, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        write_operands(Path(folder), [t.numpy() for t in build(name, full=True).inputs])
        for _ in range(rounds):
            mine.append(run_ours("workload", name))
            theirs.append(
                run_and_parse_json(
                    python, HERE / "peers" / "compile_tinygrad.py", name, folder, DEV="CPU", CCACHE="0", PARALLEL="0"
                )
            )
    return {"ours": pick_least(mine, total_pass_seconds), "tinygrad": pick_least(theirs, lambda f: f["schedule"] + f["codegen"])}


def compare_first_results(python: str, rounds: int) -> Figures:
    """Measure the encoder's first result, ours and jax.jit's in turn."""
    from protocol import write_operands
    from workloads import build

    figures: dict[str, list[Figures]] = {"ours": [], "jax": []}
    with tempfile.TemporaryDirectory() as folder:
        write_operands(Path(folder), [t.numpy() for t in build("encoder", full=True).inputs])
        for _ in range(rounds):
            figures["ours"].append(run_ours("first", "encoder"))
            figures["jax"].append(run_and_parse_json(python, HERE / "peers" / "compile_jax.py", "encoder", folder))
    return {peer: pick_least(runs, lambda f: f["wall"]) for peer, runs in figures.items()}


def format_passes(figures: Figures) -> str:
    """Return the milliseconds of each pass as text."""
    return " ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in figures["passes"].items())


def print_comparison(name: str, figures: Figures) -> None:
    """Print one workload, ours beside tinygrad's."""
    mine, theirs = figures["ours"], figures["tinygrad"]
    if "absent" in mine:
        print(f"{name}: {mine['absent']}")
        return
    line = f"{name:10} ours {1e3 * total_pass_seconds(mine):7.1f} ms  native {1e3 * mine['native']:6.1f}"
    line += f"  load {1e3 * mine['load']:5.1f}  kernels {mine['kernels']}/{mine['compiled']}"
    if "absent" in theirs:
        line += f"  tinygrad: {theirs['absent']}"
    else:
        python = theirs["schedule"] + theirs["codegen"]
        line += f"  tinygrad {1e3 * python:7.1f} ms, kernels {theirs['kernels']}/{theirs['compiled']}"
        line += f"  ratio {python / total_pass_seconds(mine):5.1f} (bar {BAR:.0f})"
    print(line + "\n" + " " * 11 + format_passes(mine), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*NAMES, "random", "chain", "first"], metavar="NAME")
    parser.add_argument("--python", default=sys.executable, help="runs the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(ONE[options.one[0]](*options.one[1:])))
        return
    results: Figures = {}
    for name in options.names:
        if name in ("random", "chain"):
            mine = pick_least([run_ours("small", name, options.graphs) for _ in range(options.rounds)], total_pass_seconds)
            results[name] = mine
            if "absent" in mine:
                print(f"{name}: {mine['absent']}")
                continue
            line = f"{name:10} ours {1e3 * total_pass_seconds(mine):7.2f} ms a graph (bar {SMALL_MS})"
            line += f", median {1e3 * mine['median']:.2f}, worst {1e3 * mine['worst']:.1f}"
            print(
                f"{line}  native {1e3 * mine['native']:.1f}  load {1e3 * mine['load']:.1f}\n{' ' * 11}{format_passes(mine)}",
                flush=True,
            )
        elif name == "first":
            results[name] = compare_first_results(options.python, options.rounds)
            for peer, f in results[name].items():
                print(
                    f"first      {peer:5} "
                    + (f["absent"] if "absent" in f else f"wall {f['wall']:.2f} s  processor {f['cpu']:.2f} s")
                )
        else:
            results[name] = compare_with_tinygrad(name, options.python, options.rounds)
            print_comparison(name, results[name])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
