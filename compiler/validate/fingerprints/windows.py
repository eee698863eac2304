"""Reduces over a sliding window: the sum of f(i + r) over r, for all i, as in a prefix sum or a pooling.

Takes: the nodes of a kernel. Gives: the Reduces of this form, each with its term f as a body of one loop. Its sums from the first
element on give all windows, without a term per pair of i and r. Spec: R32 (value of a Reduce).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from uops.spec.ir import build as B
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import COUNTERS, Op
from uops.spec.ir.scope import base_memory

#: Number of pairs of i and r up to which each has a term.
_FEW = 1 << 16


class SlidingWindow(NamedTuple):
    """The loop i around a Reduce, its extent, that of r, the term f of one loop, and a body that contains it."""

    outer: UOp
    outer_extent: int
    extent: int
    term: UOp
    body: UOp


def find_sliding_windows(
    nodes: Sequence[UOp], loops: Sequence[UOp], enumerated_apart: Collection[UOp], stored: Collection[UOp]
) -> Mapping[UOp, SlidingWindow]:
    """Return the large Reduces over sliding windows. None is over a loop of `enumerated_apart`, or loads memory in `stored`."""
    windows = {}
    for u in nodes:
        if u.op is not Op.REDUCE or len(u.ranges) != 1 or u.arg.axes or u.ranges[0].bound.op is not Op.CONST:
            continue
        (r,) = u.ranges
        for i in loops:
            w = _match_window(u, i, r)
            if w is None or not {i, r}.isdisjoint(enumerated_apart):
                continue
            if not any(base_memory(x.buffer) in stored for x in toposort(w.term) if x.op is Op.LOAD):
                windows[u] = w
                break
    return windows


def _match_window(u: UOp, i: UOp, r: UOp) -> SlidingWindow | None:
    if i is r or i.op is not Op.RANGE or i.bound.op is not Op.CONST:
        return None
    outer_extent, extent = int(i.bound.arg.value), int(r.bound.arg.value)
    if outer_extent * extent <= _FEW or min(outer_extent, extent) < 1:
        return None
    s = B.range_(outer_extent + extent - 1, -1, AxisType.LOOP)
    term = substitute(u.operand, {UOp(Op.ADD, (i, r)): s, UOp(Op.ADD, (r, i)): s})
    if any(x.op in COUNTERS and x is not s for x in toposort(term)) or any(x.op is Op.BUFFER for x in toposort(term)):
        return None
    memory = B.param(-1, (outer_extent + extent - 1,), u.operand.dtype)
    return SlidingWindow(i, outer_extent, extent, term, B.sink(B.end(B.store(B.at(memory, s), term), s)))
