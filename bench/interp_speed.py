"""Graphs per second of the reference interpreter, one core, all asserts on.

    python bench/interp_speed.py [--graphs N] [--seed S]

The graphs are those of the generator (`uops.fuzz.generate.graphs`, element cap 1,000) with exactly 12 live nodes: every node but
index values, which spell shapes and positions. They have every family and dtype of the TENSOR dialect; a Bitcast or Slice may need
more elements of a narrower dtype than the cap. Each is built before the clock starts and evaluated once, so that nothing is warm
but the interpreter itself, whose tables of functions and conversions of narrow floats are made before; processor time is measured,
and graphs built earlier are kept out of the garbage collector's sight.

`derivation` is the time that the specification's rules take for every node's dtype, shape and min_max, as far as the building of
the graph did not ask for them, and `verification` that of judging the claims of its rows, which a graph is asked for once. `values`
is `run` with every assert, on a graph after both; `sets` is the same for the allowed sets at the strict level. The last line adds
derivation, of `values` verification too, and evaluation. Graphs per second are those of the machine at hand; what carries over to
another is the cost of a graph in calls of np.add on 16 floats, timed between the graphs. 8,000 and 3,000 graphs a second are 329
and 877 of them where np.add takes 0.38 us.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import Case, generate
from uops.fuzz.generate.producers import VALUES
from uops.interp import run
from uops.interp.allowed import allowed
from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.verifier import verify

LIVE = 12
#: Graphs between two looks at the yardstick.
CHUNK = 50


def live(case: Case) -> int:
    """Nodes that are values or effects."""
    return sum(u.dtype is not dt.index for u in toposort(case.graph))


def cases(seed: int, count: int) -> list[Case]:
    """The first `count` cases of 12 live nodes after `seed`."""
    found: list[Case] = []
    while len(found) < count:
        case = generate(SeededDraw(seed), nodes=5, features=VALUES)
        seed += 1
        if live(case) == LIVE:
            found.append(case)
    return found


class Cost(NamedTuple):
    """Processor seconds per case, and per call of the yardstick, taken in turns so that both see the same machine."""

    case: float
    add: float

    def __str__(self) -> str:
        return f"{1 / self.case:,.0f} graphs/s ({self.case / self.add:.0f} np.add a graph)"


def cost(action: Callable[[Case], object], work: list[Case]) -> Cost:
    gc.collect()
    gc.freeze()
    spent = yard = 0.0
    for at in range(0, len(work), CHUNK):
        yard += yardstick()
        start = time.process_time()
        for case in work[at : at + CHUNK]:
            action(case)
        spent += time.process_time() - start
    return Cost(spent / len(work), yard / len(range(0, len(work), CHUNK)))


def yardstick(calls: int = 1000) -> float:
    """Processor seconds of one `np.add(a, b, out=c)` on 16 floats."""
    a, c, add = np.ones(16, np.float32), np.empty(16, np.float32), np.add
    start = time.process_time()
    for _ in range(calls):
        add(a, a, out=c)
    return (time.process_time() - start) / calls


def tabulate() -> None:
    """Make every table that the interpreter makes on first use: of unary ops and conversions of floats of up to 16 bits."""
    for d in (d for d in dt.FLOATS if d.bits <= 16):
        one = np.ones((), NUMPY[d])
        for op in (Op.EXP2, Op.LOG2, Op.SIN):
            KERNELS[op][d](one)
        for (source, _), convert in CASTS.items():
            if source is d:
                convert(one)
    for op in (Op.EXP2, Op.LOG2, Op.SIN):
        KERNELS[op][dt.float64](np.ones(()))


def largest(case: Case) -> int:
    return max((int(np.size(v)) for v in case.inputs.values()), default=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    work = cases(options.seed, options.graphs)
    part = len(work) // 2
    sizes = sorted(largest(c) for c in work)
    print(f"{len(work)} graphs from seed {options.seed}, {LIVE} live nodes each")
    print(f"largest input: {sizes[part]} elements in the median graph, {sizes[-1]} at most")
    tabulate()
    for case in cases(10**9, 100):  # import what is imported on first use
        run(case.graph, case.inputs)
        allowed(case.graph, case.inputs)
    derivation = cost(derive, work)
    verification = cost(lambda c: verify(c.graph), work)
    values = cost(lambda c: run(c.graph, c.inputs), work[:part])
    sets = cost(lambda c: allowed(c.graph, c.inputs), work[part:])
    print(f"np.add(out=) of 16 floats {values.add * 1e6:.2f} us, derivation {derivation.case * 1e6:.0f} us a graph")
    print(f"verification {verification}")
    print(f"values {values}, sets {sets}")
    print(f"with derivation: values {_and(_and(values, derivation), verification)}, sets {_and(sets, derivation)}")


def _and(a: Cost, b: Cost) -> Cost:
    return Cost(a.case + b.case, a.add)


def derive(case: Case) -> None:
    for u in toposort(case.graph):
        _ = u.dtype, u.shape, u.min_max


if __name__ == "__main__":
    main()
