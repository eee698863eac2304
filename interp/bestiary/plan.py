"""What is fixed about a scope before it runs: in which loops each node stands, and what each loop must have evaluated around it.

A node stands in the loops of the Ranges that it depends on and that nothing below it closes. Several Ranges closed by one node
nest by AxisType priority, then axis id (R109), but inside of those that their bound needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from uops.interp.ops.movement import operand_sources
from uops.spec.bestiary.tables import RANGE_ENDING
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by

Ranges = frozenset[UOp]
_NONE: Ranges = frozenset()


class Kind(Enum):
    """How the iterations of a loop stand to each other."""

    ORDERED = "one after the other"
    FREE = "in any order"
    LANES = "together, as lanes of one workgroup"
    GROUPS = "each a workgroup of its own"


#: R57: LOOP and REDUCE iterate in order, all other types are unordered.
KINDS: dict[AxisType, Kind] = {
    AxisType.PLACEHOLDER: Kind.FREE,
    AxisType.LOOP: Kind.ORDERED,
    AxisType.GLOBAL: Kind.GROUPS,
    AxisType.THREAD: Kind.GROUPS,
    AxisType.WARP: Kind.LANES,
    AxisType.LOCAL: Kind.LANES,
    AxisType.GROUP_REDUCE: Kind.LANES,
    AxisType.UPCAST: Kind.FREE,
    AxisType.REDUCE: Kind.ORDERED,
    AxisType.UNROLL: Kind.FREE,
}
_SHAPED = frozenset({Op.RESHAPE, Op.EXPAND})
#: What the node above reads as data.
ABSORBED = frozenset({Op.UNIQUE, Op.LUNIQUE, Op.DEVICE, Op.SOURCE})


@dataclass(frozen=True, slots=True)
class Level:
    """One loop of a nest, and the nodes of its body that stand right outside of it."""

    range: UOp
    invariant: tuple[UOp, ...]


class Plan:
    """The plan of the scope of `root`; `bound` gives the value of every bound variable (R112)."""

    def __init__(self, root: UOp, bound: Mapping[UOp, UOp]) -> None:
        self.root = root
        self.bound = bound
        self.nodes = self._order()
        self._closers = {r for u in self.nodes for r in closed_by(u)}
        self.loops: dict[UOp, Ranges] = {}
        self._bottom_up()
        self._levels: dict[tuple[tuple[UOp, ...], tuple[UOp, ...]], tuple[Level, ...]] = {}

    def loops_of(self, u: UOp) -> Ranges:
        """The Ranges in whose loops `u` stands; a size that no node spells stands in none."""
        return self.loops.get(u, _NONE)

    def operands(self, u: UOp) -> tuple[UOp, ...]:
        """The sources that are evaluated in this scope."""
        op = u.op
        if op is Op.FUNCTION or op is Op.CALL:
            return u.src[1:]
        if op is Op.DEFINE_VAR:
            return (self.bound[u],) if u in self.bound else ()
        if op is Op.BIND:
            return u.src[:1]
        if op in _SHAPED:
            return operand_sources(u)
        if op is Op.B_PROGRAM:
            return (stage(u),)
        return tuple(s for s in u.src if s.op not in ABSORBED)

    def closes(self, u: UOp) -> tuple[UOp, ...]:
        """The Ranges whose loops end at `u`. A Call ends those among its arguments that nothing else closes (R121)."""
        if u.op is Op.CALL:
            return tuple(s for s in u.src[1:] if s.op is Op.B_RANGE and s not in self._closers)
        return tuple(dict.fromkeys(closed_by(u)))

    def body(self, u: UOp) -> tuple[UOp, ...]:
        """The sources of a range-ending node that stand in its loops."""
        return self.operands(u) if u.op is Op.CALL else u.src[: RANGE_ENDING[u.op]]

    def unrolled(self, u: UOp) -> tuple[UOp, ...]:
        """The Ranges that an UNROLL replaces by its lanes (R111)."""
        if u.src[0].shape:
            return ()
        ids = {a for a, _ in u.arg.axes}
        return tuple(sorted((r for r in self.loops_of(u.src[0]) if r.arg.axis_id in ids), key=_rank))

    def levels(self, body: Sequence[UOp], ranges: Sequence[UOp]) -> tuple[Level, ...]:
        """The nest of loops of `ranges` around `body`, outermost first."""
        key = tuple(body), tuple(ranges)
        found = self._levels.get(key)
        if found is None:
            order = self._nest(ranges)
            found = self._levels[key] = tuple(Level(r, self._invariant(body, order[k:])) for k, r in enumerate(order))
        return found

    # ------------------------------------------------------------------------------------------------------------ passes

    def _order(self) -> list[UOp]:
        seen: set[UOp] = set()
        order: list[UOp] = []
        stack: list[tuple[UOp, bool]] = [(self.root, False)]
        while stack:
            u, ready = stack.pop()
            if ready:
                order.append(u)
            elif u not in seen:
                seen.add(u)
                stack.append((u, True))
                stack.extend((s, False) for s in reversed(self.operands(u)) if s not in seen)
        return order

    def _bottom_up(self) -> None:
        found = self.loops
        for u in self.nodes:
            opened = _NONE if u.op is Op.LINEAR else _NONE.union(*(found[s] for s in self.operands(u)))
            if u.op is Op.UNROLL:
                opened = opened.difference(self.unrolled(u))
            elif u.op is Op.B_IF:
                opened = opened.difference(*(self.closes(e) for e in effects_of(u)))
            elif opened:
                opened = opened.difference(self.closes(u))
            found[u] = opened | {u} if u.op is Op.B_RANGE else opened

    # ------------------------------------------------------------------------------------------------------------- loops

    def _nest(self, ranges: Sequence[UOp]) -> list[UOp]:
        left, order = sorted(set(ranges), key=_rank), []
        while left:
            first = next(r for r in left if self.loops_of(r).isdisjoint(x for x in left if x is not r))
            left.remove(first)
            order.append(first)
        return order

    def _invariant(self, body: Sequence[UOp], inner: Sequence[UOp]) -> tuple[UOp, ...]:
        """The first nodes, from `body` down, that stand outside of the `inner` loops and of every loop closed on the way."""
        closed = set(inner)
        found: dict[UOp, None] = {}
        seen: set[UOp] = set()
        pending = list(reversed(body))
        while pending:
            u = pending.pop()
            if u in seen:
                continue
            seen.add(u)
            closed.update(self.closes(u))
            if u.op is Op.UNROLL:
                closed.update(self.unrolled(u))
            outside = self.loops_of(u).isdisjoint(closed) and u not in body
            if outside and u.op is not Op.B_RANGE:
                found[u] = None
            elif u.op is Op.B_IF:
                pending += [s for e in effects_of(u) for s in self.operands(e) if e.op is Op.B_STORE]
                pending.append(u.src[0])
            else:
                pending += reversed(self.operands(u))
        return tuple(u for u in found if self.loops_of(u).isdisjoint(closed))


def stage(u: UOp) -> UOp:
    """What a PROGRAM of the bestiary runs (R115): its Linear where there is one, else the Sink."""
    return u.src[2] if len(u.src) > 2 else u.src[0]


def effects_of(u: UOp) -> list[UOp]:
    """Every effect in the body of an IF."""
    found: list[UOp] = []
    pending = list(u.src[1:])
    while pending:
        e = pending.pop()
        found.append(e)
        if e.op is Op.GROUP or e.op is Op.ENDIF:
            pending += e.src
        elif e.op is Op.END:
            pending.append(e.src[0])
        elif e.op is Op.B_IF:
            pending += e.src[1:]
    return found


def _rank(r: UOp) -> tuple[int, int, bool]:
    return r.arg.type.priority, r.arg.axis_id, r.arg.renumbered
