"""What the specification derives, asserted on what was computed: dtype, shape, and min_max of every non-NaN element (R70, R71).

A contradiction raises Unsound and names the node, the property, what was derived and what was computed.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np

from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import NUMPY, OBJECT, SMALL, Array
from uops.spec.errors import Unsound
from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.minmax import WHOLE
from uops.spec.ir.node import UNSET, UOp
from uops.spec.ir.ops import Op

_SMALL = frozenset(SMALL)
_PLAIN = frozenset({bool, int, float})
_F32 = NUMPY[dt.float32]
_INDEX = dt.index
#: dtype -> NumPy's dtype of its values, and the bounds that hold for all of them.
DTYPES = {d: (NUMPY[d], WHOLE[d]) for d in NUMPY}
_fmin: Any = np.fmin.reduce
_fmax: Any = np.fmax.reduce


class Sizes(Protocol):
    """What evaluates symbolic extents: the machine."""

    def shape(self, scope: Any, u: UOp) -> tuple[Any, ...]: ...


#: Ops whose result holds elements of the first source alone: where the derived bounds are the source's own, its check covers them.
_VIEWS = frozenset({Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.SHRINK})


def check_value(u: UOp, v: Array, sizes: Sizes, scope: Any) -> None:
    """Assert the derived properties of `u`, evaluated in `scope`, on its value."""
    d, shape, bounds = u._dtype, u._shape, u._min_max
    if d is UNSET or shape is UNSET or bounds is UNSET:
        d, shape, bounds = u.dtype, u.shape, u.min_max
    (wanted, whole), given = DTYPES[d], v.dtype
    if given is not wanted and given != wanted and not (d is _INDEX and given == OBJECT):
        unsound(u, "dtype", wanted, given)
    if v.shape != shape and v.shape != (shape := sizes.shape(scope, u)):
        unsound(u, "shape", shape, v.shape)
    if bounds is not whole and bounds != whole and not (u.op in _VIEWS and bounds is u.src[0]._min_max):
        check_bounds(u, v)


def check_bounds(u: UOp, v: Array) -> None:
    """Assert the derived bounds of `u` on its value."""
    bounds = u._min_max
    if bounds is UNSET:
        bounds = u.min_max
    if bounds is None:
        unsound(u, "min_max", "bounds", None)
    lo, hi = bounds
    if v.size == 1:
        least = most = v.item()
        if least.__class__ not in _PLAIN:  # of a dtype that NumPy does not know
            least = most = float(least)
    elif not v.size:
        return
    else:
        if u.dtype in _SMALL:
            v = v.astype(_F32)
        least, most = v.item(v.argmin()), v.item(v.argmax())
        if least != least:  # a NaN hides the rest
            least, most = _fmin(v, None).item(), _fmax(v, None).item()  # NaN where every element is
    if least < lo or most > hi:  # never for NaN
        unsound(u, "min_max", bounds, (least, most))


def unsound(u: UOp, what: str, derived: object, computed: object) -> NoReturn:
    raise Unsound(f"{what} of {describe(u)}: derived {derived}, computed {computed}")
