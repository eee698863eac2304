"""GROUP_REDUCE in two stages: every lane of a workgroup reduces its part, then all of them combine the parts.

Takes a Schedule with all its OptOps. Gives one without a Reduce over GROUP_REDUCE ranges. Where the lanes can meet:

    Reduce(x, r, g)   becomes   part = Reduce(x, r); LOCAL[g] = part; Barrier; Reduce(LOCAL[k], k)

The second stage is a loop for a few parts; more of them are combined by halves, LOCAL[g] with LOCAL[g + n/2].
The GROUP_REDUCE loops then stand around the whole kernel, as loops of lanes; each lane has the result, and the first one stores.
Reduces of which neither stands in the other's lanes share them, if they have as many. LOCAL memory has one element per lane and
per combination of vector axes on which the part depends; in a loop, a Barrier before it is written again keeps the lanes in step.
Where lanes cannot meet - the machine has no workgroups, an output loop keeps its order, LOCAL memory is filled outside of the
lanes, or there is too little of it - GROUP_REDUCE becomes REDUCE, a loop like others (R141).
Spec: AxisType GROUP_REDUCE; R32, R55, R60, R61, R127, R128.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from uops.compiler.ir.accumulators import position, wide_of
from uops.compiler.ir.affine import number
from uops.compiler.ir.loops import in_order
from uops.compiler.log import note
from uops.compiler.passes.optimize.schedule.schedule import Schedule, axis_of, next_id, replace_ranges
from uops.compiler.target import Machine
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges
from uops.spec.optops import WORKGROUP

_VECTOR = frozenset({AxisType.UPCAST, AxisType.UNROLL})
_IN_ORDER = frozenset({AxisType.LOOP, AxisType.REDUCE})
#: Dimensions of a launch: known extents share one, a symbolic one has its own.
_DIMENSIONS = 3
#: Parts up to which every lane reads them all; more are combined by halves, a Barrier after each.
IN_TURN = 4


def grouped(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """The schedule with group reductions in two stages, or as loops."""
    groups = [r for r in s.ranges if r.arg.type is AxisType.GROUP_REDUCE and r not in s.outputs]
    if not groups:
        return s
    if machine.workgroup and _can_meet(s):
        stages = _Stages(_joined(s), uniques)
        done = stages.run()
        if stages.bytes <= (machine.local_memory or 1 << 62):
            return done
    loops = {r: r.replace(arg=replace(r.arg, type=AxisType.REDUCE)) for r in groups}
    return replace(s, effect=replace_ranges(s.effect, {r: (n, (n,)) for r, n in loops.items()}))


def _can_meet(s: Schedule) -> bool:
    """Whether the lanes of a group run the whole kernel: no output loop in order, no LOCAL memory filled outside of the lanes."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    lanes = {r for r in s.outputs if r.arg.type in WORKGROUP}
    fills = [u for u in order if u.op is Op.END]
    in_order = any(r.arg.type is AxisType.LOOP and axis_of(r).extent != 1 for r in s.outputs)
    known = all(isinstance(axis_of(r).extent, int) for r in s.ranges if r.arg.type in WORKGROUP | _VECTOR)
    numbered = sum(not isinstance(axis_of(r).extent, int) for r in s.outputs) < _DIMENSIONS
    return known and numbered and not in_order and all(lanes <= needs[u] for u in fills)


