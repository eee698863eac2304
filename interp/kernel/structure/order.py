"""Stamps of events in a kernel, and the happens-before order between them (R55, R58, R59, R60: races, loops, After, barriers).

A `Stamp` is the way from the outermost block to an item, as integers: item, iteration, item, iteration, ..., item. Two stamps
are compared from the left, and the first difference decides. Items of one block are ordered by its `before`. Iterations of a
loop are ordered by the loop's type, and lanes of one workgroup by the barriers that the workgroup passed between them.
"""

from __future__ import annotations

from uops.interp.kernel.structure.blocks import LANE_AXES, WORKGROUP_AXES, Item, Loop, ScheduledBlock
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.untrusted import escape_to_one_line

#: An event of a run: item, iteration, item, ..., item.
Stamp = tuple[int, ...]
#: The iteration that stands for all lanes of a loop, in the stamp of a barrier.
ALL_LANES = -1


class EventOrder:
    """The happens-before order of one run.

    `barriers` are the stamps of the barriers that the present workgroup's lanes have passed.
    """

    def __init__(self, block: ScheduledBlock) -> None:
        self.block = block
        self.barriers: list[Stamp] = []

    def happens_before(self, ran_first: Stamp, ran_later: Stamp) -> bool:
        """Return True if `ran_first`, which ran first, happens before `ran_later` under every schedule."""
        block, k, depth = self.block, 0, min(len(ran_first), len(ran_later))
        while True:
            i, j = ran_first[k], ran_later[k]
            if i != j:
                return bool(block.before[j] >> i & 1)
            k += 1
            if k >= depth:
                return False  # the same event
            loop = block.items[i]
            assert isinstance(loop, Loop)
            x, y = ran_first[k], ran_later[k]
            if x != y and x != ALL_LANES and y != ALL_LANES:
                if loop.is_ordered:
                    return x < y
                return loop.type in LANE_AXES and self._is_separated_by_barrier(ran_first, ran_later)
            k += 1
            block = loop.block

    def _is_separated_by_barrier(self, a: Stamp, b: Stamp) -> bool:
        """Return True if a barrier lies between two accesses of different lanes."""
        return any(self.happens_before(a, e) and self.happens_before(e, b) for e in reversed(self.barriers))

    def decode_stamp(self, stamp: Stamp) -> list[tuple[Item, int | None]]:
        """Return the items on the way, each loop with its iteration."""
        block, steps = self.block, list[tuple[Item, int | None]]()
        for k in range(0, len(stamp), 2):
            item = block.items[stamp[k]]
            steps.append((item, stamp[k + 1] if k + 1 < len(stamp) else None))
            if isinstance(item, Loop):
                block = item.block
        return steps

    def widen_to_all_lanes(self, stamp: Stamp) -> Stamp:
        """Return the stamp of an event that all lanes take part in."""
        widened = list(stamp)
        for k, (item, iteration) in enumerate(self.decode_stamp(stamp)):
            if isinstance(item, Loop) and iteration is not None and item.type in LANE_AXES:
                widened[2 * k + 1] = ALL_LANES
        return tuple(widened)

    def describe_event(self, stamp: Stamp) -> str:
        """Return an event for a message: `STORE of lane (lidx0=1) in group (gidx0=0)`."""
        steps = self.decode_stamp(stamp)
        last = steps[-1][0]
        location = self.describe_location(stamp)
        node = last if isinstance(last, UOp) else last.closer
        return f"{node.op.name} of {location}" if location else node.op.name

    def describe_location(self, stamp: Stamp) -> str:
        """Return the lane, the workgroup and the iterations of other loops, innermost first; empty outside of all loops."""
        parts: dict[str, list[str]] = {"lane": [], "iteration": [], "group": []}
        for item, iteration in self.decode_stamp(stamp):
            if isinstance(item, Loop) and iteration is not None:
                kind = "lane" if item.type in LANE_AXES else "group" if item.type in WORKGROUP_AXES else "iteration"
                parts[kind].append(f"{_axis_name(item.range)}={'*' if iteration == ALL_LANES else iteration}")
        return " in ".join(f"{kind} ({', '.join(names)})" for kind, names in parts.items() if names)


def _axis_name(u: UOp) -> str:
    """Return the name of a Special, or the axis id of a Range."""
    return escape_to_one_line(u.arg.name) if u.op is Op.SPECIAL else f"axis {u.arg.axis_id}"
