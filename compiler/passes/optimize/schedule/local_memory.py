"""Staging of values that a kernel uses again: memory is filled once per iteration of the outer loops, then read.

`stage_in_one_local_buffer` stores a value into a LOCAL Buffer. The loops in `over` on which the value depends become axes of the
Buffer and are filled by loops of their own. The other loops stay around the filling. An After orders the filling before every use.
Spec: Lowering Pipeline/Optimize ("insert local buffers"); R59 to R61 (After, Barrier, fresh buffers).

`find_uses_of_costliest_recomputed_value` finds a value that several loops of a kernel compute alike: equal expressions but for
the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from uops.compiler.ir.accumulators import buffer_device, element_address
from uops.compiler.ir.affine import extract_affine_sum, index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.loops import sort_by_nesting
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.schedule import Schedule, next_id, tile_index
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import UNROLLED, AxisType
from uops.spec.ir.node import UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import ACCESSES, ALU, Op
from uops.spec.ir.scope import base_memory, open_ranges, ranges_closed_by

#: A value to stage: a node, and the loops that become axes of the memory, in the order of the axes.
StagedValue = tuple[UOp, tuple[UOp, ...]]


def stage_in_one_local_buffer(
    s: Schedule, staged: Sequence[StagedValue], buffer_number: int, transpose_tile_size: int = 1
) -> Schedule:
    """Replace the values of `staged` by loads from one LOCAL Buffer.

    The values differ only in their loops, whose extents are constants. With a `transpose_tile_size` above 1, a value that is not
    contiguous along the last axis is loaded as square tiles of that size. They are transposed in registers.
    """
    value, over = staged[0]
    free = next_id(s)
    filling = {r: _make_fill_loop(r, free + k, r is over[-1]) for k, r in enumerate(over)}
    loops, walked = list(filling.values()), _find_loops_of_transposed_tiles(value, over, transpose_tile_size)
    index = dict(filling)
    if walked:
        (*outer, inner), length = walked, math.prod(map(constant_extent, walked))
        rows = UOp(Op.RANGE, (index_constant(length // transpose_tile_size),), filling[inner].arg)
        lane = UOp(Op.RANGE, (index_constant(transpose_tile_size),), RangeArg(free + len(over), AxisType.UPCAST))
        index |= {**dict.fromkeys(outer, index_constant(0)), inner: tile_index(rows, transpose_tile_size, lane)}
        loops = [*(filling[r] for r in over if r not in walked), rows, lane]
    sizes = [constant_extent(r) for r in over]
    buffer = UOp(Op.BUFFER, (), BufferArg(math.prod(sizes), value.dtype, buffer_device(value), AddrSpace.LOCAL, buffer_number))
    fill = B.store(element_address(buffer, [index[r] for r in over], sizes), substitute(value, index))
    ready = B.after(buffer, B.wrap_in_one_end_per_loop(fill, sort_by_nesting(loops)))
    reads = {u: UOp(Op.LOAD, (element_address(ready, loops, sizes),), LoadArg()) for u, loops in staged}
    effect = substitute(s.effect, reads)
    log_transform("local memory", s.effect, effect, reads)
    return replace(s, effect=effect)


def _find_loops_of_transposed_tiles(value: UOp, memory_axes: Sequence[UOp], lanes: int) -> tuple[UOp, ...]:
    """Return neighbouring loops that an ungated Load walks through as one contiguous loop, if it is not contiguous along the last
    loop, which is vector lanes; else ().

    Lanes of the walk and of the last loop form square tiles, which are loaded by rows and stored by columns.
    """
    *scalar, last = memory_axes
    ungated = value.op is Op.LOAD and value.gate is None
    if lanes == 1 or not ungated or last.arg.type not in UNROLLED or constant_extent(last) % lanes:
        return ()
    strides = extract_affine_sum(value.buffer.positions[0]).terms
    if strides.get(last, 0) in (0, 1):
        return ()
    walked, length = tuple[UOp, ...](), 1
    for r in reversed(scalar):
        stride = None if r.arg.type in UNROLLED else strides.get(r)
        if stride != length:  # no step of this loop is the length of those inside
            walked, length = (), 1
        if stride == length:
            walked, length = (r, *walked), length * constant_extent(r)
        if length % lanes == 0:
            return walked
    return ()


def stage_in_output_row(s: Schedule, staged: Sequence[StagedValue]) -> Schedule | None:
    """Replace the values of `staged` by loads from a row of the output, which holds them until its elements are stored (R146).

    Each use has one loop, of the extent of the innermost output loop. Filling memory that is written anyway costs nothing. Returns
    None if the output is read otherwise, has other rows, or is written before the last use.
    """
    value, (loop,) = staged[0]
    if not s.outputs:  # a row of one element
        return None
    store, (*outer, lane) = s.effect, s.outputs
    order = toposort(store)
    needs = open_ranges(order)
    memory, (position,) = store.buffer.operand, store.buffer.positions
    same_extent = constant_extent(loop) == constant_extent(lane)
    row = same_extent and needs[value] - {loop} == frozenset(outer) and value.dtype is memory.dtype
    late = any(u.op is Op.REDUCE and lane in needs[u] for u in order)
    unread = memory.op is Op.PARAM and store.gate is None and is_output_referenced_by_store_alone(store, order)
    if not row or late or not unread or not extract_affine_sum(position).terms.get(lane):
        return None
    filling = _make_fill_loop(loop, next_id(s))
    fill = B.store(UOp(Op.INDEX, (memory, substitute(position, {lane: filling}))), substitute(value, {loop: filling}))
    ready = B.after(memory, UOp(Op.END, (fill, filling)))
    reads = {u: UOp(Op.LOAD, (UOp(Op.INDEX, (ready, substitute(position, {lane: r}))),), LoadArg()) for u, (r,) in staged}
    effect = substitute(store, reads)
    log_transform("output memory", store, effect, reads)
    return replace(s, effect=effect)


def is_output_referenced_by_store_alone(store: UOp, order: Sequence[UOp]) -> bool:
    """Return True if only the kernel's Store refers to the memory that it writes, so that the memory can hold other values first
    (R146).

    `order` is the toposort of the Store.
    """
    address = store.buffer
    memory = base_memory(address)
    if any(address in u.src for u in order if u is not store):
        return False
    return not any(u.op is Op.INDEX and u is not address and base_memory(u) is memory for u in order)


def _make_fill_loop(r: UOp, axis_id: int, last: bool = True) -> UOp:
    """Return the loop that fills where `r` reads. Of vector axes, only the last axis stays one."""
    kind = AxisType.UPCAST if last and r.arg.type in UNROLLED else AxisType.LOOP
    return UOp(Op.RANGE, r.src, RangeArg(axis_id, kind))


def find_uses_of_costliest_recomputed_value(
    s: Schedule, least_work: int, estimate_costs: Callable[[Sequence[UOp]], dict[UOp, int]]
) -> list[StagedValue]:
    """Return the uses of the most expensive value that two or more innermost loops compute alike; empty if there is none.

    The value costs at least `least_work`, by `estimate_costs` of the kernel's nodes.
    """
    order = toposort(s.effect)
    inner = _inner_loops(s)
    if len(inner) < 2:
        return []
    needs, work, bounded = open_ranges(order), estimate_costs(order), _collect_address_values_tighter_than_dtype(order)
    marked = {r: _replace_loop_by_marker(order, r) for r in inner}
    uses_of: dict[tuple[UOp, UOp], list[StagedValue]] = {}
    for u in reversed(order):
        loops = [r for r in needs[u] if r in inner]
        if u.op not in ALU or u.dtype not in dt.STORABLE or len(loops) != 1 or work[u] < least_work or u in bounded:
            continue
        r = loops[0]
        uses_of.setdefault((marked[r][u], r.bound), []).append((u, (r,)))
    alike = [uses for uses in uses_of.values() if len({loops for _, loops in uses}) > 1]
    return max(alike, key=lambda uses: work[uses[0][0]], default=[])


def _collect_address_values_tighter_than_dtype(order: Sequence[UOp]) -> set[UOp]:
    """Return the integers in addresses and gates that have tighter bounds than their dtype.

    Staged in memory they would lose these bounds, which prove that an address fits a word and is in bounds (R08: index dtype; R45:
    Index).
    """
    reached = toposort(*(i for u in order for i in _address_and_gate_operands(u)))
    return {u for u in reached if u.dtype in dt.INTS and u.min_max not in (None, (u.dtype.min, u.dtype.max))}


def _address_and_gate_operands(u: UOp) -> tuple[UOp, ...]:
    """Return the operands of a node that determine an address or a gate."""
    if u.op is Op.INDEX:
        return u.positions
    gate = u.gate if u.op in ACCESSES else None
    return () if gate is None else (gate,)


_MARK = UOp(Op.RANGE, (index_constant(1),), RangeArg(-1, AxisType.LOOP))


def _replace_loop_by_marker(order: Sequence[UOp], r: UOp) -> dict[UOp, UOp]:
    """Map every node to its form with a marker in place of `r`, so that equal expressions of different loops become one node."""
    done = {r: _MARK.replace(src=r.src)}
    for u in order:
        if u not in done:
            src = tuple([done[x] for x in u.src])
            done[u] = u if src == u.src else u.replace(src=src)
    return done


def _inner_loops(s: Schedule) -> set[UOp]:
    """Return the innermost output loop and the loops of Reduces over a single loop."""
    reduced = {ranges_closed_by(u)[0] for u in nodes_with_op(s.effect, Op.REDUCE) if len(ranges_closed_by(u)) == 1}
    return reduced | set(s.outputs[-1:])