def _joined(s: Schedule) -> Schedule:
    """The schedule in which Reduces share lanes."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    first: list[UOp] = []
    same: dict[UOp, UOp] = {}
    for u in order:
        own = _groups(u)
        taken = {same.get(r, r) for r in needs[u.src[0]] if r not in own} if own else set()
        for g in own:
            found = next((f for f in first if f.src[0] is g.src[0] and f not in taken), None)
            same[g] = g if found is None else found
            taken.add(same[g])
            if found is None:
                first.append(g)
    new = {g: (f, (f,)) for g, f in same.items() if f is not g}
    return replace(s, effect=replace_ranges(s.effect, new)) if new else s


def _groups(u: UOp) -> tuple[UOp, ...]:
    """The GROUP_REDUCE ranges that a Reduce closes."""
    return tuple(r for r in closed_by(u) if r.arg.type is AxisType.GROUP_REDUCE) if u.op is Op.REDUCE else ()


class _Stages:
    """One kernel; `bytes` are those of the LOCAL memory that was inserted."""

    def __init__(self, s: Schedule, uniques: Iterator[int]) -> None:
        self.s, self.uniques = s, uniques
        self.order = toposort(s.effect)
        self.needs = open_ranges(self.order)
        self.groups = tuple(dict.fromkeys(g for u in self.order for g in _groups(u)))
        self.lanes = (*(r for r in s.outputs if r.arg.type in WORKGROUP), *self.groups)
        self.next_id = next_id(s)
        self.bytes = 0
        self.done: dict[UOp, UOp] = {}

    def run(self) -> Schedule:
        for u in self.order:
            src = tuple(self.done[x] for x in u.src)
            if _groups(u):
                self.done[u] = self.two(u, src)
            else:
                self.done[u] = u if src == u.src else u.replace(src=src)
        stored = {u for u in toposort(self.s.effect, gate=lambda n: n.op in (Op.STORE, Op.GROUP)) if u.op is Op.STORE}
        effect = first_lane(self.done[self.s.effect], {self.done[u] for u in stored}, self.groups)
        note("group reduction", self.s.effect, effect, self.done)
        return replace(self.s, effect=effect, outputs=(*self.s.outputs, *self.groups))

    def two(self, u: UOp, src: Sequence[UOp]) -> UOp:
        """The result in every lane."""
        d = u.dtype if u.arg.op is Op.MAX else wide_of(u.dtype)
        rest = tuple(r for r in src[1:] if r not in _groups(u))
        value = B.cast(src[0], d)
        part = u.replace(src=(value, *rest)) if rest else value
        around = self.needs[u.src[0]].union(_groups(u)).difference(rest)  # a constant, say, stands in no loop
        within = in_order(around)
        own = [r for r in within if r.arg.type in WORKGROUP | _VECTOR]
        memory = self.memory(own, d)
        loops = tuple(r for r in within if r.arg.type in _IN_ORDER)
        writable = B.after(memory, UOp(Op.BARRIER, (*loops, *self.lanes))) if loops else memory
        fill = B.store(at(writable, own, own), part)
        others = [r for r in self.lanes if r not in own]
        ready = B.after(memory, UOp(Op.BARRIER, (first_lane(fill, {fill}, others),)))
        if math.prod(map(extent, _groups(u))) > IN_TURN:
            return B.cast(self.halved(u, memory, ready, own, others), u.dtype)
        again = {g: self.loop(g) for g in _groups(u)}
        read = UOp(Op.LOAD, (at(ready, [again.get(r, r) for r in own], own),), LoadArg())
        return B.cast(u.replace(src=(read, *again.values())), u.dtype)

    def halved(self, u: UOp, memory: UOp, ready: UOp, own: Sequence[UOp], others: Sequence[UOp]) -> UOp:
        """The parts combined by halves: lane k takes that of lane k + n/2, until there is one."""
        index: dict[UOp, UOp] = {r: r for r in own}
        for g in _groups(u):
            n = extent(g)
            while n > 1:
                half = (n + 1) // 2
                gate = _first(others, UOp(Op.CMPLT, (g, number(n - half))))
                a, b = (
                    UOp(Op.LOAD, (at(ready, list(x.values()), own), B.const(0, memory.dtype), gate), LoadArg())
                    for x in (index, index | {g: UOp(Op.ADD, (g, number(half)))})
                )
                store = UOp(Op.STORE, (at(ready, list(index.values()), own), UOp(u.arg.op, (a, b)), gate))
                ready = B.after(memory, UOp(Op.BARRIER, (store,)))
                n = half
            index[g], others = number(0), [*others, g]
        return UOp(Op.LOAD, (at(ready, list(index.values()), own),), LoadArg())

    def memory(self, loops: Sequence[UOp], d: DType) -> UOp:
        size = math.prod(extent(r) for r in loops)
        self.bytes += size * d.itemsize
        return UOp(Op.BUFFER, (), BufferArg(size, d, "CPU", AddrSpace.LOCAL, next(self.uniques)))

    def loop(self, g: UOp) -> UOp:
        """A loop through the parts."""
        self.next_id += 1
        return UOp(Op.RANGE, g.src, RangeArg(self.next_id - 1, AxisType.REDUCE))


def extent(r: UOp) -> int:
    """Iterations of a loop of constant extent."""
    return int(r.src[0].arg.value)


def at(memory: UOp, index: Sequence[UOp], loops: Sequence[UOp]) -> UOp:
    """The element at an index that runs through `loops`, row by row."""
    return position(memory, index, [extent(r) for r in loops])


def first_lane(effect: UOp, stores: set[UOp], lanes: Sequence[UOp]) -> UOp:
    """The effect with its Stores done by the first of some lanes alone."""
    if not lanes:
        return effect
    gate = _first(lanes[1:], UOp(Op.CMPLT, (lanes[0], number(1))))
    new: Mapping[UOp, UOp] = {u: _gated(u, gate) for u in stores}
    if effect in new:
        return new[effect]
    return effect.replace(src=tuple(new.get(x, x) for x in effect.src))


def _first(lanes: Sequence[UOp], gate: UOp) -> UOp:
    """A gate that holds in the first of these lanes alone."""
    for r in lanes:
        gate = UOp(Op.AND, (gate, UOp(Op.CMPLT, (r, number(1)))))
    return gate


def _gated(store: UOp, gate: UOp) -> UOp:
    whole = gate if len(store.src) == 2 else UOp(Op.AND, (store.src[2], gate))
    return UOp(Op.STORE, (*store.src[:2], whole))
