"""Mulacc: a * b + c with one rounding (R16).

Up to float32 the product is exact in float64. Its sum with c is rounded to odd there and then once to the dtype. For float64
the product and both sums are split into exact pairs, and the two small parts are added with rounding to odd before the last
addition. Where a factor or the product is so large or small that the split is not exact, and for few elements, Python's
integers decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.libm.doubles import round_sum_to_odd, two_product, two_sum
from uops.interp.ops.rounding import NARROW
from uops.interp.tensor.storage import Array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

F64 = np.dtype(np.float64)
#: Bounds of the magnitudes between which products split exactly.
_LEAST, _MOST = 2.0**-900, 2.0**900
#: Up to this many elements Python's integers are faster than arrays.
_FEW = 32


def is_mulacc_exact_in_float64(d: DType) -> bool:
    """Return True if float64 holds a * b + c of `d` exactly, unless it overflows.

    The last bit of a product is that of two subnormals, or above. The first bit of a sum that does not overflow is that of the
    greatest finite value, or below.
    """
    first, last = math.frexp(d.max_finite)[1], 2 * (d.min_exponent - d.man_bits)
    return first - last <= dt.float64.man_bits + 1


def make_fp8_mulacc_via_float64(d: DType) -> Callable[[Array, Array, Array], Any]:
    """Return the kernel for floats whose sums are exact in float64 too."""
    finish = NARROW[d]
    return lambda a, b, c: finish(np.asarray(a.astype(F64) * b.astype(F64) + c.astype(F64)))


def make_mulacc_via_float64(d: DType) -> Callable[[Array, Array, Array], Any]:
    """Return the kernel for floats whose products are exact in float64."""
    finish = NARROW[d]

    def kernel(a: Array, b: Array, c: Array) -> Any:
        s, e = two_sum(a.astype(F64) * b.astype(F64), c.astype(F64))
        return finish(round_sum_to_odd(np.asarray(s), np.asarray(e)))

    return kernel


def mulacc_float64(a: Array, b: Array, c: Array) -> Any:
    """Return a * b + c of float64, rounded once."""
    if not a.shape == b.shape == c.shape:
        a, b, c = np.broadcast_arrays(a, b, c)
    if a.size <= _FEW:
        few = [_mulacc_any_scalars(*abc) for abc in zip(a.ravel().tolist(), b.ravel().tolist(), c.ravel().tolist())]
        return np.array(few, F64).reshape(a.shape)
    product = np.asarray(a * b)
    size = np.abs(product)
    greatest = np.maximum(np.maximum(np.abs(a), np.abs(b)), size)
    splits = np.asarray((size > _LEAST) & (greatest < _MOST) & np.isfinite(c))
    out = np.asarray(_mulacc_by_exact_pairs(a, b, c))
    if np.count_nonzero(splits) == splits.size:
        return out
    finite_factors = np.isfinite(a) & np.isfinite(b)
    addend_decides = finite_factors & ~np.isfinite(c)
    special = ~finite_factors | (a == 0) | (b == 0)
    out = np.where(addend_decides, c, np.where(special, product + c, out))
    for at in map(tuple, np.argwhere(~(splits | special | addend_decides))):
        out[at] = _mulacc_finite_scalars(float(a[at]), float(b[at]), float(c[at]))
    return out


def _mulacc_any_scalars(a: float, b: float, c: float) -> float:
    """Return a * b + c of three float64, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    return _mulacc_finite_scalars(a, b, c) if math.isfinite(c) else c


def _mulacc_by_exact_pairs(a: Array, b: Array, c: Array) -> Any:
    """Return a * b + c, rounded once; Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"."""
    ph, pl = two_product(a, b)
    th, tl = two_sum(c, pl)
    vh, vl = two_sum(ph, th)
    s, e = two_sum(tl, vl)
    return vh + round_sum_to_odd(np.asarray(s), np.asarray(e))


def _mulacc_finite_scalars(a: float, b: float, c: float) -> float:
    """Return a * b + c of finite numbers, rounded once; a quotient of Python's integers is correctly rounded."""
    (an, ad), (bn, bd), (cn, cd) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    product, scale = an * bn, ad * bd
    exact = product * cd + cn * scale
    if exact == 0:
        return a * b + c
    try:
        return exact / (scale * cd)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
