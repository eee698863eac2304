"""Exp2, Log2 and Sin on sets: some ulps around the correctly rounded result, exact at exact points (R17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from uops.interp.allowed.elementwise.arithmetic import propagate_anything
from uops.interp.allowed.elementwise.pieces import KEY_LIMIT, cut_into_piece_ends_and_presence, make_set_absorbing_adjacent_flags
from uops.interp.allowed.layout import Array, ArrayKernel, DTypeLayout, same_bits_or_both_nan, to_order_keys, ulp
from uops.interp.allowed.value import (
    ANY,
    NAN,
    NINF,
    NZERO,
    PINF,
    PZERO,
    ArrayOrSets,
    SetArray,
    broadcast_and_take_flat_elements,
    scatter_elements_into,
)
from uops.spec.ir.ops import Op

#: The period of Sin; between ends further apart only its range is known.
_PERIOD = 2 * np.pi


def _is_exp2_exact(x: Array, y: Array) -> Array:
    """Return where Exp2 is exact: 2^k at an integer k, and the limits."""
    return np.asarray((np.trunc(x) == x) | np.isnan(x))


def _is_log2_exact(x: Array, y: Array) -> Array:
    """Return where Log2 is exact: at 2^k, whose mantissa is 1/2, and where IEEE 754 gives the answer."""
    mantissa, _ = np.frexp(x.astype(np.float64))
    return np.asarray((mantissa == 0.5) | ~(x > 0) | ~np.isfinite(y))


def _is_sin_exact(x: Array, y: Array) -> Array:
    return np.asarray((x == 0) | ~np.isfinite(x))


class Approximation(NamedTuple):
    """Facts about an op of one operand that is allowed some ulps (R17).

    `is_exact` returns where it has one result, from arrays of arguments and results. Its results are never below `least`.
    """

    is_exact: Callable[[Array, Array], Array]
    least: float


#: Op -> what is known of it. Each of these ops is monotone between its poles, but for Sin, which has a rule of its own.
APPROXIMATIONS: dict[Op, Approximation] = {
    Op.EXP2: Approximation(_is_exp2_exact, 0.0),
    Op.LOG2: Approximation(_is_log2_exact, -np.inf),
    Op.SIN: Approximation(_is_sin_exact, -np.inf),
}


def widen_by_ulps(f: DTypeLayout, rows: Array, keep_mask: Array, ulps: int) -> None:
    """Move lo down and hi up by `ulps` spacings, in place, except where `keep_mask` (3, *shape)."""
    ends = rows[0].astype(np.float64), rows[2].astype(np.float64)
    for row, sign in ((0, -1.0), (2, 1.0)):
        step = np.where(keep_mask[row], 0.0, ulp(f, rows[row]) * (sign * ulps))
        if not step.any():
            continue
        wide = _widen_end_for_power_of_two_inside(f, *ends, row, ends[row // 2] + step, sign * ulps)
        rows[row] = np.where(step == 0, rows[row], narrow_float64_clamping_if_dtype_lacks_inf(f, wide))


def _widen_end_for_power_of_two_inside(f: DTypeLayout, lo: Array, hi: Array, row: int, fallback_end: Array, ulps: float) -> Array:
    """Return the end `row` moved far enough if a power of two lies inside the interval; else `fallback_end`.

    The spacing at that power is twice that of a smaller end, so the set may reach further toward zero.
    """
    near, far = (lo, hi) if row == 0 else (hi, lo)
    if not (lo != hi).any():
        return fallback_end
    _, exponent = np.frexp(near)
    power = np.copysign(np.ldexp(1.0, exponent), near)
    inside = (near * far > 0) & (np.abs(power) <= np.abs(far)) & (np.abs(near) <= np.abs(far)) & np.isfinite(near)
    reach = power + ulps * np.ldexp(1.0, np.maximum(exponent, f.emin) - f.man)
    reach = np.where(inside, reach, fallback_end)
    return np.minimum(fallback_end, reach) if row == 0 else np.maximum(fallback_end, reach)


def narrow_float64_clamping_if_dtype_lacks_inf(f: DTypeLayout, wide: Array) -> Array:
    """Round float64 to the dtype, clamped to its greatest value where it has no infinity."""
    if not f.dtype.has_inf:
        wide = np.clip(wide, -f.max, f.max)
    if f.np.itemsize == 1:
        return wide.astype(np.float32).astype(f.np)
    return wide.astype(f.np)


def apply_transcendental_with_ulp_error(op: Op, f: DTypeLayout, kernel: ArrayKernel, x: ArrayOrSets) -> ArrayOrSets:
    """Return the set of an op of `APPROXIMATIONS` of a value."""
    if op is Op.SIN and isinstance(x, SetArray):
        return _apply_sin(f, kernel, x)
    if not isinstance(x, SetArray):
        y = kernel(x)
        exact = APPROXIMATIONS[op].is_exact(x, y) | ~np.isfinite(y)
        if exact.all():
            return y
        rows = np.stack([y, y, y])
        widen_by_ulps(f, rows, np.broadcast_to(exact, rows.shape), f.ulps)
        return SetArray(f, _raise_lower_end_in_place_to_least_result(op, rows))
    rows = kernel(x.rows)
    exact = (APPROXIMATIONS[op].is_exact(x.rows, rows) & x.exact_mask()) | ~np.isfinite(rows)
    widen_by_ulps(f, rows, exact, f.ulps)
    out = SetArray(f, _raise_lower_end_in_place_to_least_result(op, rows))
    positions = np.flatnonzero(_find_elements_that_need_pieces(rows, x))
    if positions.size:
        scatter_elements_into(
            out, positions, _apply_by_pieces(op, f, kernel, broadcast_and_take_flat_elements(f, x, out.shape, positions))
        )
    propagate_anything(out, [x])
    return out


def _raise_lower_end_in_place_to_least_result(op: Op, rows: Array) -> Array:
    """Raise a lower end to the op's least result, in place, and return the rows."""
    least = APPROXIMATIONS[op].least
    if np.isfinite(least):
        below = rows[0] < least
        if below.any():
            rows[0] = np.where(below, np.array(least).astype(rows.dtype), rows[0])
    return rows


