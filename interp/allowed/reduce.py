"""Reduce on sets (R32: a multiset in any order and association, accumulated in the source dtype or wider).

Sums are bounded around the exact sum, which is computed in a wider type whose own error enters the bound. An addition of zero
rounds nothing, so only other terms count. A sum whose partial sums are all integers of the dtype is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uops.interp.allowed.elementwise.pieces import make_set_absorbing_adjacent_flags
from uops.interp.allowed.layout import Array, DTypeLayout, from_order_keys, to_order_keys
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
    best_of,
    from_points_widening_to_hull_or_any,
)
from uops.spec.ir.ops import Op

Axes = tuple[int, ...]
#: The type in which sums of float64 are bounded; its unit roundoff enters the bound, so any platform's long double serves.
LONG = np.longdouble
#: Item size of a dtype -> unit roundoff of the type in which its sums are bounded.
WIDE_U = {8: float(np.finfo(LONG).eps), 4: 2.0**-52, 2: 2.0**-52, 1: 2.0**-52}


def _fold(ufunc: np.ufunc, x: Array, axes: Axes) -> Array:
    """Reduce `x` over `axes`, which stay with size 1."""
    return np.asarray(ufunc.reduce(x, axis=axes, keepdims=True))


def wide_dtype(f: DTypeLayout) -> Any:
    """Return the NumPy type in which sums of a dtype are bounded."""
    return LONG if f.np.itemsize == 8 else np.float64


def wide_dtype_ends_and_flags(f: DTypeLayout, v: ArrayOrSets) -> tuple[Array, Array, Array | None]:
    """Return lo and hi in the wide type, with flagged zeros and infinities included, and the flags (None: none)."""
    wide = wide_dtype(f)
    if not isinstance(v, SetArray):
        exact = v.astype(wide)
        return exact, exact, None
    rows = v.rows.astype(wide)
    lo, hi = rows[0], rows[2]
    if v.flags is None:
        return lo, hi, None
    flags = v.flags | np.where(np.isnan(lo), NAN, 0).astype(np.uint8)
    for flag, value in ((PZERO, 0.0), (NZERO, -0.0), (PINF, np.inf), (NINF, -np.inf)):
        has = (v.flags & flag) != 0
        is_negative = bool(np.signbit(value))  # -0.0 lies below +0.0: a product depends on the sign
        lo = np.where(has & ~((lo < value) | ((lo == value) & (np.signbit(lo) | (not is_negative)))), value, lo)
        hi = np.where(has & ~((hi > value) | ((hi == value) & (~np.signbit(hi) | is_negative))), value, hi)
    return lo, hi, flags


def reduce_add_floats(
    f: DTypeLayout,
    v: ArrayOrSets,
    axes: Axes,
    best: Array,
    factor_pairs: Sequence[tuple[ArrayOrSets, ArrayOrSets]] = (),
    *,
    may_stay_unfused: bool = False,
) -> ArrayOrSets:
    """Return the set of a float Add over `axes`, with the best values `best`.

    `factor_pairs` are the operands that a Mul which computes the terms may have: its products may be fused into the sum.
    With `may_stay_unfused`, terms may also be values of `v` that no product rounds to.
    """
    if not factor_pairs:
        lo, hi, flags = wide_dtype_ends_and_flags(f, v)
        exact = not isinstance(v, SetArray)
    else:
        products = [_multiply_to_wide_dtype_ends_and_flags(f, a, b) for a, b in factor_pairs]
        lo, hi, flags = products[0] if len(products) == 1 else _unite_wide_dtype_ends_and_flags(products)
        exact = len(products) == 1 and flags is None and not any(isinstance(factor, SetArray) for factor in factor_pairs[0])
        if may_stay_unfused and isinstance(v, SetArray):
            lo, hi, flags = _include_terms_beyond_rounding(f, v, lo, hi, flags)
            exact = exact and lo is hi
    with np.errstate(all="ignore"):
        return _enclose_sum_in_any_order(f, lo, hi, flags, axes, best, exact, bool(factor_pairs))


def _unite_wide_dtype_ends_and_flags(terms: Sequence[tuple[Array, Array, Array | None]]) -> tuple[Array, Array, Array]:
    """Return lo, hi and flags of terms that are one of several; a NaN among others is a flag."""
    lo = np.fmin.reduce([lo for lo, _, _ in terms])
    hi = np.fmax.reduce([hi for _, hi, _ in terms])
    flags = np.zeros(lo.shape, np.uint8)
    for end, _, term_flags in terms:
        flags |= np.where(np.isnan(end), NAN, 0).astype(np.uint8) | (np.uint8(0) if term_flags is None else term_flags)
    return lo, hi, flags


def _include_terms_beyond_rounding(
    f: DTypeLayout, v: SetArray, lo: Array, hi: Array, flags: Array | None
) -> tuple[Array, Array, Array | None]:
    """Return lo, hi and flags of products with those finite values of `v` to which they do not round."""
    v_lo, v_hi, v_flags = wide_dtype_ends_and_flags(f, v)
    is_below = np.isfinite(v_lo) & (v_lo < lo - (f.u * np.abs(lo) + f.eta))
    is_above = np.isfinite(v_hi) & (v_hi > hi + (f.u * np.abs(hi) + f.eta))
    if not (is_below.any() or is_above.any()):
        return lo, hi, flags
    if v_flags is not None:
        flags = (v_flags if flags is None else flags | v_flags) & np.uint8(NAN | ANY)
    return np.where(is_below, v_lo, lo), np.where(is_above, v_hi, hi), flags


def _multiply_to_wide_dtype_ends_and_flags(f: DTypeLayout, a: ArrayOrSets, b: ArrayOrSets) -> tuple[Array, Array, Array | None]:
    """Return lo, hi and flags of the products of two values in the wide type, where they are exact."""
    (a_lo, a_hi, a_flags), (b_lo, b_hi, b_flags) = wide_dtype_ends_and_flags(f, a), wide_dtype_ends_and_flags(f, b)
    if a_lo is a_hi and b_lo is b_hi:
        product = a_lo * b_lo
        return product, product, None
    corners = np.stack(np.broadcast_arrays(a_lo * b_lo, a_lo * b_hi, a_hi * b_lo, a_hi * b_hi))
    lo, hi = np.minimum.reduce(corners), np.maximum.reduce(corners)
    flags = None
    mixed = np.isnan(lo) & ~(np.isnan(a_lo) | np.isnan(b_lo)) & ~((a_lo == a_hi) & (b_lo == b_hi))
    if mixed.any():  # an infinity meets a zero somewhere inside
        lo, hi = np.where(mixed, -np.inf, lo), np.where(mixed, np.inf, hi)
        flags = np.where(mixed, NAN, 0).astype(np.uint8)
    for operand_flags in (a_flags, b_flags):
        if operand_flags is not None:
            flags = np.broadcast_to(operand_flags, lo.shape) if flags is None else flags | operand_flags
    return lo, hi, flags


def _enclose_sum_in_any_order(
    f: DTypeLayout, lo: Array, hi: Array, flags: Array | None, axes: Axes, best: Array, are_terms_exact: bool, are_products: bool
) -> ArrayOrSets:
    """Return the set of sums of terms between `lo` and `hi`; `are_terms_exact` terms have one value, `are_products` ones are
    products."""
    magnitude = np.abs(lo) if are_terms_exact else np.maximum(np.abs(lo), np.abs(hi))
    total = _fold(np.add, magnitude, axes)
    terms = _fold(np.add, (magnitude != 0).astype(np.int64), axes)
    low = _fold(np.add, lo, axes)
    high = low if are_terms_exact else _fold(np.add, hi, axes)
    if are_terms_exact and flags is None and _are_partial_sums_exact(f, lo, total):
        return _allow_either_zero_sum(f, best)
    wide_u = WIDE_U[f.np.itemsize]
    count = math.prod(lo.shape[a] for a in axes)
    if are_products:
        bound = np.where(terms > 1, terms * (f.u * total + f.eta), 0.0)
    else:
        bound = np.where(terms > 1, (terms - 1) * f.u * total, 0.0)
    error = np.where(terms > 1, count * wide_u * total, wide_u * total if are_products and f.np.itemsize == 8 else 0.0)
    bound = (bound + error) * (1 + 4 * wide_u)
    out_lo, lo_overflows = round_and_clamp_if_no_infinity(f, low - bound)
    out_hi, hi_overflows = round_and_clamp_if_no_infinity(f, high + bound)
    always_nan = lo_overflows & hi_overflows & ((low > bound) | (high < -bound))  # a finite-only dtype overflows in every order
    if always_nan.any():
        out_lo, out_hi = (np.where(always_nan, np.array(np.nan).astype(f.np), end) for end in (out_lo, out_hi))
    rows = np.stack([out_lo, best, out_hi])
    limit = f.max if f.dtype.finite_only else f.max * (1 - f.u)
    sum_flags = None
    if not (total < limit).all() or flags is not None or not f.dtype.has_inf:
        sum_flags = _flag_reachable_specials(f, lo, hi, flags, axes, are_terms_exact, lo_overflows | hi_overflows)
    out = SetArray(f, rows, sum_flags)
    return _include_both_zeros_in_place_at_zero_ends(f, _rebuild_nonfinite_rows_from_best_and_flags(f, out))


def round_and_clamp_if_no_infinity(f: DTypeLayout, x: Array) -> tuple[Array, Array]:
    """Round a wide array to the dtype; return it with a mask of what overflowed.

    Where the dtype has no infinity, overflowing values are clamped. Else nothing is masked.
    """
    if f.dtype.has_inf:
        rounded = x.astype(f.np) if not f.dtype.ml_dtypes_name else x.astype(np.float32).astype(f.np)
        return rounded, np.zeros((), np.bool_)
    beyond = np.abs(x) > f.max * (1 + f.u * 4 / 7)
    return np.clip(x, -f.max, f.max).astype(np.float32).astype(f.np), beyond


def _are_partial_sums_exact(f: DTypeLayout, x: Array, total: Array) -> bool:
    """Return True if every partial sum is an integer of the dtype in any order; `total` are the sums of magnitudes."""
    return bool((total <= 2.0 ** (f.man + 1)).all() and (np.rint(x) == x).all() and (total <= f.max).all())


def _allow_either_zero_sum(f: DTypeLayout, best: Array) -> ArrayOrSets:
    """Allow either sign where the exact sum `best` is zero."""
    if best.all():
        return best
    zero = best == 0
    rows = np.stack([best, best, best])
    rows[0] = np.where(zero, -np.zeros((), f.np), best)
    rows[2] = np.where(zero, np.zeros((), f.np), best)
    return SetArray(f, rows)


def _include_both_zeros_in_place_at_zero_ends(f: DTypeLayout, out: SetArray) -> SetArray:
    """Extend intervals that end at a zero to both zeros."""
    lo, hi = out.rows[0], out.rows[2]
    zero = np.zeros((), f.np)
    touch = (lo == 0) | (hi == 0)
    if touch.any():
        rows = out.rows.copy()
        rows[0] = np.where(lo == 0, -zero, lo)
        rows[2] = np.where(hi == 0, zero, hi)
        out.interval = rows
    return out


def _flag_reachable_specials(
    f: DTypeLayout, lo: Array, hi: Array, flags: Array | None, axes: Axes, are_terms_exact: bool, overflows: Array
) -> Array:
    """Return the flags of infinities and NaN that some order of additions reaches (R32)."""
    limit = f.max * (1 + f.u)
    growth = 1 + _fold(np.add, np.ones(lo.shape), axes) * f.u * 1.01
    up = _fold(np.add, np.where((hi > 0) & ~np.isinf(hi), hi, 0), axes) * growth
    down = _fold(np.add, np.where((lo < 0) & ~np.isinf(lo), lo, 0), axes) * growth
    plus = (up >= limit) | _fold(np.logical_or, hi == np.inf, axes)
    minus = (down <= -limit) | _fold(np.logical_or, lo == -np.inf, axes)
    nan = _fold(np.logical_or, np.isnan(lo), axes)
    term_flags = None
    if flags is not None:
        term_flags = _fold(np.bitwise_or, flags, axes)
        nan = nan | ((term_flags & NAN) != 0)
    nan = nan | (plus & minus) | overflows
    if not f.dtype.has_inf:
        nan = nan | plus | minus
        plus = minus = np.zeros((), np.bool_)
    if are_terms_exact:  # an infinite term stays, or meets the other infinity; a NaN stays
        has_plus, has_minus = _fold(np.logical_or, lo == np.inf, axes), _fold(np.logical_or, lo == -np.inf, axes)
        always_nan = _fold(np.logical_or, np.isnan(lo), axes) | (has_plus & has_minus)
        plus, minus = plus & ~has_minus & ~always_nan, minus & ~has_plus & ~always_nan
    out = np.where(nan, NAN, 0) | np.where(plus, PINF, 0) | np.where(minus, NINF, 0)
    if term_flags is not None:
        out = np.where((term_flags & ANY) != 0, ANY, out)
    return out.astype(np.uint8)


def _rebuild_nonfinite_rows_from_best_and_flags(f: DTypeLayout, out: SetArray) -> SetArray:
    """Make rows with a NaN or infinite end canonical; there the certain members follow from the best value."""
    rows = out.rows
    not_finite = ~np.isfinite(rows).all(0)
    if not not_finite.any():
        if out.flags is not None and not out.flags.any():
            out.flags = None
        return out
    flags = np.zeros(out.shape, np.uint8) if out.flags is None else out.flags
    nan = np.isnan(rows)
    top = f.key_max
    lo = np.where(nan[0] | nan[2], np.iinfo(np.int64).max, to_order_keys(f, rows[0]).astype(np.int64))
    hi = np.where(nan[0] | nan[2], -np.iinfo(np.int64).max, to_order_keys(f, rows[2]).astype(np.int64))
    flags = flags | np.where(np.isnan(rows[1]), NAN, 0).astype(np.uint8)
    flags = flags | np.where(rows[1] == np.inf, PINF, 0).astype(np.uint8) | np.where(rows[1] == -np.inf, NINF, 0).astype(np.uint8)
    canonical = make_set_absorbing_adjacent_flags(f, np.maximum(lo, -top - 2), hi, rows[1], flags)
    rows = np.where(not_finite, canonical.rows, rows)
    flags = np.where(not_finite, 0 if canonical.flags is None else canonical.flags, flags).astype(np.uint8)
    return SetArray(f, rows, flags if flags.any() else None)


def reduce_mul_floats(f: DTypeLayout, v: ArrayOrSets, axes: Axes, best: Array) -> ArrayOrSets:
    """Return the set of a float Mul over `axes`.

    The error is at most |p| * ((1 + u)^(n-1) - 1), and what underflow and overflow of partial products add.
    """
    count = math.prod(v.shape[a] for a in axes)
    if count == 1:
        return v
    with np.errstate(all="ignore"):
        return _enclose_reduce_product(f, v, axes, best, count)


def _enclose_reduce_product(f: DTypeLayout, v: ArrayOrSets, axes: Axes, best: Array, factor_count: int) -> ArrayOrSets:
    """Return the set of products of `factor_count` terms in any order."""
    lo, hi, flags = (
        x if x is None else x.astype(np.float64) if x.dtype != np.uint8 else x for x in wide_dtype_ends_and_flags(f, v)
    )
    assert lo is not None and hi is not None
    exact = not isinstance(v, SetArray)
    big = np.abs(lo) if exact else np.maximum(np.abs(lo), np.abs(hi))
    small = big if exact else np.where(np.signbit(lo) != np.signbit(hi), 0.0, np.minimum(np.abs(lo), np.abs(hi)))
    ordinary = np.isfinite(big) & (big > 0)
    rise, fall = _log2_product(big, ordinary & (big > 1), axes), _log2_product(small, (small > 0) & (small < 1), axes)
    zero = _fold(np.logical_or, small == 0, axes)
    always_zero = _fold(np.logical_or, big == 0, axes)
    infinite = _fold(np.logical_or, np.isinf(big), axes)
    nan = _fold(np.logical_or, np.isnan(lo), axes)
    slack = 1e-6 * (1 + factor_count)
    over = infinite | (rise + slack >= math.log2(f.max))
    under = zero | (fall - slack <= f.emin)
    varied = _fold(np.logical_or, np.signbit(lo) != np.signbit(hi), axes)
    sign = np.where(_fold(np.logical_xor, np.signbit(lo), axes), -1.0, 1.0)
    low, high = _multiply_magnitudes(small, axes), _multiply_magnitudes(big, axes)
    growth = math.expm1(factor_count * math.log1p(f.u)) + factor_count * 2.0**-51
    slip = np.where(under & ~always_zero, factor_count * f.eta * np.exp2(np.minimum(rise, 2000.0)) * (1 + growth), 0.0)
    least = np.where(slip < low, low * (1 - growth) - slip, 0.0)
    least = np.where(under & over, 0.0, np.maximum(least, 0.0))
    most = np.where(always_zero, 0.0, high * (1 + growth) + slip)
    least = np.where(zero, 0.0, least)
    out_lo, lo_overflows = round_and_clamp_if_no_infinity(f, np.where(varied, -most, np.where(sign < 0, -most, least)))
    out_hi, hi_overflows = round_and_clamp_if_no_infinity(f, np.where(varied, most, np.where(sign < 0, -least, most)))
    out_lo, out_hi = _set_signs_of_zero_ends(f, out_lo, out_hi, sign, varied)
    flag = np.where(nan | (over & under), NAN, 0)
    if f.dtype.has_inf:
        flag = flag | np.where(over & (varied | (sign > 0)), PINF, 0) | np.where(over & (varied | (sign < 0)), NINF, 0)
    else:
        flag = flag | np.where(over | lo_overflows | hi_overflows, NAN, 0)
    if flags is None:  # else a NaN among the terms may be absent
        flag = np.where(nan, NAN, flag)
    always_inf = infinite & ~zero & exact
    flag = np.where(always_inf & ~nan, np.where(under, NAN, 0) | np.where(sign > 0, PINF, NINF), flag)
    if flags is not None:
        term_flags = _fold(np.bitwise_or, flags, axes)
        flag = np.where((term_flags & ANY) != 0, ANY, flag | (term_flags & NAN))
    rows = np.stack([out_lo, best, out_hi])
    if exact:
        always_nan = nan | (infinite & always_zero)
        flag = np.where(always_nan, NAN, flag)
        rows[:, always_nan | always_inf] = best[always_nan | always_inf]
    out = SetArray(f, rows, flag.astype(np.uint8))
    return _rebuild_nonfinite_rows_from_best_and_flags(f, out)


def _log2_product(x: Array, where: Array, axes: Axes) -> Array:
    """Return log2 of the product of the elements at `where`."""
    return _fold(np.add, np.where(where, np.log2(np.where(where, x, 1.0)), 0.0), axes)


def _multiply_magnitudes(x: Array, axes: Axes) -> Array:
    """Return the product of magnitudes over axes in float64, by mantissas and exponents; infinite beyond its range."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 1.0))
    flat = np.moveaxis(mantissa, axes, range(len(axes))).reshape(-1, *(n for k, n in enumerate(x.shape) if k not in axes))
    exponents = np.add.reduce(exponent, axis=axes, keepdims=True, dtype=np.int64)
    product = np.ones(flat.shape[1:])
    for start in range(0, len(flat), 512):  # a product of 512 mantissas does not underflow
        product, carried = np.frexp(product * np.multiply.reduce(flat[start : start + 512], axis=0))
        exponents = exponents + carried.reshape(exponents.shape)
    out: Array = np.ldexp(product.reshape(exponents.shape), np.clip(exponents, -5000, 5000).astype(np.int32))
    return np.where(_fold(np.logical_or, np.isinf(x), axes), np.inf, out)


