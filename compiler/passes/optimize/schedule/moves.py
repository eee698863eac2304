"""Facts on which the heuristics decide, and the schedule transforms of which they are built."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

from uops.compiler.ir.extents import constant_extent
from uops.compiler.passes.optimize.schedule.accesses import StridedAccess, collect_accesses
from uops.compiler.passes.optimize.schedule.optops import (
    apply,
    apply_padto_and_split,
    find_loops_around_local_memory_fill_loops,
    split_whole_loop_to_change_type,
)
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by
from uops.spec.optops import OptOp, Padto, Split

#: Cost of a gathered element, one scalar load per lane, relative to an element of a contiguous vector load.
GATHER = 8
#: Loops shorter than this many vectors are not padded to a whole number of vectors.
_LEAST_PADDED = 2
#: Share of added iterations up to which a loop is padded for a register tile.
_MOST_ADDED = 0.25
#: Bytes of the first and second cache of a machine that states none.
CACHES = (32 << 10, 512 << 10)
#: Cost of an access per element, by its stride; every other stride costs GATHER.
COST: dict[int | None, int] = {0: 0, 1: 1}


class VectorizationFacts:
    """Facts on which vectorization is decided, computed once per kernel."""

    def __init__(self, s: Schedule) -> None:
        self.order = toposort(s.effect)
        self.accesses = collect_accesses(s.effect)
        self.loads = [a for a in self.accesses if a.node.op is Op.LOAD]
        self.store = next(a for a in self.accesses if a.node is s.effect)
        self.ends = nodes_with_op(s.effect, Op.END)
        self.reduces = nodes_with_op(s.effect, Op.REDUCE)
        # Iterations of these loops share LOCAL memory, or may write one element.
        self.unvectorizable = find_loops_around_local_memory_fill_loops(s.effect) | {
            r for r in s.outputs if r.arg.axis_id in s.ordered_ids
        }
        dtypes = {u.dtype for u in self.order if u.op is not Op.CONST}
        self.itemsize = max([d.itemsize for d in dtypes if d in dt.STORABLE], default=4)

    @functools.cached_property
    def enclosing_loops(self) -> dict[UOp, frozenset[UOp]]:
        """The open Ranges of each node."""
        return open_ranges(self.order)

    def gather_cost(self, r: UOp, loads: Iterable[StridedAccess]) -> int:
        """Return the cost of the loads per iteration of `r` in vector lanes; a load that does not depend on `r` is free."""
        return sum(COST.get(a.stride(r), GATHER) for a in loads)

    def can_vectorize_reduce_cheaply(self, reduce: UOp) -> bool:
        """Return True if the last loop of a Reduce may become lanes in which its loads cost at most as much as contiguous ones.

        The loads of nested Reduces count, too. Loads that do not depend on the loop can make up for a gathered one.
        """
        r, nodes = ranges_closed_by(reduce)[-1], set(toposort(reduce.operand))
        loads = [a for a in self.loads if a.node in nodes]
        return r not in self.unvectorizable and self.gather_cost(r, loads) <= len(loads)

    def direct_loads(self, u: UOp) -> list[StridedAccess]:
        """Return the loads of a Reduce's operand, without those of nested Reduces."""
        nodes = set(toposort(u.operand, gate=lambda n: n.op is not Op.REDUCE or n is u))
        return [a for a in self.loads if a.node in nodes]


def split_into_vectors_or_vectorize_whole(
    s: Schedule, loop: UOp, lanes: int, max_vectors: int, new_loop_type: AxisType
) -> Schedule:
    """Split a loop into up to `max_vectors` vectors of `lanes`.

    A short loop becomes one vector as a whole. A long loop that no number of vectors divides is padded.
    """
    n = constant_extent(loop)
    width = next((lanes * k for k in range(max_vectors, 0, -1) if n % (lanes * k) == 0), 0)
    if not width and n >= _LEAST_PADDED * lanes:
        width = lanes * max(k for k in range(1, max_vectors + 1) if padding_efficiency(n, lanes * k) >= 1 - _MOST_ADDED or k == 1)
    factor = width or (n if n <= lanes * max_vectors else largest_divisor(n, lanes))
    if factor == n > 1:
        return split_whole_loop_to_change_type(s, Split(axis_number(s, loop), n, new_loop_type))
    return split_with_padding(s, loop, factor, new_loop_type)


def largest_divisor(n: int, most: int) -> int:
    """Return the largest divisor of `n` that is at most `most`."""
    pairs = [(k, n // k) for k in range(1, min(most, math.isqrt(n)) + 1) if n % k == 0]
    return max(k for pair in pairs for k in pair if k <= most)


def split_with_padding(s: Schedule, loop: UOp, factor: int, new_loop_type: AxisType) -> Schedule:
    """Split loop `loop` by a factor, after padding it to a multiple if the factor does not divide it."""
    if factor <= 1:
        return s
    k = axis_number(s, loop)
    opt = Split(k, factor, new_loop_type)
    return apply_padto_and_split(s, Padto(k, factor), opt) if constant_extent(loop) % factor else apply(s, opt)


def apply_and_find_changed_loop(s: Schedule, loop: UOp, opt: OptOp) -> tuple[Schedule, UOp]:
    """Apply an OptOp that changes loop `loop` in place.

    Returns the schedule and the changed loop.
    """
    changed = apply(s, opt)
    return changed, next(x for x in changed.ranges if x.arg.axis_id == loop.arg.axis_id)


def axis_number(s: Schedule, r: UOp) -> int:
    """Return the axis number of a loop, found by its id (R95: position by priority, then id)."""
    return next(k for k, x in enumerate(s.ranges) if x.arg.axis_id == r.arg.axis_id)


def newest_loop(s: Schedule) -> UOp:
    """Return the loop that the last Split added."""
    return max(s.ranges, key=lambda r: int(r.arg.axis_id))


def padding_efficiency(n: int, k: int) -> float:
    """Return the share of useful iterations after `n` is padded to a multiple of `k`."""
    return n / (-(-n // k) * k)
