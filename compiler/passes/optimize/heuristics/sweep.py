"""Sweeps: sums of columns that read memory in order, row after row.

A Reduce whose operand lies in memory with the reduced loop outside - columns of a matrix, a vector times a matrix - would walk down
each block of columns and touch a page per row. Swept, the loops change places: the results of a tile of columns are kept in REG
memory, and every row adds to all of them:

    for t: for r: a += x[r, t]    ->    for t: m[t] = identity;  for r: for t: m[t] += x[r, t];  for t: a = m[t]

The same makes blocks of a deep product: with the outer part of a split Reduce as rows, and tiles as columns, operands are read from
caches that hold a block of them. What is stored as it is summed needs no memory of its own (`swept_in_output`):

    for t: for r: a += x[r, t]; y[t] = f(a)
    ->    for r: for t: a = (0 if r is first else y[t]) + x[r, t]; y[t] = f(a) if r is last else a

Spec: Reduce; Lowering Pipeline/Optimize; R32 (any order), R61, R91.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uops.compiler.ir.accumulators import combined, identity, opened, position, wide_of, widened
from uops.compiler.ir.affine import number
from uops.compiler.ir.loops import in_order
from uops.compiler.log import note
from uops.compiler.passes.optimize.schedule.local_memory import extent_of, only_stored
from uops.compiler.passes.optimize.schedule.schedule import Schedule, both, next_id
from uops.spec.ir import build as B
from uops.spec.ir.args import LoadArg, RangeArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges


def swept(s: Schedule, u: UOp, columns: Sequence[UOp], rows: Sequence[UOp], unique: int) -> Schedule:
    """The schedule with Reduce `u` done for all iterations of the output loops `columns`, whose extents are constants, in each
    iteration of `rows`, some of its own loops; the others stay inside.

    Nothing below the Reduce is one that depends on `columns`. `unique` is the identity of the Buffer.
    """
    order = toposort(s.effect)
    outside = sorted(open_ranges(order)[u] - set(columns), key=lambda r: int(r.arg.axis_id))
    inside = [r for r in closed_by(u) if r not in rows]
    free = next_id(s)
    first, second = (
        [UOp(Op.RANGE, r.src, RangeArg(free + n * len(columns) + k, r.arg.type)) for k, r in enumerate(columns)] for n in range(2)
    )
    value = widened(substitute(u.src[0], dict(zip(columns, second, strict=True))))
    sizes = [extent_of(r) for r in columns]
    memory, cleared = opened(u, outside, unique, first)
    running = position(B.after(memory, cleared, *rows), second, sizes)
    term = UOp(Op.REDUCE, (value, *inside), ReduceArg(u.arg.op)) if inside else value
    filled = B.nested(B.store(running, combined(u, running, term)), [*in_order(rows), *in_order(second)])
    total = UOp(Op.LOAD, (position(B.after(memory, filled), columns, sizes),), LoadArg())
    effect = substitute(s.effect, {u: B.cast(total, u.dtype)})
    note("sweep", s.effect, effect, {u: total})
    return replace(s, effect=effect)


def swept_in_output(s: Schedule, u: UOp, columns: Sequence[UOp], row: UOp) -> Schedule | None:
    """The same for one loop `row` of the kernel's only Reduce `u`, with the sums so far in the memory that the kernel writes: it is
    written anyway (R146). What is made of the sum is stored in the last iteration. None where the sums are kept in another dtype
    than they or that memory have, or it is read otherwise. `columns` are output loops in order, to stand inside of `row`.
    """
    store = s.effect
    place, value, *gates = store.src
    memory = place.src[0]
    kept = wide_of(u.dtype) is u.dtype is memory.dtype and memory.op is Op.PARAM
    if not kept or not only_stored(store, toposort(store)):
        return None
    free = next_id(s)
    kinds = {row: AxisType.LOOP, **{r: r.arg.type for r in columns}}
    new = {r: UOp(Op.RANGE, r.src, RangeArg(free + k, kind)) for k, (r, kind) in enumerate(kinds.items())}
    later = both(gates[0] if gates else None, UOp(Op.CMPLT, (number(0), row)))
    running = UOp(Op.LOAD, (place, identity(u.arg.op, u.dtype), later), LoadArg())
    term = u.replace(src=(u.src[0], *(r for r in closed_by(u) if r is not row)))
    total = UOp(u.arg.op, (running, term))
    if value is not u:
        last = UOp(Op.CMPEQ, (row, UOp(Op.SUB, (row.src[0], number(1)))))
        total = UOp(Op.WHERE, (last, substitute(value, {u: total}), total))
    effect = substitute(UOp(Op.STORE, (place, total, *gates)), new)
    note("sweep in output", store, effect, {u: effect.src[1]})
    return replace(s, effect=effect, outputs=(*(new.get(r, r) for r in s.outputs), new[row]))
