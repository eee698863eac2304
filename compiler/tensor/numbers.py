"""Python's numbers as constants and as arrays: each is converted to the dtype asked for directly, with one rounding (R15).

As in NumPy a number that an integer dtype does not hold is an error; a float loses its fraction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uops.compiler.runtime.program import numpy_dtype
from uops.compiler.tensor.dtypes import Number, pick_integer
from uops.compiler.tensor.faults import fault, spell
from uops.spec.errors import SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]

#: From here on a float64 does not hold every integer.
_EXACT = 2.0**53
#: Dtypes that NumPy itself converts to with one rounding.
_NATIVE = frozenset({dt.float16, dt.float32, dt.float64})


def number(value: Any) -> Number:
    """A Python number, also from one of NumPy's; raises SpecTypeError for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float)):
        return value
    raise fault("", None, f"expected a number, got {type(value).__name__}", SpecTypeError)


def check_fit(value: Number, d: DType) -> Number:
    """Return `value`, which `d` holds but for a fraction and rounding. Raises SpecValueError if it does not."""
    finite = not isinstance(value, float) or math.isfinite(value)
    if d.is_integer and not (finite and d.min <= math.trunc(value) <= d.max):
        raise fault("", "CONST.C2", f"{spell(value)} is no value of {d}, which holds {d.min} to {d.max}")
    return value


def array_of_numbers(listed: list[Any] | tuple[Any, ...], found: Array, wanted: DType | None) -> Array:
    """The array of a nested list of Python numbers, of which NumPy makes `found`.

    Without a dtype whole numbers are of the first of int32, int64 and uint64 that holds all, and floats and nothing are float32
    (R25). A narrow float that NumPy lacks is left to a Cast. Raises SpecTypeError for elements that are no numbers.
    """
    if found.dtype.kind not in "biufO" or _is_inexact(listed, found):
        return _one_by_one(np.array(listed, object), wanted)
    if wanted is None:
        return _by_default(found)
    if wanted.is_integer and found.size:
        for extreme in (found.min(), found.max()):
            check_fit(extreme.item(), wanted)
    if wanted.is_float and wanted not in _NATIVE:
        return found
    if wanted.is_integer and found.dtype.kind == "f":  # trunc: the fraction of a float below 0 is lost, too
        found = np.trunc(found)
    with np.errstate(over="ignore"):  # to infinity
        return found.astype(numpy_dtype(wanted))


def _is_inexact(listed: list[Any] | tuple[Any, ...], found: Array) -> bool:
    """Return True if NumPy may have rounded an integer of the list, or did not convert at all."""
    if found.dtype.kind != "f":
        return found.dtype.kind == "O"
    large = np.abs(found) >= _EXACT
    return bool(large.any()) and not all(isinstance(v, float) for v in np.array(listed, object)[large])


def _by_default(found: Array) -> Array:
    if found.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return found.astype(np.float32)
    if found.dtype.kind == "b":
        return found
    low, high = (int(found.min()), int(found.max())) if found.size else (0, 0)
    return found.astype(numpy_dtype(pick_integer(low, high)))


def _one_by_one(elements: Array, wanted: DType | None) -> Array:
    values = [number(v) for v in elements.flat]
    if wanted is None:
        whole = [v for v in values if not isinstance(v, float)]
        wanted = pick_integer(*whole) if len(whole) == len(values) else dt.float32
    converted = [B.convert(check_fit(v, wanted), wanted) for v in values]
    narrow = wanted.is_float and wanted not in _NATIVE  # float64 holds the rounded values
    return np.array(converted, np.float64 if narrow else numpy_dtype(wanted)).reshape(elements.shape)
