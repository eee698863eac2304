"""Arguments of a program in Python: their checks, and the arrays of a run.

A `BufferSlot` is one memory of a program. `BufferSlot.prepare_array(inputs, variables)` gives its array for one run: the caller's
if it fits as it is, else a converted copy. SpecError names the key, what was expected and what was got. A bool byte other than 0
and 1 is a Trap (R24), as is a variable outside of its bounds (R48), which `read_and_check_variable` checks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from uops.compiler.rewrite.fold import fold_constant
from uops.spec.errors import CompileError, SpecError, Trap
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import escape_to_one_line

Array = Any
#: Arguments by key.
Inputs = Mapping[str, Any]
Shape = tuple[int, ...]


class BufferOrigin(Enum):
    """The origin of a memory's contents: the program, the caller, the caller or else zeros, or none."""

    CONSTANT = auto()
    GIVEN = auto()
    OPTIONAL = auto()
    FRESH = auto()


#: Bytes of a cache line, and of the widest vector.
_LINE = 64
#: Bytes from which fresh memory is aligned. Less than a page is read faster than it is aligned.
_LEAST_ALIGNED = 4096


@dataclass(slots=True, eq=False)
class BufferSlot:
    """One memory of a program.

    `shape` is that of its array, None if it depends on variables. If the program writes it (`is_written`), the caller's array is
    copied first. Memory of index values (`is_index`) is int64 in the program, and takes arrays of Python ints, too (R08).
    """

    memory: UOp
    origin: BufferOrigin
    shape: Shape | None
    is_written: bool
    key: str
    dtype: Any
    constant: Array = None
    is_index: bool = False

    @classmethod
    def for_memory(cls, memory: UOp, origin: BufferOrigin, shape: tuple[Dim, ...], is_written: bool, is_index: bool) -> BufferSlot:
        """Return the slot of a memory: a Param, Buffer or Binary."""
        static = None if any(isinstance(d, UOp) for d in shape) else tuple(int(d) for d in shape)
        if origin is BufferOrigin.CONSTANT:
            return cls(memory, origin, static, is_written, "", np.dtype(np.uint8), np.frombuffer(memory.arg.data, np.uint8))
        return cls(memory, origin, static, is_written, input_key(memory), buffer_dtype(memory), is_index=is_index)

    def prepare_array(self, inputs: Inputs, variables: Mapping[str, int]) -> Array:
        """Return the array of this memory for one run. Raises SpecError if a needed input is missing or does not fit."""
        if self.origin is BufferOrigin.FRESH:
            return empty_aligned_to_cache_line_if_large((self.memory.arg.size,) if self.shape is None else self.shape, self.dtype)
        if self.origin is BufferOrigin.CONSTANT:
            return self.constant
        shape = self.shape
        if self.key not in inputs:
            if self.origin is BufferOrigin.OPTIONAL:
                return np.zeros(self.memory.arg.size, self.dtype)
            shape = evaluate_shape(self.memory.shape, variables)
            raise SpecError(f"input {self.key!r} is missing: it needs {self.memory.dtype.name} of shape {shape}")
        array = self.check_and_convert(inputs[self.key], evaluate_shape(self.memory.shape, variables) if shape is None else shape)
        return array.copy() if self.is_written else array

    def check_and_convert(self, data: Any, shape: Shape) -> Array:
        """Return `data` as an aligned C-contiguous array of the storage dtype, in this shape.

        Raises SpecError for another dtype or shape, Trap for a bool byte other than 0 and 1 (R24).
        """
        expected, array = self.dtype, data
        if type(array) is not np.ndarray or array.dtype is not expected or array.shape != shape or not array.flags.carray:
            array = _to_numpy(self.key, data)
            if array.dtype == object and self.is_index:
                array = self.objects_to_int64(array)
            if array.dtype.newbyteorder("=") != expected or array.shape != shape:
                got = f"{array.dtype.name} of shape {array.shape}"
                raise SpecError(f"input {self.key!r} needs {expected.name} of shape {shape}, got {got}")
            if array.dtype != expected or not (array.flags.c_contiguous and array.flags.aligned):
                array = array.astype(expected, order="C")
        if has_wrong_bool_byte(array):
            raise Trap(f"input {self.key!r} has a bool byte that is neither 0 nor 1 (R24)")
        return array

    def objects_to_int64(self, array: Array) -> Array:
        """Convert an array of Python ints, values of index, to int64.

        Raises SpecError if an element is no int, CompileError if one does not fit (R08: index dtype).
        """
        for v in array.flat:
            if not isinstance(v, (int, np.integer)):
                raise SpecError(f"input {self.key!r} needs {self.dtype.name}, got an array of objects with a {type(v).__name__}")
        try:
            return array.astype(np.int64)
        except OverflowError as e:
            raise CompileError(f"input {self.key!r} has values that int64 does not hold (R08)") from e


