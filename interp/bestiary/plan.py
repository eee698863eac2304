"""Static facts about a scope: the loops in which each node stands, and the nodes that each loop needs evaluated outside of it.

A node stands in the loops of the Ranges that it depends on and that nothing below it closes. Several Ranges closed by one node
nest by AxisType priority, then axis id (R109), but inside of those that their bound needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from uops.interp.ops.movement import data_and_symbolic_sources
from uops.spec.bestiary.tables import RANGE_ENDING
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import TO_SHAPE, Op
from uops.spec.ir.scope import ranges_closed_by

Ranges = frozenset[UOp]
_NO_RANGES: Ranges = frozenset()


class BestiaryLoopKind(Enum):
    """The relation of a loop's iterations to each other."""

    ORDERED = "one after the other"
    FREE = "in any order"
    LANES = "together, as lanes of one workgroup"
    GROUPS = "each a workgroup of its own"


#: AxisType -> kind of its loops. LOOP and REDUCE iterate in order, all other types are unordered (R57).
KINDS: dict[AxisType, BestiaryLoopKind] = {
    AxisType.PLACEHOLDER: BestiaryLoopKind.FREE,
    AxisType.LOOP: BestiaryLoopKind.ORDERED,
    AxisType.GLOBAL: BestiaryLoopKind.GROUPS,
    AxisType.THREAD: BestiaryLoopKind.GROUPS,
    AxisType.WARP: BestiaryLoopKind.LANES,
    AxisType.LOCAL: BestiaryLoopKind.LANES,
    AxisType.GROUP_REDUCE: BestiaryLoopKind.LANES,
    AxisType.UPCAST: BestiaryLoopKind.FREE,
    AxisType.REDUCE: BestiaryLoopKind.ORDERED,
    AxisType.UNROLL: BestiaryLoopKind.FREE,
}
#: Ops that the node above reads as data: they have no value of their own.
ABSORBED = frozenset({Op.UNIQUE, Op.LUNIQUE, Op.DEVICE, Op.SOURCE})


@dataclass(frozen=True, slots=True)
class LoopLevel:
    """One loop of a nest, and the nodes of its body that stand right outside of it."""

    range: UOp
    invariant: tuple[UOp, ...]


