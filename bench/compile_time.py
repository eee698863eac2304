"""What compiling costs: processor time by pass, beside tinygrad's own Python, and the encoder's first result beside jax.jit.

    python bench/compile_time.py [NAME...] [--python PYTHON] [--rounds N] [--graphs N] [--json FILE]

Every figure is one of a new process, after imports and without any cache; processes of the peers stand between ours, and the least
of `--rounds` is shown. `ours` is capture and all passes, without the native compiler (`native`) and without linking (`load`).
tinygrad's figure is the Python part of its schedule and code generation for the same workload, serially, on its clang backend.
`--python` runs the peers (an environment with the extra `bench`); one that cannot be imported is named as absent.

Small graphs: `random` is the mean over graphs of the generator with 12 live nodes (those of `interp_speed.py`), `chain` over
chains of 12 elementwise operations on 1000 floats, each with other constants; all in one process, after one other graph. The median
is shown beside the mean, which what else a machine does makes larger.

First result: from the operands in memory to the result in memory, the expression and the run included, as wall and as processor
time.
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
BAR, SMALL_MS = 5.0, 2.5
clock = time.process_time
Figures = dict[str, Any]


# In processes of their own


def lowered(graph: Any, target: Any) -> Figures:
    """Seconds by pass, the native compiler apart."""
    from uops.backends.llvm import binding
    from uops.compiler.config import Config
    from uops.compiler.pipeline import PIPELINE, Lowering, run_pass

    native, compile_object = [0.0], binding.compile_object

    def timed(*arguments: Any) -> bytes:
        start = clock()
        try:
            return compile_object(*arguments)
        finally:
            native[0] += clock() - start

    binding.compile_object = timed
    state, found = Lowering(target, Config(reuse=False)), {}
    for p in PIPELINE:
        start, before = clock(), native[0]
        graph = run_pass(p, graph, state)
        found[p.name] = clock() - start - (native[0] - before)
    binding.compile_object = compile_object
    programs = list(dict.fromkeys(c.src[0] for c in graph.src))
    start = clock()
    kernels = [target.load(p.src[2].arg.data) for p in programs]
    load = clock() - start
    return {"passes": found, "native": native[0], "load": load, "kernels": len(graph.src), "compiled": len(kernels)}


def total(found: Figures) -> float:
    return float(sum(found["passes"].values()))


def workload(name: str) -> Figures:
    """One workload, first in its process."""
    from workloads import build

    from uops.backends.llvm.target import LlvmTarget
    from uops.compiler.tensor.realize import capture

    target, instance = LlvmTarget(), build(name, full=True)
    gc.collect()
    start = clock()
    graph = capture(instance.output).graph
    captured = clock() - start
    found = lowered(graph, target)
    found["passes"] = {"capture": captured, **found["passes"]}
    return found


def chain(k: int) -> Any:
    """A chain of 12 elementwise operations on 1000 floats."""
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


def compiled(graph: Any) -> bool:
    """Whether the compiler takes the graph: it is on one device."""
    from uops.spec.ir.node import toposort

    return not any(isinstance(u.device, tuple) for u in toposort(graph))


def small(kind: str, count: int) -> Figures:
    """The mean over `count` graphs, after one other."""
    from interp_speed import cases

    from uops.backends.llvm.target import LlvmTarget

    target = LlvmTarget()
    graphs = (
        [c.graph for c in cases(0, 2 * count) if compiled(c.graph)] if kind == "random" else [chain(k) for k in range(count + 1)]
    )
    lowered(graphs[0], target)
    gc.collect()
    found = [lowered(g, target) for g in graphs[1 : count + 1]]
    mean: Figures = {k: sum(f[k] for f in found) / count for k in ("native", "load", "kernels", "compiled")}
    mean["passes"] = {p: sum(f["passes"][p] for f in found) / count for p in found[0]["passes"]}
    mean["median"], mean["worst"] = median(map(total, found)), max(map(total, found))
    return mean


def first(name: str) -> Figures:
    """The first result of a workload."""
    from workloads import build

    import uops

    build(name)  # the small sizes: imports
    uops.backends.registry.get("llvm")
    operands = [t.numpy() for t in build(name, full=True).inputs]
    from uops_peer import TABLE

    tensors = [uops.Tensor.from_numpy(a) for a in operands]
    return elapsed(lambda: TABLE[name](*tensors).numpy())


def elapsed(action: Callable[[], Any]) -> Figures:
    gc.collect()
    wall, cpu = time.perf_counter(), clock()
    action()
    return {"wall": time.perf_counter() - wall, "cpu": clock() - cpu}


ONE: dict[str, Callable[..., Figures]] = {"workload": workload, "small": lambda k, n: small(k, int(n)), "first": first}


# The harness


def asked(python: str, *arguments: object, **environment: str) -> Figures:
    """What another process answers with its last line; why it gives none under `absent`."""
    done = subprocess.run(
        [python, *map(str, arguments)], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        return {"absent": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def ours(*arguments: object) -> Figures:
    return asked(sys.executable, __file__, "--one", *arguments, UOPS_CACHE="0", UOPS_VERIFY="0")


def least(found: list[Figures], key: Callable[[Figures], float]) -> Figures:
    there = [f for f in found if "absent" not in f]
    return min(there, key=key) if there else found[0]


def compared(name: str, python: str, rounds: int) -> Figures:
    """Ours and tinygrad's in turn."""
    from protocol import write
    from workloads import build

    mine, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), [t.numpy() for t in build(name, full=True).inputs])
        for _ in range(rounds):
            mine.append(ours("workload", name))
            theirs.append(asked(python, HERE / "peers" / "compile_tinygrad.py", name, folder, DEV="CPU", CCACHE="0", PARALLEL="0"))
    return {"ours": least(mine, total), "tinygrad": least(theirs, lambda f: f["schedule"] + f["codegen"])}