def _to_numpy(key: str, data: Any) -> Array:
    """Return `data` as an array. Raises SpecError if NumPy makes none of it."""
    try:
        return np.asarray(data)
    except ValueError as e:
        raise SpecError(f"input {key!r} is no array: {e}") from e


# Variables


def is_variable(u: UOp) -> bool:
    """Return True for a named Param."""
    return u.op is Op.PARAM and u.arg.name is not None


def variable_bounds(u: UOp) -> tuple[int, int]:
    """Return the least and the greatest value of a variable."""
    lo, hi = u.arg.bounds or (dt.int64.min, dt.int64.max)
    return int(lo), int(hi)


def read_and_check_variable(u: UOp, inputs: Inputs) -> int:
    """Return the value of a variable. Raises SpecError if it is missing or no int, Trap if it is out of bounds (R48)."""
    name = u.arg.name
    if name not in inputs:
        raise SpecError(f"input {name!r} is missing: the variable needs an int")
    value = inputs[name]
    array = _to_numpy(name, value)
    number = array.item() if array.shape == () else None
    if array.dtype.kind not in "iuO" or type(number) is not int:
        raise SpecError(f"input {name!r} needs an int, got {value!r}")
    lo, hi = variable_bounds(u)
    if not lo <= number <= hi:
        raise Trap(f"variable {escape_to_one_line(name)} = {number} is outside of its bounds [{lo}, {hi}] (R48)")
    return number


def evaluate_shape(shape: tuple[Dim, ...], variables: Mapping[str, int]) -> Shape:
    """Return a shape at the values of the variables."""
    return tuple(_evaluate_dim(d, variables) for d in shape)


def _evaluate_dim(d: Dim, variables: Mapping[str, int]) -> int:
    if not isinstance(d, UOp):
        return int(d)
    folded: dict[UOp, UOp] = {}
    for u in toposort(d, gate=lambda u: not is_variable(u)):
        if u.op is Op.CONST:
            folded[u] = u
            continue
        value = variables[u.arg.name] if is_variable(u) else fold_constant(UOp(u.op, tuple([folded[s] for s in u.src]), u.arg))
        if value is None:
            raise Trap(f"a size has no value where {variables}: {u!r} of {[folded[s].const for s in u.src]} (R29)")
        folded[u] = B.const(value, u.dtype)
    return int(folded[d].const)


def has_wrong_bool_byte(array: Array) -> bool:
    """Return True if an array is of bools and has a byte other than 0 and 1 (R24, bool)."""
    return array.dtype.kind == "b" and bool(array.size) and int(array.view(np.uint8).max()) > 1


# Keys and dtypes


def input_key(u: UOp) -> str:
    """Return the name of a memory or variable for callers: `p<slot>`, `b<unique>`, or a variable's name."""
    if u.op is Op.BUFFER:
        return f"b{u.arg.unique}"
    return str(u.arg.name) if u.arg.name is not None else f"p{u.arg.slot}"


def buffer_dtype(u: UOp) -> np.dtype[Any]:
    """Return the NumPy dtype of the array of a memory."""
    return numpy_dtype(u.dtype.storage)


@functools.cache
def numpy_dtype(d: DType) -> np.dtype[Any]:
    """Return the NumPy dtype that stores `d`; index values are int64."""
    if d.ml_dtypes_name:
        import ml_dtypes  # late: only programs on small floats need it

        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, d.ml_dtypes_name))
        return small
    return np.dtype(d.array_name)


def empty_aligned_to_cache_line_if_large(shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Return an uninitialized array. A large one begins at a cache line, so that no vector that its kernels load lies on two."""
    array: Array = np.empty(shape, dtype)
    size = array.nbytes
    if size < _LEAST_ALIGNED:
        return array
    block = np.empty(size + _LINE, np.uint8)
    start = -block.__array_interface__["data"][0] % _LINE
    return block[start : start + size].view(dtype).reshape(shape)
