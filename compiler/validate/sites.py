"""The accesses of a body: an `AccessSite` each, `KernelAccesses` for all, and the names of their unknowns.

Takes: nothing; `reader` builds them. An `AccessSite` stands for all iterations of its loops. A Special is a loop around the whole
body. Spec: Memory; R45 (Index), R48 (symbolic sizes), R57 (Range), R61 (fresh buffers), R125 (Special).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from uops.compiler.validate import terms as T
from uops.compiler.validate.terms import Condition, LinearSum, Unknown
from uops.spec.errors import SpecError
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AXIS_TABLE, GRID, UNROLLED, WORKGROUP, AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ADDRESSING, MEMORY_ROOTS, Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import numbers_workgroups

#: Types of loops with unordered iterations (R57: Range): workgroups or threads, and lanes of one workgroup.
GROUPS = GRID
LANES = WORKGROUP | UNROLLED


@dataclass(frozen=True, slots=True)
class AccessSite:
    """An access, for all iterations of its `loops` (Specials and Ranges, outermost first) and for its `lane`.

    `at` is its position in the order of the body, and `size` the number of elements of its memory. The unknowns carry the loops'
    bounds; `loop_condition` has those that depend on others. `gate` has the conditions of the Ifs around, too, which are `ifs`
    (R114: If). `tile_counters` are additional counters of adjacent accesses that are merged into one.
    """

    kind: str
    node: UOp
    memory: UOp
    index: LinearSum
    gate: Condition
    loops: tuple[UOp, ...]
    lane: Unknown | None
    loop_condition: Condition
    at: int
    size: LinearSum
    tile_counters: tuple[Unknown, ...] = ()
    ifs: tuple[UOp, ...] = ()

    @property
    def condition(self) -> Condition:
        """The condition under which it executes."""
        return T.conjoin(self.loop_condition, self.gate)

    @property
    def counters(self) -> tuple[Unknown, ...]:
        """The unknowns that number its executions."""
        numbering = (*[loop_counter(r) for r in self.loops], *self.tile_counters)
        return numbering if self.lane is None else (*numbering, self.lane)

    @property
    def writes(self) -> bool:
        """True if it writes."""
        return self.kind != "load"

    def __str__(self) -> str:
        return f"{self.kind} of {describe_memory(self.memory)}"

    @property
    def named_argument_variables(self) -> Sequence[Unknown]:
        """The named variables that its element or condition depends on."""
        counters = self.counters
        return [
            v
            for v in T.collect_unknowns(self.condition, T.collect_unknowns(self.index, T.collect_unknowns(self.size)))
            if v not in counters and not v.loaded
        ]

    def substitute(self, values: Mapping[Unknown, LinearSum]) -> AccessSite:
        """Return the site with these values for some unknowns."""
        memo: dict[object, object] = {}
        index, gate, within, size = (T.substitute(x, values, memo) for x in (self.index, self.gate, self.loop_condition, self.size))
        return AccessSite(
            self.kind,
            self.node,
            self.memory,
            index,
            gate,
            self.loops,
            self.lane,
            within,
            self.at,
            size,
            self.tile_counters,
            self.ifs,
        )


@dataclass(frozen=True, slots=True)
class BarrierSite:
    """A Barrier: its position in the order of the body, and the loops and Ifs around it.

    `is_uniform` states that the conditions of the Ifs are seen to be equal in all lanes of a workgroup (R60: Barrier).
    """

    at: int
    loops: tuple[UOp, ...]
    ifs: tuple[UOp, ...]
    is_uniform: bool


@dataclass(frozen=True, slots=True)
class PositionSite:
    """A position of an Index of a value, for the condition under which it is computed. The axis has `extent` elements."""

    position: LinearSum
    extent: int
    condition: Condition


@dataclass(frozen=True, slots=True)
class KernelAccesses:
    """The accesses and Barriers of a body, and the positions in values, except constants that are in range."""

    root: UOp
    sites: tuple[AccessSite, ...]
    barriers: tuple[BarrierSite, ...] = ()
    positions: tuple[PositionSite, ...] = ()

    def substitute(self, values: Mapping[Unknown, LinearSum]) -> KernelAccesses:
        """Return the accesses with these values for some unknowns."""
        return replace(self, sites=tuple([s.substitute(values) for s in self.sites])) if values else self


def describe_memory(memory: UOp) -> str:
    """Return a memory's description for messages."""
    if memory.op is Op.PARAM:
        return f"argument {memory.arg.slot}"
    return f"{memory.arg.addrspace.value} buffer {memory.arg.unique}"


def size_of(s: AccessSite) -> int | None:
    """Return the number of elements of the memory of an access; None if it depends on a variable."""
    return None if s.size.terms else s.size.const


def loop_counter(loop: UOp) -> Unknown:
    """Return the unknown of a Range or Special."""
    low, high = loop.min_max or (0, T.FAR)
    return Unknown(f"special-{loop.arg.name}" if loop.op is Op.SPECIAL else f"r{loop.arg.axis_id}", int(low), int(high))


def loop_type(loop: UOp) -> AxisType:
    """Return the type of a Range, or of one that numbers what a Special does (R125)."""
    if loop.op is not Op.SPECIAL:
        axis_type: AxisType = loop.arg.type
        return axis_type
    return AxisType.GLOBAL if numbers_workgroups(loop) else AxisType.LOCAL


def is_ordered(loop: UOp) -> bool:
    """Return True if the iterations of a loop are ordered (R57, Range)."""
    return AXIS_TABLE[loop_type(loop)].ordered


def named_variable(u: UOp) -> Unknown:
    """Return the unknown of a named variable. A name that looks like another unknown's gets a suffix."""
    low, high = u.min_max or u.arg.bounds
    name = str(u.arg.name)
    return Unknown(f"{name}_" if re.match(r"(r|v|lane|tile)\d|special-", name) else name, int(low), int(high))


def lane_unknown(n: int) -> Unknown:
    """Return the unknown that numbers n lanes."""
    return Unknown(f"lane{n}", 0, n - 1)


def address_of(access: UOp) -> UOp:
    """Return the address of a Load, Store or AtomicAdd."""
    return access.index if access.op is Op.ATOMICADD else access.buffer


def base_memory(address: UOp) -> UOp:
    """Return the Param or Buffer that a reference is a view of. Raises SpecError."""
    while address.op in ADDRESSING:
        address = address.buffer if address.op is Op.AFTER else address.operand
    if address.op not in MEMORY_ROOTS:
        raise SpecError(f"an access needs an Index of a Param or Buffer, got a view by {address.op.name.lower()}")
    return address


def is_private(memory: UOp) -> bool:
    """Return True if each lane has its own copy of a memory (R61: fresh buffers)."""
    return memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.REG
