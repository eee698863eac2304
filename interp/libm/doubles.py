"""Exact sums and products of float64 arrays as unevaluated pairs (high, low), without a fused multiply-add."""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.interp.tensor.storage import Array

_SPLITTER = 134217729.0  # 2^27 + 1


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b = s + e exactly, s rounded to nearest; any order of magnitudes."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """`two_sum` for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def split(a: Any) -> tuple[Any, Any]:
    """a as a sum of two values of at most 26 bits; |a| < 2^996."""
    t = a * _SPLITTER
    high = t - (t - a)
    return high, a - high


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b = p + e exactly, unless a factor is above 2^996 or the error below 2^-1074."""
    p = a * b
    ah, al = split(a)
    bh, bl = split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def nudged(s: Array, e: Array) -> Array:
    """s + e rounded to odd, given that s is the sum rounded to nearest and e its exact error, NaN where s is not finite."""
    if not np.count_nonzero(e):
        return s
    even = np.asarray(s.view(np.int64) & 1 == 0)
    odd: Array = np.where(even & (np.abs(e) > 0), np.nextafter(s, e * np.inf), s)
    return odd
