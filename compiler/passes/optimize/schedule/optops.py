"""Application of OptOps to a Schedule, and the reasons to reject one.

`apply` applies one OptOp and returns a new Schedule. It raises RejectedOptOp with the reason of the specification
(`spec.optops.illegality_reason`) or of the kernel's memory. Spec: Kernel Optimizations (OptOps); R90 to R98 (the OptOps).

An OptOp is a substitution of Ranges:

- Split of r by k: r becomes r' * k + s, with s of extent k; with `top` it becomes s * (n / k) + r'. A node that closes r closes r'
  and s.
- Padto: r gets the longer extent. Accesses in added iterations are gated off, and a Reduce over r takes its identity there (R92).
- Swap: two loops exchange their axis ids, hence their nesting.

A kernel's memory forbids some OptOps that its axes alone would allow. Iterations that share LOCAL memory or write one element keep
their order (R55: races), and a workgroup has at most as many lanes as the machine (R140). A Store that the kernel reads again gets
no other loop around it, in which it would be repeated (R57).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import finite_bounds
from uops.compiler.ir.loops import map_nodes_of_ops_to_enclosing_loops
from uops.compiler.log import log_decisions
from uops.compiler.passes.optimize.schedule.schedule import (
    RejectedOptOp,
    Schedule,
    axis_of,
    divide_bound,
    next_id,
    pad_loop_and_mask_added_iterations,
    range_arg,
    replace_range_and_mask_iterations,
    replace_ranges,
    replace_schedule_ranges,
    round_up,
)
from uops.compiler.passes.optimize.schedule.tensor_core import (
    match_tensor_core_or_explain_mismatch,
    tile_for_wmma_or_unrolled_reduce,
)
from uops.compiler.target import PLAIN, MachineModel
from uops.spec.ir.args import AddrSpace, RangeArg
from uops.spec.ir.axes import GRID, SEQUENTIAL, UNROLLED, WORKGROUP, AxisType
from uops.spec.ir.node import Dim, UOp, nodes_with_op, toposort
from uops.spec.ir.ops import EFFECT_WRAPPERS, Op
from uops.spec.ir.scope import base_memory, open_ranges, ranges_closed_by
from uops.spec.optops import TC, Axis, Nolocals, OptOp, Padto, Split, Swap, illegality_reason, require_every_optop


def find_rejection_reason(s: Schedule, opt: OptOp, machine: MachineModel = PLAIN) -> str | None:
    """Return why an OptOp must not be applied for this machine, or None."""
    reason = illegality_reason(opt, s.axes, applied=s.done, descriptors=machine.tensor_cores)
    return reason or _APPLICATIONS[type(opt)].explain_conflict(s, opt, machine)


def _explain_split_race_or_lane_excess(s: Schedule, opt: Split, machine: MachineModel) -> str | None:
    """Return why the kernel's memory or the machine forbids a Split, or None."""
    reason = _explain_memory_race_of_split(s, opt) or _explain_accumulator_conflict(s, opt.axis, opt.target)
    reason = reason or (_explain_lane_excess(s, opt, machine) if opt.target in WORKGROUP else None)
    return reason or _explain_awaited_store_repetition(s, opt, machine)


def _explain_padto_conflict(s: Schedule, opt: Padto, machine: MachineModel) -> str | None:
    """Return why the kernel's memory or the machine forbids a Padto, or None."""
    reason = _explain_accumulator_conflict(s, opt.axis)
    return reason or (_explain_lane_excess(s, opt, machine) if s.ranges[opt.axis].arg.type in WORKGROUP else None)


def _explain_no_conflict(s: Schedule, opt: OptOp, machine: MachineModel) -> None:
    """Return None: the axes alone decide whether the OptOp is legal."""


def _explain_tensor_core_mismatch(s: Schedule, opt: TC, machine: MachineModel) -> str | None:
    match = match_tensor_core_or_explain_mismatch(s, opt, machine.tensor_cores)
    return match if isinstance(match, str) else None


def _explain_accumulator_conflict(s: Schedule, axis: int, target: AxisType | None = None) -> str | None:
    """Return why a Split into `target`, or a Padto, must not touch an axis, or None.

    The axis may be a loop of an accumulator, a loop around one, or a loop around a Wmma.
    """
    r = s.ranges[axis]
    stepped = r.arg.type is AxisType.REDUCE and any(r in u.ranges for u in nodes_with_op(s.effect, Op.END))
    if target is not AxisType.REDUCE and stepped:
        return f"axis {axis} runs through the steps of an accumulator, one after the other (R142)"
    if (target is None or target in UNROLLED) and _loop_encloses_op(r, s.effect, Op.WMMA):
        return f"a Wmma stands in axis {axis}: it is done whole, and not side by side (R142)"
    if target in UNROLLED and r in find_loops_around_local_memory_fill_loops(s.effect, include_register_fills=True):
        return f"registers are filled once per iteration of axis {axis}, and {target.name} iterations share them (R55, R128)"
    return None


