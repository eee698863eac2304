"""Index at inexact positions: the union of all elements that possible positions select."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from uops.interp.allowed.elementwise.branch import unite_flat_sets
from uops.interp.allowed.layout import Array, DTypeLayout
from uops.interp.allowed.move import apply_movement
from uops.interp.allowed.value import POINTS, ArrayOrSets, SetArray, allow_anything, broadcast_and_take_flat_elements
from uops.interp.ops.movement import out_of_bounds_mask
from uops.spec.ir.node import UOp

#: A mask that is false everywhere.
NOWHERE = np.zeros((), np.bool_)


def gather_elements_at_all_possible_positions(
    f: DTypeLayout, u: UOp, x: ArrayOrSets, positions: Sequence[ArrayOrSets], shape: tuple[int, ...]
) -> SetArray:
    """Return the union of the elements over all combinations of possible positions.

    The best elements are those at the best positions. Anything is allowed where a position is unknown or may be out of bounds, as
    an access there may trap (R26).
    """
    lists: list[list[Array]] = []
    for p in positions:
        lists.append(list(p.points) if isinstance(p, SetArray) else [p])
    too_many = math.prod(map(len, lists)) > POINTS**2
    if too_many:
        lists = [rows[:1] for rows in lists]
    unknown = [_mask_unknown_positions(p, too_many) for p in positions]
    every, rank = np.arange(math.prod(shape)), len(shape)
    united: SetArray | None = None
    anything = np.zeros(every.size, np.bool_)
    for choice in itertools.product(*lists):
        safe, bad = _zero_outside_positions_and_mask_bad(choice, x.shape, unknown)
        anything |= np.broadcast_to(bad.reshape(bad.shape + (1,) * (rank - bad.ndim)), shape).reshape(-1)
        part = broadcast_and_take_flat_elements(f, apply_movement(u, x, shape, safe), shape, every)
        united = part if united is None else unite_flat_sets(f, united, part, united.best)
    assert united is not None
    if anything.any():
        united = unite_flat_sets(f, united, allow_anything(f, united.best, anything), united.best)
    return united.map_components(lambda c, lead: c.reshape(c.shape[:lead] + shape))


def _mask_unknown_positions(p: ArrayOrSets, too_many_combinations: bool) -> Array:
    """Return where a position may be anything; with too many combinations to try, where it is inexact."""
    if not isinstance(p, SetArray):
        return NOWHERE
    anything = p.anything_mask()
    return np.asarray(~p.exact_mask()) if too_many_combinations else NOWHERE if anything is None else anything


def _zero_outside_positions_and_mask_bad(
    choice: Sequence[Array], shape: tuple[int, ...], unknown: Sequence[Array]
) -> tuple[list[Array], Array]:
    """Return positions inside their axes, and where their outer product is out of bounds or unknown."""
    safe, bad = [], np.zeros((), np.bool_)
    for axis, i in enumerate(choice):
        outside = out_of_bounds_mask(i, shape[axis])
        safe.append(np.where(outside, 0, i))
        bad = bad.reshape(bad.shape + (1,) * i.ndim) | outside | unknown[axis]
    return safe, bad
