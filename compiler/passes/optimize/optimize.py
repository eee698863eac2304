"""Optimize: which loops are split, swapped, parallel or vectors, and what goes through local memory.

Takes: KERNEL, joined or not. Gives: SCHEDULED. Spec: Lowering Pipeline/Optimize; Kernel Optimizations (OptOps); R57, R90 to R98.

`choice` says how kernels are scheduled: by the heuristics, by a search, or as a seed draws them. A body that cannot be taken apart
keeps its initial schedule: LOOP axes outside, REDUCE axes inside, in order. Equal bodies are scheduled once; each part of a joined
kernel by itself (`parts`). Last, a loop is left to the threads (`threads`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from uops import __version__
from uops.compiler.config import Config, cache_folder
from uops.compiler.ir.bodies import each
from uops.compiler.log import note
from uops.compiler.passes.callify.callify import uniques
from uops.compiler.passes.optimize.heuristics.cpu import choose
from uops.compiler.passes.optimize.heuristics.gpu import choose as choose_lanes
from uops.compiler.passes.optimize.heuristics.parts import scheduled_parts
from uops.compiler.passes.optimize.heuristics.scan import scanned
from uops.compiler.passes.optimize.heuristics.threads import threaded
from uops.compiler.passes.optimize.schedule.group import grouped
from uops.compiler.passes.optimize.schedule.schedule import Schedule, begin, sink
from uops.compiler.target import PLAIN, Machine, Target
from uops.spec.ir.node import UOp

#: (a kernel's initial schedule, the machine, numbers for LOCAL Buffers) -> its schedule.
Choose = Callable[[Schedule, Machine, Iterator[int]], Schedule]


def hand_written(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """The choices for the machine at hand."""
    return (choose_lanes if machine.workgroup else choose)(s, machine, uniques)


def choice(config: Config, target: Target) -> Choose:
    """Who chooses the schedules."""
    if config.forced is not None:
        from uops.compiler.passes.optimize.search.random_schedules import draw  # for tests and conformance only

        return draw(config.forced)
    if config.beam:
        return _beam(config, target)
    return hand_written


def _beam(config: Config, target: Target) -> Choose:
    from uops.compiler.passes.optimize.search.beam import Beam, listener  # loads NumPy and a toolchain: only where it is asked for
    from uops.compiler.passes.optimize.search.clock import TargetClock
    from uops.compiler.passes.optimize.search.store import Store

    folder = cache_folder(os.environ)
    store = Store(folder and folder / "schedules", target.key, __version__)
    return Beam(config.beam, TargetClock(target), store, hand_written, config.beam_seconds, listener())


def optimize(root: UOp, machine: Machine = PLAIN, chosen: Choose = hand_written) -> UOp:
    """The scheduled form of each kernel; prefix reductions become scans first."""
    return each(root, lambda body: scheduled(body, machine, chosen))


def scheduled(body: UOp, machine: Machine = PLAIN, chosen: Choose = hand_written) -> UOp:
    """The scheduled form of one kernel."""
    start, fresh = begin(body), uniques(body)
    if start is None:
        return body
    scan = scanned(start, fresh, machine)
    if scan is not None:
        note("scan", body, scan)
        return scan
    note("loops", body, start.effect)
    done = scheduled_parts(start, lambda s: grouped(chosen(s, machine, fresh), machine, fresh))
    return sink(threaded(done, machine))