def _loop_encloses_op(r: UOp, effect: UOp, op: Op) -> bool:
    """Return True if a node of this op depends on the open Range `r`."""
    nodes = nodes_with_op(effect, op)
    needs = open_ranges(toposort(effect)) if nodes else {}
    return any(r in needs[u] for u in nodes)


def _explain_memory_race_of_split(s: Schedule, opt: Split) -> str | None:
    """Return why the iterations of a split loop must keep their order in memory, or None."""
    r = s.ranges[opt.axis]
    if opt.target not in _OWN_MEMORY and r in find_loops_around_local_memory_fill_loops(s.effect):
        return f"LOCAL memory is filled once per iteration of axis {opt.axis}, and {opt.target.name} iterations share it (R55)"
    if r.arg.axis_id in s.ordered_ids and opt.target is not AxisType.LOOP:
        return f"iterations of axis {opt.axis} may meet in one element, and {opt.target.name} has no order (R55, R57)"
    return _explain_split_reordering_colliding_writes(s, opt)


def _explain_split_reordering_colliding_writes(s: Schedule, opt: Split) -> str | None:
    """Return why a Split would reorder iterations that may write one element, or None. The new loop nests inside all others."""
    r = s.ranges[opt.axis]
    if r.arg.axis_id in s.ordered_ids and (opt.top or any(k > r.arg.axis_id for k in s.ordered_ids)):
        inside = "it counts in the longer steps" if opt.top else "another such axis stands between them"
        return f"iterations of axis {opt.axis} may meet in one element, and the new loop is the innermost: {inside} (R57, R158)"
    return None


def _explain_swap_reordering_or_store_repetition(s: Schedule, opt: Swap, machine: MachineModel) -> str | None:
    """Return why a Swap would reorder iterations that may write one element, or repeat an intermediate Store, or None."""
    low, high = sorted(int(s.ranges[k].arg.axis_id) for k in (opt.axis, opt.other))
    if len(s.ordered_ids & {low, high}) == 2 or (s.ordered_ids & {low, high} and any(low < k < high for k in s.ordered_ids)):
        return f"iterations of axes {opt.axis} and {opt.other}, or between them, may meet in one element (R57, R158)"
    return _explain_awaited_store_repetition(s, opt, machine)


def _explain_awaited_store_repetition(s: Schedule, opt: OptOp, machine: MachineModel) -> str | None:
    """Return the reason if an OptOp would put another loop around a Store for which later parts of the kernel wait, or None."""
    if not nodes_with_op(s.effect, Op.AFTER):
        return None
    return _explain_loop_repeating_awaited_store(opt, _APPLICATIONS[type(opt)].apply(s, opt, machine))


def _explain_loop_repeating_awaited_store(opt: OptOp, changed: Schedule) -> str | None:
    """Return the reason if, in the schedule that an OptOp has made, a loop repeats an intermediate Store, or None."""
    nest = [r for r in changed.ranges if r in changed.outputs and r.arg.type not in UNROLLED and axis_of(r).extent != 1]
    for loops in _find_loops_around_awaited_param_stores(changed.effect):
        depth = sum(r in loops for r in nest)
        if not loops.issuperset(nest[:depth]):
            return f"{opt} puts another loop around an intermediate Store, which would be repeated (R57)"
    return None


def _find_loops_around_awaited_param_stores(effect: UOp) -> list[frozenset[UOp]]:
    """Return the loops around each Store to memory of the program for which a later part of the kernel waits."""
    order = toposort(effect)
    waited_for = {u for after in order if after.op is Op.AFTER for u in toposort(*after.dependencies) if u.op is Op.STORE}
    loops = map_nodes_of_ops_to_enclosing_loops(order, frozenset({Op.STORE}))
    return [around for u, around in loops.items() if u in waited_for and base_memory(u.buffer).op is Op.PARAM]


def _explain_lane_excess(s: Schedule, opt: OptOp, machine: MachineModel) -> str | None:
    """Return how a workgroup would get more lanes than the machine has, or None."""
    if not machine.workgroup:
        return None
    lanes = count_max_lanes_per_workgroup(_APPLICATIONS[type(opt)].apply(s, opt, machine))
    if lanes <= machine.workgroup:
        return None
    return f"a workgroup of {lanes} lanes, the machine has at most {machine.workgroup} (R140)"


