"""Mulacc: a * b + c with one rounding (R16).

Up to float32 the product is exact in float64; its sum with c is rounded to odd there and then once to the dtype. For float64 the
product and both sums are split into exact pairs and the two small parts are added with rounding to odd before the last addition;
where a factor or the product is so large or small that the split is not exact, and for few elements, Python's integers decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.libm.doubles import nudged, two_product, two_sum
from uops.interp.ops.rounding import NARROW
from uops.interp.tensor.storage import Array
from uops.spec.ir.dtypes import DType

F64 = np.dtype(np.float64)
_LEAST, _MOST = 2.0**-900, 2.0**900  # between them, products split exactly
_FEW = 32  # elements for which that is faster


def mulacc_in64(d: DType) -> Callable[[Array, Array, Array], Any]:
    """For fp8, where the sum is exact in float64 too: of two terms of at most 6 bits, the greater one's first bit and the lesser
    one's last bit are less than 50 apart."""
    finish = NARROW[d]
    return lambda a, b, c: finish(np.asarray(a.astype(F64) * b.astype(F64) + c.astype(F64)))


def mulacc_through64(d: DType) -> Callable[[Array, Array, Array], Any]:
    """For floats whose products are exact in float64."""
    finish = NARROW[d]

    def kernel(a: Array, b: Array, c: Array) -> Any:
        s, e = two_sum(a.astype(F64) * b.astype(F64), c.astype(F64))
        return finish(nudged(np.asarray(s), np.asarray(e)))

    return kernel


def mulacc64(a: Array, b: Array, c: Array) -> Any:
    if not a.shape == b.shape == c.shape:
        a, b, c = np.broadcast_arrays(a, b, c)
    if a.size <= _FEW:
        few = [_one(*abc) for abc in zip(a.ravel().tolist(), b.ravel().tolist(), c.ravel().tolist())]
        return np.array(few, F64).reshape(a.shape)
    product = np.asarray(a * b)
    size = np.abs(product)
    greatest = np.maximum(np.maximum(np.abs(a), np.abs(b)), size)
    plain = np.asarray((size > _LEAST) & (greatest < _MOST) & np.isfinite(c))
    out = np.asarray(_split(a, b, c))
    if np.count_nonzero(plain) == plain.size:
        return out
    factors = np.isfinite(a) & np.isfinite(b)
    alone = factors & ~np.isfinite(c)
    special = ~factors | (a == 0) | (b == 0)
    out = np.where(alone, c, np.where(special, product + c, out))
    for at in map(tuple, np.argwhere(~(plain | special | alone))):
        out[at] = _exactly(float(a[at]), float(b[at]), float(c[at]))
    return out


def _one(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    return _exactly(a, b, c) if math.isfinite(c) else c


def _split(a: Array, b: Array, c: Array) -> Any:
    """Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"."""
    ph, pl = two_product(a, b)
    th, tl = two_sum(c, pl)
    vh, vl = two_sum(ph, th)
    s, e = two_sum(tl, vl)
    return vh + nudged(np.asarray(s), np.asarray(e))


def _exactly(a: float, b: float, c: float) -> float:
    """Of finite numbers; a quotient of Python's integers is correctly rounded."""
    (an, ad), (bn, bd), (cn, cd) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    product, scale = an * bn, ad * bd
    exact = product * cd + cn * scale
    if exact == 0:
        return a * b + c
    try:
        return exact / (scale * cd)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
