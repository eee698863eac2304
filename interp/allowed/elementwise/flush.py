"""Flush to zero (R19): a subnormal, as operand or result, may be a zero of its sign."""

from __future__ import annotations

import numpy as np

from uops.interp.allowed.layout import Layout
from uops.interp.allowed.value import NZERO, PZERO, Loose, Value, as_loose, owned


def flushed(f: Layout, v: Value) -> Value:
    """The set with a zero beside every subnormal that it may hold; a list of points that holds one becomes an interval."""
    least = 2.0**f.emin
    if not isinstance(v, Loose):
        size = np.abs(v.astype(np.float64))
        small = (size > 0) & (size < least)
        if not small.any():
            return v
        out = owned(as_loose(f, v))
    else:
        low, high = v.rows[0].astype(np.float64), v.rows[2].astype(np.float64)
        small = ((low < least) & (high > 0)) | ((high > -least) & (low < 0))
        if not small.any():
            return v
        out = owned(v)
    low, high = out.rows[0].astype(np.float64), out.rows[2].astype(np.float64)
    flags = np.zeros(out.shape, np.uint8) if out.flags is None else out.flags
    flags = flags | np.where((low < least) & (high > 0), PZERO, 0) | np.where((high > -least) & (low < 0), NZERO, 0)
    inside = (low <= 0) & (high >= 0) & ((low < 0) & (high > 0))
    flags = np.where(inside, flags & (0xFF ^ (PZERO | NZERO)), flags).astype(np.uint8)
    disc = None if out.disc is None else out.disc & ~small
    return Loose(f, out.rows, flags, out.pts, disc)