def count_max_lanes_per_workgroup(s: Schedule) -> int:
    """Return the number of lanes of one workgroup, with symbolic extents at their maximum.

    Consecutive Reduces share lanes where their extents are equal. A Reduce inside another's loops has lanes of its own (R140).
    """
    order = toposort(s.effect)
    needs = open_ranges(order)
    shared: Counter[int] = Counter()
    for u in order:
        if u.op is Op.REDUCE:
            loops = needs[u.operand].union(ranges_closed_by(u))  # an invariant operand depends on no loop
            shared |= Counter(max_trip_count(axis_of(r).extent) for r in loops if r.arg.type is AxisType.GROUP_REDUCE)
    output_lanes = [max_trip_count(axis_of(r).extent) for r in s.outputs if r.arg.type in WORKGROUP]
    return math.prod((*output_lanes, *shared.elements()))


def max_trip_count(extent: Dim) -> int:
    """Return the maximum trip count of an extent."""
    return extent if isinstance(extent, int) else (finite_bounds(extent) or (0, 1 << 62))[1]


#: Types of axes whose iterations run in order or have LOCAL memory of their own (R57; R128: private memory).
_OWN_MEMORY = SEQUENTIAL | GRID


def find_loops_around_local_memory_fill_loops(effect: UOp, include_register_fills: bool = False) -> frozenset[UOp]:
    """Return the loops around those that fill LOCAL memory and, if `include_register_fills`, registers."""
    fills = [u for u in nodes_with_op(effect, Op.END) if include_register_fills or not _stores_into_registers(u)]
    if not fills:
        return frozenset()
    needs = open_ranges(toposort(effect))
    return frozenset().union(*(needs[u] for u in fills))


def _stores_into_registers(end: UOp) -> bool:
    """Return True if the loop that an End closes stores into registers, which are private to a lane."""
    while end.op in EFFECT_WRAPPERS:
        end = end.body if end.op is Op.END else end.effects[0]
    memory = base_memory(end.src[0])  # buffer of a Store, index of an AtomicAdd
    return memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.REG


def apply(s: Schedule, opt: OptOp, machine: MachineModel = PLAIN) -> Schedule:
    """Apply one OptOp. Raises RejectedOptOp with the reason if it is not legal."""
    reason = find_rejection_reason(s, opt, machine)
    if reason is not None:
        raise RejectedOptOp(f"{opt}: {reason}")
    changed = _APPLICATIONS[type(opt)].apply(s, opt, machine)
    log_decisions((opt,), s.effect, changed.effect)
    return replace(changed, done=(*s.done, opt))


def apply_padto_and_split(s: Schedule, pad: Padto, opt: Split) -> Schedule:
    """Apply Padto, then a Split of the same loop, in one substitution.

    The loop has a constant extent that the multiple does not divide. The result is that of `apply` twice. Raises RejectedOptOp;
    the number of lanes of a workgroup is not checked.
    """
    r = s.ranges[opt.axis]
    bound, padded_bound = r.bound, index_constant(round_up(r, pad.multiple))
    longer = [*s.axes]
    longer[opt.axis] = Axis(r.arg.axis_id, r.arg.type, padded_bound.arg.value)
    reason = (
        find_rejection_reason(s, pad)
        or illegality_reason(opt, longer, applied=(*s.done, pad))
        or _explain_memory_race_of_split(s, opt)
        or _explain_accumulator_conflict(s, opt.axis, opt.target)
    )
    if reason is not None or pad.axis != opt.axis:
        raise RejectedOptOp(f"{pad}, {opt}: {reason or f'expected one axis, got {pad.axis} and {opt.axis}'}")
    value, loops = _build_split_value_and_loops(s, r, padded_bound, opt)
    masked = replace_range_and_mask_iterations(s.effect, r, (value, loops), UOp(Op.CMPLT, (value, bound)))
    changed = _replace_loop_in_outputs(s, r, loops, masked)
    if nodes_with_op(s.effect, Op.AFTER):  # else nothing waits for a Store
        reason = _explain_loop_repeating_awaited_store(opt, changed)
        if reason is not None:
            raise RejectedOptOp(f"{pad}, {opt}: {reason}")
    log_decisions((pad, opt), s.effect, changed.effect)
    return replace(changed, done=(*s.done, pad, opt))


