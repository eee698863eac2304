"""Elementwise ops on sets listed point by point: all combinations of the operands' points, evaluated in one call."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from uops.interp.allowed.layout import Array, ArrayKernel, DTypeLayout
from uops.interp.allowed.value import (
    ANY,
    NAN,
    ArrayOrSets,
    SetArray,
    broadcast_and_take_flat_elements,
    from_points_widening_to_hull_or_any,
    scatter_elements_into,
)

#: The most combinations of points that are tried; the distinct results of more would hardly fit in eight points.
MAX_COMBINATIONS = 64


def evaluate_all_point_combinations(kernel: ArrayKernel, operand_points: Sequence[Array]) -> Array:
    """Evaluate the kernel on each combination of the operands' rows of points, of shapes (k_i, *shape).

    Returns rows of shape (prod k_i, *shape), the combination of the first rows first.
    """
    n = len(operand_points)
    grids = [r.reshape((1,) * i + r.shape[:1] + (1,) * (n - 1 - i) + r.shape[1:]) for i, r in enumerate(operand_points)]
    out = np.asarray(kernel(*grids))
    shape = np.broadcast_shapes(*(g.shape for g in grids))
    return np.broadcast_to(out, shape).reshape(math.prod(shape[:n]), *shape[n:])


def align_array_or_listed_points(v: ArrayOrSets, shape: tuple[int, ...]) -> Array:
    """Return the rows of points of `v`, an array or a set that is listed point by point, with the shape aligned to `shape`."""
    if not isinstance(v, SetArray):
        return v[None] if v.ndim == len(shape) else v.reshape(1, *(1,) * (len(shape) - v.ndim), *v.shape)
    assert v.listed_points is not None
    return v.listed_points.reshape(v.listed_points.shape[0], *(1,) * (len(shape) - len(v.shape)), *v.shape)


def apply_to_point_combinations_or_allow_any(
    result_layout: DTypeLayout, kernel: ArrayKernel, operands: Sequence[ArrayOrSets]
) -> SetArray:
    """Return the set of `kernel` on arrays and sets of integers or bools; *any* in an operand gives *any*."""
    shape = np.broadcast_shapes(*(v.shape for v in operands))
    lists = [align_array_or_listed_points(v, shape) for v in operands]
    anything = find_anything_elements(operands, shape)
    if math.prod(len(points) for points in lists) > MAX_COMBINATIONS:
        anything = np.zeros(shape, np.bool_) if anything is None else anything
        for points in lists:
            if len(points) > 1:
                anything = anything | (points != points[0]).any(0)
        lists = [points[:1] for points in lists]
    return from_points_widening_to_hull_or_any(result_layout, evaluate_all_point_combinations(kernel, lists), anything)


def find_anything_elements(operands: Sequence[ArrayOrSets], shape: tuple[int, ...]) -> Array | None:
    """Return where some operand allows anything; None if no operand has flags."""
    anything = None
    for v in operands:
        if isinstance(v, SetArray) and v.flags is not None:
            mask = np.broadcast_to((v.flags & ANY) != 0, shape)
            anything = mask if anything is None else anything | mask
    return anything


def list_results_in_place_if_operands_listed(
    result_layout: DTypeLayout,
    kernel: ArrayKernel,
    operands: Sequence[ArrayOrSets],
    layouts: Sequence[DTypeLayout],
    result: SetArray,
) -> SetArray:
    """List the elements of `result` whose operands are lists of points, and return it.

    `result` was computed with intervals, and owns its components.
    """
    shape = result.shape
    positions = np.flatnonzero(_find_where_some_are_listed_others_exact(operands, shape))
    if not positions.size:
        return result
    parts = [broadcast_and_take_flat_elements(f, v, shape, positions) for f, v in zip(layouts, operands)]
    rows = [p.points if p.listed_points is not None else p.rows[1:2] for p in parts]
    if math.prod(len(p) for p in rows) > MAX_COMBINATIONS:
        return result
    points = from_points_widening_to_hull_or_any(result_layout, evaluate_all_point_combinations(kernel, rows))
    if points.is_listed is None or points.is_listed.all():
        scatter_elements_into(result, positions, points)
    else:
        keep = np.flatnonzero(points.is_listed)
        scatter_elements_into(result, positions[keep], points.map_components(lambda x, lead: x[..., keep]))
    return result


def _find_where_some_are_listed_others_exact(operands: Sequence[ArrayOrSets], shape: tuple[int, ...]) -> Array:
    """Return where some operand is a list of points and every other is a list or exact."""
    all_suit, any_listed = np.ones(shape, np.bool_), np.zeros(shape, np.bool_)
    for v in operands:
        if not isinstance(v, SetArray):
            continue
        is_listed = v.is_listed if v.interval is not None else ~np.asarray(v.exact_mask())
        is_listed = np.zeros(v.shape, np.bool_) if is_listed is None else is_listed
        suits = is_listed | v.exact_mask()
        if v.flags is not None:
            suits = suits & ((v.flags & ~np.uint8(NAN)) == 0)
        all_suit, any_listed = all_suit & suits, any_listed | is_listed
    return all_suit & any_listed


def has_points(operands: Sequence[ArrayOrSets]) -> bool:
    """Return True if some operand has listed points."""
    return any(isinstance(v, SetArray) and v.listed_points is not None for v in operands)
