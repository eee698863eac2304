"""Elementwise ops on sets listed point by point: every combination of the operands' points, evaluated in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.allowed.layout import Array, Layout
from uops.interp.allowed.value import ANY, NAN, Loose, Value, from_points, patch, pick, shape_of

Kernel = Callable[..., Array]
#: More combinations than this are not tried: their distinct results would hardly fit in eight points.
COMBINATIONS = 64


def combine(fn: Kernel, rows: Sequence[Array]) -> Array:
    """fn on each combination of rows (k_i, *shape) -> (prod k_i, *shape), the combination of first rows first."""
    n = len(rows)
    grids = [r.reshape((1,) * i + r.shape[:1] + (1,) * (n - 1 - i) + r.shape[1:]) for i, r in enumerate(rows)]
    out = np.asarray(fn(*grids))
    shape = np.broadcast_shapes(*(g.shape for g in grids))
    return np.broadcast_to(out, shape).reshape(math.prod(shape[:n]), *shape[n:])


def listed(f: Layout, v: Value, shape: tuple[int, ...]) -> Array | None:
    """Rows of points of `v`, leading axis aligned for broadcasting to `shape`; None when some float is no list."""
    if not isinstance(v, Loose):
        return v[None] if v.ndim == len(shape) else v.reshape(1, *(1,) * (len(shape) - v.ndim), *v.shape)
    if v.pts is None:
        return None
    return v.pts.reshape(v.pts.shape[0], *(1,) * (len(shape) - len(v.shape)), *v.shape)


def discrete(r: Layout, fn: Kernel, operands: Sequence[Value], layouts: Sequence[Layout]) -> Loose:
    """fn on operands that are arrays or sets of integers or bools; *any* in gives *any* out."""
    shape = np.broadcast_shapes(*(shape_of(v) for v in operands))
    rows = [listed(f, v, shape) for f, v in zip(layouts, operands)]
    lists = [p for p in rows if p is not None]
    assert len(lists) == len(rows)
    lost = anywhere(operands, shape)
    if math.prod(len(p) for p in lists) > COMBINATIONS:
        wide = np.ones((), np.bool_)
        lost = np.zeros(shape, np.bool_) if lost is None else lost
        for p in lists:
            if len(p) > 1:
                lost = lost | ((p != p[0]).any(0) & wide)
        lists = [p[:1] for p in lists]
    return from_points(r, combine(fn, lists), lost)


def anywhere(operands: Sequence[Value], shape: tuple[int, ...]) -> Array | None:
    """Where some operand is *any*."""
    found = None
    for v in operands:
        if isinstance(v, Loose) and v.flags is not None:
            here = np.broadcast_to((v.flags & ANY) != 0, shape)
            found = here if found is None else found | here
    return found


def refine(r: Layout, fn: Kernel, operands: Sequence[Value], layouts: Sequence[Layout], result: Loose) -> Loose:
    """`result`, computed with intervals, made a list of points where every operand is one; `result` owns its components."""
    shape = result.shape
    mask = _listed_where(operands, shape)
    where = np.flatnonzero(mask)
    if not where.size:
        return result
    parts = [pick(f, v, shape, where) for f, v in zip(layouts, operands)]
    rows = [p.points if p.pts is not None else p.rows[1:2] for p in parts]
    if math.prod(len(p) for p in rows) > COMBINATIONS:
        return result
    points = from_points(r, combine(fn, rows))
    if points.disc is None or points.disc.all():
        patch(result, where, points)
    else:
        keep = np.flatnonzero(points.disc)
        patch(result, where[keep], points.map(lambda x, lead: x[..., keep]))
    return result


def _listed_where(operands: Sequence[Value], shape: tuple[int, ...]) -> Array:
    """Where some operand is a list of points and every other a list or exact."""
    every, some = np.ones(shape, np.bool_), np.zeros(shape, np.bool_)
    for v in operands:
        if not isinstance(v, Loose):
            continue
        disc = v.disc if v.tri is not None else ~np.asarray(v.exact())
        disc = np.zeros(v.shape, np.bool_) if disc is None else disc
        fine = disc | v.exact()
        if v.flags is not None:
            fine = fine & ((v.flags & ~np.uint8(NAN)) == 0)
        every, some = every & fine, some | disc
    return every & some


def refined(operands: Sequence[Value]) -> bool:
    """True when some operand carries points."""
    return any(isinstance(v, Loose) and v.pts is not None for v in operands)