def _set_signs_of_zero_ends(f: DTypeLayout, lo: Array, hi: Array, sign: Array, has_both_signs: Array) -> tuple[Array, Array]:
    """Give zero ends the sign of the product, which is exact; both signs occur where it is `has_both_signs`."""
    zero = np.zeros((), f.np)
    minus = has_both_signs | (sign < 0)
    plus = has_both_signs | (sign > 0)
    lo = np.where((lo == 0) & minus, -zero, np.where((lo == 0), zero, lo))
    hi = np.where((hi == 0) & plus, zero, np.where((hi == 0), -zero, hi))
    return lo, hi


def reduce_max_floats(f: DTypeLayout, v: ArrayOrSets, axes: Axes, best: Array) -> ArrayOrSets:
    """Return the set of a float Max over `axes`: exact (R32), but of two zeros either (R11)."""
    if not isinstance(v, SetArray):
        if best.all():
            return best
        mixed = (best == 0) & (
            _fold(np.logical_or, (v == 0) & np.signbit(v), axes) & _fold(np.logical_or, (v == 0) & ~np.signbit(v), axes)
        )
        if not mixed.any():
            return best
        rows = np.stack([best, best, best])
        rows[0] = np.where(mixed, -np.zeros((), f.np), best)
        rows[2] = np.where(mixed, np.zeros((), f.np), best)
        return SetArray(f, rows)
    lo, hi, flags = v.rows[0], v.rows[2], v.flags
    nan = np.isnan(lo)
    always_nan = _fold(np.logical_or, nan if flags is None else nan & (flags == 0), axes)
    k_lo, k_hi = to_order_keys(f, lo), to_order_keys(f, hi)
    out_flags = np.zeros(best.shape, np.uint8)
    if flags is not None:
        for flag, key in ((PZERO, 0), (NZERO, -1), (PINF, f.key_max + 1), (NINF, -f.key_max - 2)):
            has = (flags & flag) != 0
            k_lo = np.where(has & (nan | (k_lo > key)), key, k_lo).astype(k_lo.dtype)
            k_hi = np.where(has & (nan | (k_hi < key)), key, k_hi).astype(k_hi.dtype)
        may_be_nan = _fold(np.logical_or, nan | ((flags & NAN) != 0), axes)
        out_flags = np.where(may_be_nan, NAN, 0).astype(np.uint8)
        out_flags |= _fold(np.bitwise_or, flags & ANY, axes)
    out_lo = _fold(np.maximum, np.where(nan, np.iinfo(k_lo.dtype).min, k_lo), axes)
    out_hi = _fold(np.maximum, np.where(nan, np.iinfo(k_lo.dtype).min, k_hi), axes)
    either_zero = (out_lo == 0) & _fold(np.logical_or, (k_lo < 0) & (k_hi >= -1), axes)
    lows = from_order_keys(f, np.where(either_zero, -1, out_lo).astype(k_lo.dtype))
    rows = np.stack([lows, best, from_order_keys(f, out_hi)])
    rows[:, always_nan] = np.nan
    out_flags = np.where(always_nan, 0, out_flags).astype(np.uint8)
    return _list_max_candidates(f, v, axes, SetArray(f, rows, out_flags if out_flags.any() else None))


