"""Index with an inexact position: every element that a possible position selects."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from uops.interp.allowed.elementwise.branch import union
from uops.interp.allowed.layout import Array, Layout
from uops.interp.allowed.move import moved
from uops.interp.allowed.value import POINTS, Loose, Value, anything, pick
from uops.interp.ops.movement import out_of_bounds
from uops.spec.ir.node import UOp

NONE = np.zeros((), np.bool_)


def gather(f: Layout, u: UOp, x: Value, positions: Sequence[Value], best: Array) -> Loose:
    """Union over the combinations of possible positions. A position that may be out of bounds, or of which nothing is known, may
    trap, so that anything is allowed there (R26)."""
    lists: list[list[Array]] = []
    for p in positions:
        lists.append(list(p.points) if isinstance(p, Loose) else [p])
    crowded = math.prod(map(len, lists)) > POINTS**2
    if crowded:
        lists = [rows[:1] for rows in lists]
    unknown = [_unknown(p, crowded) for p in positions]
    every, shape = np.arange(best.size), best.shape
    found: Loose | None = None
    lost = np.zeros(best.size, np.bool_)
    for choice in itertools.product(*lists):
        safe, bad = _clipped(choice, x.shape, unknown)
        lost |= np.broadcast_to(bad.reshape(bad.shape + (1,) * (best.ndim - bad.ndim)), shape).reshape(-1)
        part = pick(f, moved(u, x, shape, safe), shape, every)
        found = part if found is None else union(f, found, part, best.reshape(-1))
    assert found is not None
    if lost.any():
        found = union(f, found, anything(f, best.reshape(-1), lost), best.reshape(-1))
    return found.map(lambda c, lead: c.reshape(c.shape[:lead] + shape))


def _unknown(p: Value, crowded: bool) -> Array:
    if not isinstance(p, Loose):
        return NONE
    lost = p.any()
    return np.asarray(~p.exact()) if crowded else NONE if lost is None else lost


def _clipped(choice: Sequence[Array], shape: tuple[int, ...], unknown: Sequence[Array]) -> tuple[list[Array], Array]:
    """Positions inside their axes, and where the outer product of them needed that or is unknown."""
    safe, bad = [], np.zeros((), np.bool_)
    for axis, i in enumerate(choice):
        wrong = out_of_bounds(i, shape[axis])
        safe.append(np.where(wrong, 0, i))
        bad = bad.reshape(bad.shape + (1,) * i.ndim) | wrong | unknown[axis]
    return safe, bad
