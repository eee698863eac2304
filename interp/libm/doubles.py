"""Exact sums and products of float64 arrays as unevaluated pairs (high, low), without a fused multiply-add."""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.interp.tensor.storage import Array

#: 2^27 + 1: multiplying by it lets `veltkamp_split` cut a significand in the middle.
_SPLITTER = 134217729.0


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return (s, e) with a + b = s + e exactly and s rounded to nearest, for operands of any magnitude."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return `two_sum(a, b)`, given that |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def veltkamp_split(a: Any) -> tuple[Any, Any]:
    """Split `a` exactly into a sum of two values of at most 26 bits, given that |a| < 2^996."""
    t = a * _SPLITTER
    high = t - (t - a)
    return high, a - high


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return (p, e) with a * b = p + e exactly, unless a factor exceeds 2^996 or the error is below 2^-1074."""
    p = a * b
    ah, al = veltkamp_split(a)
    bh, bl = veltkamp_split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def round_sum_to_odd(s: Array, e: Array) -> Array:
    """Return s + e rounded to odd, given that s is the sum rounded to nearest and e its exact error.

    Where s is not finite e is NaN, and the result is s.
    """
    if not np.count_nonzero(e):
        return s
    even = np.asarray(s.view(np.int64) & 1 == 0)
    odd: Array = np.where(even & (np.abs(e) > 0), np.nextafter(s, e * np.inf), s)
    return odd
