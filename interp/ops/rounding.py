"""Dtype conversions with one rounding to nearest even from the exact source (R15, R16, R19: casts, subnormals kept).

NumPy and ml_dtypes round twice on the way from float64 or a wide integer to a narrow float. Here the first step rounds to *odd*
where it is inexact, so that the second step still sees on which side of a midpoint the exact value lies. Two more bits than the
target has are enough for that, also where float32 is subnormal. This module relies on the one-step conversions: float64 to
float32, float32 to each narrow float, 64-bit integers to float32 and float64. tests/interp/ops/test_rounding.py checks them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from uops.interp.tensor.storage import BITS, NUMPY, OBJECT, Array, to_index_array
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

#: A conversion of an array to another dtype.
Convert = Callable[[Array], Array]
f32, f64, i64 = np.float32, np.float64, np.int64
_count = np.count_nonzero  # a third of the cost of any() and all()
#: Position of the sign bit of 64-bit integers.
_SIGN = np.uint64(63)


def round_to_odd(near: Array, is_inexact: Array, is_exact_magnitude_greater: Array, int_type: type[np.signedinteger[Any]]) -> Array:
    """Turn values rounded to nearest into values rounded to odd.

    Where a value is inexact and even, it becomes its neighbour on the exact value's side: away from 0 where the exact magnitude
    is greater. Bit patterns of floats are ordered by magnitude, so that is one step of the pattern.
    """
    pattern = near.view(int_type)
    stepped = pattern + np.where(is_exact_magnitude_greater, int_type(1), int_type(-1))
    odd: Array = np.where(is_inexact & ((pattern & 1) == 0), stepped, pattern)
    return odd.view(near.dtype)


def float64_to_float32_odd(x: Array) -> Array:
    """Convert float64 to float32, rounded to odd; beyond float32 to the greatest finite value, and NaN to NaN."""
    near = x.astype(f32)
    back = near.astype(f64)
    is_inexact = back != x
    if not _count(is_inexact):
        return near
    return round_to_odd(near, is_inexact, np.abs(x) > np.abs(back), np.int32)


_ZERO = f64(0)  # not a Python float, which would not widen float32
#: Masks of the bits of a float64 that its float32 drops and keeps; arrays, which NumPy need not convert.
_DROPPED, _KEPT = np.array((1 << 29) - 1), np.array(~((1 << 29) - 1))


def float64_to_float32_truncated_sticky(x: Array) -> Array:
    """Convert float64 to float32 by cutting off bits, with a sticky last bit.

    This suits targets whose results lie in float32's normal range. It is cheaper than `float64_to_float32_odd`, and equal to it
    except where the result is subnormal in float32. Beyond float32's greatest value it gives infinity.
    """
    b = x.view(i64)
    cut = (b | ((b & _DROPPED) + _DROPPED)) & _KEPT
    return np.asarray(cut).view(f64).astype(f32)


def integer_to_float64_odd(a: Array) -> Array:
    """Convert a 64-bit integer to float64, rounded to odd where it has more than 53 bits."""
    near = a.astype(f64)
    big = np.abs(near) >= 2.0**53
    if not _count(big):
        return near
    top = (a >> 11) | ((a & 2047) != 0)  # floor with a sticky last bit is the odd neighbour, of negative integers too
    wide: Array = np.where(big, top.astype(f64) * 2048.0, near)
    return wide


def _identity(x: Array) -> Array:
    return x


def _astype_conversion(d: DType) -> Convert:
    """Return NumPy's own conversion to `d`."""
    target = NUMPY[d]
    return lambda x: x.astype(target)


def _is_normal_in_float32(d: DType) -> bool:
    """Return True if float32 has all values of `d`, and half the least one, as normal numbers."""
    return d.smallest_subnormal / 2 >= dt.float32.smallest_normal


def make_rounding_from_float64(d: DType) -> Convert:
    """Return the conversion of float64 to the float `d`, with one rounding."""
    if d is dt.float64:
        return _identity
    if d is dt.float32:
        return _astype_conversion(d)
    target, first = NUMPY[d], float64_to_float32_truncated_sticky if _is_normal_in_float32(d) else float64_to_float32_odd
    return lambda x: first(x).astype(target)


# To float


def _make_int_to_float(s: DType, d: DType) -> Convert:
    """Return the conversion of a fixed-width integer to a float.

    Integers of up to 16 bits are exact in float32, of up to 32 bits in float64.
    """
    target = NUMPY[d]
    if d in (dt.float32, dt.float64):
        return _astype_conversion(d)
    if s.bits <= 16:
        return lambda x: x.astype(f32).astype(target)
    if s.bits <= 32:
        return lambda x: float64_to_float32_truncated_sticky(x.astype(f64)).astype(target)
    return lambda x: float64_to_float32_truncated_sticky(integer_to_float64_odd(x)).astype(target)


def _make_float_to_float(s: DType, d: DType) -> Convert:
    """Return the conversion between two floats."""
    if s is d:
        return _identity
    if s is dt.float64:
        return make_rounding_from_float64(d)
    if s is dt.float32 or d in (dt.float32, dt.float64):
        return _astype_conversion(d)
    return _tabulate_conversion(s, _astype_conversion(d))


#: Integers up to this magnitude are float32 values.
_SHORT = 1 << 24


def _make_index_to_float(d: DType) -> Convert:
    """Return the conversion of index values, of any size, to a float."""
    fast, finish, target = _make_int_to_float(dt.int64, d), make_rounding_from_float64(d), NUMPY[d]
    exact = target if d in (dt.float32, dt.float64) else NUMPY[dt.float32]

    def convert(x: Array) -> Array:
        if x.dtype != OBJECT:
            return fast(x) if x.ndim or not -_SHORT <= x.item() <= _SHORT else x.astype(exact).astype(target, copy=False)
        wide: Array = np.array([_big_int_to_sticky_float64(int(n), d) for n in x.ravel()], f64)
        return finish(wide.reshape(x.shape))

    return convert


