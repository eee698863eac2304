"""LOCAL memory that the lanes of a workgroup fill together, and register accumulators around it.

`load_through_shared_memory` stages the value of a Load in a LOCAL Buffer. The loops in `memory_axes` are the Buffer's axes, the
last one fastest. They include all lanes and vector axes on which the Load depends. All other loops stay around. In each of their
iterations the lanes meet, since the last filling is still being read, fill the Buffer, each lane equally many elements, and meet
again. Where the lanes do not divide the panel, the last turn is masked.

`accumulate_in_registers` gives the kernel's Reduce an accumulator per combination of the UPCAST loops around it. Its REDUCE loops
then stand outside those loops. A filling inside a REDUCE loop is thus done once for all of them instead of once for each.

Spec: Lowering Pipeline/Optimize ("insert local buffers"); R16 (rounding), R32 (value of a Reduce), R55 (races), R57 (order of
Ranges), R60 (Barrier), R61 (fresh buffers), R127 (loops of a node), R128 (private memory).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from uops.compiler.ir.accumulators import accumulator_dtype, build_register_and_clear_effect
from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.loops import sort_by_nesting
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.group import index_element
from uops.compiler.passes.optimize.schedule.schedule import Schedule, gate_load, next_id
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import SEQUENTIAL, WORKGROUP, AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by


def load_through_shared_memory(s: Schedule, load: UOp, memory_axes: Sequence[UOp], unique: int) -> Schedule:
    """Replace a Load by a load from LOCAL memory that all lanes of the workgroup fill together.

    `memory_axes` are loops that become its axes; `unique` is the Buffer's number.
    """
    lanes = [r for r in s.outputs if r.arg.type in WORKGROUP]
    size, lane_count = math.prod(map(constant_extent, memory_axes)), math.prod(map(constant_extent, lanes))
    needs = open_ranges(toposort(load))[load]
    around = tuple(
        sorted((r for r in needs if r not in memory_axes and r.arg.type in SEQUENTIAL), key=lambda r: int(r.arg.axis_id))
    )
    axis = next_id(s)
    fill_step = UOp(Op.RANGE, (index_constant(-(-size // lane_count)),), RangeArg(axis, AxisType.LOOP))
    element = _compute_element_that_lane_fills(fill_step, lanes, lane_count)
    buffer = UOp(Op.BUFFER, (), BufferArg(size, load.dtype, "CPU", AddrSpace.LOCAL, unique))
    writable = B.after(buffer, UOp(Op.BARRIER, (*around, *lanes))) if around else buffer
    value = substitute(load, dict(zip(memory_axes, _unflatten_index(element, memory_axes), strict=True)))
    address = UOp(Op.INDEX, (writable, element))
    if size % lane_count:
        inside = UOp(Op.CMPLT, (element, index_constant(size)))
        fill = UOp(Op.STORE, (address, gate_load(value, inside), inside))
    else:
        fill = B.store(address, value)
    ready = B.after(buffer, UOp(Op.BARRIER, (UOp(Op.END, (fill, fill_step)),)))
    panel_load = UOp(Op.LOAD, (index_element(ready, memory_axes, memory_axes),), LoadArg())
    effect = substitute(s.effect, {load: panel_load})
    log_transform("shared memory", s.effect, effect, {load: panel_load})
    return replace(s, effect=effect)


def accumulate_in_registers(s: Schedule, unique: int) -> Schedule:
    """Lower the kernel's one Reduce to register accumulators: cleared first, updated in each step, loaded at the end."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    u = next(u for u in order if u.op is Op.REDUCE)
    d = accumulator_dtype(u.dtype)
    vectors = sorted((r for r in needs[u] if r.arg.type is AxisType.UPCAST), key=lambda r: int(r.arg.axis_id))
    steps = ranges_closed_by(u)
    unrolled = tuple(r for r in steps if r.arg.type is AxisType.UNROLL)
    free = next_id(s)
    clearing, adding = (_clone_loops(vectors, free + k * len(vectors)) for k in range(2))
    outer = sort_by_nesting(r for r in needs[u] if r not in vectors)
    register, cleared = build_register_and_clear_effect(u, outer, unique, clearing)
    value = substitute(u.operand, dict(zip(vectors, adding, strict=True)))
    loops = tuple(r for r in steps if r not in unrolled)
    accumulator = index_element(B.after(register, cleared, *loops), adding, vectors)
    total = _build_updated_accumulator(u, UOp(Op.LOAD, (accumulator,), LoadArg()), value, unrolled, d)
    updated = B.wrap_in_one_end_per_loop(B.store(accumulator, total), [*loops, *adding])
    result = B.cast(UOp(Op.LOAD, (index_element(B.after(register, updated), vectors, vectors),), LoadArg()), u.dtype)
    effect = substitute(s.effect, {u: result})
    log_transform("registers", s.effect, effect, {u: result})
    return replace(s, effect=effect)


def _clone_loops(loops: Sequence[UOp], axis: int) -> list[UOp]:
    """Return loops of the same extents and types, with axis ids from `axis` on."""
    return [UOp(Op.RANGE, r.src, RangeArg(axis + k, r.arg.type)) for k, r in enumerate(loops)]


def _build_updated_accumulator(reduce: UOp, accumulator: UOp, step_value: UOp, unrolled: Sequence[UOp], d: DType) -> UOp:
    """Return the accumulator after one more step of Reduce `reduce`, in accumulator dtype `d`.

    The unrolled part of a step is reduced first. The sum of single products becomes Mulacc (R32: value of a Reduce).
    """
    if unrolled:
        return UOp(reduce.arg.op, (accumulator, reduce.replace(src=(B.cast(step_value, d), *unrolled))))
    if reduce.arg.op is Op.ADD and step_value.op is Op.MUL and reduce.dtype.is_float:
        return UOp(Op.MULACC, (*(B.cast(f, d) for f in step_value.src), accumulator))
    return UOp(reduce.arg.op, (accumulator, B.cast(step_value, d)))


def _compute_element_that_lane_fills(fill_step: UOp, lanes: Sequence[UOp], lane_count: int) -> UOp:
    """Return the number of the element that a lane fills in a step.

    Neighbouring lanes fill neighbouring elements; the last axis runs fastest.
    """
    flat: UOp = UOp(Op.MUL, (fill_step, index_constant(lane_count)))
    for k, r in enumerate(lanes):
        stride = math.prod(map(constant_extent, lanes[k + 1 :]))
        flat = UOp(Op.ADD, (flat, UOp(Op.MUL, (r, index_constant(stride)))))
    return Rewriter(INDEXING)(flat)


def _unflatten_index(element: UOp, memory_axes: Sequence[UOp]) -> list[UOp]:
    """Return the values of the loops `memory_axes` at an element of the panel."""
    values, stride = list[UOp](), 1
    for r in reversed(memory_axes):
        quotient = element if stride == 1 else UOp(Op.IDIV, (element, index_constant(stride)))
        values.append(UOp(Op.MOD, (quotient, index_constant(constant_extent(r)))))
        stride *= constant_extent(r)
    return values[::-1]
