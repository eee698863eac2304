"""Movement of sets: each op of `MOVES` on components that have a leading axis of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.allowed.layout import Array, DTypeLayout
from uops.interp.allowed.value import ArrayOrSets, SetArray, as_set_array, pad_points_with_first
from uops.interp.ops.movement import make_outer_index, resolve_extents
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Shape = tuple[int, ...]
#: (node, component, number of leading axes, shape of the result, values of the other sources) -> moved component
ComponentMove = Callable[[UOp, Array, int, Shape, Sequence[Array]], Array]
_ALL = slice(None)


def _permute(u: UOp, x: Array, lead: int, shape: Shape, operands: Sequence[Array]) -> Array:
    return x.transpose((*range(lead), *(lead + a for a in u.arg.order)))


def _flip(u: UOp, x: Array, lead: int, shape: Shape, operands: Sequence[Array]) -> Array:
    return x[(_ALL,) * lead + tuple(slice(None, None, -1) if f else _ALL for f in u.arg.flags)]


def _reshape(u: UOp, x: Array, lead: int, shape: Shape, operands: Sequence[Array]) -> Array:
    return x.reshape(x.shape[:lead] + shape)


def _expand(u: UOp, x: Array, lead: int, shape: Shape, operands: Sequence[Array]) -> Array:
    return np.broadcast_to(x, x.shape[:lead] + shape)


def _pad(u: UOp, x: Array, lead: int, shape: Shape, operands: Sequence[Array]) -> Array:
    offsets = resolve_extents(u.offsets, iter(operands))
    out = np.zeros(x.shape[:lead] + shape, x.dtype)
    out[(_ALL,) * lead + tuple(slice(o, o + n) for o, n in zip(offsets, x.shape[lead:]))] = x
    return out


def _shrink(u: UOp, x: Array, lead: int, shape: Shape, operands: Sequence[Array]) -> Array:
    offsets = resolve_extents(u.offsets, iter(operands))
    return x[(_ALL,) * lead + tuple(slice(o, o + n) for o, n in zip(offsets, shape))]


def _index(u: UOp, x: Array, lead: int, shape: Shape, operands: Sequence[Array]) -> Array:
    return np.asarray(x[(_ALL,) * lead + make_outer_index(operands)])


def _replicated(u: UOp, x: Array, lead: int, shape: Shape, operands: Sequence[Array]) -> Array:
    return x[(_ALL,) * lead + tuple(slice(0, 1) if k in u.arg.axes else _ALL for k in range(x.ndim - lead))]


#: op -> its movement of one component of a set
MOVES: dict[Op, ComponentMove] = {
    Op.PERMUTE: _permute,
    Op.FLIP: _flip,
    Op.RESHAPE: _reshape,
    Op.EXPAND: _expand,
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.INDEX: _index,
    Op.REPLICATED: _replicated,
}


def apply_movement(u: UOp, v: ArrayOrSets, shape: Shape, operands: Sequence[Array]) -> ArrayOrSets:
    """Return `v` after the movement op `u`, whose result has `shape`; `operands` are the values of its other sources."""
    move = MOVES[u.op]
    if isinstance(v, SetArray):
        return v.map_components(lambda x, lead: np.asarray(move(u, x, lead, shape, operands)))
    return np.asarray(move(u, v, 0, shape, operands))


def stack_values(f: DTypeLayout, sources: Sequence[ArrayOrSets]) -> SetArray:
    """Return the Stack of values along a new leading axis."""
    parts = [as_set_array(f, v) for v in sources]
    shape = parts[0].shape

    def join(rows: list[Array | None], fill: Callable[[SetArray], Array], lead: int) -> Array | None:
        if all(r is None for r in rows):
            return None
        return np.stack([fill(p) if r is None else r for r, p in zip(rows, parts)], axis=lead)

    count = max((len(p.listed_points) for p in parts if p.listed_points is not None), default=1)
    interval = join([p.interval for p in parts], lambda p: p.rows, 1)
    flags = join([p.flags for p in parts], lambda p: np.zeros(shape, np.uint8), 0)
    is_listed = join([p.is_listed for p in parts], lambda p: np.zeros(shape, np.bool_), 0)
    listed_points = join(
        [None if p.listed_points is None else pad_points_with_first(p.listed_points, count) for p in parts],
        lambda p: np.broadcast_to(p.best, (count, *shape)),
        1,
    )
    return SetArray(f, interval, flags, listed_points, is_listed)
