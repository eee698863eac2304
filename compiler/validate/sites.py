"""What is known of the accesses of a body: a `Site` each, a `Body` of them, and the names of their unknowns.

Takes: nothing; `reader` makes them. A `Site` holds for all iterations of its loops. Spec: Memory; R45, R48, R57, R61.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from uops.compiler.validate import terms as T
from uops.compiler.validate.terms import Cond, Lin, Var
from uops.spec.errors import SpecError
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass

#: Loops whose iterations are not ordered against each other: workgroups or threads, and lanes of one workgroup (R57, R61).
GROUPS = frozenset({AxisType.GLOBAL, AxisType.THREAD})
LANES = frozenset({AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE, AxisType.UPCAST, AxisType.UNROLL})
_VIEWS = frozenset({Op.AFTER, Op.INDEX})


@dataclass(frozen=True, slots=True)
class Site:
    """One access, for all iterations of its `loops` (outermost first) and for its `lane`. `at` is its place in the order of the
    body, `size` what the memory has of elements. The loops' bounds are in the unknowns, and in `within` where they depend on
    others. `also` are counters more, of accesses side by side that are taken as one."""

    kind: str
    node: UOp
    memory: UOp
    index: Lin
    gate: Cond
    loops: tuple[UOp, ...]
    lane: Var | None
    within: Cond
    at: int
    size: Lin
    also: tuple[Var, ...] = ()

    @property
    def condition(self) -> Cond:
        """Where it happens."""
        return T.both(self.within, self.gate)

    @property
    def counters(self) -> tuple[Var, ...]:
        """The unknowns that number its executions."""
        own = (*[counter(r) for r in self.loops], *self.also)
        return own if self.lane is None else (*own, self.lane)

    @property
    def writes(self) -> bool:
        return self.kind != "load"

    def __str__(self) -> str:
        return f"{self.kind} of {spelled(self.memory)}"

    @property
    def variables(self) -> Sequence[Var]:
        """The named variables that tell what it touches."""
        own = self.counters
        return [
            v for v in T.unknowns(self.condition, T.unknowns(self.index, T.unknowns(self.size))) if v not in own and not v.loaded
        ]

    def put(self, values: Mapping[Var, Lin]) -> Site:
        """The site where some unknowns have these values."""
        done: dict[object, object] = {}
        index, gate, within, size = (T.substituted(x, values, done) for x in (self.index, self.gate, self.within, self.size))
        return Site(self.kind, self.node, self.memory, index, gate, self.loops, self.lane, within, self.at, size, self.also)


@dataclass(frozen=True, slots=True)
class Body:
    """`barriers` are places in the order, with the loops around."""

    root: UOp
    sites: tuple[Site, ...]
    barriers: tuple[tuple[int, tuple[UOp, ...]], ...] = ()
    ordered: bool = False

    def put(self, values: Mapping[Var, Lin]) -> Body:
        """The body where some unknowns have these values."""
        return Body(self.root, tuple([s.put(values) for s in self.sites]), self.barriers, self.ordered) if values else self


def spelled(memory: UOp) -> str:
    if memory.op is Op.PARAM:
        return f"argument {memory.arg.slot}"
    return f"{memory.arg.addrspace.value} buffer {memory.arg.unique}"


def size_of(s: Site) -> int | None:
    """Elements of the memory of an access; None where a variable decides."""
    return None if s.size.terms else s.size.const


def counter(r: UOp) -> Var:
    """The unknown of a loop."""
    low, high = r.min_max or (0, T.FAR)
    return Var(f"r{r.arg.axis_id}", int(low), int(high))


def variable(u: UOp) -> Var:
    """The unknown of a named variable. A name like those of other unknowns gets one more character."""
    low, high = u.min_max or u.arg.bounds
    name = str(u.arg.name)
    return Var(f"{name}_" if re.match(r"(r|v|lane|tile)\d", name) else name, int(low), int(high))


def lane_of(n: int) -> Var:
    return Var(f"lane{n}", 0, n - 1)


def base(address: UOp) -> UOp:
    """The Param or Buffer behind a reference."""
    while address.op in _VIEWS:
        address = address.src[0]
    if address.op not in (Op.PARAM, Op.BUFFER):
        raise SpecError(f"an access to a view by {address.op.name.lower()} is not read here")
    return address


def private(memory: UOp) -> bool:
    """Whether each lane has its own (R61)."""
    return memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.REG