class ScopePlan:
    """The plan of the scope of `root`; `bound_values` has the value of every bound variable (R112: BIND)."""

    def __init__(self, root: UOp, bound_values: Mapping[UOp, UOp]) -> None:
        self.root = root
        self.bound_values = bound_values
        self.nodes = self._sort_topologically()
        self._closed = {r for u in self.nodes for r in ranges_closed_by(u)}
        self.loops: dict[UOp, Ranges] = {}
        self._compute_ranges_around_nodes()
        self._levels: dict[tuple[tuple[UOp, ...], tuple[UOp, ...]], tuple[LoopLevel, ...]] = {}

    def loops_of(self, u: UOp) -> Ranges:
        """Return the Ranges in whose loops `u` stands; a size that is no node of the scope stands in none."""
        return self.loops.get(u, _NO_RANGES)

    def sources_in_scope(self, u: UOp) -> tuple[UOp, ...]:
        """Return the sources that are evaluated in this scope."""
        op = u.op
        if op is Op.FUNCTION or op is Op.CALL:
            return u.arguments
        if op is Op.DEFINE_VAR:
            return (self.bound_values[u],) if u in self.bound_values else ()
        if op is Op.BIND:
            return (u.variable,)
        if op in TO_SHAPE:
            return data_and_symbolic_sources(u)
        if op is Op.B_PROGRAM:
            return (program_stage_to_run(u),)
        return tuple(s for s in u.src if s.op not in ABSORBED)

    def ranges_ended_by(self, u: UOp) -> tuple[UOp, ...]:
        """Return the Ranges whose loops end at `u`.

        A Call ends those among its arguments that nothing else closes (R121).
        """
        if u.op is Op.CALL:
            return tuple(s for s in u.arguments if s.op is Op.B_RANGE and s not in self._closed)
        return tuple(dict.fromkeys(ranges_closed_by(u)))

    def loop_body_sources(self, u: UOp) -> tuple[UOp, ...]:
        """Return the sources of a range-ending node that stand in its loops."""
        return self.sources_in_scope(u) if u.op is Op.CALL else u.src[: RANGE_ENDING[u.op]]

    def ranges_replaced_by_unroll(self, u: UOp) -> tuple[UOp, ...]:
        """Return the Ranges that an UNROLL replaces by its lanes (R111)."""
        if u.operand.shape:
            return ()
        ids = {a for a, _ in u.arg.axes}
        return tuple(sorted((r for r in self.loops_of(u.operand) if r.arg.axis_id in ids), key=_nesting_key))

    def loop_levels(self, body: Sequence[UOp], ranges: Sequence[UOp]) -> tuple[LoopLevel, ...]:
        """Return the nest of loops of `ranges` around `body`, outermost first."""
        key = tuple(body), tuple(ranges)
        levels = self._levels.get(key)
        if levels is None:
            order = self._sort_ranges_by_priority_and_bound_use(ranges)
            invariants = [self._find_loop_invariant_frontier(body, order[k:]) for k in range(len(order))]
            levels = self._levels[key] = tuple(map(LoopLevel, order, invariants))
        return levels

    # ------------------------------------------------------------------------------------------------------------ passes

    def _sort_topologically(self) -> list[UOp]:
        """Return the nodes of the scope, sources first."""
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
                stack.extend((s, False) for s in reversed(self.sources_in_scope(u)) if s not in seen)
        return order

    def _compute_ranges_around_nodes(self) -> None:
        """Compute the loops of every node, sources first."""
        loops = self.loops
        for u in self.nodes:
            ranges = _NO_RANGES if u.op is Op.LINEAR else _NO_RANGES.union(*(loops[s] for s in self.sources_in_scope(u)))
            if u.op is Op.UNROLL:
                ranges = ranges.difference(self.ranges_replaced_by_unroll(u))
            elif u.op is Op.B_IF:
                ranges = ranges.difference(*(self.ranges_ended_by(e) for e in nested_effects_of_if(u)))
            elif ranges:
                ranges = ranges.difference(self.ranges_ended_by(u))
            loops[u] = ranges | {u} if u.op is Op.B_RANGE else ranges

    # ------------------------------------------------------------------------------------------------------------- loops

    def _sort_ranges_by_priority_and_bound_use(self, ranges: Sequence[UOp]) -> list[UOp]:
        """Return the ranges in the order in which they nest, outermost first."""
        remaining, order = sorted(set(ranges), key=_nesting_key), []
        while remaining:
            outermost = next(r for r in remaining if self.loops_of(r).isdisjoint(x for x in remaining if x is not r))
            remaining.remove(outermost)
            order.append(outermost)
        return order

    def _find_loop_invariant_frontier(self, body: Sequence[UOp], inner_ranges: Sequence[UOp]) -> tuple[UOp, ...]:
        """Return the first nodes, from `body` down, that stand outside of the `inner_ranges` loops and of every loop closed on
        the way."""
        closed = set(inner_ranges)
        invariant: dict[UOp, None] = {}
        seen: set[UOp] = set()
        pending = list(reversed(body))
        while pending:
            u = pending.pop()
            if u in seen:
                continue
            seen.add(u)
            closed.update(self.ranges_ended_by(u))
            if u.op is Op.UNROLL:
                closed.update(self.ranges_replaced_by_unroll(u))
            is_outside = self.loops_of(u).isdisjoint(closed) and u not in body
            if is_outside and u.op is not Op.B_RANGE:
                invariant[u] = None
            elif u.op is Op.B_IF:
                pending += [s for e in nested_effects_of_if(u) for s in self.sources_in_scope(e) if e.op is Op.B_STORE]
                pending.append(u.condition)
            else:
                pending += reversed(self.sources_in_scope(u))
        return tuple(u for u in invariant if self.loops_of(u).isdisjoint(closed))


def program_stage_to_run(u: UOp) -> UOp:
    """Return what a PROGRAM of the bestiary runs: its Linear where there is one, else the Sink (R115)."""
    linear: UOp | None = u.linear
    return u.sink if linear is None else linear


def nested_effects_of_if(u: UOp) -> list[UOp]:
    """Return every effect in the body of an IF once."""
    effects: dict[UOp, None] = {}
    pending = list(u.effects)
    while pending:
        effect = pending.pop()
        if effect in effects:
            continue
        effects[effect] = None
        if effect.op is Op.GROUP or effect.op is Op.ENDIF:
            pending += effect.src
        elif effect.op is Op.END:
            pending.append(effect.body)
        elif effect.op is Op.B_IF:
            pending += effect.effects
    return list(effects)


def _nesting_key(r: UOp) -> tuple[int, int, bool]:
    """Return the sort key of nesting order."""
    return r.arg.type.priority, r.arg.axis_id, r.arg.renumbered
