"""Where in a kernel something happened, and what happened before it (R55, R58, R59, R60).

A `Stamp` is the way from the outermost block to an item, as integers: item, iteration, item, iteration, ..., item. Two stamps are
compared from the left; the first difference decides: items of one block by its `before`; iterations of a loop by the loop's type,
and those that are lanes of one workgroup by the barriers that the workgroup passed between them.
"""

from __future__ import annotations

from uops.interp.kernel.structure.blocks import GROUPS, LANES, Block, Item, Loop
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.untrusted import quote_name

Stamp = tuple[int, ...]
#: As the iteration of a lane loop: all lanes (the stamp of a barrier).
EVERY = -1


class Order:
    """The order of what happens in one run. `barriers`: those that the present workgroup's lanes passed, as stamps."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.barriers: list[Stamp] = []

    def before(self, a: Stamp, b: Stamp) -> bool:
        """Whether `a`, which ran first, happens before `b` under every schedule."""
        block, k, depth = self.block, 0, min(len(a), len(b))
        while True:
            i, j = a[k], b[k]
            if i != j:
                return bool(block.before[j] >> i & 1)
            k += 1
            if k >= depth:
                return False  # one event
            loop = block.items[i]
            assert isinstance(loop, Loop)
            x, y = a[k], b[k]
            if x != y and x != EVERY and y != EVERY:
                if loop.ordered:
                    return x < y
                return loop.type in LANES and self._apart(a, b)
            k += 1
            block = loop.block

    def _apart(self, a: Stamp, b: Stamp) -> bool:
        """Whether a barrier lies between two accesses of different lanes."""
        return any(self.before(a, e) and self.before(e, b) for e in reversed(self.barriers))

    def steps(self, stamp: Stamp) -> list[tuple[Item, int | None]]:
        """The items on the way, each loop with its iteration."""
        block, found = self.block, list[tuple[Item, int | None]]()
        for k in range(0, len(stamp), 2):
            item = block.items[stamp[k]]
            found.append((item, stamp[k + 1] if k + 1 < len(stamp) else None))
            if isinstance(item, Loop):
                block = item.block
        return found

    def common(self, stamp: Stamp) -> Stamp:
        """The stamp of an event that all lanes take part in."""
        found = list(stamp)
        for k, (item, iteration) in enumerate(self.steps(stamp)):
            if isinstance(item, Loop) and iteration is not None and item.type in LANES:
                found[2 * k + 1] = EVERY
        return tuple(found)

    def describe(self, stamp: Stamp) -> str:
        """An event in a message: `STORE of lane (lidx0=1) in group (gidx0=0)`."""
        steps = self.steps(stamp)
        last = steps[-1][0]
        place = self.place(stamp)
        node = last if isinstance(last, UOp) else last.closer
        return f"{node.op.name} of {place}" if place else node.op.name

    def place(self, stamp: Stamp) -> str:
        """The lane, the workgroup and the iterations of other loops, innermost words first; empty outside of all loops."""
        parts: dict[str, list[str]] = {"lane": [], "iteration": [], "group": []}
        for item, iteration in self.steps(stamp):
            if isinstance(item, Loop) and iteration is not None:
                kind = "lane" if item.type in LANES else "group" if item.type in GROUPS else "iteration"
                parts[kind].append(f"{_name(item.range)}={'*' if iteration == EVERY else iteration}")
        return " in ".join(f"{kind} ({', '.join(names)})" for kind, names in parts.items() if names)


def _name(u: UOp) -> str:
    return quote_name(u.arg.name) if u.op is Op.SPECIAL else f"axis {u.arg.axis_id}"
