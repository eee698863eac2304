"""Axes that go through a whole program: what is permuted along them in the inputs is permuted so in the output, and nothing else.

Takes: values of a TENSOR program, and an axis that they have. Gives: along which axis each input would be permuted; None where
some op lies across the axis, or an input would have to be permuted in two ways at once. Spec: the rows of Movement, Reduce and
Elementwise, R41; shapes of numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from uops.spec.dialects import ELEMENTWISE
from uops.spec.node import UOp
from uops.spec.ops import Op

#: Inputs with elements.
_LEAVES = frozenset({Op.PARAM, Op.BUFFER})
#: Ops that leave every element of their sources where it is.
_IN_PLACE = ELEMENTWISE | {Op.CONTIGUOUS}
_MOVES = frozenset({Op.PERMUTE, Op.EXPAND, Op.RESHAPE, Op.PAD, Op.SHRINK, Op.FLIP})


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
        if u.op in _LEAVES:
            continue
        below = [(s, None) for s in u.src] if k is None else _below(u, k)
        if below is None:
            return None
        todo += below
    return {u: k for u, k in seen.items() if u.op in _LEAVES and k is not None} or None


def _below(u: UOp, k: int) -> list[tuple[UOp, int | None]] | None:
    """What has to be permuted for `u` to be permuted along axis `k`: sources with their axes, None for one that stays as it is."""
    if u.op in _IN_PLACE or u.op is Op.BITCAST:
        return [(s, _broadcast(u, s, k)) for s in u.src]
    if u.op is Op.REDUCE and len(u.src) == 1:
        return [(u.src[0], k)]
    if u.op not in _MOVES:
        return None
    source, place = u.src[0], _place(u, k)
    if place is None:
        return None
    return [(source, None if u.op is Op.EXPAND and source.shape[place] == 1 else place)]


def _broadcast(u: UOp, s: UOp, k: int) -> int | None:
    """Of a source whose shape the op's ends with, but for extents of 1: its axis, None where it has one element for all."""
    place = k - (len(u.shape) - len(s.shape))
    return None if place < 0 or s.shape[place] != u.shape[k] else place


def _place(u: UOp, k: int) -> int | None:
    """The axis of the first source that axis `k` of a movement is, or is made of one element of; None where it is neither."""
    before, after = u.src[0].shape, u.shape
    if not all(isinstance(n, int) and n > 0 for n in (*before, *after)):
        return None
    if u.op is Op.PERMUTE:
        return int(u.arg.order[k])
    if u.op is Op.RESHAPE:
        outer = math.prod(after[:k])
        return next((j for j, n in enumerate(before) if n == after[k] and math.prod(before[:j]) == outer), None)
    if u.op is Op.EXPAND:
        return k if before[k] in (1, after[k]) else None
    moved = u.arg.flags[k] if u.op is Op.FLIP else before[k] != after[k]
    return None if moved else k
