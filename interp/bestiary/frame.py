"""Frames hold the values of nodes: one per iteration of a loop, per evaluation of a body, and per lane.

A node's cell is in the frame of the innermost loop that it stands in, so that it is evaluated once per combination of values of
its Ranges. `events_before` has the events that happen before everything in the frame: earlier iterations of an ordered loop, the
arguments of a Call, earlier instructions of a Linear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from uops.interp.bestiary.memory import BestiaryMemory, PrivateMemory, allocate_memory
from uops.interp.bestiary.plan import KINDS, BestiaryLoopKind, ScopePlan
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp

#: Kinds of loops whose iterations have LOCAL memory of their own.
_GROUPS = frozenset({BestiaryLoopKind.GROUPS})
#: Kinds of loops whose iterations have REG memory of their own.
_LANES = frozenset({BestiaryLoopKind.GROUPS, BestiaryLoopKind.LANES})


@dataclass(eq=False, slots=True)
class BestiaryCell:
    """The value of a node, and the events that happen before its end.

    `value` is an array, a `BestiaryRef`, a `PointerVector`, or None of a void node. `loaded` is the result of the implicit Load
    of a reference (R51), and `event` the bit of that access.
    """

    value: Any
    before: int
    frame: BestiaryFrame
    loaded: Array | None = None
    event: int = 0


@dataclass(eq=False, slots=True)
class BestiaryLane:
    """One lane of a launch: the value of each SPECIAL by name, the memories of its workgroup, and its own (R61)."""

    position: dict[str, int] = field(default_factory=dict)
    workgroup_memories: dict[Any, BestiaryMemory] = field(default_factory=dict)
    lane_memories: dict[Any, BestiaryMemory] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class BestiaryScope:
    """One evaluation of one body.

    `caller` and `arguments` bind Param k to arguments[k] there. `call` is the Call, if the body is one's.
    """

    plan: ScopePlan
    caller: BestiaryFrame | None = None
    arguments: tuple[UOp, ...] = ()
    call: UOp | None = None


@dataclass(eq=False, slots=True)
class BestiaryFrame:
    """The cells of one iteration of a loop, or of a whole body.

    `range` is None in the outermost frame of a scope. `events` are those that happen before the end of the frame.
    """

    scope: BestiaryScope
    lane: BestiaryLane
    events_before: int = 0
    outer: BestiaryFrame | None = None
    range: UOp | None = None
    value: int = 0
    events: int = 0
    cells: dict[Any, BestiaryCell] = field(default_factory=dict)
    bodies: dict[UOp, BestiaryFrame] = field(default_factory=dict)  # of a Function
    unrolled: dict[tuple[UOp, int], BestiaryFrame] = field(default_factory=dict)

    def find_cell(self, u: Any) -> BestiaryCell | None:
        """Return the cell of `u` in this frame or one around it, or None."""
        frame: BestiaryFrame | None = self
        while frame is not None:
            cell = frame.cells.get(u)
            if cell is not None:
                return cell
            frame = frame.outer
        return None

    def frame_of_innermost_loop_around(self, u: UOp) -> BestiaryFrame:
        """Return the frame in which `u` has its cell."""
        loops = self.scope.plan.loops_of(u)
        frame = self
        while frame.outer is not None and frame.range not in loops:
            frame = frame.outer
        return frame

    def range_value(self, range_node: UOp) -> int | None:
        """Return the value of a Range here, None outside of its loop."""
        frame: BestiaryFrame | None = self
        while frame is not None:
            if frame.range is range_node:
                return frame.value
            frame = frame.outer
        return None

    def enter_iteration(self, r: UOp, value: int, events_before: int) -> BestiaryFrame:
        """Return a frame for one iteration of a loop in this one."""
        return BestiaryFrame(self.scope, self.lane, events_before, self, r, value)

    def get_or_make_unrolled_lane_frame(self, r: UOp, value: int) -> BestiaryFrame:
        """Return the frame of an UNROLL's lane; all UNROLLs share it."""
        frame = self.unrolled.get((r, value))
        if frame is None:
            frame = self.unrolled[r, value] = self.enter_iteration(r, value, self.events_before)
        return frame

    def add_event_bits_to_this_and_outer_frames(self, event_bits: int) -> None:
        """Add events that happen before the end of this frame, and of all frames around it."""
        frame: BestiaryFrame | None = self
        while frame is not None:
            frame.events |= event_bits
            frame = frame.outer if frame.outer is not None else frame.scope.caller

    def get_or_make_private_memory(self, private: PrivateMemory) -> BestiaryMemory:
        """Return this lane's memory of a DEFINE_LOCAL, a DEFINE_REG or a LOCAL BUFFERIZE, made on first use."""
        memories = self.lane.lane_memories if private.of_lane else self.lane.workgroup_memories
        key = private.node, self._enclosing_iterations_innermost_first(_LANES if private.of_lane else _GROUPS)
        memory = memories.get(key)
        if memory is None:
            memory = memories[key] = allocate_memory(private.name, private.dtype, private.shape)
        return memory

    def is_in_lane_loop(self) -> bool:
        """Return True if a loop of lanes is around this frame."""
        return any(KINDS[r.arg.type] is BestiaryLoopKind.LANES for r, _ in self._enclosing_iterations_innermost_first(_LANES))

    def _enclosing_iterations_innermost_first(self, kinds: frozenset[BestiaryLoopKind]) -> tuple[tuple[UOp, int], ...]:
        """Return the iterations of loops of these kinds around this frame, those around a Function included."""
        iterations: list[tuple[UOp, int]] = []
        frame: BestiaryFrame | None = self
        while frame is not None:
            if frame.range is not None and KINDS[frame.range.arg.type] in kinds:
                iterations.append((frame.range, frame.value))
            frame = frame.outer or (frame.scope.caller if frame.scope.call is None else None)
        return tuple(iterations)
