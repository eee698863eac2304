"""Reduce over axes (R32, R42): reduced axes become size 1.

Integers wrap exactly; bool is or, and, or (R09); index is unbounded. Float sums and products accumulate in float64 and are rounded
once, which lies within R32's bound for any order. An empty reduction gives the identity; no axes at all is the identity function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.ops.integers import magnitude
from uops.interp.ops.rounding import NARROW
from uops.interp.tensor.storage import NATIVE, NUMPY, SMALL, Array, settle
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Axes = tuple[int, ...]
Fold = Callable[[Array, Axes], Any]

f32, F64 = np.float32, NUMPY[dt.float64]
# Typed Any: NumPy's stubs do not know the positional form of reduce(array, axis, dtype, out, keepdims, initial), the fast one.
_add: Any = np.add
_multiply: Any = np.multiply
_maximum: Any = np.maximum


def _wrapping(ufunc: Any, d: DType) -> Fold:
    target = NUMPY[d]
    return lambda x, axes: ufunc.reduce(x, axes, target, None, True)


def _accumulated(ufunc: Any, d: DType) -> Fold:
    finish = NARROW[d]
    if d in NATIVE:
        return lambda x, axes: finish(ufunc.reduce(x, axes, F64, None, True))
    return lambda x, axes: finish(ufunc.reduce(x.astype(F64), axes, F64, None, True))  # ml_dtypes has no other accumulator


def _greatest(d: DType) -> Fold:
    """Exact; NaN if any element is (R11); the identity is the dtype's least value, -448 for fp8e4m3."""
    target = NUMPY[d]
    if d in SMALL:
        return lambda x, axes: np.asarray(_maximum.reduce(x.astype(f32), axes, f32, None, True, f32(d.min))).astype(target)
    identity = target.type(d.min)

    def fold(x: Array, axes: Axes) -> Any:
        return _maximum.reduce(x, axes, None, None, True) if x.size else _maximum.reduce(x, axes, target, None, True, identity)

    return fold


def _index_sum(x: Array, axes: Axes) -> Any:
    if magnitude(x) * max(1, x.size) < 1 << 63:
        return _add.reduce(x, axes, None, None, True)
    return settle(_add.reduce(x.astype(object), axes, None, None, True))


def _index_product(x: Array, axes: Axes) -> Any:
    count = math.prod(x.shape[a] for a in axes)
    most = magnitude(x)
    if most <= 1 or (most < 1 << 63 and count * most.bit_length() < 63):
        return _multiply.reduce(x, axes, None, None, True)
    return settle(_multiply.reduce(x.astype(object), axes, None, None, True))


def _index_greatest(x: Array, axes: Axes) -> Any:
    """There is no least integer: an empty maximum of index values is ill-formed."""
    if 0 in [x.shape[a] for a in axes]:
        raise SpecError("Max over no index values has no identity (R32)")
    most = _maximum.reduce(x, axes, None, None, True)
    return settle(most) if x.dtype == object else most


# fmt: off
FOLDS: dict[Op, dict[DType, Fold]] = {
    Op.ADD: {**{d: _wrapping(np.add, d) for d in dt.INTS}, **{d: _accumulated(np.add, d) for d in dt.FLOATS},
             dt.bool_: _wrapping(np.logical_or, dt.bool_), dt.index: _index_sum},
    Op.MUL: {**{d: _wrapping(np.multiply, d) for d in dt.INTS}, **{d: _accumulated(np.multiply, d) for d in dt.FLOATS},
             dt.bool_: _wrapping(np.logical_and, dt.bool_), dt.index: _index_product},
    Op.MAX: {**{d: _greatest(d) for d in (*dt.INTS, *dt.FLOATS)},
             dt.bool_: _wrapping(np.logical_or, dt.bool_), dt.index: _index_greatest},
}
# fmt: on


def reduce(u: UOp, x: Array) -> Any:
    a = u.arg
    return FOLDS[a.op][u.src[0].dtype](x, a.axes) if a.axes else x
