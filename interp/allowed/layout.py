"""Bits of a dtype as NumPy sees them: the total order of its values, their spacing, and their storage.

The *order key* of a float is an integer that is monotone in the value: -1 is -0.0, 0 is +0.0, 1 is the least subnormal. A set's
interval is an interval of keys. So -0.0 < +0.0, and an infinity is one step beyond the greatest finite value.

Throughout this package `f` is the layout of the operands, `r` the layout of the result, and `v` a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uops.interp.tensor.storage import NUMPY
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

Array = NDArray[Any]
#: An elementwise op as a function of NumPy arrays that broadcast.
ArrayKernel = Callable[..., Array]


class DTypeLayout(NamedTuple):
    """The storage of one dtype and, for a float, where its values lie."""

    dtype: DType
    np: np.dtype[Any]
    ints: np.dtype[Any]  # signed integers of the same size
    shift: int  # bits - 1
    low: int  # mask of all bits but the sign
    is_float: bool
    u: float  # unit roundoff
    eta: float  # least subnormal
    emin: int  # exponent of the least normal value, as in 2^emin
    man: int
    max: float  # greatest finite value
    key_max: int
    ulps: int  # R17: the bound of Exp2, Log2 and Sin


def _derive_layout(d: DType) -> DTypeLayout:
    bits = d.storage.bits
    shape = NUMPY[d], np.dtype(f"int{bits}"), bits - 1, (1 << (bits - 1)) - 1
    if not d.is_float:
        return DTypeLayout(d, *shape, False, 0.0, 0.0, 0, 0, 0.0, 0, 0)
    top = int(np.array(d.max_finite).astype(shape[0]).view(shape[1]))
    ulps = 2 if d.bits >= 32 else 1
    return DTypeLayout(d, *shape, True, d.unit_roundoff, d.smallest_subnormal, d.min_exponent, d.man_bits, d.max_finite, top, ulps)


LAYOUT: dict[DType, DTypeLayout] = {d: _derive_layout(d) for d in NUMPY}
#: The layout of the values in an array of a NumPy dtype; `object` holds index values beyond 64 bits.
LAYOUT_BY_NUMPY = {f.np: f for f in LAYOUT.values() if f.dtype is not dt.index} | {np.dtype(object): LAYOUT[dt.index]}


def to_order_keys(f: DTypeLayout, x: Array) -> Array:
    """Return the total-order key of each value, in the signed integer of the same size."""
    i = x.view(f.ints)
    k: Array = i ^ ((i >> f.shift) & f.low)
    return k


def from_order_keys(f: DTypeLayout, k: Array) -> Array:
    """Return the value with each key."""
    i = k.astype(f.ints, copy=False)
    x: Array = (i ^ ((i >> f.shift) & f.low)).view(f.np)
    return x


#: NumPy has no spacing for the greatest float64 itself.
_BELOW_GREATEST = np.nextafter(np.finfo(np.float64).max, 0)


def ulp(f: DTypeLayout, x: Array) -> Array:
    """Return the spacing of the dtype at |x| as float64; 0 at an infinity or NaN."""
    v = x.astype(np.float64)
    if f.dtype is dt.float64:
        s = np.spacing(np.minimum(np.abs(v), _BELOW_GREATEST))
    else:
        _, e = np.frexp(v)
        s = np.ldexp(1.0, np.maximum(e - 1, f.emin) - f.man)
        s = np.where(v == 0, f.eta, s)
    return np.where(np.isfinite(v), s, 0.0)


def same_bits_or_both_nan(f: DTypeLayout, a: Array, b: Array) -> Array:
    """Return where a and b are the same value: all NaNs are the same, -0.0 and 0.0 differ."""
    if not f.is_float:
        return np.asarray(a == b)
    same: Array = (a.view(f.ints) == b.view(f.ints)) | ((a != a) & (b != b))
    return same


def ulp_distance(f: DTypeLayout, lo: Array, hi: Array) -> Array:
    """Return the number of steps from `lo` up to `hi` as uint64."""
    first, last = to_order_keys(f, lo).astype(np.int64), to_order_keys(f, hi).astype(np.int64)
    return np.subtract(last, first).view(np.uint64)  # scalars, too, wrap without a warning
