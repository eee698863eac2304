"""Axes that go through a whole program: what is permuted along them in the inputs is permuted so in the output, and nothing else.

Takes: values of a TENSOR program, and an axis that they have, of two elements at least. Gives: along which axis each input would be
permuted; None where some op lies across the axis, or an input would have to be permuted in two ways at once. Spec: the rows of
Movement, Reduce and Elementwise, R41, R46.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, Op
from uops.spec.verify.dialects import ELEMENTWISE

#: What has to be permuted for a node to be: its sources with their axes, None for a source that stays as it is.
Below = list[tuple[UOp, int | None]]
#: Inputs with elements.
LEAVES = frozenset({Op.PARAM, Op.BUFFER})


def along(values: Iterable[UOp], axis: int) -> dict[UOp, int] | None:
    """The Params and Buffers that are permuted, and along which axis; at least one."""
    seen: dict[UOp, int | None] = {}
    todo: list[tuple[UOp, int | None]] = [(u, axis) for u in values]
    while todo:
        u, k = todo.pop()
        if u.op is Op.CONST:
            continue
        if u in seen:
            if seen[u] != k:
                return None
            continue
        seen[u] = k
        if u.op in LEAVES:
            continue
        below = [(s, None) for s in u.src] if k is None else _below(u, k)
        if below is None:
            return None
        todo += below
    return {u: k for u, k in seen.items() if u.op in LEAVES and k is not None} or None


def _below(u: UOp, k: int) -> Below | None:
    """What has to be permuted for `u` to be permuted along axis `k`, which has a number of elements; None where nothing does it."""
    through = THROUGH.get(u.op)
    return None if through is None else through(u, k)


def _operands(u: UOp, k: int) -> Below | None:
    """Sources that broadcast (R41): each has the axis, or one element for all of it."""
    found: Below = []
    for s in u.src:
        place = k - (len(u.shape) - len(s.shape))
        extent = 1 if place < 0 else s.shape[place]
        found.append((s, None if extent == 1 else place))
    return found


def _bitcast(u: UOp, k: int) -> Below | None:
    """Another item size makes an element of the last axis of several, or several of one (R46)."""
    same = u.src[0].dtype.itemsize == u.dtype.itemsize
    return [(u.src[0], k)] if same or k < len(u.shape) - 1 else None


def _reduce(u: UOp, k: int) -> Below | None:
    return [(u.src[0], k)] if len(u.src) == 1 and k not in u.arg.axes else None


def _permute(u: UOp, k: int) -> Below | None:
    return [(u.src[0], int(u.arg.order[k]))]


def _reshape(u: UOp, k: int) -> Below | None:
    """The axis with as many elements before it."""
    before, after = u.src[0].shape, u.shape
    if not all(isinstance(n, int) and n > 0 for n in (*before, *after)):
        return None
    outer = math.prod(after[:k])
    place = next((j for j, n in enumerate(before) if n == after[k] and math.prod(before[:j]) == outer), None)
    return None if place is None else [(u.src[0], place)]


def _resize(u: UOp, k: int) -> Below | None:
    """Leave alone an axis to which Pad or Shrink gives the extent it had."""
    return [(u.src[0], k)] if u.src[0].shape[k] == u.shape[k] else None


def _flip(u: UOp, k: int) -> Below | None:
    return None if u.arg.flags[k] else [(u.src[0], k)]


def _expand(u: UOp, k: int) -> Below | None:
    """Operands of one source: the sizes are no elements."""
    extent = u.src[0].shape[k]
    return [(u.src[0], None if extent == 1 else k)] if extent in (1, u.shape[k]) else None


#: How an axis goes through each op that it may go through.
THROUGH: dict[Op, Callable[[UOp, int], Below | None]] = {
    **dict.fromkeys(ELEMENTWISE | MARKERS, _operands),
    Op.PERMUTE: _permute,
    Op.FLIP: _flip,
    Op.RESHAPE: _reshape,
    Op.EXPAND: _expand,
    Op.PAD: _resize,
    Op.SHRINK: _resize,
    Op.BITCAST: _bitcast,
    Op.REDUCE: _reduce,
}
#: Ops of the TENSOR dialect that no axis is followed through, for what they may do to the order of elements: they choose or join
#: elements (Index, Stack, Slice), move them between devices (Load, Replicated), or are of memory and bodies.
ACROSS = frozenset(
    {Op.BINARY, Op.INDEX, Op.STACK, Op.SLICE, Op.REPLICATED, Op.LOAD, Op.STORE, Op.AFTER, Op.GROUP, Op.SINK}
    | {Op.FUNCTION, Op.CALL, Op.TUPLE, Op.GETTUPLE}
)
