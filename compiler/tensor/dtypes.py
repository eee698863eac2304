"""Dtypes of the front end: how they are named, promoted (R25) and accumulated (R42).

Promotion is the least upper bound in one lattice, `uops.spec.ir.dtypes`: bool, then the integers by width, then the floats. A
Python number is *weak* beside a Tensor: it takes the Tensor's dtype where that holds numbers of its kind and, for an integer, the
value; else it is int32 (int64 where int32 does not hold it) or float32, and is promoted. Alone, a bool is bool, an int int32 and a
float float32.
"""

from __future__ import annotations

import functools
from typing import Any

from uops.compiler.tensor.faults import fault, spell
from uops.spec.errors import SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind, promote
from uops.spec.ir.node import UOp

__all__ = ["ACCUMULATE", "Number", "accumulator", "as_dtype", "default_dtype", "floating", "pick_integer", "promote", "weak"]

Number = bool | int | float
DTypeLike = DType | str | Any

#: Sums, products, prefix sums and matmul: dtype of the elements -> (dtype they are accumulated in, dtype of the result).
# fmt: off
ACCUMULATE: dict[DType, tuple[DType, DType]] = {
    dt.bool_:    (dt.int32,   dt.int32),
    dt.int8:     (dt.int32,   dt.int32),
    dt.int16:    (dt.int32,   dt.int32),
    dt.int32:    (dt.int32,   dt.int32),
    dt.int64:    (dt.int64,   dt.int64),
    dt.uint8:    (dt.uint32,  dt.uint32),
    dt.uint16:   (dt.uint32,  dt.uint32),
    dt.uint32:   (dt.uint32,  dt.uint32),
    dt.uint64:   (dt.uint64,  dt.uint64),
    dt.fp8e4m3:  (dt.float32, dt.fp8e4m3),
    dt.fp8e5m2:  (dt.float32, dt.fp8e5m2),
    dt.float16:  (dt.float32, dt.float16),
    dt.bfloat16: (dt.float32, dt.bfloat16),
    dt.float32:  (dt.float32, dt.float32),
    dt.float64:  (dt.float64, dt.float64),
}
# fmt: on

#: Python's own dtypes, NumPy's and ml_dtypes' names that differ from the language's.
_ALIASES = {"bool_": "bool", "float": "float32", "int": "int32", "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2"}


def as_dtype(d: DTypeLike) -> DType:
    """A dtype by itself, by a name of the language (R24: i8 has 8 bits), by Python type or by NumPy dtype.

    Raises SpecTypeError for what no buffer can hold.
    """
    if isinstance(d, DType):
        found: DType | None = d
    else:
        name = d if isinstance(d, str) else getattr(d, "name", getattr(d, "__name__", ""))
        found = dt.DTYPES.get(_ALIASES.get(name, name)) or dt.SHORT.get(name) if isinstance(name, str) else None
    if found is None or found not in ACCUMULATE:
        raise fault(
            "", None, f"{spell(d)} is no dtype of a Tensor; those are {', '.join(x.name for x in ACCUMULATE)} (R24)", SpecTypeError
        )
    return found


def accumulator(d: DType, wanted: DTypeLike | None) -> tuple[DType, DType]:
    """(accumulation, result) of a sum over elements of `d`; a dtype asked for is both, but never narrower than the table's."""
    inner, outer = ACCUMULATE[d]
    if wanted is None:
        return inner, outer
    asked = as_dtype(wanted)
    return (promote(inner, asked) if asked.is_float else asked), asked


def floating(d: DType) -> DType:
    """`d` itself if it is a float, else float32: the dtype of quotients and of elementary functions."""
    return d if d.is_float else dt.float32


def default_dtype(value: Number) -> DType:
    """The dtype of a Python number that stands alone."""
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, float):
        return dt.float32
    return pick_integer(value, value)


def pick_integer(*values: int, first: tuple[DType, ...] = ()) -> DType:
    """Pick the first of `first`, int32, int64 and uint64 that holds all of these integers. Raises SpecValueError if none does."""
    low, high = min(values), max(values)
    for d in (*first, dt.int32, dt.int64, dt.uint64):
        if d.min <= low and high <= d.max:
            return d
    given = (
        f"{spell(low)} is no value of an integer dtype" if low == high else f"no integer dtype holds {spell(low)} to {spell(high)}"
    )
    raise fault("", "CONST.C2", given)


def weak(value: Number, like: DType) -> UOp:
    """A Python number as a constant beside values of `like`."""
    return _float(value.hex(), like) if isinstance(value, float) else _whole(value, isinstance(value, bool), like)


@functools.lru_cache(4096)
def _float(digits: str, like: DType) -> UOp:
    """By its digits: as keys of a cache -0.0 and 0.0 are one number, and so are 1.0, 1 and True."""
    return B.const(float.fromhex(digits), floating(like))


@functools.lru_cache(4096)
def _whole(value: int, is_bool: bool, like: DType) -> UOp:
    given = bool(value) if is_bool else value
    return B.const(given, like if _holds(like, given) else default_dtype(given))


def _holds(d: DType, value: int) -> bool:
    """Whether `d` has values of this number's kind; of the integers, this value."""
    return d.is_float or isinstance(value, bool) or (d.kind is not Kind.BOOL and d.min <= value <= d.max)
