"""Conversion between dtypes with one rounding to nearest even from the exact source (R15, R16, R19).

NumPy and ml_dtypes round twice on the way from float64 or a wide integer to a narrow float. Here the first step goes to the *odd*
neighbour when it is inexact, so that the second step still sees on which side of a midpoint the exact value lies; two more bits
than the target has are enough for that, also where float32 is subnormal. The one-step conversions that this file relies on (float64
to float32, float32 to each narrow float, 64-bit integers to float32 and float64) are judged by tests/interp/test_rounding.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from uops.interp.tensor.storage import BITS, NUMPY, OBJECT, Array, settle
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

Convert = Callable[[Array], Array]
f32, f64, i64 = np.float32, np.float64, np.int64
_count = np.count_nonzero  # a third of the cost of any() and all()
_SIGN = np.uint64(63)


def to_odd(near: Array, off: Array, up: Array, bits: type[np.signedinteger[Any]]) -> Array:
    """Values rounded to nearest, turned into values rounded to odd: where inexact (`off`) and even, the neighbour on the exact
    value's side (`up`: the exact magnitude is greater). Bit patterns of floats are ordered by magnitude, so that is one step."""
    pattern = near.view(bits)
    stepped = pattern + np.where(up, bits(1), bits(-1))
    odd: Array = np.where(off & ((pattern & 1) == 0), stepped, pattern)
    return odd.view(near.dtype)


def odd32(x: Array) -> Array:
    """float64 to float32, rounded to odd; a float64 beyond float32 becomes the greatest finite one, NaN stays NaN."""
    near = x.astype(f32)
    back = near.astype(f64)
    off = back != x
    if not _count(off):
        return near
    return to_odd(near, off, np.abs(x) > np.abs(back), np.int32)


_ZERO = f64(0)  # not a Python float, which would not widen float32
#: The bits of a float64's significand that a float32's has not, and the others; arrays, which NumPy need not convert.
_DROPPED, _KEPT = np.array((1 << 29) - 1), np.array(~((1 << 29) - 1))


def sticky32(x: Array) -> Array:
    """float64 to float32 for a target whose results lie in float32's normal range: cut off, with a sticky last bit. Cheaper than
    `odd32`, and the same but where the result is subnormal in float32."""
    b = x.view(i64)
    cut = (b | ((b & _DROPPED) + _DROPPED)) & _KEPT
    return np.asarray(cut).view(f64).astype(f32)


def odd64(a: Array) -> Array:
    """A 64-bit integer to float64, rounded to odd where it has more than 53 bits."""
    near = a.astype(f64)
    big = np.abs(near) >= 2.0**53
    if not _count(big):
        return near
    top = (a >> 11) | ((a & 2047) != 0)  # floor with a sticky last bit is the odd neighbour, of negative integers too
    wide: Array = np.where(big, top.astype(f64) * 2048.0, near)
    return wide


def _same(x: Array) -> Array:
    return x


def _plain(d: DType) -> Convert:
    target = NUMPY[d]
    return lambda x: x.astype(target)


def narrow64(d: DType) -> Convert:
    """float64 to the float `d`, one rounding."""
    if d is dt.float64:
        return _same
    if d is dt.float32:
        return _plain(d)
    target, first = NUMPY[d], odd32 if d is dt.bfloat16 else sticky32
    return lambda x: first(x).astype(target)


# To float


def _int_to_float(s: DType, d: DType) -> Convert:
    """Integers of up to 16 bits are exact in float32, of up to 32 bits in float64."""
    target = NUMPY[d]
    if d in (dt.float32, dt.float64):
        return _plain(d)
    if s.bits <= 16:
        return lambda x: x.astype(f32).astype(target)
    if s.bits <= 32:
        return lambda x: sticky32(x.astype(f64)).astype(target)
    return lambda x: sticky32(odd64(x)).astype(target)


def _float_to_float(s: DType, d: DType) -> Convert:
    if s is d:
        return _same
    if s is dt.float64:
        return narrow64(d)
    if s is dt.float32 or d in (dt.float32, dt.float64):
        return _plain(d)
    return _tabulated(s, _plain(d))


_SHORT = 1 << 24  # integers up to here are float32 values


def _index_to_float(d: DType) -> Convert:
    fast, finish, target = _int_to_float(dt.int64, d), narrow64(d), NUMPY[d]
    exact = target if d in (dt.float32, dt.float64) else NUMPY[dt.float32]

    def convert(x: Array) -> Array:
        if x.dtype != OBJECT:
            return fast(x) if x.ndim or not -_SHORT <= x.item() <= _SHORT else x.astype(exact).astype(target, copy=False)
        wide: Array = np.array([_wide_float(int(n), d) for n in x.ravel()], f64)
        return finish(wide.reshape(x.shape))

    return convert


