"""Cost of a campaign's case: cases per second and core, and the time of each part.

    python bench/fuzz_speed.py [--backend NAME] [--cases N] [--largest NODES] [--seed S] [--json FILE]

All figures are processor time of one process, in the code that campaigns run, on cases of the kind `tensor` of at most `--largest`
nodes; `all sizes` takes cases as they come. `differential` generates a case, takes the interpreter's allowed sets, compiles at the
fast tier between guard pages, runs and judges. `everything` asks every oracle as often as a campaign does.

The parts are measured apart on the same programs, each in all of them at once. Machine code is made and linked for several cases
together, as in campaigns. Garbage is collected as in a campaign, after as many cases. Cases of another seed run first, so that
one-time work is done. A call of np.add on one element, timed between the cases, measures the machine. Python's version is shown,
because its build matters as much.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

# Modules of uops are imported late, inside functions: `main` sets UOPS_CACHE first.
clock = time.process_time
#: Cases per second that must be reached.
BARS = {"differential": 200.0, "everything": 40.0}
#: Oracles of the rate `differential`.
DIFFERENTIAL = ("reference", "allowed")
#: Cases that run before the measurement.
WARM = 100


def mean_seconds(work: Callable[[Any], object], over: Iterable[Any]) -> float:
    """Return the mean seconds per element."""
    every = list(over)
    gc.collect()
    start = clock()
    for x in every:
        work(x)
    return (clock() - start) / len(every)


def time_add_call() -> float:
    """Return the seconds of a call of np.add, the least of some rounds."""
    x, n = np.ones(1), 5_000
    rounds = []
    for _ in range(5):
        start = clock()
        for _ in range(n):
            np.add(x, x)
        rounds.append((clock() - start) / n)
    return min(rounds)


def pick_small_cases(seed: int, count: int, largest: int | None) -> list[int]:
    """Return the first cases of the kind `tensor` that are small enough."""
    from uops.fuzz.generate import kinds
    from uops.fuzz.reduce.reproducer import count_nodes

    cases: list[int] = []
    k = 0
    while len(cases) < count:
        if largest is None or count_nodes(kinds.sample(seed, k)) <= largest:
            cases.append(k)
        k += 1
    return cases


#: Oracles -> seconds per case, and calls of np.add per case.
Rates = dict[str, tuple[float, float]]


def measure_rates(backend: str, seed: int, sizes: dict[str, list[int]]) -> dict[str, Rates]:
    """Return the rates of the cases of each size."""
    from uops.fuzz.campaign.examine import CaseRunner, Setup
    from uops.fuzz.campaign.serve import COLLECT, TOGETHER
    from uops.fuzz.oracles import oracles

    rates: dict[str, Rates] = {size: {} for size in sizes}
    for name, judges in (("differential", DIFFERENTIAL), ("everything", oracles.DEFAULT)):
        warm, bench = (CaseRunner(Setup(backend, s, oracles=judges)) for s in (seed + 1, seed))
        deque(warm.run_cases_compiled_together(range(WARM)), 0)
        gc.collect()
        gc.freeze()  # as a campaign does, here and below
        for size, cases in sizes.items():
            spent, adds = [], []
            for at in range(0, len(cases), COLLECT):
                adds.append(time_add_call())
                start = clock()
                for first in range(at, min(at + COLLECT, len(cases)), TOGETHER):
                    deque(bench.run_cases_compiled_together(cases[first : first + TOGETHER]), 0)
                gc.collect()
                gc.freeze()
                spent.append(clock() - start)
            rates[size][name] = sum(spent) / len(cases), sum(s / a for s, a in zip(spent, adds, strict=True)) / len(cases)
    return rates


def load_kernels(target: Any, sources: list[str]) -> list[Any]:
    """Return the kernels of sources, made together as campaigns do."""
    from uops.fuzz.oracles.subject import BatchCompiler

    return (
        target.compile_and_load_batch(sources)
        if isinstance(target, BatchCompiler)
        else [target.load(target.compile(s)) for s in sources]
    )


def time_runs(programs: list[tuple[Any, Any, Any]]) -> float:
    """Return the mean seconds of running a program whose kernels are made."""
    from uops.fuzz.campaign.serve import COLLECT
    from uops.fuzz.oracles.native import load_and_run_first_calls

    def run(program: tuple[Any, Any, Any]) -> None:
        lowered, judge, target = program
        judge.read_outputs_and_check_inputs_unchanged(load_and_run_first_calls(lowered, target, judge.initial_memory))

    spent = 0.0
    for at in range(0, len(programs), COLLECT):  # of so many the kernels are kept
        chunk = programs[at : at + COLLECT]
        deque(map(run, chunk), 0)
        spent += mean_seconds(run, chunk) * len(chunk)
    return spent / len(programs)


def measure_parts(backend: str, seed: int, cases: list[int]) -> dict[str, float]:
    """Return the milliseconds per case of each part of the differential oracle."""
    from uops.backends.conformance.stage_judge import Judge
    from uops.compiler import pipeline
    from uops.fuzz.campaign.serve import TOGETHER
    from uops.fuzz.generate import kinds
    from uops.fuzz.generate.schedules import run_passes_up_to
    from uops.fuzz.oracles.oracles import OracleContext
    from uops.fuzz.oracles.subject import Subject

    subject = Subject(backend)
    if subject.target is None:
        return {}
    target = subject.target.uncached
    samples = [kinds.sample(seed, k) for k in cases]
    contexts = [OracleContext(s, subject) for s in samples]
    seconds_of = {
        "generate": mean_seconds(lambda k: kinds.sample(seed, k), cases),
        "allowed sets": mean_seconds(lambda c: c.expectation.strict, contexts),
    }
    names = [p.name for p in pipeline.PIPELINE]
    programs: dict[Any, Any] = {}
    before = 0.0
    for name in names[: names.index("plan") + 1]:  # each includes those before it
        upto = mean_seconds(
            lambda s, name=name: programs.__setitem__(s.graph, run_passes_up_to(s.graph, target, pipeline.PIPELINE, name)), samples
        )
        seconds_of[name], before = upto - before, upto
    sources: list[str] = []
    linears = [{call.body for call in programs[s.graph].instructions} for s in samples]
    seconds_of["render"] = mean_seconds(lambda kernels: sources.extend(target.render(k) for k in kernels), linears)
    kernels: list[Any] = []
    groups = [sources[k : k + TOGETHER] for k in range(0, len(sources), TOGETHER)]
    seconds_of["machine code"] = (
        mean_seconds(lambda group: kernels.extend(load_kernels(target, group)), groups) * len(groups) / len(samples)
    )
    whole = [run_passes_up_to(s.graph, subject.target, pipeline.PIPELINE) for s in samples]
    judges = [Judge(s.graph, s.inputs, expected=c.expectation) for s, c in zip(samples, contexts, strict=True)]
    seconds_of["run"] = time_runs([(p, j, subject.target) for p, j in zip(whole, judges, strict=True)])
    return {name: 1000 * s for name, s in seconds_of.items()} | {"kernels": len(sources) / len(samples)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--largest", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    os.environ["UOPS_CACHE"] = "0"  # every case is compiled
    small, every = pick_small_cases(a.seed, a.cases, a.largest), pick_small_cases(a.seed, a.cases, None)
    gc.freeze()
    gc.disable()
    figures: dict[str, Any] = {"python": sys.version, **measure_rates(a.backend, a.seed, {"small": small, "all sizes": every})}
    figures["parts"] = measure_parts(a.backend, a.seed, small)
    print(f"Python {sys.version}")
    for size, of in (("small", f"at most {a.largest} nodes"), ("all sizes", "all sizes")):
        for name, (seconds, adds) in figures[size].items():
            bar = f" (bar {BARS[name]:.0f})" if size == "small" else ""
            print(f"{name:14} {1 / seconds:7.1f} cases/s of {of}{bar}, {adds:,.0f} np.add of {seconds / adds * 1e9:.0f} ns a case")
    for name, ms in figures["parts"].items():
        print(f"  {name:14} {ms:7.2f} {'a case' if name == 'kernels' else 'ms'}")
    if a.json:
        a.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if all(1 / seconds >= BARS[name] for name, (seconds, _) in figures["small"].items()) else 1)


if __name__ == "__main__":
    main()