def _find_elements_that_need_pieces(result_rows: Array, x: SetArray) -> Array:
    """Return where `x` has flags, or one end of the result alone is NaN (Log2 across zero, e4m3 overflow)."""
    mask = np.isnan(result_rows).any(0) & ~x.exact_mask()
    if x.flags is not None:
        mask = mask | ((x.flags != 0) & ((x.flags & ANY) == 0))
    return np.asarray(mask)


def _apply_by_pieces(op: Op, f: DTypeLayout, kernel: ArrayKernel, x: SetArray) -> SetArray:
    """Return the set of a monotone op on a 1-D set, piece by piece."""
    values, present = cut_into_piece_ends_and_presence(f, x)
    y = kernel(values)
    flags = np.zeros(x.shape, np.uint8)
    nan = np.isnan(y)
    flags |= np.where((nan.any(1) & present).any(0), NAN, 0).astype(np.uint8)
    if op is Op.EXP2 and not f.dtype.has_inf:
        overflows = nan & ~np.isnan(values)
        y = np.where(overflows, np.array(f.max).astype(f.np), y)
        nan = np.isnan(y)
    lo_row, hi_row = y[:, 0].copy(), y[:, 1].copy()
    rows = np.stack([lo_row, lo_row, hi_row])
    args = np.stack([values[:, 0], values[:, 0], values[:, 1]])
    point = same_bits_or_both_nan(f, args[0], args[2])
    widen_by_ulps(f, rows, (APPROXIMATIONS[op].is_exact(args, rows) & point) | ~np.isfinite(rows), f.ulps)
    rows = _raise_lower_end_in_place_to_least_result(op, rows)
    lo, hi = to_order_keys(f, rows[0]).astype(np.int64), to_order_keys(f, rows[2]).astype(np.int64)
    top = f.key_max
    use = present & ~nan.any(1)
    for key, flag in ((top + 1, PINF), (-top - 2, NINF), (0, PZERO), (-1, NZERO)):
        point = use & (lo == key) & (hi == key)
        flags |= np.where(point.any(0), flag, 0).astype(np.uint8)
        use = use & ~point
    low = np.where(use, lo, KEY_LIMIT).min(0)
    high = np.where(use, hi, -KEY_LIMIT).max(0)
    return make_set_absorbing_adjacent_flags(f, low, high, kernel(x.best), flags)


def _apply_sin(f: DTypeLayout, kernel: ArrayKernel, x: SetArray) -> SetArray:
    """Return the set of Sin of a set.

    Sin is monotone between extremes; an extreme inside puts 1 or -1 into the hull. Ends that are far apart give [-1, 1].
    """
    y = kernel(x.rows)
    lo, hi = np.minimum(y[0], y[2]), np.maximum(y[0], y[2])
    exact = x.exact_mask()
    a, b = x.rows[0].astype(np.float64), x.rows[2].astype(np.float64)
    wide = ~((b - a) < _PERIOD) | (np.abs(a) > 1e5) | (np.abs(b) > 1e5)
    slack = 1e-9
    top = wide | _contains_phase(a, b, np.pi / 2, slack)
    low = wide | _contains_phase(a, b, -np.pi / 2, slack)
    one = np.ones((), y.dtype)
    rows = np.stack([np.where(low & ~exact, -one, lo), y[1], np.where(top & ~exact, one, hi)])
    widen_by_ulps(f, rows, _is_sin_exact(x.rows, rows) & exact, f.ulps)
    out = SetArray(f, rows)
    infinite = ~exact & (np.isinf(a) | np.isinf(b))
    flags = np.where(infinite, NAN, 0).astype(np.uint8)
    if x.flags is not None:
        flags |= np.where(x.flags & (NAN | PINF | NINF), NAN, 0).astype(np.uint8)
        zero = (x.flags & (PZERO | NZERO)) != 0
        flags |= x.flags & (PZERO | NZERO | ANY)
        flags[zero & np.isnan(rows[1])] |= NAN
    if infinite.any():
        rows[0] = np.where(infinite, -one, rows[0])
        rows[2] = np.where(infinite, one, rows[2])
        widen_by_ulps(f, rows, np.broadcast_to(~infinite, rows.shape), f.ulps)
    if flags.any():
        out.flags = flags
    return out


def _contains_phase(a: Array, b: Array, point: float, slack: float) -> Array:
    """Return where [a, b] holds point + k * 2 pi for some integer k, up to `slack`."""
    k = np.ceil((a - point - slack) / _PERIOD)
    return np.asarray(point + k * _PERIOD <= b + slack)