def firsts(python: str, rounds: int) -> Figures:
    """The encoder, ours and jax.jit in turn."""
    from protocol import write
    from workloads import build

    found: dict[str, list[Figures]] = {"ours": [], "jax": []}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), [t.numpy() for t in build("encoder", full=True).inputs])
        for _ in range(rounds):
            found["ours"].append(ours("first", "encoder"))
            found["jax"].append(asked(python, HERE / "peers" / "compile_jax.py", "encoder", folder))
    return {peer: least(runs, lambda f: f["wall"]) for peer, runs in found.items()}


def spelt(found: Figures) -> str:
    return " ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in found["passes"].items())


def show(name: str, found: Figures) -> None:
    mine, theirs = found["ours"], found["tinygrad"]
    if "absent" in mine:
        print(f"{name}: {mine['absent']}")
        return
    line = f"{name:10} ours {1e3 * total(mine):7.1f} ms  native {1e3 * mine['native']:6.1f}  load {1e3 * mine['load']:5.1f}"
    line += f"  kernels {mine['kernels']}/{mine['compiled']}"
    if "absent" in theirs:
        line += f"  tinygrad: {theirs['absent']}"
    else:
        python = theirs["schedule"] + theirs["codegen"]
        line += f"  tinygrad {1e3 * python:7.1f} ms, kernels {theirs['kernels']}/{theirs['compiled']}"
        line += f"  ratio {python / total(mine):5.1f} (bar {BAR:.0f})"
    print(line + "\n" + " " * 11 + spelt(mine), flush=True)


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
            mine = least([ours("small", name, options.graphs) for _ in range(options.rounds)], total)
            results[name] = mine
            if "absent" in mine:
                print(f"{name}: {mine['absent']}")
                continue
            line = f"{name:10} ours {1e3 * total(mine):7.2f} ms a graph (bar {SMALL_MS})"
            line += f", median {1e3 * mine['median']:.2f}, worst {1e3 * mine['worst']:.1f}"
            print(f"{line}  native {1e3 * mine['native']:.1f}  load {1e3 * mine['load']:.1f}\n{' ' * 11}{spelt(mine)}", flush=True)
        elif name == "first":
            results[name] = firsts(options.python, options.rounds)
            for peer, f in results[name].items():
                print(
                    f"first      {peer:5} "
                    + (f["absent"] if "absent" in f else f"wall {f['wall']:.2f} s  processor {f['cpu']:.2f} s")
                )
        else:
            results[name] = compared(name, options.python, options.rounds)
            show(name, results[name])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
