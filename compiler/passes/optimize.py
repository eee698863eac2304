"""Optimize: which loops are split, swapped, parallel or vectors, and what goes through local memory.

Takes: KERNEL. Gives: SCHEDULED. Spec: Lowering Pipeline/Optimize; Kernel Optimizations (OptOps); R57, R90 to R98.

`choose` says how a kernel is scheduled: the heuristics by default, or a caller's own. A body that it cannot take apart keeps its
initial schedule: LOOP axes outside, REDUCE axes inside, in order. Equal bodies are scheduled once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from uops.compiler.log import note
from uops.compiler.optimize.heuristics import choose
from uops.compiler.optimize.scan import scanned
from uops.compiler.optimize.schedule import Schedule, begin, sink
from uops.compiler.passes.callify import highest_unique
from uops.compiler.target import PLAIN, Machine
from uops.spec.node import UOp, toposort

#: (a kernel's initial schedule, the machine, numbers for LOCAL Buffers) -> its schedule.
Choose = Callable[[Schedule, Machine, Iterator[int]], Schedule]


def optimize(root: UOp, machine: Machine = PLAIN, chosen: Choose = choose) -> UOp:
    """The scheduled form of each kernel; prefix reductions become scans first."""
    uniques = itertools.count(highest_unique(toposort(root)) + 1)
    done: dict[UOp, UOp] = {}
    for call in root.src:
        body = call.src[0]
        if body not in done:
            done[body] = _scheduled(body, machine, chosen, uniques)
    return root.replace(src=tuple(c.replace(src=(done[c.src[0]], *c.src[1:])) for c in root.src))


def _scheduled(body: UOp, machine: Machine, chosen: Choose, uniques: Iterator[int]) -> UOp:
    start = begin(body)
    if start is None:
        return body
    scan = scanned(start, next(uniques))
    if scan is not None:
        note("scan", body, scan)
        return scan
    note("loops", body, start.effect)
    return sink(chosen(start, machine, uniques))
