"""Splitting of large Reduces in two stages: a kernel of partial results, which cores share, and a kernel that combines these.

Takes and gives: the body of CALLIFIED. R32 (Reduce value) allows any order and association. One axis of the Reduce, n = p * q, is
cut into p runs of q elements. If n has no such factor, the remainder beside p runs is combined with them:

    Reduce(x, n)   becomes   Reduce(Contiguous(Reduce(x as (p, q), q)), p)

A Reduce that has a closed form stays whole, since it may not read its operand. Spec: Reduce; Lowering Pipeline/Rangeify.
"""

from __future__ import annotations

import math

from uops.compiler.ir.bodies import order_outside_kernels
from uops.compiler.ir.views import IndexArithmetic
from uops.compiler.log import log_transform
from uops.compiler.passes.rangeify.elements import find_closed_forms_of_reduces
from uops.compiler.target import PLAIN, MachineModel
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op

#: Most results of a Reduce that is split; more results keep the cores busy by themselves.
MAX_RESULTS = 8
#: Most parts of a split, and fewest parts that a factor of the extent may give.
MAX_PARTS, MIN_PARTS = 64, 32


def split_large_reduces(body: UOp, indexing: IndexArithmetic, machine: MachineModel = PLAIN) -> UOp:
    """Split every large Reduce of a body into two stages."""
    least = machine.thresholds.split_reduce_elements
    if not any(_is_large_reduce_with_few_results(u, least) for u in nodes_with_op(body, Op.REDUCE)):
        return body
    order = order_outside_kernels(body)
    large = {u for u in order if u.op is Op.REDUCE and _is_large_reduce_with_few_results(u, least)}
    large -= find_closed_forms_of_reduces(order, indexing).keys()
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done.get(s, s) for s in u.src])
        new = u if src == u.src else u.replace(src=src)
        done[u] = _split_reduce(new) if u in large else new
    log_transform("parts", body, done[body], done)
    return done[body]


def _is_large_reduce_with_few_results(u: UOp, min_elements_per_result: int) -> bool:
    shape, axes = u.operand.shape, u.arg.axes
    if not axes or not all(isinstance(n, int) for n in shape) or math.prod(u.shape) > MAX_RESULTS:
        return False
    is_large = math.prod(shape) >= min_elements_per_result * math.prod(u.shape)
    return is_large and shape[_choose_first_long_enough_reduced_axis(u)] >= MIN_PARTS


def _choose_first_long_enough_reduced_axis(u: UOp) -> int:
    """Return the first reduced axis that is long enough, else the longest."""
    shape, axes = u.operand.shape, tuple(u.arg.axes)
    axis: int = next((k for k in axes if shape[k] >= MAX_PARTS), max(axes, key=lambda k: shape[k]))
    return axis


def _split_reduce(u: UOp) -> UOp:
    x, axis = u.operand, _choose_first_long_enough_reduced_axis(u)
    n = int(x.shape[axis])
    part_count = next((p for p in range(MAX_PARTS, MIN_PARTS - 1, -1) if n % p == 0), MAX_PARTS)
    whole = n // part_count * part_count
    total = _reduce_in_two_stages(u, _slice_axis(x, axis, 0, whole), axis, part_count)
    if whole < n:
        total = UOp(u.arg.op, (total, B.reduce(_slice_axis(x, axis, whole, n), u.arg.op, u.arg.axes)))
    return total


def _slice_axis(x: UOp, axis: int, begin: int, end: int) -> UOp:
    """Return the elements `begin` to `end` of an axis."""
    if end - begin == x.shape[axis]:
        return x
    first = [begin if k == axis else 0 for k in range(len(x.shape))]
    return B.shrink(x, first, [end - begin if k == axis else n for k, n in enumerate(x.shape)])


def _reduce_in_two_stages(u: UOp, x: UOp, axis: int, part_count: int) -> UOp:
    """Reduce each of the runs of an axis, realise the results, and reduce these. `part_count` divides the extent."""
    shape = (*x.shape[:axis], part_count, int(x.shape[axis]) // part_count, *x.shape[axis + 1 :])
    inner = [k + (k >= axis) for k in u.arg.axes]
    parts = B.contiguous(B.reduce(B.reshape(x, shape), u.arg.op, inner))
    return B.reshape(B.reduce(parts, u.arg.op, (axis,)), u.shape)
