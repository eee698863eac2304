"""Which loop of a kernel the cores share: a THREAD loop, outermost.

`threaded(schedule, machine)` makes one output loop a THREAD loop, whole: how many threads there are, and how they divide its
iterations, is decided when the kernel is called (`uops.compiler.ir.loops`), so that the same code serves any number and no extent
has to be divisible. Iterations of THREAD run in any order and at the same time (R57), so the loop has to be one whose iterations
meet in no element, and every filling of LOCAL memory has to lie inside of it: each iteration has its own (R128).

Spec: Range; OptOps (THREAD); R55, R57, R94, R128, R133.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from uops.compiler.ir.loops import in_order
from uops.compiler.passes.optimize.schedule.schedule import Schedule, replace_ranges
from uops.compiler.target import Machine
from uops.spec.ir.args import RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.scope import open_ranges

#: Operations on one element, from which a kernel is worth the threads: some 20 us of one core, against 2 to 5 us to hand out work
#: to threads that are awake, 50 us where they sleep.
WORTH = 200_000
#: Iterations per core, from which an outer loop is preferred to a longer one inside of it: pieces even out.
PER_CORE = 4
_OUTPUT = frozenset({AxisType.LOOP, AxisType.GLOBAL})
_COUNTED = ALU | {Op.LOAD, Op.STORE, Op.REDUCE}


def threaded(s: Schedule, machine: Machine) -> Schedule:
    """The schedule with a THREAD loop, where there are cores for it and the kernel is worth them."""
    if machine.cores < 2 or s.fixed or any(r.src[0].op is not Op.CONST or r.arg.type is AxisType.THREAD for r in s.ranges):
        return s
    order = toposort(s.effect)
    if len(order) * math.prod(map(_extent, s.ranges)) < WORTH:  # no kernel does more operations than that
        return s
    needs = open_ranges(order)
    if operations(order, needs) < WORTH:
        return s
    r = _loop(s, [needs[u] for u in order if u.op is Op.END], machine.cores)
    if r is None:
        return s
    new = UOp(Op.RANGE, r.src, RangeArg(r.arg.axis_id, AxisType.THREAD, r.arg.renumbered))
    effect = replace_ranges(s.effect, {r: (new, (new,))})
    return replace(s, effect=effect, outputs=tuple(new if x is r else x for x in s.outputs))


def operations(order: Sequence[UOp], needs: dict[UOp, frozenset[UOp]]) -> int:
    """Operations on single elements that a kernel does: those of every loop, as often as it runs."""
    loops = Counter([needs[u] | set(_closed(u)) if u.op is Op.REDUCE else needs[u] for u in order if u.op in _COUNTED])
    return sum(n * math.prod(map(_extent, ranges)) for ranges, n in loops.items())


def _closed(u: UOp) -> tuple[UOp, ...]:
    """A Reduce combines once per iteration."""
    return u.src[1:]


def _extent(r: UOp) -> int:
    return int(r.src[0].arg.value) if r.src[0].op is Op.CONST else 1


def _loop(s: Schedule, fills: Iterable[frozenset[UOp]], cores: int) -> UOp | None:
    """The outermost loop with iterations enough for all cores, else the longest; of those that tell places in the output apart."""
    around = frozenset(s.outputs).intersection(*fills, open_ranges(toposort(s.effect.src[0]))[s.effect.src[0]])
    loops = in_order(r for r in around if r.arg.type in _OUTPUT and _extent(r) > 1)
    enough = (r for r in loops if _extent(r) >= PER_CORE * cores)
    return next(enough, max(loops, key=_extent, default=None))
