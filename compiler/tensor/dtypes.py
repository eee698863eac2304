"""Dtypes of the front end: their names, promotion (R25: operand dtypes) and accumulation (R42: dtype of a Reduce).

Promotion is the least upper bound in one lattice, `uops.spec.ir.dtypes`: bool, then the integers by width, then the floats. A
Python number is *weak* beside a Tensor. It takes the Tensor's dtype if that holds numbers of its kind and, for an integer, its
value. Otherwise it is int32 (int64 if int32 does not hold it) or float32, and is promoted. Alone, a bool is bool, an int int32 and
a float float32.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from uops.compiler.tensor.faults import fault, format_for_error
from uops.spec.errors import SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind, promote
from uops.spec.ir.node import UOp

__all__ = [
    "ACCUMULATE",
    "Number",
    "choose_accumulation_dtypes",
    "as_dtype",
    "default_dtype",
    "to_float_dtype",
    "pick_first_integer_dtype_holding",
    "promote",
    "make_constant_in_dtype_if_it_fits",
]

Number = bool | int | float
DTypeLike = DType | str | Any


class AccumulationDtypes(NamedTuple):
    """The dtype in which a sum is accumulated, and that of its result."""

    accumulation: DType
    result: DType


def _accumulation_dtypes(d: DType) -> AccumulationDtypes:
    """Return the dtypes of `ACCUMULATE`: no sum has fewer than 32 bits, but a sum of floats is rounded to their dtype."""
    if d.is_float or d.bits >= dt.int32.bits:
        return AccumulationDtypes(d.wide, d)
    wide = dt.uint32 if d.kind is DTypeKind.UINT else dt.int32
    return AccumulationDtypes(wide, wide)


#: Sums, products, prefix sums and matmul: dtype of the elements -> (dtype of accumulation, dtype of the result).
ACCUMULATE: dict[DType, AccumulationDtypes] = {d: _accumulation_dtypes(d) for d in dt.STORABLE}

#: Names of Python's own dtypes, NumPy's and ml_dtypes' that differ from the language's.
_ALIASES = {
    "bool_": "bool", "float": "float32", "int": "int32", "longlong": "int64", "ulonglong": "uint64",
    **{d.array_name: d.name for d in dt.FLOATS},
}  # fmt: skip


def as_dtype(d: DTypeLike) -> DType:
    """Return a dtype given as itself, by a name of the language (R24: i8 has 8 bits), a Python type or a NumPy dtype.

    Raises SpecTypeError for a dtype that no buffer can hold.
    """
    if isinstance(d, DType):
        dtype: DType | None = d
    else:
        name = d if isinstance(d, str) else getattr(d, "name", getattr(d, "__name__", ""))
        dtype = dt.DTYPES.get(_ALIASES.get(name, name)) or dt.SHORT.get(name) if isinstance(name, str) else None
    if dtype is None or dtype not in ACCUMULATE:
        raise fault(
            "",
            None,
            f"{format_for_error(d)} is not a dtype of a Tensor; expected one of {', '.join(x.name for x in ACCUMULATE)} (R24)",
            SpecTypeError,
        )
    return dtype


def choose_accumulation_dtypes(element_dtype: DType, wanted_result: DTypeLike | None) -> AccumulationDtypes:
    """Return the dtypes of a sum over elements of `element_dtype`.

    A `wanted_result` dtype is both, but a float has no narrower accumulation than the table has for it and for the elements. To an
    integer dtype the elements are converted first: integer sums and products wrap, so that a narrow accumulation loses nothing.
    """
    default = ACCUMULATE[element_dtype]
    if wanted_result is None:
        return default
    result = as_dtype(wanted_result)
    return AccumulationDtypes(promote(default.accumulation, ACCUMULATE[result].accumulation) if result.is_float else result, result)


def to_float_dtype(d: DType) -> DType:
    """Return `d` if it is a float, else float32: the dtype of quotients and of elementary functions."""
    return d if d.is_float else dt.float32


def default_dtype(value: Number) -> DType:
    """Return the dtype of a Python number that stands alone."""
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, float):
        return dt.float32
    return pick_first_integer_dtype_holding(value, value)


def pick_first_integer_dtype_holding(*values: int, dtypes_to_try_first: tuple[DType, ...] = ()) -> DType:
    """Return the first of `dtypes_to_try_first`, int32, int64 and uint64 that holds all of these integers. Raises SpecValueError
    if none does."""
    low, high = min(values), max(values)
    for d in (*dtypes_to_try_first, dt.int32, dt.int64, dt.uint64):
        if d.min <= low and high <= d.max:
            return d
    described = (
        f"{format_for_error(low)} is no value of an integer dtype"
        if low == high
        else f"no integer dtype holds {format_for_error(low)} to {format_for_error(high)}"
    )
    raise fault("", "CONST.C2", described)


def make_constant_in_dtype_if_it_fits(value: Number, preferred: DType) -> UOp:
    """Return a Python number as a constant beside values of `preferred`."""
    return (
        _make_float_constant(value.hex(), preferred)
        if isinstance(value, float)
        else _make_integer_constant(value, isinstance(value, bool), preferred)
    )


@functools.lru_cache(4096)
def _make_float_constant(digits: str, like: DType) -> UOp:
    """Return a float, given by its digits: as cache keys, -0.0 equals 0.0, and 1.0 equals 1 and True."""
    return B.const(float.fromhex(digits), to_float_dtype(like))


@functools.lru_cache(4096)
def _make_integer_constant(value: int, is_bool: bool, like: DType) -> UOp:
    number = bool(value) if is_bool else value
    return B.const(number, like if _holds(like, number) else default_dtype(number))


def _holds(d: DType, value: int) -> bool:
    """Return True if `d` has values of this number's kind and, of the integers, this value."""
    return d.is_float or isinstance(value, bool) or (d.kind is not DTypeKind.BOOL and d.min <= value <= d.max)
