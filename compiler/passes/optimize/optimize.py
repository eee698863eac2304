"""The optimize pass: it splits, swaps and types loops, and routes values through local memory.

Takes: KERNEL, fused or not. Gives: SCHEDULED. Spec: Lowering Pipeline/Optimize; Kernel Optimizations (OptOps); R57 (order of
Ranges), R90 to R98 (the OptOps).

`select_random_beam_or_heuristic_scheduler` says how kernels are scheduled: by heuristics, by a search, or at random by seed. A body
of an unknown form keeps its initial schedule: LOOP axes outside, REDUCE axes inside, in order. Equal bodies are scheduled once, and
each part of a fused kernel by itself (`parts`). Last, one loop is given to the threads (`threads`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from uops import __version__
from uops.compiler.config import Config, cache_folder
from uops.compiler.ir.bodies import map_kernel_bodies
from uops.compiler.ir.buffers import fresh_uniques
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.heuristics.cpu import schedule_for_cpu_vectors
from uops.compiler.passes.optimize.heuristics.gpu import schedule_for_gpu
from uops.compiler.passes.optimize.heuristics.parts import schedule_kernel_or_fused_parts
from uops.compiler.passes.optimize.heuristics.scan import build_prefix_scan_body
from uops.compiler.passes.optimize.heuristics.scatter import build_scatter_body
from uops.compiler.passes.optimize.heuristics.threads import assign_thread_loop_if_worthwhile
from uops.compiler.passes.optimize.schedule.group import lower_or_serialize_group_reduces
from uops.compiler.passes.optimize.schedule.schedule import (
    Schedule,
    Scheduler,
    close_output_loops_into_sink,
    create_initial_schedule,
)
from uops.compiler.target import PLAIN, MachineModel, Target
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op


def choose_by_heuristics(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
    """Return the schedule that the hand-written heuristics choose for the machine."""
    return (schedule_for_gpu if machine.workgroup else schedule_for_cpu_vectors)(s, machine, uniques)


def select_random_beam_or_heuristic_scheduler(config: Config, target: Target) -> Scheduler:
    """Return the scheduler that the configuration names: random (for tests and conformance), a beam search, or the heuristics."""
    if config.forced is not None:
        from uops.compiler.passes.optimize.search.random_schedules import make_random_scheduler  # late: for tests and conformance

        return make_random_scheduler(config.forced)
    if config.beam:
        return _make_beam_search(config, target)
    return choose_by_heuristics


def _make_beam_search(config: Config, target: Target) -> Scheduler:
    from uops.compiler.passes.optimize.search.beam import Beam, listener  # late, as those below: they load NumPy and a toolchain
    from uops.compiler.passes.optimize.search.clock import TargetClock
    from uops.compiler.passes.optimize.search.store import ScheduleStore

    folder = cache_folder(os.environ)
    store = ScheduleStore(folder and folder / "schedules", target.key, __version__)
    return Beam(config.beam, TargetClock(target), store, choose_by_heuristics, config.beam_seconds, listener())


def optimize(root: UOp, machine: MachineModel = PLAIN, scheduler: Scheduler = choose_by_heuristics) -> UOp:
    """Schedule every kernel of a launch."""
    return map_kernel_bodies(root, lambda body: build_scan_or_scatter_or_schedule_kernel(body, machine, scheduler))


def build_scan_or_scatter_or_schedule_kernel(
    body: UOp, machine: MachineModel = PLAIN, scheduler: Scheduler = choose_by_heuristics
) -> UOp:
    """Return the SCHEDULED form of one kernel body. No scheduler sees a prefix reduction, nor a sum that an output loop selects."""
    start, fresh = create_initial_schedule(body), fresh_uniques(body)
    if start is None:
        return body
    if nodes_with_op(start.effect, Op.REDUCE):
        scan = build_prefix_scan_body(start, fresh, machine)
        if scan is not None:
            log_transform("scan", body, scan)
            return scan
        scatter = build_scatter_body(start, machine)
        if scatter is not None:
            log_transform("scatter", body, scatter)
            return scatter
    log_transform("loops", body, start.effect)
    scheduled = schedule_kernel_or_fused_parts(
        start, lambda s: lower_or_serialize_group_reduces(scheduler(s, machine, fresh), machine, fresh)
    )
    return close_output_loops_into_sink(assign_thread_loop_if_worthwhile(scheduled, machine))
