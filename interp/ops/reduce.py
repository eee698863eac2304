"""Reduce over axes (R32, R42: its value and shape): reduced axes become size 1.

Integers wrap exactly, bool is or, and, or (R09), index is unbounded. Float sums and products accumulate in float64 and are
rounded once, which lies within R32's bound for any order. An empty reduction gives the identity. With no axes at all a Reduce
gives its operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.ops.integers import magnitude_bound
from uops.interp.ops.rounding import NARROW
from uops.interp.tensor.storage import NATIVE, NUMPY, SMALL, Array, to_index_array
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Axes = tuple[int, ...]
#: (array, axes) -> the reduction over the axes, which become size 1.
Fold = Callable[[Array, Axes], Any]

f32, F64 = np.float32, NUMPY[dt.float64]
# Typed Any: NumPy's stubs lack the positional form of reduce(array, axis, dtype, out, keepdims, initial), which is faster.
_add: Any = np.add
_multiply: Any = np.multiply
_maximum: Any = np.maximum


def _wrapping_fold(ufunc: Any, d: DType) -> Fold:
    """Return the fold of `ufunc` that accumulates in `d` itself."""
    target = NUMPY[d]
    return lambda x, axes: ufunc.reduce(x, axes, target, None, True)


def _float64_accumulator_fold(ufunc: Any, d: DType) -> Fold:
    """Return the fold of `ufunc` that accumulates in float64 and rounds once to `d`."""
    finish = NARROW[d]
    if d in NATIVE:
        return lambda x, axes: finish(ufunc.reduce(x, axes, F64, None, True))
    return lambda x, axes: finish(ufunc.reduce(x.astype(F64), axes, F64, None, True))  # ml_dtypes accumulates in its own dtype


def _nan_propagating_max_fold(d: DType) -> Fold:
    """Return the fold of Max on `d`.

    It is exact, and NaN if any element is (R11). The identity is the least value of the dtype, -448 for fp8e4m3.
    """
    target = NUMPY[d]
    if d in SMALL:
        return lambda x, axes: np.asarray(_maximum.reduce(x.astype(f32), axes, f32, None, True, f32(d.min))).astype(target)
    identity = target.type(d.min)

    def fold(x: Array, axes: Axes) -> Any:
        return _maximum.reduce(x, axes, None, None, True) if x.size else _maximum.reduce(x, axes, target, None, True, identity)

    return fold


def _sum_index_values(x: Array, axes: Axes) -> Any:
    """Return the sum of index values."""
    if magnitude_bound(x) * max(1, x.size) < 1 << 63:
        return _add.reduce(x, axes, None, None, True)
    return to_index_array(_add.reduce(x.astype(object), axes, None, None, True))


def _multiply_index_values(x: Array, axes: Axes) -> Any:
    """Return the product of index values."""
    count = math.prod(x.shape[a] for a in axes)
    most = magnitude_bound(x)
    if most <= 1 or (most < 1 << 63 and count * most.bit_length() < 63):
        return _multiply.reduce(x, axes, None, None, True)
    return to_index_array(_multiply.reduce(x.astype(object), axes, None, None, True))


def _max_index_values_rejecting_empty_axes(x: Array, axes: Axes) -> Any:
    """Return the maximum of index values. Raises SpecError for none, as there is no least integer (R85)."""
    if 0 in [x.shape[a] for a in axes]:
        raise SpecError("Max of index has no identity: it must cover at least one element (R32, R85)")
    most = _maximum.reduce(x, axes, None, None, True)
    return to_index_array(most) if x.dtype == object else most


# fmt: off
#: op of a Reduce -> dtype -> fold.
FOLDS: dict[Op, dict[DType, Fold]] = {
    Op.ADD: {**{d: _wrapping_fold(np.add, d) for d in dt.INTS},
             **{d: _float64_accumulator_fold(np.add, d) for d in dt.FLOATS},
             dt.bool_: _wrapping_fold(np.logical_or, dt.bool_), dt.index: _sum_index_values},
    Op.MUL: {**{d: _wrapping_fold(np.multiply, d) for d in dt.INTS},
             **{d: _float64_accumulator_fold(np.multiply, d) for d in dt.FLOATS},
             dt.bool_: _wrapping_fold(np.logical_and, dt.bool_), dt.index: _multiply_index_values},
    Op.MAX: {**{d: _nan_propagating_max_fold(d) for d in (*dt.INTS, *dt.FLOATS)},
             dt.bool_: _wrapping_fold(np.logical_or, dt.bool_), dt.index: _max_index_values_rejecting_empty_axes},
}
# fmt: on


def reduce(u: UOp, x: Array) -> Any:
    """Return the value of the Reduce `u` over axes, given its operand's value."""
    a = u.arg
    return FOLDS[a.op][u.operand.dtype](x, a.axes) if a.axes else x
