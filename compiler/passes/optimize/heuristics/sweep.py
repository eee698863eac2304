"""Loop interchange for sums of columns, so that memory is read in order, row by row.

Take a Reduce whose operand varies slowest along the reduced loop: columns of a matrix, a vector times a matrix. It would walk down
each block of columns and touch a page per row. After the interchange, the results of a tile of columns are REG accumulators, and
every row adds to all of them:

    for t: for r: a += x[r, t]    ->    for t: m[t] = identity;  for r: for t: m[t] += x[r, t];  for t: a = m[t]

The same transform blocks a deep product: with the outer part of a split Reduce as rows and tiles as columns, operands are read
from caches that hold a block of them. Sums that are stored as they are need no memory of their own
(`accumulate_in_output_memory_if_allowed`):

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
    cast_value_or_factors_to_accumulator,
    combine_with_accumulator,
    element_address,
    reduction_identity,
)
from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.loops import sort_by_nesting
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.local_memory import is_output_referenced_by_store_alone
from uops.compiler.passes.optimize.schedule.schedule import Schedule, combine_gates, next_id
from uops.spec.ir import build as B
from uops.spec.ir.args import LoadArg, RangeArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by


def interchange_output_and_reduce_loops(
    s: Schedule,
    reduce: UOp,
    output_loops_to_move_in: Sequence[UOp],
    reduce_loops_to_move_out: Sequence[UOp],
    accumulator_number: int,
) -> Schedule:
    """Move the output loops `output_loops_to_move_in` inside `reduce_loops_to_move_out`, some of the loops of Reduce `reduce`;
    its other loops stay innermost.

    Columns have constant extents. No Reduce below `reduce` may depend on them. `accumulator_number` numbers the accumulators'
    Buffer.
    """
    order = toposort(s.effect)
    around = open_ranges(order)[reduce].union(s.shared)
    outside = sorted(around - set(output_loops_to_move_in), key=lambda r: int(r.arg.axis_id))
    inside = [r for r in ranges_closed_by(reduce) if r not in reduce_loops_to_move_out]
    free = next_id(s)
    first, second = (
        [
            UOp(Op.RANGE, r.src, RangeArg(free + n * len(output_loops_to_move_in) + k, r.arg.type))
            for k, r in enumerate(output_loops_to_move_in)
        ]
        for n in range(2)
    )
    value = cast_value_or_factors_to_accumulator(
        substitute(reduce.operand, dict(zip(output_loops_to_move_in, second, strict=True)))
    )
    sizes = [constant_extent(r) for r in output_loops_to_move_in]
    memory, cleared = build_register_and_clear_effect(reduce, outside, accumulator_number, first)
    running = element_address(B.after(memory, cleared, *reduce_loops_to_move_out), second, sizes)
    term = UOp(Op.REDUCE, (value, *inside), ReduceArg(reduce.arg.op)) if inside else value
    update = B.store(running, combine_with_accumulator(reduce, running, term))
    accumulated = B.wrap_in_one_end_per_loop(update, [*sort_by_nesting(reduce_loops_to_move_out), *sort_by_nesting(second)])
    total = UOp(Op.LOAD, (element_address(B.after(memory, accumulated), output_loops_to_move_in, sizes),), LoadArg())
    effect = substitute(s.effect, {reduce: B.cast(total, reduce.dtype)})
    log_transform("sweep", s.effect, effect, {reduce: total})
    return replace(s, effect=effect)


def accumulate_in_output_memory_if_allowed(
    s: Schedule, reduce: UOp, columns: Sequence[UOp], reduce_loop_to_move_out: UOp
) -> Schedule | None:
    """Move loop `reduce_loop_to_move_out` of the kernel's only Reduce `reduce` outside `columns`, with the running sums in the
    output memory (R146).

    `columns` are output loops in order. The last iteration of `reduce_loop_to_move_out` stores the kernel's value. Returns None
    if accumulator, sum and memory have different dtypes, or if the memory is read otherwise.
    """
    store = s.effect
    address, value, memory = store.buffer, store.value, store.buffer.operand
    fits = accumulator_dtype(reduce.dtype) is reduce.dtype is memory.dtype and memory.op is Op.PARAM
    if not fits or not is_output_referenced_by_store_alone(store, toposort(store)):
        return None
    free = next_id(s)
    kinds = {reduce_loop_to_move_out: AxisType.LOOP, **{r: r.arg.type for r in columns}}
    new = {r: UOp(Op.RANGE, r.src, RangeArg(free + k, kind)) for k, (r, kind) in enumerate(kinds.items())}
    later = combine_gates(store.gate, UOp(Op.CMPLT, (index_constant(0), reduce_loop_to_move_out)))
    running = UOp(Op.LOAD, (address, reduction_identity(reduce.arg.op, reduce.dtype), later), LoadArg())
    term = reduce.replace(src=(reduce.operand, *(r for r in ranges_closed_by(reduce) if r is not reduce_loop_to_move_out)))
    total = UOp(reduce.arg.op, (running, term))
    if value is not reduce:
        last = UOp(Op.CMPEQ, (reduce_loop_to_move_out, UOp(Op.SUB, (reduce_loop_to_move_out.bound, index_constant(1)))))
        total = UOp(Op.WHERE, (last, substitute(value, {reduce: total}), total))
    gate = () if store.gate is None else (store.gate,)
    effect = substitute(UOp(Op.STORE, (address, total, *gate)), new)
    log_transform("sweep in output", store, effect, {reduce: effect.value})
    return replace(s, effect=effect, outputs=(*(new.get(r, r) for r in s.outputs), new[reduce_loop_to_move_out]))
