"""Arrays that stand for values: the NumPy dtype of each dtype, constants, and the validation of inputs.

R24: a bool byte other than 0 and 1 is a Trap. R08: index values are mathematical integers, held in int64 where all of them fit and
as Python integers in an object array where not. Arrays are never written to after they were made: a Store makes a new one.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]

#: NumPy's dtype for every dtype that has values.
NUMPY: dict[DType, np.dtype[Any]] = {
    dt.bool_: np.dtype(np.bool_),
    **{d: np.dtype(d.name) for d in dt.INTS},
    dt.fp8e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    dt.fp8e5m2: np.dtype(ml_dtypes.float8_e5m2),
    dt.float16: np.dtype(np.float16),
    dt.bfloat16: np.dtype(ml_dtypes.bfloat16),
    dt.float32: np.dtype(np.float32),
    dt.float64: np.dtype(np.float64),
    dt.index: np.dtype(np.int64),
}
#: The unsigned integer of a float's width: its bit patterns.
BITS: dict[DType, np.dtype[Any]] = {d: np.dtype(f"uint{d.bits}") for d in dt.FLOATS}
#: Floats that NumPy itself computes in; the others (bfloat16 and the two fp8) come from ml_dtypes.
NATIVE = (dt.float16, dt.float32, dt.float64)
SMALL = (dt.bfloat16, dt.fp8e4m3, dt.fp8e5m2)
OBJECT = np.dtype(object)
_INT64 = np.dtype(np.int64)
_TOP = 1 << 63
_array = np.array


def settle(integers: Any) -> Array:
    """An index array from Python integers: int64 where all fit, else the object array itself (R08)."""
    if integers.__class__ is int and -_TOP <= integers < _TOP:
        return _array(integers, _INT64)
    a: Array = np.asarray(integers, dtype=object)
    try:
        return a.astype(np.int64)
    except OverflowError:
        return a


def constant(value: bool | int | float, d: DType) -> Array:
    """The () array of a Const."""
    return settle(value) if d is dt.index else np.array(value, NUMPY[d])


def check_bool(a: Array, what: str) -> None:
    """R24, for an array that claims to be bool."""
    if a.size and (pattern := a.view(np.uint8)).item(pattern.argmax()) > 1:
        raise Trap(f"{what} has a bool byte other than 0 and 1 (R24)")


def validated(key: str, given: Any, d: DType, shape: tuple[int, ...]) -> Array:
    """The array of input `key`, which must have this dtype, in either byte order, and this shape; index accepts any integers."""
    a = _given(f"input {key!r}", given)
    if d is dt.index:
        if a.dtype.kind not in "iuO":
            raise SpecError(f"input {key!r} must hold integers, got {a.dtype}")
        a = settle(a)
    elif a.dtype is not NUMPY[d]:
        if a.dtype.newbyteorder("=") != NUMPY[d]:
            raise SpecError(f"input {key!r} must have dtype {NUMPY[d]} for {d}, got {a.dtype}")
        a = a.astype(NUMPY[d], copy=False)
    if a.shape != shape:
        raise SpecError(f"input {key!r} must have shape {shape}, got {a.shape}")
    if d is dt.bool_:
        check_bool(a, f"input {key!r}")
    return a


def variable(name: str, given: Any, bounds: tuple[int, int], d: DType) -> Array:
    """The value of a named variable of this dtype; a Trap outside its bounds (R48)."""
    if given.__class__ is int and bounds[0] <= given <= bounds[1]:
        return constant(given, d)
    v = _given(f"variable {name!r}", given)
    if v.shape != () or v.dtype.kind not in "iuO" or type(v.item()) is not int:
        raise SpecError(f"variable {name!r} must be one integer, got {given!r}")
    check_variable(name, v.item(), bounds)
    return constant(v.item(), d)


def _given(what: str, given: Any) -> Array:
    try:
        a: Array = given if type(given) is np.ndarray else np.asarray(given)
    except ValueError as e:
        raise SpecError(f"{what} is no array: {e}") from e
    return a


def check_variable(name: str, value: int, bounds: tuple[int, int]) -> None:
    if not bounds[0] <= value <= bounds[1]:
        raise Trap(f"variable {name!r} is {value}, outside its bounds [{bounds[0]}, {bounds[1]}] (R48)")