def split_whole_loop_to_change_type(s: Schedule, opt: Split) -> Schedule:
    """Split a loop by its constant extent, which changes its type.

    The result is that of `apply`, but no value refers to the remaining loop of one iteration, which `close_output_loops_into_sink`
    drops. Raises RejectedOptOp.
    """
    reason = find_rejection_reason(s, opt)
    r = s.ranges[opt.axis]
    if reason is not None or r.bound is not index_constant(opt.factor):
        raise RejectedOptOp(f"{opt}: {reason or f'the factor must be the extent of axis {opt.axis}, {axis_of(r).extent}'}")
    new = UOp(Op.RANGE, r.src, RangeArg(next_id(s), opt.target))
    loops = UOp(Op.RANGE, (index_constant(1),), r.arg), new
    changed = _replace_loop_in_outputs(s, r, loops, replace_ranges(s.effect, {r: (new, loops)}))
    log_decisions((opt,), s.effect, changed.effect)
    return replace(changed, done=(*s.done, opt))


def _apply_split(s: Schedule, opt: Split, machine: MachineModel) -> Schedule:
    r = s.ranges[opt.axis]
    value, loops = _build_split_value_and_loops(s, r, r.bound, opt)
    return _replace_loop_in_outputs(s, r, loops, replace_ranges(s.effect, {r: (value, loops)}))


def _build_split_value_and_loops(s: Schedule, r: UOp, padded_bound: UOp, opt: Split) -> tuple[UOp, tuple[UOp, UOp]]:
    """Return the value that replaces loop `r`, of extent `padded_bound`, and the two loops it is split into, outer and new."""
    left = divide_bound(padded_bound, opt.factor)
    outer = UOp(Op.RANGE, (left,), r.arg)
    new = UOp(Op.RANGE, (index_constant(opt.factor),), RangeArg(next_id(s), opt.target))
    return _mul_add(new, left, outer) if opt.top else _mul_add(outer, index_constant(opt.factor), new), (outer, new)


def _replace_loop_in_outputs(s: Schedule, r: UOp, loops: tuple[UOp, UOp], new_effect: UOp) -> Schedule:
    """Return the schedule with `new_effect`, in whose outputs `loops` (outer and new) replace `r`."""
    outputs = tuple([n for x in s.outputs for n in (loops if x is r else (x,))])
    _, new = loops
    ordered_ids = s.ordered_ids | {int(new.arg.axis_id)} if r.arg.axis_id in s.ordered_ids else s.ordered_ids
    return replace(s, effect=new_effect, outputs=outputs, ordered_ids=ordered_ids)


def _mul_add(major: UOp, stride: UOp, minor: UOp) -> UOp:
    return UOp(Op.ADD, (UOp(Op.MUL, (major, stride)), minor))


def _apply_tensor_core(s: Schedule, opt: TC, machine: MachineModel) -> Schedule:
    match = match_tensor_core_or_explain_mismatch(s, opt, machine.tensor_cores)
    if isinstance(match, str):
        raise RejectedOptOp(match)
    return tile_for_wmma_or_unrolled_reduce(s, opt, match)


def _apply_padto(s: Schedule, opt: Padto, machine: MachineModel) -> Schedule:
    return pad_loop_and_mask_added_iterations(s, opt)


def _apply_nolocals(s: Schedule, opt: Nolocals, machine: MachineModel) -> Schedule:
    return s


def _exchange_axis_ids_for_swap(s: Schedule, opt: Swap, machine: MachineModel) -> Schedule:
    a, b = s.ranges[opt.axis], s.ranges[opt.other]
    new = {a: a.replace(arg=range_arg(a, axis_id=b.arg.axis_id)), b: b.replace(arg=range_arg(b, axis_id=a.arg.axis_id))}
    swapped = replace_schedule_ranges(s, {r: (n, (n,)) for r, n in new.items()})
    ids = {int(a.arg.axis_id), int(b.arg.axis_id)}
    return replace(swapped, ordered_ids=s.ordered_ids ^ ids) if len(s.ordered_ids & ids) == 1 else swapped


class OptOpApplication(NamedTuple):
    """The application of a class of OptOps to a schedule, and the reason why a legal one must not be applied there, or None."""

    apply: Callable[..., Schedule]
    explain_conflict: Callable[..., str | None]


_APPLICATIONS: dict[type[OptOp], OptOpApplication] = {
    Split: OptOpApplication(_apply_split, _explain_split_race_or_lane_excess),
    Padto: OptOpApplication(_apply_padto, _explain_padto_conflict),
    Swap: OptOpApplication(_exchange_axis_ids_for_swap, _explain_swap_reordering_or_store_repetition),
    Nolocals: OptOpApplication(_apply_nolocals, _explain_no_conflict),
    TC: OptOpApplication(_apply_tensor_core, _explain_tensor_core_mismatch),
}
require_every_optop(_APPLICATIONS, "compiler/passes/optimize/schedule/optops.py")