def _big_int_to_sticky_float64(n: int, d: DType) -> float:
    """Return a float64 that `make_rounding_from_float64(d)` rounds as it would round the integer `n`.

    It is correctly rounded for float64 itself. Otherwise it holds the leading 40 bits of n, rounded to odd.
    """
    extra = 0 if d is dt.float64 else max(0, n.bit_length() - 40)
    top = (n >> extra) | ((n & ((1 << extra) - 1)) != 0)
    try:
        return float(top << extra)
    except OverflowError:
        return float("inf") if n > 0 else float("-inf")


# To integer


def _make_saturating_float_to_int(s: DType, d: DType) -> Convert:
    """Return the conversion of a float to an integer: it truncates toward zero and saturates, and NaN gives 0 (R15)."""
    if d.bits == 64:
        return _make_saturating_float_to_int64(d)
    target, lo, hi = NUMPY[d], float(d.min), float(d.max)

    def convert(x: Array) -> Array:
        wide = np.where(x == x, x, _ZERO)
        return np.asarray(np.minimum(np.maximum(wide, lo), hi)).astype(target)

    return convert


def _make_saturating_float_to_int64(d: DType) -> Convert:
    """Return the conversion of a float to a 64-bit integer.

    The greatest 64-bit integers are not float64 values, so they are put in where x is beyond.
    """
    target, lo = NUMPY[d], float(d.min)
    top = 2.0 ** (64 - d.is_signed)

    def convert(x: Array) -> Array:
        wide = x.astype(f64)
        whole: Array = np.where((wide >= lo) & (wide < top), wide, 0.0).astype(target)
        if _count(np.abs(wide) < 2.0**63) != x.size:
            whole = np.where(wide >= top, target.type(d.max), np.where(wide < lo, target.type(d.min), whole))
        return whole

    return convert


def _make_wrapping_index_to_int(d: DType) -> Convert:
    """Return the conversion of index values to a fixed-width integer, which wraps (R29)."""
    target, mask = NUMPY[d], (1 << 64) - 1

    def convert(x: Array) -> Array:
        if x.dtype == OBJECT:
            x = np.asarray(x & mask, dtype=object).astype(np.uint64)
        return x.astype(target)

    return convert


def _uint64_to_index(x: Array) -> Array:
    """Convert uint64 to index values."""
    return x.astype(i64) if not _count(x >> _SIGN) else to_index_array(x.astype(object))


def _float_to_index_trapping_non_finite(x: Array) -> Array:
    """Truncate floats to index values. Raises Trap for a non-finite float (R29)."""
    wide = x if x.dtype == f64 else x.astype(f64)
    if _count(np.isfinite(wide)) != x.size:
        raise Trap("Cast of a non-finite float to index (R29)")
    if _count(np.abs(wide) < 2.0**62) == x.size:
        return wide.astype(i64)
    return to_index_array(np.array([int(v) for v in wide.ravel()], object).reshape(wide.shape))


def _to_bool_nonzero(x: Array) -> Array:
    """Convert to bool: x != 0, so NaN is true (R15)."""
    r: Array = np.not_equal(x, 0)
    return r


def _tabulate_conversion(s: DType, convert: Convert) -> Convert:
    """Return a conversion from a float of up to 16 bits that looks values up in a table, which is made on first use."""
    bits = BITS[s]

    @cache
    def table() -> Array:
        with np.errstate(all="ignore"):
            return convert(np.arange(1 << s.bits, dtype=bits).view(NUMPY[s]).astype(f32))

    return lambda x: np.asarray(table()[x.view(bits)])


def _select_conversion_from_float(s: DType, d: DType) -> Convert:
    """Return the conversion from a float."""
    if d.is_float:
        return _make_float_to_float(s, d)
    if d is dt.index:
        return _float_to_index_trapping_non_finite
    convert = _to_bool_nonzero if d is dt.bool_ else _make_saturating_float_to_int(s, d)
    return _tabulate_conversion(s, convert) if s.bits <= 16 else convert


def _select_conversion_from_integer(s: DType, d: DType) -> Convert:
    """Return the conversion from an integer or index."""
    if d.is_float:
        return _make_index_to_float(d) if s is dt.index else _make_int_to_float(s, d)
    if d is dt.index:
        return _uint64_to_index if s is dt.uint64 else _astype_conversion(d)
    if d is dt.bool_:
        return _to_bool_nonzero
    return _make_wrapping_index_to_int(d) if s is dt.index else _astype_conversion(d)


def _select_conversion_from_bool(d: DType) -> Convert:
    """Return the conversion from bool."""
    target = NUMPY[d]
    return (lambda x: x.astype(f32).astype(target)) if d.is_float else _astype_conversion(d)


def _select_conversion(s: DType, d: DType) -> Convert:
    """Return the conversion from `s` to `d`."""
    if s is d:
        return _identity
    if s is dt.bool_:
        return _select_conversion_from_bool(d)
    return _select_conversion_from_float(s, d) if s.is_float else _select_conversion_from_integer(s, d)


#: The dtypes that have values.
VALUED = (*dt.STORABLE, dt.index)
#: (source dtype, target dtype) -> conversion of an array.
CASTS: dict[tuple[DType, DType], Convert] = {(s, d): _select_conversion(s, d) for s in VALUED for d in VALUED}
#: float dtype -> rounding of a float64 array.
NARROW: dict[DType, Convert] = {d: make_rounding_from_float64(d) for d in dt.FLOATS}
