"""Arrays as values: the NumPy dtype of each dtype, constants, and the validation of inputs.

A bool byte other than 0 and 1 is a Trap (R24). Index values are mathematical integers (R08), held in int64 where all of them
fit and as Python integers in an object array where not. Arrays are immutable once made: a Store makes a new one.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]

#: dtype -> NumPy's dtype, for every dtype that has values.
NUMPY: dict[DType, np.dtype[Any]] = {
    d: np.dtype(getattr(ml_dtypes, d.ml_dtypes_name) if d.ml_dtypes_name else d.array_name) for d in (*dt.STORABLE, dt.index)
}
#: float dtype -> the unsigned integer of its width, which holds its bit patterns.
BITS: dict[DType, np.dtype[Any]] = {d: np.dtype(d.word.name) for d in dt.FLOATS}
#: Floats that NumPy itself computes in.
NATIVE = tuple(d for d in dt.FLOATS if not d.ml_dtypes_name)
#: Floats that come from ml_dtypes.
SMALL = tuple(d for d in dt.FLOATS if d.ml_dtypes_name)
#: NumPy's dtype of arrays of Python integers.
OBJECT = np.dtype(object)
_INT64 = np.dtype(np.int64)
#: The first magnitude that int64 does not hold.
_TOP = 1 << 63
_array = np.array


def to_index_array(integers: Any) -> Array:
    """Return an index array of Python integers: int64 where all fit, otherwise an object array (R08)."""
    if integers.__class__ is int and -_TOP <= integers < _TOP:
        return _array(integers, _INT64)
    a: Array = np.asarray(integers, dtype=object)
    try:
        return a.astype(np.int64)
    except OverflowError:
        wide: Array = np.empty(a.shape, object)
        wide.reshape(-1)[:] = [int(v) for v in a.flat]  # integers of NumPy would wrap
        return wide


def const_to_array(value: bool | int | float, d: DType) -> Array:
    """Return the () array of a Const."""
    return to_index_array(value) if d is dt.index else np.array(value, NUMPY[d])


def check_bool(a: Array, label: str) -> None:
    """Raise Trap if a bool array has a byte other than 0 and 1 (R24)."""
    if a.size and (pattern := a.view(np.uint8)).item(pattern.argmax()) > 1:
        raise Trap(f"{label} has a bool byte other than 0 and 1 (R24)")


def validate_input(key: str, given: Any, d: DType, shape: tuple[int, ...]) -> Array:
    """Return the array of input `key`, in native byte order.

    Raises SpecError unless it has this dtype, in either byte order, and this shape. Index accepts any integers.
    """
    a = _as_array_or_reject(f"input {key!r}", given)
    if d is dt.index:
        if a.dtype.kind not in "iuO":
            raise SpecError(f"input {key!r} must hold integers, got {a.dtype}")
        if a.dtype.kind == "O" and (wrong := [v for v in a.flat if not isinstance(v, int | np.integer)]):
            raise SpecError(f"input {key!r} must hold integers, got {wrong[0]!r}")
        a = to_index_array(a)
    elif a.dtype is not NUMPY[d]:
        if a.dtype.newbyteorder("=") != NUMPY[d]:
            raise SpecError(f"input {key!r} must have dtype {NUMPY[d]} for {d}, got {a.dtype}")
        a = a.astype(NUMPY[d], copy=False)
    if a.shape != shape:
        raise SpecError(f"input {key!r} must have shape {shape}, got {a.shape}")
    if d is dt.bool_:
        check_bool(a, f"input {key!r}")
    return a


def validate_variable(name: str, given: Any, bounds: tuple[int, int], d: DType) -> Array:
    """Return the value of a named variable of this dtype. Raises Trap outside its bounds (R48)."""
    if given.__class__ is int and bounds[0] <= given <= bounds[1]:
        return const_to_array(given, d)
    v = _as_array_or_reject(f"variable {name!r}", given)
    if v.shape != () or v.dtype.kind not in "iuO" or type(v.item()) is not int:
        raise SpecError(f"variable {name!r} must be one integer, got {given!r}")
    check_variable_bounds(name, v.item(), bounds)
    return const_to_array(v.item(), d)


def _as_array_or_reject(label: str, given: Any) -> Array:
    try:
        a: Array = given if type(given) is np.ndarray else np.asarray(given)
    except ValueError as e:
        raise SpecError(f"{label} must be an array, or what np.asarray makes one of: {e}") from e
    return a


def check_variable_bounds(name: str, value: int, bounds: tuple[int, int]) -> None:
    """Raise Trap if the value of a variable is outside its bounds (R48)."""
    if not bounds[0] <= value <= bounds[1]:
        raise Trap(f"variable {name!r} is {value}, outside its bounds [{bounds[0]}, {bounds[1]}] (R48)")
