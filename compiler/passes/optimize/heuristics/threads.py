"""Choice of the loop that the cores share: an outermost THREAD loop.

`assign_thread_loop_if_worthwhile` turns one whole output loop into a THREAD loop. The number of threads and their share of the
iterations are decided when the kernel is called (`uops.compiler.ir.loops`). So the same code serves any number of threads, and no
extent must be divisible. Iterations of THREAD run concurrently in any order (R57: order of Ranges). The loop must therefore be
parallel, and every filling of LOCAL memory must lie inside it, since each iteration has its own (R128: private memory).

Spec: Range; OptOps (THREAD); R55 (races), R57, R94 (first types), R128, R133 (THREAD on a CPU).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from uops.compiler.ir.extents import loop_extent
from uops.compiler.ir.loops import sort_by_nesting
from uops.compiler.passes.optimize.schedule.schedule import Schedule, replace_ranges
from uops.compiler.target import MachineModel
from uops.spec.ir.args import RangeArg
from uops.spec.ir.axes import OUTPUT_LOOPS, AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.scope import open_ranges

#: Iterations per core from which an outer loop is preferred to a longer inner one: with more pieces, the load balances.
PER_CORE = 4
#: Ops that count as one operation per element.
_COUNTED = ALU | {Op.LOAD, Op.STORE, Op.REDUCE}


def assign_thread_loop_if_worthwhile(s: Schedule, machine: MachineModel) -> Schedule:
    """Turn an output loop into a THREAD loop if the machine has several cores and the kernel is worth them."""
    if machine.cores < 2 or s.ordered_ids or any(r.bound.op is not Op.CONST or r.arg.type is AxisType.THREAD for r in s.ranges):
        return s
    order = toposort(s.effect)
    least = machine.thresholds.threaded_operations
    if len(order) * math.prod(map(_extent, s.ranges)) < least:  # an upper bound of its operations
        return s
    needs = open_ranges(order)
    if count_executed_alu_and_memory_operations(order, needs) < least:
        return s
    r = _choose_thread_loop_around_all_fills(s, [needs[u] for u in order if u.op is Op.END], machine.cores)
    if r is None:
        return s
    new = UOp(Op.RANGE, r.src, RangeArg(r.arg.axis_id, AxisType.THREAD, r.arg.renumbered))
    effect = replace_ranges(s.effect, {r: (new, (new,))})
    return replace(s, effect=effect, outputs=tuple(new if x is r else x for x in s.outputs))


def count_executed_alu_and_memory_operations(order: Sequence[UOp], open_loops: dict[UOp, frozenset[UOp]]) -> int:
    """Count the operations on single elements that a kernel executes, each as often as its loops run.

    `open_loops` are the open Ranges of each node in `order`.
    """
    loops = Counter([open_loops[u].union(u.ranges) if u.op is Op.REDUCE else open_loops[u] for u in order if u.op in _COUNTED])
    return sum(n * math.prod(map(_extent, ranges)) for ranges, n in loops.items())


def _extent(r: UOp) -> int:
    """Return the constant extent of a loop, 1 for a symbolic one."""
    n = loop_extent(r)
    return n if isinstance(n, int) else 1


def _choose_thread_loop_around_all_fills(s: Schedule, loops_around_fills: Iterable[frozenset[UOp]], cores: int) -> UOp | None:
    """Return the outermost loop with enough iterations for all cores, else the longest; None if there is none.

    Only loops on which the address of the Store depends and that enclose all fillings of LOCAL memory qualify.
    """
    address = s.effect.buffer
    around = frozenset(s.outputs).intersection(*loops_around_fills, open_ranges(toposort(address))[address])
    loops = sort_by_nesting(r for r in around if r.arg.type in OUTPUT_LOOPS and _extent(r) > 1)
    enough = (r for r in loops if _extent(r) >= PER_CORE * cores)
    return next(enough, max(loops, key=_extent, default=None))
