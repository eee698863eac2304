"""Programs on several devices beside what the machine can do, in one run.

    python bench/devices.py [--seconds S] [--rounds R] [--megabytes M] [--json FILE]

- `encoder`: the workload's forward pass on two sequences, one on each of two devices of one thread, beside two unrelated processes
  of one thread with one sequence each. The ratio is that of the sequences per second; the bar is 0.95.
- `allreduce`: M megabytes on each of two devices, beside two threads that copy as many bytes as an allreduce has to move. The ratio
  is that of the times; the bar is 1.5. The operands are made on the devices; the time of a program that makes them alone is taken
  off.

Rounds alternate, so that a slow minute of the machine affects both. A figure is the best round's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from workloads import WORKLOADS, encoder_layer

from uops import Tensor
from uops.backends.registry import create_backend
from uops.compiler.config import Config
from uops.compiler.runtime.program import Compiled
from uops.compiler.tensor import capture
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.rows.collectives import allreduce

PAIR = ("CPU:0", "CPU:1")
ENCODER_BAR, ALLREDUCE_BAR = 0.95, 1.5


def build_encoder(devices: tuple[str, ...] | None) -> Any:
    """Return the encoder's output for one sequence, or for one per device."""
    layers, sequence, hidden, heads = WORKLOADS["encoder"].full
    rng = np.random.default_rng(1)

    def place(t: Tensor) -> Tensor:
        return t if devices is None else t.to(devices)

    def weight(*shape: int) -> Tensor:
        return place(Tensor(rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))))

    x = Tensor(rng.standard_normal((len(devices or ("CPU",)), sequence, hidden), np.float32))
    out = x if devices is None else x.shard(devices)
    for _ in range(layers):
        p = {n: weight(hidden, hidden) for n in ("query", "key", "value", "out")}
        out = encoder_layer(out, p | {"up": weight(hidden, 4 * hidden), "down": weight(4 * hidden, hidden)}, heads)
    return out


def compile_encoder(devices: tuple[str, ...] | None) -> Callable[[], Any]:
    """Return a function that runs the encoder once."""
    captured = capture(build_encoder(devices))
    target = create_backend("llvm").target
    threads = 1 if devices is None else len(devices)
    program = Compiled(captured.graph, target, Config(threads=threads, queues="always"))
    arguments = [captured.inputs.get(k) for k in program.keys]
    return lambda: program.function(*arguments)


def count_runs_per_second(run: Callable[[], Any], seconds: float) -> float:
    """Run for some seconds; return the runs per second."""
    start, runs = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds:
        run()
        runs += 1
    return runs / spent


def serve_encoder() -> None:
    """Run the encoder for as many seconds as each line of standard input says, and print the runs per second."""
    run = compile_encoder(None)
    run()
    print("ready", flush=True)
    for line in sys.stdin:
        print(count_runs_per_second(run, float(line)), flush=True)


def measure_encoder(seconds: float, rounds: int) -> dict[str, float]:
    """Return the sequences per second of both, and their ratio."""
    command = [sys.executable, __file__, "--serve"]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in PAIR]
    run = compile_encoder(PAIR)
    run()
    for w in workers:
        assert w.stdout and w.stdout.readline() == "ready\n"
    alone, together = [], []
    for _ in range(rounds):
        for w in workers:
            assert w.stdin
            print(seconds, file=w.stdin, flush=True)
        alone.append(sum(float(w.stdout.readline()) for w in workers if w.stdout))
        together.append(len(PAIR) * count_runs_per_second(run, seconds))
    for w in workers:
        w.kill()
    return {
        "two processes, sequences/s": max(alone),
        "two devices, sequences/s": max(together),
        "ratio": max(together) / max(alone),
    }


def compile_allreduce(elements: int, is_reduced: bool) -> Callable[[], Any]:
    """Return a function that fills the operands on two devices, reduces them if asked to, and takes an element of each device."""
    n = len(PAIR)
    seeds = b.reshape(b.copy(b.param(0, (n,), dt.float32), PAIR), (n, 1))
    operand = b.contiguous(b.reshape(b.expand(seeds, (n, elements)), (n * elements,)))
    if is_reduced:
        last = b.shrink(allreduce(operand, PAIR), (elements - 1,), (1,))
        ends = b.copy(b.expand(b.reshape(last, (1, 1)), (n, 1)), PAIR)  # each device's own
    else:
        ends = b.shrink(b.reshape(operand, (n, elements)), (0, elements - 1), (n, 1))
    program = Compiled(b.copy(ends, "CPU"), create_backend("llvm").target, Config(threads=n, queues="always"))
    x = np.arange(1, n + 1, dtype=np.float32)
    want = np.full((n, 1), x.sum()) if is_reduced else x.reshape(n, 1)
    assert np.array_equal(program.function(x), want)
    return lambda: program.function(x)


def measure_allreduce(megabytes: int, rounds: int) -> dict[str, float]:
    """Return the milliseconds of an allreduce and of the copies, and their ratio."""
    reduced, filled = (compile_allreduce(megabytes << 18, is_reduced) for is_reduced in (True, False))
    spent: dict[str, list[float]] = {"reduced": [], "filled": [], "copies": []}
    for _ in range(rounds):
        spent["copies"].append(time_copies(megabytes))
        for name, run in (("reduced", reduced), ("filled", filled)):
            start = time.perf_counter()
            run()
            spent[name].append(time.perf_counter() - start)
    best = {name: 1000 * min(of) for name, of in spent.items()}
    took = best["reduced"] - best["filled"]
    return {"two threads copy, ms": best["copies"], "allreduce, ms": took, "ratio": took / best["copies"]}


def time_copies(megabytes: int) -> float:
    """Return the seconds in which two threads copy what an allreduce of two devices sends each of them."""
    pairs = [(np.ones(megabytes << 18, np.float32), np.zeros(megabytes << 18, np.float32)) for _ in PAIR]
    threads = [threading.Thread(target=np.copyto, args=(target, source)) for source, target in pairs]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.serve:
        serve_encoder()
        return
    figures = {"encoder": measure_encoder(a.seconds, a.rounds), "allreduce": measure_allreduce(a.megabytes, a.rounds)}
    table = Table("what", "figure", "value")
    for what, values in figures.items():
        for name, value in values.items():
            table.add_row(what, name, f"{value:.3f}")
    Console().print(table)
    if a.json:
        a.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
