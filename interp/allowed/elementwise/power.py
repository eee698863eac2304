"""Pow on sets: within 2 ulp of the correctly rounded power, IEEE 754's special cases exact (R18)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uops.interp.allowed.elementwise.arithmetic import align_set_rows_keeping_plain_arrays, propagate_anything
from uops.interp.allowed.elementwise.transcendental import widen_by_ulps
from uops.interp.allowed.layout import Array, ArrayKernel, DTypeLayout
from uops.interp.allowed.value import (
    NAN,
    PINF,
    ArrayOrSets,
    SetArray,
    best_of,
    broadcast_and_take_flat_elements,
    scatter_elements_into,
)

#: The bound of Pow in every dtype, in ulps (R18).
POW_ULPS = 2


def apply_pow(f: DTypeLayout, kernel: ArrayKernel, operands: Sequence[ArrayOrSets]) -> ArrayOrSets:
    """Return the set of Pow of two values."""
    a, b = operands
    if isinstance(a, SetArray) or isinstance(b, SetArray):
        return _apply_pow_at_corners_or_bound_by_abs_base(f, kernel, a, b)
    y = np.asarray(kernel(a, b))
    exact = _is_special_case(a, b, y)
    if exact.all():
        return y
    rows = np.stack([y, y, y])
    widen_by_ulps(f, rows, np.broadcast_to(exact, rows.shape), POW_ULPS)
    return SetArray(f, _clamp_in_place_to_sign_of_best(rows))


def _apply_pow_at_corners_or_bound_by_abs_base(f: DTypeLayout, kernel: ArrayKernel, a: ArrayOrSets, b: ArrayOrSets) -> SetArray:
    """Return the set of Pow of values of which some are sets.

    On a positive base a power is monotone in each operand, so its extremes lie at corners. `_bound_pow_by_powers_of_abs_base`
    bounds all others.
    """
    rank = max(len(a.shape), len(b.shape))
    a_rows, b_rows = align_set_rows_keeping_plain_arrays(a, rank), align_set_rows_keeping_plain_arrays(b, rank)
    corners = kernel(
        a_rows[[0, 0, 2, 2, 1]] if isinstance(a, SetArray) else a_rows,
        b_rows[[0, 2, 0, 2, 1]] if isinstance(b, SetArray) else b_rows,
    )
    shape = corners.shape[1:]
    rows = np.stack([np.minimum.reduce(corners[:4], axis=0), corners[4], np.maximum.reduce(corners[:4], axis=0)])
    exact = np.broadcast_to(_exact_mask(a) & _exact_mask(b), shape)
    special = _is_special_case(np.broadcast_to(best_of(a), shape), np.broadcast_to(best_of(b), shape), rows[1])
    widen_by_ulps(f, rows, np.where(exact, special, ~np.isfinite(rows)), POW_ULPS)
    out = SetArray(f, _clamp_in_place_to_sign_of_best(rows))
    least_base = np.broadcast_to(a_rows[0] if isinstance(a, SetArray) else a_rows, shape)
    coarse = ~exact & (~(least_base > 0) | ~np.isfinite(rows).all(0))
    for v in (a, b):
        if isinstance(v, SetArray) and v.flags is not None:
            coarse = coarse | np.broadcast_to(v.flags != 0, shape)
    positions = np.flatnonzero(coarse)
    if positions.size:
        taken = (broadcast_and_take_flat_elements(f, v, shape, positions) for v in (a, b))
        scatter_elements_into(out, positions, _bound_pow_by_powers_of_abs_base(f, kernel, *taken))
    propagate_anything(out, (a, b))
    return out


def _exact_mask(v: ArrayOrSets) -> Array:
    return v.exact_mask() if isinstance(v, SetArray) else np.ones((), np.bool_)


def _is_special_case(a: Array, b: Array, y: Array) -> Array:
    """Return where IEEE 754 lists the result: a zero, an infinity or a NaN in or out, or a result that is 1 by rule."""
    special = (a == 0) | (b == 0) | (a == 1) | ((a == -1) & (np.abs(y) == 1))
    return np.asarray(special | ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(y))


def _clamp_in_place_to_sign_of_best(rows: Array) -> Array:
    """Clamp the ends to the sign of the best power, in place, as the sign is exact."""
    zero = np.zeros((), rows.dtype)
    low = (rows[0] < 0) & (rows[1] >= 0) & ~np.signbit(rows[1])
    high = (rows[2] > 0) & (rows[1] <= 0) & np.signbit(rows[1])
    rows[0] = np.where(low, zero, rows[0])
    rows[2] = np.where(high, -zero, rows[2])
    return rows


def _bound_pow_by_powers_of_abs_base(f: DTypeLayout, kernel: ArrayKernel, a: SetArray, b: SetArray) -> SetArray:
    """Return a hull of Pow: the powers of |a| bound the magnitude.

    Sign, NaN and infinity are free unless the base is surely positive.
    """
    size, exponent = np.abs(a.rows[[0, 2]]), b.rows[[0, 2]]
    crosses_zero = np.signbit(a.rows[0]) != np.signbit(a.rows[2])
    base = np.stack([size[0], size[1], np.where(crosses_zero, np.zeros((), f.np), size[0])])
    powers = np.asarray(kernel(base[:, None], exponent[None])).reshape(6, -1)
    unknown = np.isnan(powers).any(0)
    for v in (a, b):
        if v.flags is not None:
            unknown |= v.flags != 0
    top = np.array(np.inf if f.dtype.has_inf else f.max).astype(f.np)
    most = np.where(unknown, top, np.maximum.reduce(np.where(np.isnan(powers), np.zeros((), f.np), powers), axis=0))
    rows = np.stack([-most, np.asarray(kernel(a.best, b.best)), most])
    widen_by_ulps(f, rows, ~np.isfinite(rows), POW_ULPS)
    positive = ~np.signbit(a.rows[0]) & ~unknown & (a.rows[0] >= 0)
    rows[0] = np.where(positive, np.zeros((), f.np), rows[0])
    flags = np.where(positive, 0, NAN) | np.where(np.isinf(rows[2]), PINF, 0)
    return SetArray(f, rows, flags.astype(np.uint8))
