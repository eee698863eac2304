"""Values that a kernel computes from its loop counters alone: addresses, and the accesses that are views of a memory.

Counters of axes with constant bounds, and values that are affine in them, depend on no argument and on no memory. They belong
to the plan. `fold_static_values_or_give_up` evaluates them once, with the assertions on every value. For each access without
a condition it finds the `StridedSpan` of elements that it touches, if all of it is in bounds. Everything else is left to each
run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from uops.interp.kernel.structure.blocks import Loop, ScheduledBlock
from uops.interp.kernel.vector_machine.affine import INTEGERS, RULES, AffineValue, affine_constant, fits_dtype
from uops.interp.kernel.vector_machine.limits import GiveUp
from uops.interp.kernel.vector_machine.loop_nest import LoopNest
from uops.interp.kernel.vector_machine.memory import (
    StridedRef,
    StridedSpan,
    compute_in_bounds_span_or_give_up,
    copy_offset_per_iteration,
    index_strided_if_affine_in_bounds,
    whole_memory_ref,
)
from uops.interp.kernel.vector_machine.plan import MemoryPlan
from uops.interp.tensor.storage import const_to_array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import KERNEL_ACCESSES, Op


@dataclass(eq=False, slots=True)
class StaticValues:
    """Values that no run computes.

    `cells` has the values of nodes, `bounds` the trip counts of loops, and `spans` the elements that accesses touch.
    """

    cells: dict[UOp, Any] = field(default_factory=dict)
    bounds: dict[UOp, int] = field(default_factory=dict)
    spans: dict[UOp, StridedSpan] = field(default_factory=dict)


def fold_static_values_or_give_up(
    loop_nest: LoopNest, block: ScheduledBlock, sequential: frozenset[UOp], memories: dict[UOp, MemoryPlan]
) -> StaticValues:
    """Return the values that depend on loop counters alone. Raises GiveUp where one leaves its derived bounds."""
    static = StaticValues()
    for u in memories:
        if u in loop_nest.leaves and all(n.__class__ is int for n in u.shape):
            static.cells[u] = whole_memory_ref(u, u.shape)
    _fold_block(static, loop_nest, block, [], sequential, memories)
    return static


def _fold_block(
    static: StaticValues,
    loop_nest: LoopNest,
    block: ScheduledBlock,
    extents: list[int],
    sequential: frozenset[UOp],
    memories: dict[UOp, MemoryPlan],
) -> None:
    """Fold the items of a block and of the loops in it."""
    for item in block.items:
        if isinstance(item, Loop):
            r = item.range
            bound = _value_of_loop_bound(static, r.bound)
            if bound.__class__ is not AffineValue or bound.lo != bound.hi:
                continue
            n = static.bounds[r] = bound.lo
            if n > 0 and r in sequential:
                _fold_block(static, loop_nest, item.block, extents, sequential, memories)
            elif n > 0:
                inner = [*extents, n]
                static.cells[r] = _give_up_outside_derived_bounds(r, AffineValue(0, (0,) * len(extents) + (1,), inner))
                _fold_block(static, loop_nest, item.block, inner, sequential, memories)
        else:
            value = _fold_node(static, item, extents)
            if value is not None:
                static.cells[item] = _give_up_outside_derived_bounds(item, value)
            elif item.op in KERNEL_ACCESSES and item not in loop_nest.guards:
                _record_strided_span_of_static_ungated_access(static, loop_nest, item, extents, memories)


def _value_of_loop_bound(static: StaticValues, u: UOp) -> Any:
    """Return the value of a bound, if it is known; a Special's is a constant inside of its own loop."""
    if u not in static.cells and u.op is Op.CONST:
        static.cells[u] = affine_constant(u.arg.value)
    return static.cells.get(u)


def _fold_node(static: StaticValues, u: UOp, extents: Sequence[int]) -> Any:
    """Return the value of a node, None where it is not known before the run."""
    if u.op is Op.CONST:
        return affine_constant(u.arg.value) if u.arg.dtype in INTEGERS else const_to_array(u.arg.value, u.arg.dtype)
    if u.op is Op.BUFFER:
        return whole_memory_ref(u, (u.arg.size,))
    if not u.src:
        return None
    cells = static.cells
    if u.op is Op.AFTER:
        return cells.get(u.buffer)
    operands = [cells.get(s) for s in u.src]
    first, *rest = operands
    if u.op is Op.INDEX:
        return index_strided_if_affine_in_bounds(first, rest, extents) if first.__class__ is StridedRef else None
    if not all(c.__class__ is AffineValue for c in operands):
        return None
    if u.op is Op.CAST:
        value: Any = first
    else:
        rule = RULES.get(u.op)
        value = None if rule is None else rule(operands, extents)  # type: ignore[arg-type]
    if value.__class__ is bool:
        return const_to_array(value, dt.bool_)
    return value if value is not None and fits_dtype(value, u.dtype) else None


def _give_up_outside_derived_bounds(u: UOp, value: Any) -> Any:
    """Return `value`. Raises GiveUp if it leaves the derived bounds."""
    if value.__class__ is AffineValue:
        bounds = u.min_max
        if bounds is None or value.lo < bounds[0] or value.hi > bounds[1]:
            raise GiveUp(f"{u.op.name} leaves its derived bounds")
    return value


def _record_strided_span_of_static_ungated_access(
    static: StaticValues, loop_nest: LoopNest, u: UOp, extents: list[int], memories: dict[UOp, MemoryPlan]
) -> None:
    """Record the elements that an access without a gate touches."""
    ref = static.cells.get(u.src[0])  # buffer or index
    if ref.__class__ is not StridedRef or (u.op is not Op.ATOMICADD and u.gate is not None):
        return
    planned = memories[ref.home]
    size = math.prod(ref.home.shape) if planned.space is AddrSpace.GLOBAL else ref.home.arg.size
    try:
        span = compute_in_bounds_span_or_give_up(ref, size, copy_offset_per_iteration(planned, size, extents), extents)
    except GiveUp:  # a run that comes here gives up itself
        return
    static.spans[u] = span