def _list_max_candidates(f: DTypeLayout, v: SetArray, axes: Axes, out: SetArray) -> SetArray:
    """List the candidates for the maximum where every term is listed and few candidates remain."""
    if v.listed_points is None or v.is_listed is None or v.flags is not None or np.isnan(v.rows).any():
        return out
    terms_listed = _fold(np.logical_and, v.is_listed | v.exact_mask(), axes)
    if not terms_listed.any():
        return out
    term_points = np.where(v.is_listed, v.listed_points, v.best)
    lead = tuple(a + 1 for a in axes)
    terms_first = np.moveaxis(term_points, lead, range(1, len(axes) + 1))
    flat = terms_first.reshape(-1, *out.shape) if terms_first.size else terms_first
    candidates = np.where(to_order_keys(f, flat) < to_order_keys(f, out.rows[0]), out.best, flat)
    points = from_points_widening_to_hull_or_any(f, np.concatenate([out.best[None], candidates]))
    assert points.is_listed is not None
    is_listed = terms_listed & points.is_listed
    return SetArray(f, np.where(is_listed, points.rows, out.rows), None, points.points, is_listed)


def reduce_bools_or_integers_any_if_several_inexact(
    op: Op, f: DTypeLayout, fold_values: Callable[[Array], Array], v: SetArray, axes: Axes
) -> SetArray:
    """Return the set of a Reduce of integers or bools.

    The set is exact if at most one term of a group has several values; else, for integers, it is *any*.
    """
    best = np.asarray(fold_values(best_of(v)))
    term_anything = v.anything_mask()
    if f.np == np.bool_:
        unknown = np.zeros(v.shape, np.bool_) if term_anything is None else term_anything
        least, greatest = np.asarray(v.points.all(0)) & ~unknown, np.asarray(v.points.any(0)) | unknown
        return from_points_widening_to_hull_or_any(f, np.stack([best, fold_values(least), fold_values(greatest)]))
    inexact = ~v.exact_mask()
    anything = _fold(np.add, inexact.astype(np.int64), axes) > 1
    if term_anything is not None:
        anything = anything | _fold(np.logical_or, term_anything, axes)
    rows = np.stack([best] + [np.asarray(fold_values(p)) for p in v.points[1:POINTS]])
    return from_points_widening_to_hull_or_any(f, np.where(anything, best, rows), anything if anything.any() else None)
