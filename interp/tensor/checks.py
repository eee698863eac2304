"""Assertions that computed values have the derived dtype, shape, and min_max of non-NaN elements (R70, R71).

A contradiction raises Unsound and names the node, the property, the derived and the computed value of it.
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
from uops.spec.untrusted import escape_to_one_line

_SMALL = frozenset(SMALL)
_PLAIN = frozenset({bool, int, float})
_F32 = NUMPY[dt.float32]
_INDEX = dt.index
#: dtype -> NumPy's dtype of its values, and the bounds that hold for all of them.
DTYPES = {d: (NUMPY[d], WHOLE[d]) for d in NUMPY}
_fmin: Any = np.fmin.reduce
_fmax: Any = np.fmax.reduce


class ShapeEvaluator(Protocol):
    """A machine that evaluates symbolic extents."""

    def shape(self, scope: Any, u: UOp) -> tuple[Any, ...]:
        """Return the shape of `u` with its symbolic extents evaluated in `scope`."""


#: Ops whose result holds elements of their operand alone. Where the derived bounds are the operand's, its check covers them.
_VIEWS = frozenset({Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.SHRINK})


def check_derived_properties(u: UOp, v: Array, shape_evaluator: ShapeEvaluator, scope: Any) -> None:
    """Assert the derived dtype, shape and bounds of `u`, evaluated in `scope`, on its value. Raises Unsound."""
    d, shape, bounds = u._dtype, u._shape, u._min_max
    if d is UNSET or shape is UNSET or bounds is UNSET:
        d, shape, bounds = u.dtype, u.shape, u.min_max
    (expected, whole), actual = DTYPES[d], v.dtype
    if actual is not expected and actual != expected and not (d is _INDEX and actual == OBJECT):
        raise_unsound(u, "dtype", expected, actual)
    if v.shape != shape and v.shape != (shape := shape_evaluator.shape(scope, u)):
        raise_unsound(u, "shape", shape, v.shape)
    if bounds is not whole and bounds != whole and not (u.op in _VIEWS and bounds is u.src[0]._min_max):  # operand
        check_min_max(u, v)


def check_min_max(u: UOp, v: Array) -> None:
    """Assert the derived bounds of `u` on its value. Raises Unsound."""
    bounds = u._min_max
    if bounds is UNSET:
        bounds = u.min_max
    if bounds is None:
        raise_unsound(u, "min_max", "bounds", None)
    lo, hi = bounds
    if v.size == 1:
        least = most = v.item()
        if least.__class__ not in _PLAIN:  # a scalar of ml_dtypes
            least = most = float(least)
    elif not v.size:
        return
    else:
        if u.dtype in _SMALL:
            v = v.astype(_F32)
        least, most = v.item(v.argmin()), v.item(v.argmax())
        if least != least:  # NaN hides the other elements
            least, most = _fmin(v, None).item(), _fmax(v, None).item()  # NaN if every element is
    if least < lo or most > hi:  # false for NaN
        raise_unsound(u, "min_max", bounds, (least, most))


def note_call(e: BaseException, call: UOp) -> None:
    """Add to an error the name and the annotations of the Call in which it happened, if it has any."""
    a = call.arg
    if call.op is Op.CALL and a is not None and (a.name or a.metadata):
        e.add_note(f"in the Call {escape_to_one_line(a.name or '')}" + "".join(f", {escape_to_one_line(m)}" for m in a.metadata))


def raise_unsound(u: UOp, property_name: str, derived: object, computed: object) -> NoReturn:
    """Raise Unsound for a property of `u` whose derived and computed values differ."""
    raise Unsound(f"{property_name} of {describe(u)}: derived {derived}, computed {computed}")
