"""Graphs per second of the reference interpreter, one core, all asserts on.

    python bench/interp_speed.py [--graphs N] [--seed S]

The graphs are those of the generator (`uops.fuzz.generate.graphs`, element cap 1,000) with exactly 12 live nodes: every node but
index values, which spell shapes and positions. They have every family and dtype of the TENSOR dialect; a Bitcast or Slice may need
more elements of a narrower dtype than the cap. Each graph is built before the clock starts and evaluated once. Only the
interpreter itself is warm: its tables of functions and conversions of narrow floats are built before. Processor time is measured,
and existing graphs are hidden from the garbage collector.

`derivation` is the time of deriving every node's dtype, shape and min_max, as far as building the graph did not need them.
`verification` is the time of judging the claims of its rows, once per graph. `values` is `run` with every assert, on a graph after
both; `sets` is the same for the allowed sets at the strict level. The last line adds derivation and, to `values`, verification.

Graphs per second are those of this machine. The cost in calls of np.add on 16 floats, timed between the graphs, carries over to
others: 8,000 and 3,000 graphs a second are 329 and 877 calls per graph if np.add takes 0.38 us.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import FuzzCase, generate_tensor_graph
from uops.fuzz.generate.producers import VALUES
from uops.interp import run
from uops.interp.allowed import compute_allowed_sets
from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.verifier import verify

#: Live nodes of a case.
LIVE = 12
#: Graphs between two timings of np.add.
CHUNK = 50


def count_live_nodes(case: FuzzCase) -> int:
    """Count the nodes that are values or effects."""
    return sum(u.dtype is not dt.index for u in toposort(case.graph))


def generate_cases(seed: int, count: int) -> list[FuzzCase]:
    """Return the first `count` cases of 12 live nodes from `seed` on."""
    cases: list[FuzzCase] = []
    while len(cases) < count:
        case = generate_tensor_graph(SeededDraw(seed), nodes=5, features=VALUES)
        seed += 1
        if count_live_nodes(case) == LIVE:
            cases.append(case)
    return cases


class GraphCost(NamedTuple):
    """Processor seconds per case and per call of np.add, timed in turns so that both see the same machine."""

    case: float
    add: float

    def __str__(self) -> str:
        return f"{1 / self.case:,.0f} graphs/s ({self.case / self.add:.0f} np.add a graph)"


def measure_cost(action: Callable[[FuzzCase], object], work: list[FuzzCase]) -> GraphCost:
    """Measure an action on every case."""
    gc.collect()
    gc.freeze()
    spent = yard = 0.0
    for at in range(0, len(work), CHUNK):
        yard += time_add_yardstick()
        start = time.process_time()
        for case in work[at : at + CHUNK]:
            action(case)
        spent += time.process_time() - start
    return GraphCost(spent / len(work), yard / len(range(0, len(work), CHUNK)))


def time_add_yardstick(calls: int = 1000) -> float:
    """Return the processor seconds of one `np.add(a, b, out=c)` on 16 floats."""
    a, c, add = np.ones(16, np.float32), np.empty(16, np.float32), np.add
    start = time.process_time()
    for _ in range(calls):
        add(a, a, out=c)
    return (time.process_time() - start) / calls


def warm_interpreter_tables() -> None:
    """Build every table that the interpreter builds on first use: unary ops and conversions of floats up to 16 bits."""
    for d in (d for d in dt.FLOATS if d.bits <= 16):
        one = np.ones((), NUMPY[d])
        for op in (Op.EXP2, Op.LOG2, Op.SIN):
            KERNELS[op][d](one)
        for (source, _), convert in CASTS.items():
            if source is d:
                convert(one)
    for op in (Op.EXP2, Op.LOG2, Op.SIN):
        KERNELS[op][dt.float64](np.ones(()))


def largest_input(case: FuzzCase) -> int:
    """Return the number of elements of the largest input."""
    return max((int(np.size(v)) for v in case.inputs.values()), default=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    work = generate_cases(options.seed, options.graphs)
    part = len(work) // 2
    sizes = sorted(largest_input(c) for c in work)
    print(f"{len(work)} graphs from seed {options.seed}, {LIVE} live nodes each")
    print(f"largest input: {sizes[part]} elements in the median graph, {sizes[-1]} at most")
    warm_interpreter_tables()
    for case in generate_cases(10**9, 100):  # import what is imported on first use
        run(case.graph, case.inputs)
        compute_allowed_sets(case.graph, case.inputs)
    derivation = measure_cost(derive_properties, work)
    verification = measure_cost(lambda c: verify(c.graph), work)
    values = measure_cost(lambda c: run(c.graph, c.inputs), work[:part])
    sets = measure_cost(lambda c: compute_allowed_sets(c.graph, c.inputs), work[part:])
    print(f"np.add(out=) of 16 floats {values.add * 1e6:.2f} us, derivation {derivation.case * 1e6:.0f} us a graph")
    print(f"verification {verification}")
    print(f"values {values}, sets {sets}")
    print(
        f"with derivation: values {_add_costs(_add_costs(values, derivation), verification)}, sets {_add_costs(sets, derivation)}"
    )


def _add_costs(a: GraphCost, b: GraphCost) -> GraphCost:
    """Return the cost of two actions on one graph."""
    return GraphCost(a.case + b.case, a.add)


def derive_properties(case: FuzzCase) -> None:
    """Derive dtype, shape and min_max of every node."""
    for u in toposort(case.graph):
        _ = u.dtype, u.shape, u.min_max


if __name__ == "__main__":
    main()
