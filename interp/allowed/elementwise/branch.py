"""Discontinuous ops on sets: comparisons, Where, Trunc, Cast and Bitcast.

Near a discontinuity the set holds both branches: as points if they are few, else as a hull or *any* (R30).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.allowed.elementwise.arithmetic import mark_anything
from uops.interp.allowed.elementwise.discrete import (
    apply_to_point_combinations_or_allow_any,
    find_anything_elements,
    has_points,
    list_results_in_place_if_operands_listed,
)
from uops.interp.allowed.layout import Array, ArrayKernel, DTypeLayout, from_order_keys, to_order_keys, ulp_distance
from uops.interp.allowed.value import (
    ANY,
    NAN,
    NINF,
    NZERO,
    PINF,
    POINTS,
    PZERO,
    ArrayOrSets,
    SetArray,
    as_set_array,
    best_of,
    broadcast_and_take_flat_elements,
    broadcast_value,
    from_points_widening_to_hull_or_any,
    pad_points_with_first,
    scatter_elements_into,
    writable_copy,
)  # fmt: skip
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op


def _bounds_and_mask_of_nan_beside_them(v: ArrayOrSets) -> tuple[Array, Array, Array | None]:
    """Return lo and hi, which include the flagged members, and where NaN is possible too (None: nowhere)."""
    if not isinstance(v, SetArray):
        return v, v, None
    lo, hi = v.rows[0], v.rows[2]
    if v.flags is None:
        return lo, hi, None
    flags, f = v.flags, v.layout
    for flag, value in ((PZERO | NZERO, 0.0), (PINF, np.inf), (NINF, -np.inf)):
        has = (flags & flag) != 0
        if has.any():
            member = np.array(value).astype(f.np)
            lo = np.where(has & ~(lo <= member), member, lo)
            hi = np.where(has & ~(hi >= member), member, hi)
    return lo, hi, ((flags & NAN) != 0) | np.isnan(v.rows[0])


def _less(a_lo: Array, a_hi: Array, b_lo: Array, b_hi: Array) -> tuple[Array, Array]:
    return a_lo < b_hi, ~(a_hi < b_lo)


def _at_least(a_lo: Array, a_hi: Array, b_lo: Array, b_hi: Array) -> tuple[Array, Array]:
    return a_hi >= b_lo, ~(a_lo >= b_hi)


def _equal(a_lo: Array, a_hi: Array, b_lo: Array, b_hi: Array) -> tuple[Array, Array]:
    return (a_lo <= b_hi) & (b_lo <= a_hi), ~((a_lo == b_hi) & (a_hi == b_lo))


#: op -> (may be true, may be false) on the ends of two intervals, and whether the operands are swapped before
INTERVAL_COMPARISONS: dict[Op, tuple[Callable[[Array, Array, Array, Array], tuple[Array, Array]], bool]] = {
    Op.CMPLT: (_less, False),
    Op.CMPGT: (_less, True),
    Op.CMPGE: (_at_least, False),
    Op.CMPLE: (_at_least, True),
    Op.CMPEQ: (_equal, False),
    Op.CMPNE: (_equal, False),
}


def compare_floats(
    op: Op, f: DTypeLayout, bool_layout: DTypeLayout, kernel: ArrayKernel, operands: Sequence[ArrayOrSets]
) -> ArrayOrSets:
    """Return the set of a comparison of floats of layout `f`; `bool_layout` is the layout of bool."""
    a, b = operands
    (a_lo, a_hi, a_nan), (b_lo, b_hi, b_nan) = _bounds_and_mask_of_nan_beside_them(a), _bounds_and_mask_of_nan_beside_them(b)
    rule, swapped = INTERVAL_COMPARISONS[op]
    may_hold, may_fail = rule(b_lo, b_hi, a_lo, a_hi) if swapped else rule(a_lo, a_hi, b_lo, b_hi)
    for nan in (a_nan, b_nan):
        may_fail = may_fail if nan is None else may_fail | nan
    best = np.asarray(kernel(best_of(a), best_of(b)))
    inexact = may_hold & may_fail
    anything = find_anything_elements(operands, best.shape)
    if anything is not None:
        inexact = inexact | anything
    if not inexact.any():
        return best
    out = SetArray(bool_layout, None, None, np.stack([best, best ^ inexact]))
    if has_points(operands):
        return list_results_in_place_if_operands_listed(bool_layout, kernel, operands, (f, f), out)
    return out


def compare_with_itself(kernel: ArrayKernel, x: SetArray, bool_layout: DTypeLayout) -> ArrayOrSets:
    """Return the set of a comparison of a node with itself: only NaN matters, as one node has one value (R27)."""
    zero, nan = np.zeros((), x.layout.np), np.array(np.nan).astype(x.layout.np)
    best = np.asarray(kernel(x.best, x.best))
    if bool(kernel(zero, zero)) == bool(kernel(nan, nan)):
        return best
    always_nan, may_be_nan = np.isnan(x.rows[0]), np.isnan(x.rows).any(0)
    if x.flags is not None:
        always_nan = always_nan & (x.flags & ~np.uint8(NAN) == 0)
        may_be_nan = may_be_nan | ((x.flags & (NAN | ANY)) != 0)
    inexact = may_be_nan & ~always_nan
    return SetArray(bool_layout, None, None, np.stack([best, best ^ inexact])) if inexact.any() else best


def select_by_exact_condition(f: DTypeLayout, condition: Array, a: ArrayOrSets, b: ArrayOrSets) -> ArrayOrSets:
    """Return the set of a Where whose condition has one value per element; every bit is kept (R28)."""
    if not isinstance(a, SetArray) and not isinstance(b, SetArray):
        return np.where(condition, a, b)
    shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
    x, y = as_set_array(f, broadcast_value(a, shape)), as_set_array(f, broadcast_value(b, shape))
    interval = np.where(condition, x.rows, y.rows) if f.is_float else None
    flags = None
    if x.flags is not None or y.flags is not None:
        flags = np.where(condition, 0 if x.flags is None else x.flags, 0 if y.flags is None else y.flags).astype(np.uint8)
    if x.listed_points is None and y.listed_points is None:
        return SetArray(f, interval, flags)
    x_points, y_points = _points_or_best(x), _points_or_best(y)
    count = max(len(x_points), len(y_points))
    points = np.where(condition, pad_points_with_first(x_points, count), pad_points_with_first(y_points, count))
    is_listed = None
    if f.is_float:
        nowhere = np.zeros((), np.bool_)
        x_listed = nowhere if x.is_listed is None else x.is_listed
        y_listed = nowhere if y.is_listed is None else y.is_listed
        is_listed = np.where(condition, x_listed, y_listed)
    return SetArray(f, interval, flags, points, is_listed)


def _points_or_best(v: SetArray) -> Array:
    return v.best[None] if v.listed_points is None else v.listed_points


def select_or_unite_branches(f: DTypeLayout, condition: ArrayOrSets, a: ArrayOrSets, b: ArrayOrSets) -> ArrayOrSets:
    """Return the set of a Where on a bool condition: the union of both branches where the condition is inexact."""
    if not isinstance(condition, SetArray):
        return select_by_exact_condition(f, condition, a, b)
    out = select_by_exact_condition(f, condition.best, a, b)
    positions = np.flatnonzero(np.broadcast_to(~condition.exact_mask(), out.shape))
    if not positions.size:
        return out
    result = writable_copy(as_set_array(f, broadcast_value(out, out.shape)))
    best = broadcast_and_take_flat_elements(f, out, out.shape, positions).best
    if_true, if_false = (broadcast_and_take_flat_elements(f, v, out.shape, positions) for v in (a, b))
    scatter_elements_into(result, positions, unite_1d_sets_with_best(f, if_true, if_false, best))
    return result


def unite_1d_sets_with_best(f: DTypeLayout, a: SetArray, b: SetArray, best: Array) -> SetArray:
    """Return the union of two 1-D sets: as points where both are listed, else as a hull."""
    if not f.is_float:
        anything = find_anything_elements((a, b), best.shape)
        return from_points_widening_to_hull_or_any(f, np.concatenate([best[None], a.points, b.points]), anything)
    flags = (0 if a.flags is None else a.flags) | (np.zeros(best.shape, np.uint8) if b.flags is None else b.flags)
    a_nan, b_nan = np.isnan(a.rows[0]), np.isnan(b.rows[0])
    flags = np.where(a_nan != b_nan, flags | NAN, flags).astype(np.uint8)
    a_keys, b_keys = to_order_keys(f, a.rows), to_order_keys(f, b.rows)
    lo = np.where(a_nan, b.rows[0], np.where(b_nan | (a_keys[0] <= b_keys[0]), a.rows[0], b.rows[0]))
    hi = np.where(a_nan, b.rows[2], np.where(b_nan | (a_keys[2] >= b_keys[2]), a.rows[2], b.rows[2]))
    out = SetArray(f, np.stack([lo, best, hi]), flags if flags.any() else None)
    both_listed = _is_listed_or_exact(a) & _is_listed_or_exact(b)
    if both_listed.any():
        positions = np.flatnonzero(both_listed)
        united = from_points_widening_to_hull_or_any(
            f, np.concatenate([best[None], _points_or_best(a), _points_or_best(b)])[:, positions]
        )
        is_listed = np.ones(positions.shape, np.bool_) if united.is_listed is None else united.is_listed
        scatter_elements_into(out, positions[is_listed], united.map_components(lambda x, lead: x[..., is_listed]))
    return out


def _is_listed_or_exact(v: SetArray) -> Array:
    exact = v.exact_mask()
    return exact if v.is_listed is None else exact | v.is_listed


def cast_float_to_float(source_layout: DTypeLayout, result_layout: DTypeLayout, kernel: ArrayKernel, x: SetArray) -> SetArray:
    """Return the set of a Cast between floats, which is monotone; e4m3 turns what overflows into NaN."""
    rows = kernel(x.rows)
    flags = x.flags
    if not result_layout.dtype.has_inf:
        overflows, inexact = np.isnan(rows) & ~np.isnan(x.rows), ~x.exact_mask()
        greatest = np.copysign(result_layout.max, x.rows.astype(np.float32))
        rows = np.where(overflows & inexact, greatest, rows.astype(np.float32)).astype(result_layout.np)
        result_flags = np.where((overflows[0] | overflows[2]) & inexact, NAN, 0).astype(np.uint8)
        if flags is not None:
            result_flags = result_flags | np.where((flags & (PINF | NINF)) != 0, NAN, 0).astype(np.uint8)
            result_flags |= flags & ~np.uint8(PINF | NINF)
        flags = result_flags if result_flags.any() else None
        rows[1] = kernel(x.best)
    out = SetArray(result_layout, rows, flags)
    return (
        list_results_in_place_if_operands_listed(result_layout, kernel, (x,), (source_layout,), writable_copy(out))
        if x.listed_points is not None
        else out
    )


def cast_float_to_index_allowing_any_if_nonfinite(
    source_layout: DTypeLayout, result_layout: DTypeLayout, kernel: ArrayKernel, x: SetArray
) -> ArrayOrSets:
    """Return the set of a Cast from float to index.

    The Cast traps where the value is not finite (R29), and there a backend may do anything (R26).
    """
    finite = np.isfinite(x.rows).all(0)
    if x.listed_points is not None:
        finite &= np.isfinite(x.listed_points).all(0)
    points = None if x.listed_points is None else np.where(finite, x.listed_points, x.best)
    flags = None if x.flags is None else x.flags & (0xFF ^ (PINF | NINF | NAN))
    out = cast_float_to_int(
        source_layout, result_layout, kernel, SetArray(source_layout, np.where(finite, x.rows, x.best), flags, points, x.is_listed)
    )
    may_trap = ~finite if x.flags is None else ~finite | (x.flags != flags)
    if not may_trap.any():
        return out
    result = writable_copy(as_set_array(result_layout, out))
    mark_anything(result, np.asarray(may_trap))
    return result


def cast_float_to_int(source_layout: DTypeLayout, result_layout: DTypeLayout, kernel: ArrayKernel, x: SetArray) -> ArrayOrSets:
    """Return the set of a Cast from float to integer: the integers between the ends if at most eight, else *any* (R30)."""
    best, lo, hi = np.asarray(kernel(x.best)), np.asarray(kernel(x.rows[0])), np.asarray(kernel(x.rows[2]))
    if lo.dtype == object or result_layout.np.kind != "u":
        width = hi.astype(np.float64) - lo.astype(np.float64)
    else:
        width = (hi - lo).astype(np.float64)
    anything = width >= POINTS
    if x.flags is not None:
        anything = anything | ((x.flags & ~np.uint8(PZERO | NZERO)) != 0)
    if x.flags is None and not anything.any() and not width.any():
        return best
    width = np.where(anything, 0, width)
    steps = int(width.max(initial=0)) + 1
    rows = [best] + [np.where(anything, best, lo + np.minimum(j, width).astype(lo.dtype)) for j in range(steps)]
    if x.flags is not None:
        rows.append(np.where((x.flags & (PZERO | NZERO)) != 0, 0, best))
    out = from_points_widening_to_hull_or_any(
        result_layout, np.stack(rows).astype(best.dtype), anything if anything.any() else None
    )
    if x.listed_points is not None:
        return list_results_in_place_if_operands_listed(result_layout, kernel, (x,), (source_layout,), writable_copy(out))
    return out


def cast_float_to_bool(f: DTypeLayout, r: DTypeLayout, x: SetArray) -> ArrayOrSets:
    """Return the set of a Cast from float to bool: x != 0, and NaN is true (R15)."""
    return compare_floats(Op.CMPNE, f, r, lambda a, b: np.asarray(a != b), (x, np.zeros((), f.np)))


def cast_set_by_layouts(source_layout: DTypeLayout, result_layout: DTypeLayout, kernel: ArrayKernel, x: SetArray) -> ArrayOrSets:
    """Return the set of a Cast of a set from layout `source_layout` to layout `result_layout`."""
    if not source_layout.is_float:
        return apply_to_point_combinations_or_allow_any(result_layout, kernel, (x,))
    if result_layout.is_float:
        return cast_float_to_float(source_layout, result_layout, kernel, x)
    if result_layout.dtype is dt.index:
        return cast_float_to_index_allowing_any_if_nonfinite(source_layout, result_layout, kernel, x)
    return (
        cast_float_to_bool(source_layout, result_layout, x)
        if result_layout.np == np.bool_
        else cast_float_to_int(source_layout, result_layout, kernel, x)
    )


def apply_trunc_listing_few_integers(f: DTypeLayout, kernel: ArrayKernel, x: SetArray) -> SetArray:
    """Return the set of a Trunc: the integers between the ends as points if few, else the hull."""
    rows = kernel(x.rows)
    out = writable_copy(SetArray(f, rows, x.flags))
    wide = rows.astype(np.float64)
    unflagged = np.ones(x.shape, np.bool_) if x.flags is None else x.flags == 0
    several = ~x.exact_mask() & (to_order_keys(f, rows[0]) != to_order_keys(f, rows[2]))
    positions = np.flatnonzero((wide[2] - wide[0] <= POINTS - 2) & unflagged & several)
    if positions.size:
        part = rows.reshape(3, -1)[:, positions]
        scatter_elements_into(out, positions, from_points_widening_to_hull_or_any(f, _enumerate_integers(f, part)))
    return list_results_in_place_if_operands_listed(f, kernel, (x,), (f,), out) if x.listed_points is not None else out


def _enumerate_integers(f: DTypeLayout, rows: Array) -> Array:
    """Return rows of points: the best, then every integral value between lo and hi, with zeros of the right signs."""
    lo, hi = rows[0].astype(np.float64), rows[2].astype(np.float64)
    steps = int((hi - lo).max(initial=0))
    up = [np.minimum(lo + j, hi) for j in range(1, steps + 1)]
    up = [np.where((v == 0) & np.signbit(hi), -0.0, v) for v in up]
    minus = np.where((lo < 0) & (hi >= 0) | (lo == 0) & np.signbit(lo), -0.0, lo)
    plus = np.where((lo <= 0) & ((hi > 0) | (hi == 0) & ~np.signbit(hi)), 0.0, lo)
    out = np.stack([rows[1].astype(np.float64), lo, hi, minus, plus, *up])
    return out.astype(np.float32).astype(f.np) if f.np.itemsize == 1 else out.astype(f.np)


def list_floats_of_small_intervals_else_any(f: DTypeLayout, x: SetArray) -> SetArray:
    """Return float sets with each interval of at most eight values listed, and every other *any*.

    NaN is many values (R20: its payload is free).
    """
    steps = ulp_distance(f, x.rows[0], x.rows[2])
    flags = np.zeros(x.shape, np.uint8) if x.flags is None else x.flags
    nan = np.isnan(x.rows).any(0)
    is_listed = np.zeros(x.shape, np.bool_) if x.is_listed is None else x.is_listed
    if x.listed_points is not None:
        nan = np.where(is_listed, np.isnan(x.listed_points).any(0), nan)
    anything = nan | ~(is_listed | ((steps < POINTS) & (flags == 0)))
    steps = np.where(anything | is_listed, 0, steps).astype(np.int64)
    first = np.where(anything | is_listed, to_order_keys(f, x.best), to_order_keys(f, x.rows[0])).astype(np.int64)
    rows = [x.best] + [from_order_keys(f, first + np.minimum(steps, j)) for j in range(int(steps.max(initial=0)) + 1)]
    points = np.stack(rows)
    if x.listed_points is not None:
        points = np.concatenate([points, np.where(is_listed, x.listed_points, x.best)])
    return from_points_widening_to_hull_or_any(f, points, anything if anything.any() else None)


def apply_bitcast_regrouping_last_axis(source_layout: DTypeLayout, result_layout: DTypeLayout, x: SetArray) -> SetArray:
    """Return the bits of sets with few points, else *any*; a different item size regroups the last axis (R46)."""
    if source_layout.is_float:
        x = list_floats_of_small_intervals_else_any(source_layout, x)
    points, anything = x.points, x.anything_mask()
    old, new = source_layout.np.itemsize, result_layout.np.itemsize
    if old == new:
        return from_points_widening_to_hull_or_any(result_layout, points.view(result_layout.np), anything)
    if old > new:
        split = np.ascontiguousarray(points).view(result_layout.np)
        return from_points_widening_to_hull_or_any(
            result_layout, split, None if anything is None else np.repeat(anything, old // new, axis=-1)
        )
    ratio = new // old
    groups = points.reshape(*points.shape[:-1], points.shape[-1] // ratio, ratio)
    group_anything = np.zeros(groups.shape[1:-1], np.bool_) if anything is None else anything.reshape(groups.shape[1:]).any(-1)
    bits = groups.view(f"u{old}")  # by bits, as -0 is not +0
    varied = (bits != bits[:1]).any(0).sum(-1)
    group_anything = group_anything | (varied > 1)
    rows = np.where(group_anything[..., None], np.broadcast_to(groups[:1], groups.shape), groups)
    joined = np.ascontiguousarray(rows).view(result_layout.np)[..., 0]
    return from_points_widening_to_hull_or_any(result_layout, joined, group_anything if group_anything.any() else None)
