"""Loop interchange for sums of columns, so that memory is read in order, row by row.

Take a Reduce whose operand varies slowest along the reduced loop: columns of a matrix, a vector times a matrix. It would walk down
each block of columns and touch a page per row. After the interchange, the results of a tile of columns are REG accumulators, and
every row adds to all of them:

    for t: for r: a += x[r, t]    ->    for t: m[t] = identity;  for r: for t: m[t] += x[r, t];  for t: a = m[t]

The same transform blocks a deep product: with the outer part of a split Reduce as rows and tiles as columns, operands are read
from caches that hold a block of them. Sums that are stored as they are need no memory of their own (`accumulate_in_output`):

    for t: for r: a += x[r, t]; y[t] = f(a)
    ->    for r: for t: a = (0 if r is first else y[t]) + x[r, t]; y[t] = f(a) if r is last else a

Spec: Reduce; Lowering Pipeline/Optimize; R32 (a Reduce may take any order), R61 (fresh buffers), R91 (cache tiling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uops.compiler.ir.accumulators import (
    accumulator_dtype,
    build_register_and_clear_effect,
    cast_to_accumulator_dtype,
    combine_with_accumulator,
    element_address,
    reduction_identity,
)
from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.loops import sort_by_nesting
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.local_memory import is_output_never_read
from uops.compiler.passes.optimize.schedule.schedule import Schedule, combine_gates, next_id
from uops.spec.ir import build as B
from uops.spec.ir.args import LoadArg, RangeArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by


def interchange_reduce_loops(s: Schedule, u: UOp, columns: Sequence[UOp], rows: Sequence[UOp], unique: int) -> Schedule:
    """Move the output loops `columns` inside `rows`, some of the loops of Reduce `u`; its other loops stay innermost.

    Columns have constant extents. No Reduce below `u` may depend on them. `unique` numbers the accumulators' Buffer.
    """
    order = toposort(s.effect)
    outside = sorted(open_ranges(order)[u] - set(columns), key=lambda r: int(r.arg.axis_id))
    inside = [r for r in ranges_closed_by(u) if r not in rows]
    free = next_id(s)
    first, second = (
        [UOp(Op.RANGE, r.src, RangeArg(free + n * len(columns) + k, r.arg.type)) for k, r in enumerate(columns)] for n in range(2)
    )
    value = cast_to_accumulator_dtype(substitute(u.operand, dict(zip(columns, second, strict=True))))
    sizes = [constant_extent(r) for r in columns]
    memory, cleared = build_register_and_clear_effect(u, outside, unique, first)
    running = element_address(B.after(memory, cleared, *rows), second, sizes)
    term = UOp(Op.REDUCE, (value, *inside), ReduceArg(u.arg.op)) if inside else value
    update = B.store(running, combine_with_accumulator(u, running, term))
    accumulated = B.close_loops(update, [*sort_by_nesting(rows), *sort_by_nesting(second)])
    total = UOp(Op.LOAD, (element_address(B.after(memory, accumulated), columns, sizes),), LoadArg())
    effect = substitute(s.effect, {u: B.cast(total, u.dtype)})
    log_transform("sweep", s.effect, effect, {u: total})
    return replace(s, effect=effect)


def accumulate_in_output(s: Schedule, u: UOp, columns: Sequence[UOp], row: UOp) -> Schedule | None:
    """Move loop `row` of the kernel's only Reduce `u` outside `columns`, with the running sums in the output memory (R146).

    `columns` are output loops in order. The last iteration of `row` stores the kernel's value. Returns None if accumulator, sum
    and memory have different dtypes, or if the memory is read otherwise.
    """
    store = s.effect
    address, value, memory = store.buffer, store.value, store.buffer.operand
    fits = accumulator_dtype(u.dtype) is u.dtype is memory.dtype and memory.op is Op.PARAM
    if not fits or not is_output_never_read(store, toposort(store)):
        return None
    free = next_id(s)
    kinds = {row: AxisType.LOOP, **{r: r.arg.type for r in columns}}
    new = {r: UOp(Op.RANGE, r.src, RangeArg(free + k, kind)) for k, (r, kind) in enumerate(kinds.items())}
    later = combine_gates(store.gate, UOp(Op.CMPLT, (index_constant(0), row)))
    running = UOp(Op.LOAD, (address, reduction_identity(u.arg.op, u.dtype), later), LoadArg())
    term = u.replace(src=(u.operand, *(r for r in ranges_closed_by(u) if r is not row)))
    total = UOp(u.arg.op, (running, term))
    if value is not u:
        last = UOp(Op.CMPEQ, (row, UOp(Op.SUB, (row.bound, index_constant(1)))))
        total = UOp(Op.WHERE, (last, substitute(value, {u: total}), total))
    gate = () if store.gate is None else (store.gate,)
    effect = substitute(UOp(Op.STORE, (address, total, *gate)), new)
    log_transform("sweep in output", store, effect, {u: effect.value})
    return replace(s, effect=effect, outputs=(*(new.get(r, r) for r in s.outputs), new[row]))
