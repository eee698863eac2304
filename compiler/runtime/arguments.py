"""Arguments of a program in Python: what each has to be, and the arrays that a run works on.

A `Place` is one memory of a program. `Place.array(inputs, variables)` gives its array for one run: the caller's where that is as it
has to be, else a converted copy; SpecError names the key, what was expected and what was got; a bool byte other than 0 and 1 is a
Trap (R24), as is a variable outside of its bounds (R48), which `variable` checks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from uops.compiler.passes.callify.callify import storage
from uops.compiler.rewrite.fold import fold
from uops.spec.errors import CompileError, SpecError, Trap
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import quote_name

Array = Any
Inputs = Mapping[str, Any]
Shape = tuple[int, ...]


class Kind(Enum):
    """Where the contents of a memory come from: the program, the caller, the caller or else zeros, or nowhere."""

    CONSTANT = auto()
    GIVEN = auto()
    OPTIONAL = auto()
    FRESH = auto()


@dataclass(slots=True, eq=False)
class Place:
    """`shape` is that of the array, None where it depends on variables; `written`: the caller's array is copied first."""

    memory: UOp
    kind: Kind
    shape: Shape | None
    written: bool
    key: str
    dtype: Any
    constant: Array = None

    @classmethod
    def of(cls, memory: UOp, kind: Kind, shape: tuple[Dim, ...], written: bool) -> Place:
        static = None if any(isinstance(d, UOp) for d in shape) else tuple(int(d) for d in shape)
        if kind is Kind.CONSTANT:
            return cls(memory, kind, static, written, "", np.dtype(np.uint8), np.frombuffer(memory.arg.data, np.uint8))
        return cls(memory, kind, static, written, key_of(memory), storage_of(memory))

    def array(self, inputs: Inputs, variables: Mapping[str, int]) -> Array:
        """The memory of one run."""
        if self.kind is Kind.FRESH:
            return np.empty(self.memory.arg.size if self.shape is None else self.shape, self.dtype)
        if self.kind is Kind.CONSTANT:
            return self.constant
        shape = self.shape
        if self.key not in inputs:
            if self.kind is Kind.OPTIONAL:
                return np.zeros(self.memory.arg.size, self.dtype)
            shape = extents(self.memory.shape, variables)
            raise SpecError(f"input {self.key!r} is missing: it needs {self.memory.dtype.name} of shape {shape}")
        found = self.checked(inputs[self.key], extents(self.memory.shape, variables) if shape is None else shape)
        return found.copy() if self.written else found

    def checked(self, given: Any, shape: Shape) -> Array:
        """`given` as an aligned C-contiguous array of the storage dtype, in this shape."""
        wanted, array = self.dtype, given
        if type(array) is not np.ndarray or array.dtype is not wanted or array.shape != shape or not array.flags.carray:
            array = _array(self.key, given)
            if array.dtype == object:
                array = self.whole(array)
            if array.dtype.newbyteorder("=") != wanted or array.shape != shape:
                got = f"{array.dtype.name} of shape {array.shape}"
                raise SpecError(f"input {self.key!r} needs {wanted.name} of shape {shape}, got {got}")
            array = np.require(array, wanted, ("C", "A")).reshape(shape)
        if wanted.kind == "b" and array.size and array.view(np.uint8).max() > 1:
            raise Trap(f"input {self.key!r} has a bool byte that is neither 0 nor 1 (R24)")
        return array

    def whole(self, array: Array) -> Array:
        """Python ints as int64."""
        try:
            return array.astype(np.int64)
        except (OverflowError, TypeError, ValueError) as e:
            raise CompileError(f"input {self.key!r} has values that int64 does not hold (R08)") from e


def _array(key: str, given: Any) -> Array:
    try:
        return np.asarray(given)
    except ValueError as e:
        raise SpecError(f"input {key!r} is no array: {e}") from e


# Variables


def is_variable(u: UOp) -> bool:
    return u.op is Op.PARAM and u.arg.name is not None


def bounds(u: UOp) -> tuple[int, int]:
    """The values that a variable may have."""
    lo, hi = u.arg.bounds or (dt.int64.min, dt.int64.max)
    return int(lo), int(hi)


def variable(u: UOp, inputs: Inputs) -> int:
    """The value of a variable."""
    name = u.arg.name
    if name not in inputs:
        raise SpecError(f"input {name!r} is missing: the variable needs an int")
    value = inputs[name]
    array = _array(name, value)
    found = array.item() if array.shape == () else None
    if array.dtype.kind not in "iuO" or type(found) is not int:
        raise SpecError(f"input {name!r} needs an int, got {value!r}")
    lo, hi = bounds(u)
    if not lo <= found <= hi:
        raise Trap(f"variable {quote_name(name)} = {found} is outside of its bounds [{lo}, {hi}] (R48)")
    return found


def extents(shape: tuple[Dim, ...], variables: Mapping[str, int]) -> Shape:
    """A shape under the values of the variables."""
    return tuple(_extent(d, variables) for d in shape)


def _extent(d: Dim, variables: Mapping[str, int]) -> int:
    if not isinstance(d, UOp):
        return int(d)
    known: dict[UOp, UOp] = {}
    for u in toposort(d, gate=lambda u: not is_variable(u)):
        if u.op is Op.CONST:
            known[u] = u
            continue
        value = variables[u.arg.name] if is_variable(u) else fold(UOp(u.op, tuple([known[s] for s in u.src]), u.arg))
        if value is None:
            raise Trap(f"a size has no value where {variables}: {u!r} of {[known[s].const for s in u.src]} (R29)")
        known[u] = B.const(value, u.dtype)
    return int(known[d].const)


# Keys and dtypes


def key_of(u: UOp) -> str:
    """What a caller calls it by: `p<slot>`, `b<unique>`, or a variable's name."""
    if u.op is Op.BUFFER:
        return f"b{u.arg.unique}"
    return str(u.arg.name) if u.arg.name is not None else f"p{u.arg.slot}"


def storage_of(u: UOp) -> np.dtype[Any]:
    """The dtype of the array of a memory."""
    return numpy_dtype(storage(u.dtype))


@functools.cache
def numpy_dtype(d: DType) -> np.dtype[Any]:
    """The storage dtype of `d`; index values are int64."""
    if d in _ML_DTYPES:
        import ml_dtypes  # only programs on small floats need it

        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[d]))
        return small
    return np.dtype("int64" if d is dt.index else d.name)


_ML_DTYPES = {dt.bfloat16: "bfloat16", dt.fp8e4m3: "float8_e4m3fn", dt.fp8e5m2: "float8_e5m2"}
