"""Mulacc: a * b + c with one rounding (R16).

Up to float32 the product is exact in float64; its sum with c is rounded to odd there and then once to the dtype. For float64 the
product and both sums are split into exact pairs and the two small parts are added with rounding to odd before the last addition;
where a factor or the product is so large or small that the split is not exact, Python's fractions decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from uops.interp.reference.doubles import nudged, two_product, two_sum
from uops.interp.rounding import NARROW
from uops.interp.storage import Array
from uops.spec.dtypes import DType

f64 = np.float64


def mulacc_through64(d: DType) -> Callable[[Array, Array, Array], Any]:
    """For floats whose products are exact in float64."""
    finish = NARROW[d]

    def kernel(a: Array, b: Array, c: Array) -> Any:
        s, e = two_sum(a.astype(f64) * b.astype(f64), c.astype(f64))
        return finish(nudged(np.asarray(s), np.asarray(e)))

    return kernel


def mulacc64(a: Array, b: Array, c: Array) -> Any:
    a, b, c = np.broadcast_arrays(a, b, c)
    product = np.multiply(a, b)
    size = np.abs(product)
    plain = np.asarray((size > 2.0**-900) & (size < 2.0**900) & (np.abs(a) < 2.0**900) & (np.abs(b) < 2.0**900))
    special = ~(np.isfinite(a) & np.isfinite(b)) | (a == 0) | (b == 0)
    alone = np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c)
    out = np.asarray(_split(a, b, c))
    if (plain & ~alone).all():
        return out
    out = np.where(alone, c, np.where(special, product + c, out))
    for at in map(tuple, np.argwhere(~plain & ~special & ~alone)):
        out[at] = _exactly(float(a[at]), float(b[at]), float(c[at]))
    return out


def _split(a: Array, b: Array, c: Array) -> Any:
    """Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"."""
    ph, pl = two_product(a, b)
    th, tl = two_sum(c, pl)
    vh, vl = two_sum(ph, th)
    s, e = two_sum(tl, vl)
    return vh + nudged(np.asarray(s), np.asarray(e))


def _exactly(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
