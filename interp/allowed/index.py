"""Index at inexact positions: the union of all elements that possible positions select."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from uops.interp.allowed.elementwise.branch import select_by_exact_condition, unite_1d_sets_with_best
from uops.interp.allowed.layout import LAYOUT, Array, DTypeLayout
from uops.interp.allowed.move import apply_movement
from uops.interp.allowed.value import (
    POINTS,
    ArrayOrSets,
    SetArray,
    allow_anything,
    best_of,
    broadcast_and_take_flat_elements,
)
from uops.interp.ops.movement import out_of_bounds_mask
from uops.spec.ir.node import UOp

#: The operands of a Mul, moved alike.
FactorPair = tuple[ArrayOrSets, ArrayOrSets]
#: A mask that is false everywhere.
NOWHERE = np.zeros((), np.bool_)


def gather_elements_at_all_possible_positions(
    f: DTypeLayout, u: UOp, x: ArrayOrSets, positions: Sequence[ArrayOrSets], shape: tuple[int, ...]
) -> SetArray:
    """Return the union of the elements over all combinations of possible positions.

    The best elements are those at the best positions. Anything is allowed where a position is unknown or may be out of bounds, as
    an access there may trap (R26).
    """
    choices, anything = _list_position_choices_and_mask_unknown_or_outside(x.shape, positions, shape)
    every = np.arange(math.prod(shape))
    parts = [broadcast_and_take_flat_elements(f, apply_movement(u, x, shape, choice), shape, every) for choice in choices]
    united = parts[0]
    for part in parts[1:]:
        united = unite_1d_sets_with_best(f, united, part, united.best)
    if anything.any():
        united = unite_1d_sets_with_best(f, united, allow_anything(f, united.best, anything.reshape(-1)), united.best)
    return united.map_components(lambda c, lead: c.reshape(c.shape[:lead] + shape))


def move_factors_to_all_possible_positions(
    u: UOp, pairs: Sequence[FactorPair], positions: Sequence[ArrayOrSets], shape: tuple[int, ...]
) -> list[FactorPair]:
    """Return the pairs of factors at each combination of possible positions, which both factors of a pair share."""
    choices, anything = _list_position_choices_and_mask_unknown_or_outside(
        pairs[0][0].shape, positions, shape, POINTS**2 // len(pairs)
    )
    moved = [(apply_movement(u, a, shape, choice), apply_movement(u, b, shape, choice)) for a, b in pairs for choice in choices]
    if anything.any():
        f = LAYOUT[u.dtype]
        moved = [(select_by_exact_condition(f, anything, allow_anything(f, best_of(a)), a), b) for a, b in moved]
    return moved


def _list_position_choices_and_mask_unknown_or_outside(
    indexed_shape: tuple[int, ...], positions: Sequence[ArrayOrSets], shape: tuple[int, ...], most: int = POINTS**2
) -> tuple[list[list[Array]], Array]:
    """Return all combinations of possible positions, the best first, and where the result of shape `shape` may be anything.

    Anything is allowed where a position is unknown or may be out of bounds. With more than `most` combinations, only the best is
    listed, and inexact positions are unknown.
    """
    lists = [list(p.points) if isinstance(p, SetArray) else [p] for p in positions]
    too_many = math.prod(map(len, lists)) > most
    if too_many:
        lists = [rows[:1] for rows in lists]
    unknown = [_mask_unknown_positions(p, too_many) for p in positions]
    choices, anything = [], np.zeros(shape, np.bool_)
    for choice in itertools.product(*lists):
        safe, bad = _zero_outside_and_mask_possible_traps(choice, indexed_shape, unknown)
        anything |= bad.reshape(bad.shape + (1,) * (len(shape) - bad.ndim))
        choices.append(safe)
    return choices, anything


def _mask_unknown_positions(p: ArrayOrSets, too_many_combinations: bool) -> Array:
    """Return where a position may be anything; with too many combinations to try, where it is inexact."""
    if not isinstance(p, SetArray):
        return NOWHERE
    anything = p.anything_mask()
    return np.asarray(~p.exact_mask()) if too_many_combinations else NOWHERE if anything is None else anything


def _zero_outside_and_mask_possible_traps(
    choice: Sequence[Array], shape: tuple[int, ...], unknown: Sequence[Array]
) -> tuple[list[Array], Array]:
    """Return positions inside their axes, and where their outer product is out of bounds or unknown."""
    safe, bad = [], np.zeros((), np.bool_)
    for axis, i in enumerate(choice):
        outside = out_of_bounds_mask(i, shape[axis])
        safe.append(np.where(outside, 0, i))
        bad = bad.reshape(bad.shape + (1,) * i.ndim) | outside | unknown[axis]
    return safe, bad
