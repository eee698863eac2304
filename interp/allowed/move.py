"""Movement of sets: each op of `movement.MOVES` on components that have a leading axis of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.allowed.layout import Array, Layout
from uops.interp.allowed.value import Loose, Value, as_loose, best_of
from uops.interp.ops.movement import extents, outer
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Shape = tuple[int, ...]
#: (node, component, leading axes, shape of the result, other evaluated sources)
Move = Callable[[UOp, Array, int, Shape, Sequence[Array]], Array]
_ALL = slice(None)


def _permute(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    return x.transpose((*range(lead), *(lead + a for a in u.arg.order)))


def _flip(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    return x[(_ALL,) * lead + tuple(slice(None, None, -1) if f else _ALL for f in u.arg.flags)]


def _reshape(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    return x.reshape(x.shape[:lead] + shape)


def _expand(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    return np.broadcast_to(x, x.shape[:lead] + shape)


def _pad(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    offsets = extents(u.src[1], iter(more))
    out = np.zeros(x.shape[:lead] + shape, x.dtype)
    out[(_ALL,) * lead + tuple(slice(o, o + n) for o, n in zip(offsets, x.shape[lead:]))] = x
    return out


def _shrink(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    offsets = extents(u.src[1], iter(more))
    return x[(_ALL,) * lead + tuple(slice(o, o + n) for o, n in zip(offsets, shape))]


def _index(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    return np.asarray(x[(_ALL,) * lead + outer(more)])


def _replicated(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    return x[(_ALL,) * lead + tuple(slice(0, 1) if k in u.arg.axes else _ALL for k in range(x.ndim - lead))]


def _same(u: UOp, x: Array, lead: int, shape: Shape, more: Sequence[Array]) -> Array:
    return x


MOVES: dict[Op, Move] = {
    Op.PERMUTE: _permute,
    Op.FLIP: _flip,
    Op.RESHAPE: _reshape,
    Op.EXPAND: _expand,
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.INDEX: _index,
    Op.REPLICATED: _replicated,
}


def moved(u: UOp, v: Value, shape: Shape, more: Sequence[Array]) -> Value:
    """`v` through the movement op `u`, whose result has `shape`."""
    move = MOVES[u.op]
    if isinstance(v, Loose):
        return v.map(lambda x, lead: np.asarray(move(u, x, lead, shape, more)))
    return np.asarray(move(u, v, 0, shape, more))


def stacked(f: Layout, sources: Sequence[Value]) -> Loose:
    """Stack of sets along a new leading axis."""
    parts = [as_loose(f, v) for v in sources]
    shape = parts[0].shape

    def join(rows: list[Array | None], fill: Callable[[Loose], Array], lead: int) -> Array | None:
        if all(r is None for r in rows):
            return None
        return np.stack([fill(p) if r is None else r for r, p in zip(rows, parts)], axis=lead)

    k = max((len(p.pts) for p in parts if p.pts is not None), default=1)
    tri = join([p.tri for p in parts], lambda p: p.rows, 1)
    flags = join([p.flags for p in parts], lambda p: np.zeros(shape, np.uint8), 0)
    disc = join([p.disc for p in parts], lambda p: np.zeros(shape, np.bool_), 0)
    pts = join([None if p.pts is None else _rows(p.pts, k) for p in parts], lambda p: np.broadcast_to(best_of(p), (k, *shape)), 1)
    return Loose(f, tri, flags, pts, disc)


def _rows(p: Array, k: int) -> Array:
    return p if len(p) == k else np.concatenate([p, np.broadcast_to(p[:1], (k - len(p), *p.shape[1:]))])
