"""The work of computing one element of each value, from which rangeify and the schedules choose what is kept in memory.

Work counts arithmetic and reads per element, in units of one simple vector operation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from uops.compiler.ir.buffers import COPIES
from uops.compiler.ir.extents import max_extent
from uops.compiler.rewrite.costs import COSTS
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import ALU, Op

#: Cost of reading one element from memory.
READ_COST = 4
#: Elements of a result per element of an operand from which the operand counts as computed outside of the innermost loop.
_REPEATED = 4
#: Work per element above which a value with several uses counts as read from memory.
_SHARED_COST = 8
#: Greatest work that is told apart.
_MAX_WORK = 1 << 40
_BROADCASTING = ALU | {Op.EXPAND}
_MEMORY = COPIES | {Op.PARAM, Op.BINARY, Op.CALL}


class RemainingReduce(NamedTuple):
    """The rest of a Reduce of which some loops are closed: the nodes whose elements it uses, and the axes left."""

    operands: Sequence[UOp]
    axes: Collection[int]


def estimate_work_per_element(
    nodes_sources_first: Sequence[UOp],
    remaining_by_partly_closed_reduce: Mapping[UOp, RemainingReduce] = MappingProxyType({}),
    use_counts_of_materializable_values: Mapping[UOp, int] = MappingProxyType({}),
) -> dict[UOp, int]:
    """Return the cost of computing one element of each value, down to memory.

    Reduces in `remaining_by_partly_closed_reduce` are computed without some of their loops, or all. An expensive value counts as
    read from memory if `use_counts_of_materializable_values` has several uses of it.
    """
    work: dict[UOp, int] = {}
    sizes: dict[UOp, int] = {}
    for u in nodes_sources_first:
        sizes[u] = size(u)
        if u.op in _MEMORY:
            work[u] = READ_COST
            continue
        weight, below, repeated_size = 0, 0, 0
        if u.op in _BROADCASTING:
            weight, repeated_size = COSTS[u.op].work if u.op is not Op.EXPAND else 0, sizes[u] // _REPEATED
        for s in u.src:
            if sizes[s] <= repeated_size:  # the same for many elements
                below += min(work[s], 1)
            else:
                below += _operand_work(s, work[s], remaining_by_partly_closed_reduce, use_counts_of_materializable_values)
        if u.op is Op.REDUCE:
            form = remaining_by_partly_closed_reduce.get(u)
            inner = work[u.operand] if form is None else sum(work[s] for s in form.operands)
            axes = u.arg.axes if form is None else form.axes
            below = (inner + 1) * math.prod(max(1, max_extent(u.operand.shape[a])) for a in axes)
        work[u] = min(_MAX_WORK, weight + below)
    return work


def _operand_work(s: UOp, cost: int, closed_reduces: Mapping[UOp, RemainingReduce], use_counts: Mapping[UOp, int]) -> int:
    """Return the work that an operand adds to its user."""
    is_loop_reduce = s.op is Op.REDUCE and s not in closed_reduces
    return READ_COST if is_loop_reduce or (cost > _SHARED_COST and use_counts.get(s, 0) > 1) else cost


def size(u: UOp) -> int:
    """Return the greatest number of elements of a value, as a factor: at least 1."""
    return _product(u.shape)


@functools.lru_cache(maxsize=1024)
def _product(shape: tuple[Dim, ...]) -> int:
    return math.prod([n if n.__class__ is int else max_extent(n) for n in shape]) or 1
