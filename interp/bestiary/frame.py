"""Where nodes have their values: a frame per iteration of a loop, per evaluation of a body, and per lane.

A node's cell is in the frame of the innermost loop that it stands in, so that it is evaluated once per combination of values of its
Ranges. `base` are the events that happen before everything in the frame: earlier iterations of an ordered loop, what a Call waits
for, earlier instructions of a Linear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from uops.interp.bestiary.memory import Memory, Private, fresh
from uops.interp.bestiary.plan import KINDS, Kind, Plan
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp

#: The loops whose iterations have LOCAL memory of their own, and REG memory.
_GROUPS = frozenset({Kind.GROUPS})
_LANES = frozenset({Kind.GROUPS, Kind.LANES})


@dataclass(eq=False, slots=True)
class Cell:
    """The value of a node: an array, a `Ref`, `Pointers`, or None of a void node; and the events that happen before its end.

    `loaded` is what the implicit Load of a reference gave (R51), `event` the bit of that access.
    """

    value: Any
    before: int
    frame: Frame
    loaded: Array | None = None
    event: int = 0


@dataclass(eq=False, slots=True)
class Lane:
    """One lane of a launch: the value of each SPECIAL by name, the memory of its workgroup, and its own (R61)."""

    position: dict[str, int] = field(default_factory=dict)
    shared: dict[Any, Memory] = field(default_factory=dict)
    own: dict[Any, Memory] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Scope:
    """One evaluation of one body; `caller` and `arguments` bind Param k to arguments[k] there. `call` is the Call, if it is one."""

    plan: Plan
    caller: Frame | None = None
    arguments: tuple[UOp, ...] = ()
    call: UOp | None = None


@dataclass(eq=False, slots=True)
class Frame:
    """`range` is None in the outermost frame of a scope. `events` are those that happen before its end."""

    scope: Scope
    lane: Lane
    base: int = 0
    outer: Frame | None = None
    range: UOp | None = None
    value: int = 0
    events: int = 0
    cells: dict[Any, Cell] = field(default_factory=dict)
    bodies: dict[UOp, Frame] = field(default_factory=dict)  # of a Function
    unrolled: dict[tuple[UOp, int], Frame] = field(default_factory=dict)

    def find(self, u: Any) -> Cell | None:
        frame: Frame | None = self
        while frame is not None:
            cell = frame.cells.get(u)
            if cell is not None:
                return cell
            frame = frame.outer
        return None

    def home(self, u: UOp) -> Frame:
        """The frame in which `u` has its cell."""
        loops = self.scope.plan.loops_of(u)
        frame = self
        while frame.outer is not None and frame.range not in loops:
            frame = frame.outer
        return frame

    def at(self, r: UOp) -> int | None:
        """The value of a Range here, None if its loop is not around."""
        frame: Frame | None = self
        while frame is not None:
            if frame.range is r:
                return frame.value
            frame = frame.outer
        return None

    def inside(self, r: UOp, value: int, base: int) -> Frame:
        return Frame(self.scope, self.lane, base, self, r, value)

    def lane_of(self, r: UOp, value: int) -> Frame:
        """The frame of an UNROLL's lane; all UNROLLs share it."""
        found = self.unrolled.get((r, value))
        if found is None:
            found = self.unrolled[r, value] = self.inside(r, value, self.base)
        return found

    def note(self, events: int) -> None:
        """Count events that happen before the end of this frame, and of all frames around."""
        frame: Frame | None = self
        while frame is not None:
            frame.events |= events
            frame = frame.outer if frame.outer is not None else frame.scope.caller

    def memory(self, private: Private) -> Memory:
        """The memory that this lane means by a DEFINE_LOCAL, a DEFINE_REG or a LOCAL BUFFERIZE, fresh where it is met first."""
        place = self.lane.own if private.of_lane else self.lane.shared
        key = private.node, self._place(_LANES if private.of_lane else _GROUPS)
        found = place.get(key)
        if found is None:
            found = place[key] = fresh(private.name, private.dtype, private.shape)
        return found

    def is_lane(self) -> bool:
        """Whether a loop of lanes is around."""
        return any(KINDS[r.arg.type] is Kind.LANES for r, _ in self._place(_LANES))

    def _place(self, kinds: frozenset[Kind]) -> tuple[tuple[UOp, int], ...]:
        """The iterations of these kinds around, those around a Function included."""
        found: list[tuple[UOp, int]] = []
        frame: Frame | None = self
        while frame is not None:
            if frame.range is not None and KINDS[frame.range.arg.type] in kinds:
                found.append((frame.range, frame.value))
            frame = frame.outer or (frame.scope.caller if frame.scope.call is None else None)
        return tuple(found)
