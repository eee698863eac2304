"""What a case of a campaign costs: cases per second and core, and where the time goes.

    python bench/fuzz_speed.py [--backend NAME] [--cases N] [--largest NODES] [--seed S] [--json FILE]

All figures are processor time of one process, in the code that campaigns run, on cases of the kind `tensor` of at most `--largest`
nodes; `all sizes` is on cases as they come. `differential` generates a case, takes the interpreter's allowed sets, compiles at the
fast tier between guard pages, runs and judges; `everything` asks every oracle as often as a campaign does. The parts are measured
apart, on the same programs, each in all of them at once; machine code is made and linked for several cases together, as campaigns
have it. Garbage is collected as in a campaign, after as many cases, and cases of another seed go before, so that what a process
does once is done. A call of np.add on one element, taken between the cases, says how fast the machine was; how Python was built
matters as much, so that its version is given.
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

clock = time.process_time
#: Cases a second that are asked for.
BARS = {"differential": 200.0, "everything": 40.0}
DIFFERENTIAL = ("reference", "allowed")
#: Cases that go before.
WARM = 100


def mean(work: Callable[[Any], object], over: Iterable[Any]) -> float:
    """Seconds each."""
    every = list(over)
    gc.collect()
    start = clock()
    for x in every:
        work(x)
    return (clock() - start) / len(every)


def add_call() -> float:
    """Seconds of a call of np.add, the least of some rounds."""
    x, n = np.ones(1), 5_000
    rounds = []
    for _ in range(5):
        start = clock()
        for _ in range(n):
            np.add(x, x)
        rounds.append((clock() - start) / n)
    return min(rounds)


def chosen(seed: int, count: int, largest: int | None) -> list[int]:
    """The first cases of the kind `tensor` that are small enough."""
    from uops.fuzz.generate import kinds
    from uops.fuzz.reduce.reproducer import size

    found: list[int] = []
    k = 0
    while len(found) < count:
        if largest is None or size(kinds.sample(seed, k)) <= largest:
            found.append(k)
        k += 1
    return found


#: Oracles: seconds a case, and in calls of np.add.
Rates = dict[str, tuple[float, float]]


def rates(backend: str, seed: int, sizes: dict[str, list[int]]) -> dict[str, Rates]:
    """Of the cases of each size."""
    from uops.fuzz.campaign.examine import Bench, Setup
    from uops.fuzz.campaign.serve import COLLECT, TOGETHER
    from uops.fuzz.oracles import oracles

    found: dict[str, Rates] = {size: {} for size in sizes}
    for name, judges in (("differential", DIFFERENTIAL), ("everything", oracles.DEFAULT)):
        warm, bench = (Bench(Setup(backend, s, oracles=judges)) for s in (seed + 1, seed))
        deque(warm.cases(range(WARM)), 0)
        gc.collect()
        gc.freeze()  # as a campaign does, here and below
        for size, cases in sizes.items():
            spent, adds = [], []
            for at in range(0, len(cases), COLLECT):
                adds.append(add_call())
                start = clock()
                for first in range(at, min(at + COLLECT, len(cases)), TOGETHER):
                    deque(bench.cases(cases[first : first + TOGETHER]), 0)
                gc.collect()
                gc.freeze()
                spent.append(clock() - start)
            found[size][name] = sum(spent) / len(cases), sum(s / a for s, a in zip(spent, adds, strict=True)) / len(cases)
    return found


def linked(target: Any, sources: list[str]) -> list[Any]:
    """The kernels of texts, as campaigns have them made."""
    from uops.fuzz.oracles.subject import Together

    return target.together(sources) if isinstance(target, Together) else [target.load(target.compile(s)) for s in sources]


def ran(programs: list[tuple[Any, Any, Any]]) -> float:
    """Seconds each of running programs whose kernels are made."""
    from uops.fuzz.campaign.serve import COLLECT
    from uops.fuzz.oracles.native import run_program

    def run(program: tuple[Any, Any, Any]) -> None:
        lowered, judge, target = program
        judge.read(run_program(lowered, target, judge.given))

    spent = 0.0
    for at in range(0, len(programs), COLLECT):  # of so many the kernels are kept
        some = programs[at : at + COLLECT]
        deque(map(run, some), 0)
        spent += mean(run, some) * len(some)
    return spent / len(programs)


def parts(backend: str, seed: int, cases: list[int]) -> dict[str, float]:
    """Milliseconds a case of each part of the differential oracle."""
    from uops.compiler import pipeline
    from uops.fuzz.campaign.serve import TOGETHER
    from uops.fuzz.generate import kinds
    from uops.fuzz.generate.schedules import lowered
    from uops.fuzz.oracles.oracles import Context
    from uops.fuzz.oracles.stages import Judge
    from uops.fuzz.oracles.subject import Subject

    subject = Subject(backend)
    if subject.target is None:
        return {}
    target = subject.target.own
    samples = [kinds.sample(seed, k) for k in cases]
    contexts = [Context(s, subject) for s in samples]
    found = {"generate": mean(lambda k: kinds.sample(seed, k), cases), "allowed sets": mean(lambda c: c.expected.strict, contexts)}
    names = [p.name for p in pipeline.PIPELINE]
    programs: dict[Any, Any] = {}
    before = 0.0
    for name in names[: names.index("plan") + 1]:  # each includes those before it
        upto = mean(lambda s, name=name: programs.__setitem__(s.graph, lowered(s.graph, target, pipeline.PIPELINE, name)), samples)
        found[name], before = upto - before, upto
    sources: list[str] = []
    linears = [{c.src[0] for c in programs[s.graph].src} for s in samples]
    found["render"] = mean(lambda kernels: sources.extend(target.render(k) for k in kernels), linears)
    kernels: list[Any] = []
    groups = [sources[k : k + TOGETHER] for k in range(0, len(sources), TOGETHER)]
    found["machine code"] = mean(lambda group: kernels.extend(linked(target, group)), groups) * len(groups) / len(samples)
    whole = [lowered(s.graph, subject.target, pipeline.PIPELINE) for s in samples]
    judges = [Judge(s.graph, s.inputs, expected=c.expected) for s, c in zip(samples, contexts, strict=True)]
    found["run"] = ran([(p, j, subject.target) for p, j in zip(whole, judges, strict=True)])
    return {name: 1000 * s for name, s in found.items()} | {"kernels": len(sources) / len(samples)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--largest", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    os.environ["UOPS_CACHE"] = "0"  # every case is compiled
    small, every = chosen(a.seed, a.cases, a.largest), chosen(a.seed, a.cases, None)
    gc.freeze()
    gc.disable()
    found: dict[str, Any] = {"python": sys.version, **rates(a.backend, a.seed, {"small": small, "all sizes": every})}
    found["parts"] = parts(a.backend, a.seed, small)
    print(f"Python {sys.version}")
    for size, of in (("small", f"at most {a.largest} nodes"), ("all sizes", "all sizes")):
        for name, (seconds, adds) in found[size].items():
            bar = f" (bar {BARS[name]:.0f})" if size == "small" else ""
            print(f"{name:14} {1 / seconds:7.1f} cases/s of {of}{bar}, {adds:,.0f} np.add of {seconds / adds * 1e9:.0f} ns a case")
    for name, ms in found["parts"].items():
        print(f"  {name:14} {ms:7.2f} {'a case' if name == 'kernels' else 'ms'}")
    if a.json:
        a.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if all(1 / seconds >= BARS[name] for name, (seconds, _) in found["small"].items()) else 1)


if __name__ == "__main__":
    main()
