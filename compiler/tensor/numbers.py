"""Python numbers as constants and arrays, each converted directly to its dtype with one rounding (R15: Cast).

As in NumPy, a number that an integer dtype does not hold is an error, and a float loses its fraction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uops.compiler.runtime.program import numpy_dtype
from uops.compiler.tensor.dtypes import Number, pick_first_integer_dtype_holding
from uops.compiler.tensor.faults import fault, format_for_error
from uops.spec.errors import SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]

#: Magnitude from which a float64 does not hold every integer.
_EXACT = 2.0**53


def require_python_number(value: Any) -> Number:
    """Return a Python number, also from a NumPy scalar. Raises SpecTypeError for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float)):
        return value
    raise fault("", None, f"expected a number, got {type(value).__name__}", SpecTypeError)


def require_in_range_if_integer_dtype(value: Number, d: DType) -> Number:
    """Return `value`, which `d` holds but for a fraction and rounding. Raises SpecValueError if it does not."""
    finite = not isinstance(value, float) or math.isfinite(value)
    if d.is_integer and not (finite and d.min <= math.trunc(value) <= d.max):
        raise fault("", "CONST.C2", f"expected a value of {d}, from {d.min} to {d.max}, got {format_for_error(value)}")
    return value


def cast_numbers_without_double_rounding(
    original_numbers: list[Any] | tuple[Any, ...], numpy_conversion: Array, wanted_dtype: DType | None
) -> Array:
    """Return the array of a nested list of Python numbers, from which NumPy made `numpy_conversion`.

    Without a dtype, integers take the first of int32, int64 and uint64 that holds all; floats and empty lists are float32 (R25:
    operand dtypes). A narrow float that NumPy lacks is left to a Cast. Raises SpecTypeError for elements that are no numbers.
    """
    if numpy_conversion.dtype.kind not in "biufO" or _may_have_rounded_or_unconverted_integers(original_numbers, numpy_conversion):
        return _convert_objects_with_one_rounding(np.array(original_numbers, object), wanted_dtype)
    if wanted_dtype is None:
        return _cast_to_default_dtype_holding_values(numpy_conversion)
    if wanted_dtype.is_integer and numpy_conversion.size:
        for extreme in (numpy_conversion.min(), numpy_conversion.max()):
            require_in_range_if_integer_dtype(extreme.item(), wanted_dtype)
    if wanted_dtype.ml_dtypes_name:
        return numpy_conversion
    if wanted_dtype.is_integer and numpy_conversion.dtype.kind == "f":  # toward zero, as a Cast
        numpy_conversion = np.trunc(numpy_conversion)
    with np.errstate(over="ignore"):  # to infinity
        return numpy_conversion.astype(numpy_dtype(wanted_dtype))


def _may_have_rounded_or_unconverted_integers(original_numbers: list[Any] | tuple[Any, ...], numpy_conversion: Array) -> bool:
    """Return True if NumPy may have rounded an integer of the list, or converted nothing."""
    if numpy_conversion.dtype.kind != "f":
        return numpy_conversion.dtype.kind == "O"
    large = np.abs(numpy_conversion) >= _EXACT
    return bool(large.any()) and not all(isinstance(v, float) for v in np.array(original_numbers, object)[large])


def _cast_to_default_dtype_holding_values(array: Array) -> Array:
    """Convert an array to the dtype that its numbers have alone."""
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    if array.dtype.kind == "b":
        return array
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    return array.astype(numpy_dtype(pick_first_integer_dtype_holding(low, high)))


def _convert_objects_with_one_rounding(elements: Array, wanted_dtype: DType | None) -> Array:
    """Convert objects one by one, each with one rounding."""
    values = [require_python_number(v) for v in elements.flat]
    if wanted_dtype is None:
        whole = [v for v in values if not isinstance(v, float)]
        wanted_dtype = pick_first_integer_dtype_holding(*whole) if len(whole) == len(values) else dt.float32
    converted = [B.convert_constant(require_in_range_if_integer_dtype(v, wanted_dtype), wanted_dtype) for v in values]
    array_dtype = np.float64 if wanted_dtype.ml_dtypes_name else numpy_dtype(wanted_dtype)  # float64 holds the rounded values
    return np.array(converted, array_dtype).reshape(elements.shape)
