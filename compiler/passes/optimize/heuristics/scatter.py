"""Sums that are selected by an output loop as scatters: one step per addend instead of one per pair of output and addend.

A kernel stores, for k in 0..K-1, a value computed from R(k) = sum over d of (s(d) = k ? v(d) : 0), where neither s nor v depends on
k. Each addend belongs to one output, at most. So the output's memory is cleared, each addend is added to element s(d) if that is in
bounds, and the value is computed from what is there. Other output loops are columns, on which s and v may depend.

One core adds the addends in their order: each step reads what the steps before have stored. Columns that are neighbours in memory
are lanes of a vector. Where there are workgroups, each has a column, and its lanes take turns at outputs and addends: AtomicAdds,
with Barriers around them. Spec: scatter_add among the compositions; R32 (a Reduce may take any order), R50 (scatter_add), R55
(races), R56 (AtomicAdd), R57 (order of Ranges), R60 (Barrier).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from uops.compiler.ir.accumulators import accumulator_dtype
from uops.compiler.ir.affine import clamp_index, index_constant
from uops.compiler.ir.conditions import fits_int64, isolate_range_in_comparison, split_conditions
from uops.compiler.passes.optimize.schedule.schedule import Schedule, axis_of, make_loop_or_zero, next_id, tile_index
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.target import PLAIN, MachineModel
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import LoadArg, RangeArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, open_ranges, ranges_closed_by

#: Most lanes of a workgroup that share a column.
MOST_LANES = 256
#: Bytes of the least numbers that are added atomically; loops around sums of smaller ones run in order.
_LEAST_ATOMIC_BYTES = 4


class _Scatter(NamedTuple):
    """The sum `reduce` over `loops`: `value` is added to the output whose loop `k` has the index `selected`, under `conditions`."""

    reduce: UOp
    loops: tuple[UOp, ...]
    k: UOp
    selected: UOp
    value: UOp
    conditions: tuple[UOp, ...]


def build_scatter_body(s: Schedule, machine: MachineModel = PLAIN) -> UOp | None:
    """Return the SCHEDULED body of a kernel whose sum an output loop selects, or None for any other kernel."""
    thresholds = machine.thresholds
    least = thresholds.workgroup_scatter if machine.workgroup else thresholds.scatter_vectors * machine.lanes(s.effect.value.dtype)
    scatter = _match_sole_sum_as_scatter(s, least)
    if scatter is None:
        return None
    effect = (
        _clear_add_atomically_and_store_values(s, scatter, machine)
        if machine.workgroup
        else _clear_add_in_order_and_store_values(s, scatter, machine)
    )
    return None if effect is None else UOp(Op.SINK, (Rewriter(INDEXING)(effect),), SinkArg(s.name))


def _match_sole_sum_as_scatter(s: Schedule, least_extent: int) -> _Scatter | None:
    """Find the one sum of a kernel, if an output loop of at least `least_extent` selects its addends and its memory can hold it."""
    reduces = nodes_with_op(s.effect, Op.REDUCE)
    if len(reduces) != 1 or s.effect.op is not Op.STORE or s.effect.gate is not None or s.ordered_ids:
        return None
    (u,) = reduces
    scatter = _match_selected_sum(u, s.outputs, least_extent) if u.arg.op is Op.ADD and u.dtype is not dt.bool_ else None
    has_constant_extents = all(isinstance(axis_of(r).extent, int) for r in s.ranges)
    return scatter if scatter is not None and has_constant_extents and _can_output_hold_sum(s.effect, u, s.outputs) else None


def _can_output_hold_sum(store: UOp, u: UOp, outputs: Sequence[UOp]) -> bool:
    """Return True if the memory of a Store can hold the sum that its value is computed from.

    It has the dtype of the sum and of its accumulator, an element for each of the sums, and nothing that is read.
    """
    memory, order = store.buffer.operand, toposort(store)
    is_read = any(x.op is Op.LOAD and base_memory(x.buffer) is memory for x in order)
    is_wide_enough = u.dtype is accumulator_dtype(u.dtype) is store.value.dtype
    return memory.op is Op.PARAM and not is_read and is_wide_enough and open_ranges(order)[u] == set(outputs)


def _match_selected_sum(u: UOp, outputs: Sequence[UOp], least_extent: int) -> _Scatter | None:
    """Find an output loop of which an equality in the conditions of a sum selects one index."""
    guarded = split_conditions(Op.ADD, u.operand)
    for n, c in enumerate(guarded.conditions):
        others = (*guarded.conditions[:n], *guarded.conditions[n + 1 :])
        for k in outputs if c.op is Op.CMPEQ else ():
            selected = _solve_equality_for_long_output_loop(c, k, least_extent)
            if selected is not None and not any(_depends(x, k) for x in (guarded.value, *others)):
                return _Scatter(u, tuple(ranges_closed_by(u)), k, selected, guarded.value, others)
    return None


def _solve_equality_for_long_output_loop(equality: UOp, k: UOp, least_extent: int) -> UOp | None:
    """Return the index of the output loop `k` that an equality selects; None if it does not, or if the loop is too short."""
    solved, extent = isolate_range_in_comparison(equality, k, _depends), axis_of(k).extent
    if solved is None or abs(solved.factor) != 1 or not isinstance(extent, int) or extent < least_extent:
        return None
    selected = solved.bound if solved.factor == 1 else UOp(Op.NEG, (solved.bound,))
    return selected if fits_int64(selected) else None


def _depends(u: UOp, r: UOp) -> bool:
    return r in toposort(u)


class _Nest(NamedTuple):
    """A loop nest in place of some output loops: `indices` are what replaces them, `loops` those around a step, outermost first."""

    indices: dict[UOp, UOp]
    loops: tuple[UOp, ...]


def _copy_loops(outputs: Sequence[UOp], ids: Iterator[int], lanes: int) -> _Nest:
    """Return new loops in place of output loops; the innermost one has as many lanes as divide its extent."""
    indices: dict[UOp, UOp] = {}
    loops: list[UOp] = []
    for r in outputs:
        n = int(r.bound.arg.value)
        width = math.gcd(n, lanes) if r is outputs[-1] else 1
        far, lane = make_loop_or_zero(n // width, next(ids)), make_loop_or_zero(width, next(ids), AxisType.UPCAST)
        indices[r] = tile_index(far, width, lane)
        loops += [x for x in (far, lane) if x.op is Op.RANGE]
    return _Nest(indices, tuple(loops))


def _clear_add_in_order_and_store_values(s: Schedule, scatter: _Scatter, machine: MachineModel) -> UOp:
    """Return loops that clear the memory, add each addend to its element in turn, and compute the values from the elements."""
    ids, lanes = itertools.count(next_id(s)), machine.lanes(scatter.reduce.dtype)
    memory, (position,) = s.effect.buffer.operand, s.effect.buffer.positions
    nest = _copy_loops(s.outputs, ids, lanes)
    done = B.wrap_in_one_end_per_loop(_clear(scatter, memory, substitute(position, nest.indices)), nest.loops)
    steps = [r.replace(arg=RangeArg(next(ids), AxisType.LOOP)) for r in scatter.loops]
    columns = _copy_loops([r for r in s.outputs if r is not scatter.k], ids, lanes)
    addend = _get_addend_index_value_and_gate(scatter, columns.indices | dict(zip(scatter.loops, steps, strict=True)))
    now = B.after(B.after(memory, done), *steps)  # read anew in every step
    element = UOp(Op.INDEX, (now, substitute(position, columns.indices | {scatter.k: addend.output})))
    old = UOp(Op.LOAD, (element, B.const(0, scatter.reduce.dtype), addend.gate), LoadArg())
    done = B.wrap_in_one_end_per_loop(
        UOp(Op.STORE, (element, UOp(Op.ADD, (old, addend.value)), addend.gate)), [*steps, *columns.loops]
    )
    if s.effect.value is scatter.reduce:
        return done
    nest = _copy_loops(s.outputs, ids, lanes)
    return B.wrap_in_one_end_per_loop(
        substitute(_build_store_of_value_from_sum(s, scatter, B.after(memory, done)), nest.indices), nest.loops
    )


def _clear_add_atomically_and_store_values(s: Schedule, scatter: _Scatter, machine: MachineModel) -> UOp | None:
    """Return the same for workgroups, each with a column; None if there are too few addends, or sums of them are not atomic."""
    first, *rest = scatter.loops
    if axis_of(first).extent < machine.thresholds.workgroup_scatter or scatter.reduce.dtype.itemsize < _LEAST_ATOMIC_BYTES:
        return None
    ids, width = itertools.count(next_id(s)), min(machine.workgroup, MOST_LANES)
    memory, (position,) = s.effect.buffer.operand, s.effect.buffer.positions
    lane = UOp(Op.RANGE, (index_constant(width),), RangeArg(next(ids), AxisType.LOCAL))
    columns = {r: r.replace(arg=RangeArg(r.arg.axis_id, AxisType.GLOBAL)) for r in s.outputs if r is not scatter.k}
    turn, output = _share_among_lanes(scatter.k, lane, next(ids))
    done = B.end(_clear(scatter, memory, substitute(position, columns | {scatter.k: output})), turn)
    turn, step = _share_among_lanes(first, lane, next(ids))
    steps = {first: step, **{r: r.replace(arg=RangeArg(next(ids), AxisType.LOOP)) for r in rest}}
    addend = _get_addend_index_value_and_gate(scatter, columns | steps)
    output = UOp(Op.WHERE, (addend.gate, addend.output, index_constant(0)))  # of this column: 0 is added there, if to none
    place = substitute(position, columns | {scatter.k: output})
    element = UOp(Op.INDEX, (B.after(memory, UOp(Op.BARRIER, (done,))), place))
    value = UOp(Op.WHERE, (addend.gate, addend.value, B.const(0, scatter.reduce.dtype)))
    done = B.wrap_in_one_end_per_loop(UOp(Op.ATOMICADD, (element, value)), [turn, *[steps[r] for r in rest]])
    if s.effect.value is not scatter.reduce:
        turn, output = _share_among_lanes(scatter.k, lane, next(ids))
        stored = _build_store_of_value_from_sum(s, scatter, B.after(memory, UOp(Op.BARRIER, (done,))))
        done = B.end(substitute(stored, columns | {scatter.k: output}), turn)
    return B.wrap_in_one_end_per_loop(done, [*columns.values(), lane])


def _share_among_lanes(r: UOp, lane: UOp, axis_id: int) -> tuple[UOp, UOp]:
    """Return the loop of a lane's turns, and the iteration of `r` in a turn: every width-th from the lane's number on."""
    width, n = int(lane.bound.arg.value), int(r.bound.arg.value)
    left = UOp(Op.SUB, (index_constant(n + width - 1), lane))
    turn = UOp(Op.RANGE, (UOp(Op.IDIV, (left, index_constant(width))),), RangeArg(axis_id, AxisType.LOOP))
    return turn, tile_index(turn, width, lane)


class _Addend(NamedTuple):
    """An addend of a step: the index of the output that it is added to, its value, and the condition under which it is added."""

    output: UOp
    value: UOp
    gate: UOp


def _get_addend_index_value_and_gate(scatter: _Scatter, indices: dict[UOp, UOp]) -> _Addend:
    """Return the addend at `indices`, which replace the loops of the sum and of the columns."""
    zero, end = index_constant(0), scatter.k.bound
    selected = Rewriter(INDEXING)(substitute(scatter.selected, indices))
    gate = UOp(Op.AND, (UOp(Op.CMPGE, (selected, zero)), UOp(Op.CMPLT, (selected, end))))
    for c in scatter.conditions:
        gate = UOp(Op.AND, (gate, substitute(c, indices)))
    if not _fits_int32(selected):  # an index has a width where the gate is false, too (R08)
        selected = clamp_index(selected, zero, index_constant(int(end.arg.value) - 1))
    return _Addend(selected, substitute(scatter.value, indices), gate)


def _fits_int32(u: UOp) -> bool:
    """Return True if an index, times the extents of columns, is far from the least and the greatest int64."""
    bounds = u.min_max
    return bounds is not None and dt.int32.min <= bounds[0] and bounds[1] <= dt.int32.max


def _clear(scatter: _Scatter, memory: UOp, position: UOp) -> UOp:
    """Return the Store of an empty sum."""
    return UOp(Op.STORE, (UOp(Op.INDEX, (memory, position)), B.const(0, scatter.reduce.dtype)))


def _build_store_of_value_from_sum(s: Schedule, scatter: _Scatter, summed_memory: UOp) -> UOp:
    """Return the Store of a value, computed from the sum that stands in its place."""
    (position,) = s.effect.buffer.positions
    total = UOp(Op.LOAD, (UOp(Op.INDEX, (summed_memory, position)),), LoadArg())
    return UOp(Op.STORE, (s.effect.buffer, substitute(s.effect.value, {scatter.reduce: total})))
