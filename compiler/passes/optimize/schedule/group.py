"""Lowering of GROUP_REDUCE in two stages: each lane of a workgroup reduces its part, then all lanes combine the parts.

Takes: a Schedule with all its OptOps. Gives: one without a Reduce over GROUP_REDUCE ranges. Where the lanes can meet,

    Reduce(x, r, g)   becomes   part = Reduce(x, r); LOCAL[g] = part; Barrier; Reduce(LOCAL[k], k)

The second stage is a loop for a few parts. More parts are combined as a tree, LOCAL[g] with LOCAL[g + n/2]. The GROUP_REDUCE
loops then stand around the whole kernel as loops of lanes: each lane has the result, and the first one stores it. If no
reduction depends on an output loop, the lanes share that loop, and each stores its part.

Reduces that are not nested in each other's lanes share lanes of equal number. LOCAL memory has one element per lane and per
combination of the vector axes on which the part depends. In a loop, a Barrier before the next filling keeps the lanes in step.

The lanes cannot meet if the machine has no workgroups or if an output loop keeps its order. Nor can they if LOCAL memory is filled
outside the lanes, or if there is too little of it. GROUP_REDUCE then becomes REDUCE, an ordinary loop (R141).

Spec: AxisType GROUP_REDUCE; R32 (value of a Reduce), R55 (races), R60 (Barrier), R61 (fresh buffers), R127 (loops of a node), R128
(private memory).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from uops.compiler.ir.accumulators import accumulator_dtype, element_address
from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.loops import sort_by_nesting
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.schedule import (
    Schedule,
    axis_of,
    combine_gates,
    next_id,
    replace_ranges,
)
from uops.compiler.target import MachineModel
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import SEQUENTIAL, UNROLLED, WORKGROUP, AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import LOOP_CLOSERS, Op
from uops.spec.ir.scope import base_memory, open_ranges, ranges_closed_by

#: Dimensions of a launch. Constant extents share one, each symbolic extent takes its own.
_DIMENSIONS = 3
#: Number of parts up to which every lane reads them all; more are combined as a tree, with a Barrier per level.
IN_TURN = 4


def lower_or_serialize_group_reduces(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
    """Lower all group reductions to two stages, or to loops where the lanes cannot meet."""
    groups = [r for r in s.ranges if r.arg.type is AxisType.GROUP_REDUCE and r not in s.outputs]
    if not groups:
        return s
    if machine.workgroup and _can_lanes_run_whole_kernel_in_step(s):
        lowering = _GroupReduceLowering(*_spread_output_over_lanes(_share_equal_lanes_between_reduces(s)), uniques)
        lowered = lowering.lower_all_reduces()
        if lowering.local_bytes <= (machine.local_memory or 1 << 62):
            return lowered
    loops = {r: r.replace(arg=replace(r.arg, type=AxisType.REDUCE)) for r in groups}
    return replace(s, effect=replace_ranges(s.effect, {r: (n, (n,)) for r, n in loops.items()}))


def _can_lanes_run_whole_kernel_in_step(s: Schedule) -> bool:
    """Return True if the lanes of a group run the whole kernel in step.

    No output loop keeps its order, no LOCAL memory is filled outside the lanes, and lanes and vectors have constant extents.
    """
    order = toposort(s.effect)
    needs = open_ranges(order)
    lanes = {r for r in s.outputs if r.arg.type in WORKGROUP}
    fills = [u for u in order if u.op is Op.END]
    in_order = any(r.arg.type is AxisType.LOOP and axis_of(r).extent != 1 for r in s.outputs)
    constant = all(isinstance(axis_of(r).extent, int) for r in s.ranges if r.arg.type in WORKGROUP | UNROLLED)
    fits_launch = sum(not isinstance(axis_of(r).extent, int) for r in s.outputs) < _DIMENSIONS
    return constant and fits_launch and not in_order and all(lanes <= needs[u] for u in fills)


def _share_equal_lanes_between_reduces(s: Schedule) -> Schedule:
    """Replace GROUP_REDUCE ranges of equal extent by one where their Reduces are not nested."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    lanes: list[UOp] = []
    lane_of: dict[UOp, UOp] = {}
    reduces = [u for u in order if _group_ranges(u)]
    for k, u in enumerate(reduces):
        groups = _group_ranges(u)
        nested = [v for v in reduces[:k] if not needs[v.operand].isdisjoint(groups)]  # inside the lanes of `u`
        taken = {lane_of.get(r, r) for r in needs[u.operand] if r not in groups}
        taken.update(lane_of[g] for v in nested for g in _group_ranges(v) if g not in groups)
        for g in groups:
            lane = next((r for r in lanes if r.bound is g.bound and r not in taken), None)
            lane_of[g] = g if lane is None else lane
            taken.add(lane_of[g])
            if lane is None:
                lanes.append(g)
    shared = {g: (r, (r,)) for g, r in lane_of.items() if r is not g}
    return replace(s, effect=replace_ranges(s.effect, shared)) if shared else s