def _wide_float(n: int, d: DType) -> float:
    """An integer of any size as a float64 that `narrow64(d)` rounds as it would round n: correctly rounded for float64 itself, else
    its leading 40 bits rounded to odd."""
    extra = 0 if d is dt.float64 else max(0, n.bit_length() - 40)
    top = (n >> extra) | ((n & ((1 << extra) - 1)) != 0)
    try:
        return float(top << extra)
    except OverflowError:
        return float("inf") if n > 0 else float("-inf")


# To integer


def _float_to_int(s: DType, d: DType) -> Convert:
    """Truncate toward zero, saturate, NaN gives 0 (R15)."""
    if d.bits == 64:
        return _float_to_int64(d)
    target, lo, hi = NUMPY[d], float(d.min), float(d.max)

    def convert(x: Array) -> Array:
        wide = np.where(x == x, x, _ZERO)
        return np.asarray(np.minimum(np.maximum(wide, lo), hi)).astype(target)

    return convert


def _float_to_int64(d: DType) -> Convert:
    """The greatest 64-bit integers are not float64 values, so they are put in where x is beyond."""
    target, lo = NUMPY[d], float(d.min)
    top = 2.0 ** (64 - d.is_signed)

    def convert(x: Array) -> Array:
        wide = x.astype(f64)
        whole: Array = np.where((wide >= lo) & (wide < top), wide, 0.0).astype(target)
        if _count(np.abs(wide) < 2.0**63) != x.size:
            whole = np.where(wide >= top, target.type(d.max), np.where(wide < lo, target.type(d.min), whole))
        return whole

    return convert


def _index_to_int(d: DType) -> Convert:
    """Wraps (R29)."""
    target, mask = NUMPY[d], (1 << 64) - 1

    def convert(x: Array) -> Array:
        if x.dtype == OBJECT:
            x = np.asarray(x & mask, dtype=object).astype(np.uint64)
        return x.astype(target)

    return convert


def _uint64_to_index(x: Array) -> Array:
    return x.astype(i64) if not _count(x >> _SIGN) else settle(x.astype(object))


def _float_to_index(x: Array) -> Array:
    """Truncates; a Trap from a non-finite float (R29)."""
    wide = x if x.dtype == f64 else x.astype(f64)
    if _count(np.isfinite(wide)) != x.size:
        raise Trap("Cast of a non-finite float to index (R29)")
    if _count(np.abs(wide) < 2.0**62) == x.size:
        return wide.astype(i64)
    return settle(np.array([int(v) for v in wide.ravel()], object).reshape(wide.shape))


def _nonzero(x: Array) -> Array:
    """To bool: x != 0, so NaN is true (R15)."""
    r: Array = np.not_equal(x, 0)
    return r


def _tabulated(s: DType, convert: Convert) -> Convert:
    """A conversion from a float of up to 16 bits, looked up in a table of all its bit patterns that is made on first use."""
    bits = BITS[s]

    @cache
    def table() -> Array:
        with np.errstate(all="ignore"):
            return convert(np.arange(1 << s.bits, dtype=bits).view(NUMPY[s]).astype(f32))

    return lambda x: np.asarray(table()[x.view(bits)])


def _from_float(s: DType, d: DType) -> Convert:
    if d.is_float:
        return _float_to_float(s, d)
    if d is dt.index:
        return _float_to_index
    convert = _nonzero if d is dt.bool_ else _float_to_int(s, d)
    return _tabulated(s, convert) if s.bits <= 16 else convert


def _from_integer(s: DType, d: DType) -> Convert:
    if d.is_float:
        return _index_to_float(d) if s is dt.index else _int_to_float(s, d)
    if d is dt.index:
        return _uint64_to_index if s is dt.uint64 else _plain(d)
    if d is dt.bool_:
        return _nonzero
    return _index_to_int(d) if s is dt.index else _plain(d)


def _from_bool(d: DType) -> Convert:
    target = NUMPY[d]
    return (lambda x: x.astype(f32).astype(target)) if d.is_float else _plain(d)


def _cast(s: DType, d: DType) -> Convert:
    if s is d:
        return _same
    if s is dt.bool_:
        return _from_bool(d)
    return _from_float(s, d) if s.is_float else _from_integer(s, d)


VALUED = (*dt.STORABLE, dt.index)
#: (source dtype, target dtype) -> conversion of an array.
CASTS: dict[tuple[DType, DType], Convert] = {(s, d): _cast(s, d) for s in VALUED for d in VALUED}
#: float dtype -> rounding of a float64 array.
NARROW: dict[DType, Convert] = {d: narrow64(d) for d in dt.FLOATS}
