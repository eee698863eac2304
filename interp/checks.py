"""What the specification derives, asserted on what was computed: dtype, shape, and min_max of every non-NaN element (R70, R71).

A contradiction raises Unsound and names the node, the property, what was derived and what was computed.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np

from uops.interp.memory import describe
from uops.interp.storage import NUMPY, OBJECT, SMALL, Array
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.errors import Unsound
from uops.spec.node import UOp

#: The interval that says nothing, per dtype.
WHOLE: dict[DType, tuple[Any, Any]] = {d: (d.min, d.max) for d in NUMPY}
_FLOATS = frozenset(dt.FLOATS)
_SMALL = frozenset(SMALL)
_BOOL, _INDEX = dt.bool_, dt.index


class Sizes(Protocol):
    """What evaluates symbolic extents: the machine."""

    def shape(self, scope: Any, u: UOp) -> tuple[Any, ...]: ...


def check_value(u: UOp, v: Array, sizes: Sizes, scope: Any) -> None:
    """Assert the derived properties of `u`, evaluated in `scope`, on its value."""
    d = u.dtype
    if v.dtype is not NUMPY[d] and v.dtype != NUMPY[d] and not (d is _INDEX and v.dtype == OBJECT):
        unsound(u, "dtype", NUMPY[d], v.dtype)
    if v.shape != u.shape and v.shape != (shape := sizes.shape(scope, u)):
        unsound(u, "shape", shape, v.shape)
    bounds = u.min_max
    if bounds != WHOLE[d]:
        check_bounds(u, d, v, bounds)


def check_bounds(u: UOp, d: DType, v: Array, bounds: tuple[Any, Any] | None) -> None:
    if bounds is None:
        unsound(u, "min_max", "bounds", None)
    lo, hi = bounds
    if v.ndim == 0:
        least = most = float(v) if d in _FLOATS else v.item()
    elif v.size == 0:
        return
    elif d is _BOOL:
        least, most = bool(v.all()), bool(v.any())
    elif d in _FLOATS:
        wide = v.astype(np.float32) if d in _SMALL else v
        least, most = float(np.fmin.reduce(wide, None)), float(np.fmax.reduce(wide, None))
    else:
        least, most = int(np.minimum.reduce(v, None)), int(np.maximum.reduce(v, None))
    if least < lo or most > hi:  # false for NaN, which is what is left when every element is NaN
        unsound(u, "min_max", bounds, (least, most))


def unsound(u: UOp, what: str, derived: object, computed: object) -> NoReturn:
    raise Unsound(f"{what} of {describe(u)}: derived {derived}, computed {computed}")