def _spread_output_over_lanes(s: Schedule) -> tuple[Schedule, tuple[UOp, ...]]:
    """Let the lanes of the reductions share an output loop on which no reduction depends; return the schedule and these lanes.

    Without that each workgroup would reduce for one iteration of the loop, and its first lane alone would store. The loop is
    GLOBAL, and the lanes divide its trip count: iteration o * lanes + g is that of lane g in workgroup o.
    """
    order = toposort(s.effect)
    needs = open_ranges(order)
    groups = dict.fromkeys(g for u in order for g in _group_ranges(u))
    used = {r for u in order if u.op in LOOP_CLOSERS for r in needs[u.src[0]]}  # operand: of either op
    stores = [u for u in toposort(s.effect, gate=lambda n: n.op in (Op.STORE, Op.GROUP)) if u.op is Op.STORE]
    for g in sorted(groups, key=constant_extent, reverse=True):
        lanes = constant_extent(g)
        for c in reversed(s.outputs):
            extent = axis_of(c).extent
            if c.arg.type is not AxisType.GLOBAL or c in used or not isinstance(extent, int) or extent % lanes or not extent:
                continue
            if not all(c in needs[u.buffer] for u in stores):
                continue
            outer = UOp(Op.RANGE, (index_constant(extent // lanes),), RangeArg(next_id(s), AxisType.GLOBAL))
            spread = UOp(Op.ADD, (UOp(Op.MUL, (outer, index_constant(lanes))), g))
            effect = replace_ranges(s.effect, {c: (spread, (outer, g))})
            return replace(s, effect=effect, outputs=tuple(outer if r is c else r for r in s.outputs)), (g,)
    return s, ()


def _group_ranges(u: UOp) -> tuple[UOp, ...]:
    """Return the GROUP_REDUCE ranges that a Reduce closes; none for any other node."""
    return tuple(r for r in ranges_closed_by(u) if r.arg.type is AxisType.GROUP_REDUCE) if u.op is Op.REDUCE else ()


class _GroupReduceLowering:
    """The lowering of one kernel's group reductions. All lanes of `storing_lanes` store, of others the first.

    `local_bytes` counts the LOCAL memory that it inserts.
    """

    def __init__(self, s: Schedule, storing_lanes: Sequence[UOp], uniques: Iterator[int]) -> None:
        self.s, self.uniques = s, uniques
        self.storing_lanes = storing_lanes
        self.order = toposort(s.effect)
        self.needs = open_ranges(self.order)
        self.groups = tuple(dict.fromkeys(g for u in self.order for g in _group_ranges(u)))
        self.lanes = (*(r for r in s.outputs if r.arg.type in WORKGROUP), *self.groups)
        self.next_id = next_id(s)
        self.local_bytes = 0
        self.done: dict[UOp, UOp] = {}

    def lower_all_reduces(self) -> Schedule:
        """Lower every group reduction and add the loops of lanes around the kernel."""
        for u in self.order:
            src = tuple(self.done[x] for x in u.src)
            if _group_ranges(u):
                self.done[u] = self.reduce_in_two_stages(u, src)
            else:
                self.done[u] = u if src == u.src else u.replace(src=src)
        stores = {u for u in toposort(self.s.effect, gate=lambda n: n.op in (Op.STORE, Op.GROUP)) if u.op is Op.STORE}
        idle = [g for g in self.groups if g not in self.storing_lanes]
        effect = restrict_stores_to_first_lane(self.done[self.s.effect], {self.done[u] for u in stores}, idle)
        log_transform("group reduction", self.s.effect, effect, self.done)
        return replace(self.s, effect=effect, outputs=(*self.s.outputs, *self.groups))

    def reduce_in_two_stages(self, reduce: UOp, new_sources: Sequence[UOp]) -> UOp:
        """Return the value of Reduce `reduce`, with the new sources `new_sources`, in every lane."""
        d = reduce.dtype if reduce.arg.op is Op.MAX else accumulator_dtype(reduce.dtype)
        operand, *ranges = new_sources
        rest = tuple(r for r in ranges if r not in _group_ranges(reduce))
        value = B.cast(operand, d)
        part = reduce.replace(src=(value, *rest)) if rest else value
        around = self.needs[reduce.operand].union(_group_ranges(reduce)).difference(rest)  # an invariant operand depends on no loop
        within = sort_by_nesting(around)
        axes = [r for r in within if r.arg.type in WORKGROUP | UNROLLED]
        memory = self.allocate_local_for_loops(axes, d)
        loops = tuple(r for r in within if r.arg.type in SEQUENTIAL)
        writable = B.after(memory, UOp(Op.BARRIER, (*loops, *self.lanes))) if loops else memory
        fill = B.store(index_element(writable, axes, axes), part)
        others = [r for r in self.lanes if r not in axes]
        ready = B.after(memory, UOp(Op.BARRIER, (restrict_stores_to_first_lane(fill, {fill}, others),)))
        if math.prod(map(constant_extent, _group_ranges(reduce))) > IN_TURN:
            return B.cast(self.tree_reduce_parts(reduce, memory, ready, axes, others), reduce.dtype)
        part_loops = {g: self.new_reduce_loop(g) for g in _group_ranges(reduce)}
        load = UOp(Op.LOAD, (index_element(ready, [part_loops.get(r, r) for r in axes], axes),), LoadArg())
        return B.cast(reduce.replace(src=(load, *part_loops.values())), reduce.dtype)

    def tree_reduce_parts(
        self, reduce: UOp, memory: UOp, filled_memory: UOp, memory_axes: Sequence[UOp], lanes_not_in_memory: Sequence[UOp]
    ) -> UOp:
        """Combine the parts in LOCAL memory as a tree: lane k adds the part of lane k + n/2, until one part is left.

        `memory_axes` are the axes of the memory, `lanes_not_in_memory` the lanes on which the parts do not depend.
        """
        index: dict[UOp, UOp] = {r: r for r in memory_axes}
        for g in _group_ranges(reduce):
            n = constant_extent(g)
            while n > 1:
                half = (n + 1) // 2
                gate = _conjoin_first_lane_condition(lanes_not_in_memory, UOp(Op.CMPLT, (g, index_constant(n - half))))
                a, b = (
                    UOp(
                        Op.LOAD,
                        (index_element(filled_memory, list(x.values()), memory_axes), B.const(0, memory.dtype), gate),
                        LoadArg(),
                    )
                    for x in (index, index | {g: UOp(Op.ADD, (g, index_constant(half)))})
                )
                store = UOp(
                    Op.STORE, (index_element(filled_memory, list(index.values()), memory_axes), UOp(reduce.arg.op, (a, b)), gate)
                )
                filled_memory = B.after(memory, UOp(Op.BARRIER, (store,)))
                n = half
            index[g], lanes_not_in_memory = index_constant(0), [*lanes_not_in_memory, g]
        return UOp(Op.LOAD, (index_element(filled_memory, list(index.values()), memory_axes),), LoadArg())

    def allocate_local_for_loops(self, loops: Sequence[UOp], d: DType) -> UOp:
        """Return a new LOCAL Buffer with one element per combination of the loops."""
        size = math.prod(constant_extent(r) for r in loops)
        self.local_bytes += size * d.itemsize
        return UOp(Op.BUFFER, (), BufferArg(size, d, "CPU", AddrSpace.LOCAL, next(self.uniques)))

    def new_reduce_loop(self, g: UOp) -> UOp:
        """Return a new REDUCE loop over the parts of a GROUP_REDUCE loop."""
        self.next_id += 1
        return UOp(Op.RANGE, g.src, RangeArg(self.next_id - 1, AxisType.REDUCE))


def index_element(memory: UOp, index: Sequence[UOp], loops: Sequence[UOp]) -> UOp:
    """Return the address of the element at an index whose components run through `loops`, row-major."""
    return element_address(memory, index, [constant_extent(r) for r in loops])


def restrict_stores_to_first_lane(effect: UOp, stores: set[UOp], lanes: Sequence[UOp]) -> UOp:
    """Gate the given Stores of an effect so that only the first of the lanes executes them.

    The gate holds for Loads of what they write, too: in another lane such a Load would race with the Store (R55). Loads before a
    Barrier do not.
    """
    if not lanes:
        return effect
    gate = _conjoin_first_lane_condition(lanes[1:], UOp(Op.CMPLT, (lanes[0], index_constant(1))))
    written = {base_memory(u.buffer) for u in stores}
    gated: Mapping[UOp, UOp] = {u: _gate_store(u, written, gate) for u in stores}
    if effect in gated:
        return gated[effect]
    return effect.replace(src=tuple(gated.get(x, x) for x in effect.src))


def _conjoin_first_lane_condition(lanes: Sequence[UOp], gate: UOp) -> UOp:
    """Return a gate that holds where `gate` does and all lanes are 0."""
    for r in lanes:
        gate = UOp(Op.AND, (gate, UOp(Op.CMPLT, (r, index_constant(1)))))
    return gate


def _gate_store(store: UOp, written: set[UOp], gate: UOp) -> UOp:
    """Return a Store with a gate, which holds for Loads of the memories `written` in its value as well."""
    done: dict[UOp, UOp] = {}
    for u in toposort(store.value, gate=lambda n: n.op is not Op.BARRIER):
        src = tuple(done.get(x, x) for x in u.src)
        if u.op is Op.LOAD and base_memory(u.buffer) in written:
            address, *alternative_and_gate = src
            alternative, own_gate = alternative_and_gate or (B.const(0, u.dtype), None)
            src = (address, alternative, combine_gates(own_gate, gate))
        done[u] = u if src == u.src else u.replace(src=src)
    return UOp(Op.STORE, (store.buffer, done[store.value], combine_gates(store.gate, gate)))
