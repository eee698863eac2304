"""Flush to zero (R19: a backend may declare it): a subnormal operand or result may be a zero of its sign."""

from __future__ import annotations

import numpy as np

from uops.interp.allowed.layout import DTypeLayout
from uops.interp.allowed.value import NZERO, PZERO, ArrayOrSets, SetArray, as_set_array, writable_copy


def allow_flush_to_zero(f: DTypeLayout, v: ArrayOrSets) -> ArrayOrSets:
    """Allow a zero beside every subnormal that the set may hold; a list of points with a subnormal becomes an interval."""
    least = 2.0**f.emin
    if not isinstance(v, SetArray):
        size = np.abs(v.astype(np.float64))
        subnormal = (size > 0) & (size < least)
        if not subnormal.any():
            return v
        out = writable_copy(as_set_array(f, v))
    else:
        low, high = v.rows[0].astype(np.float64), v.rows[2].astype(np.float64)
        subnormal = ((low < least) & (high > 0)) | ((high > -least) & (low < 0))
        if not subnormal.any():
            return v
        out = writable_copy(v)
    low, high = out.rows[0].astype(np.float64), out.rows[2].astype(np.float64)
    flags = np.zeros(out.shape, np.uint8) if out.flags is None else out.flags
    flags = flags | np.where((low < least) & (high > 0), PZERO, 0) | np.where((high > -least) & (low < 0), NZERO, 0)
    inside = (low <= 0) & (high >= 0) & ((low < 0) & (high > 0))
    flags = np.where(inside, flags & (0xFF ^ (PZERO | NZERO)), flags).astype(np.uint8)
    is_listed = None if out.is_listed is None else out.is_listed & ~subnormal
    return SetArray(f, out.rows, flags, out.listed_points, is_listed)
