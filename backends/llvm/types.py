"""LLVM types and constants of the dtypes of a SELECTED kernel.

A bool is `i1` as a value and one byte, 0 or 1, in memory. `index` is i64: only an address or a loop counter still has it. A
value of shape (w,) is a vector of w such values.
"""

from __future__ import annotations

import functools
import struct

from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp

# fmt: off
VALUE: dict[DType, str] = {
    dt.bool_:   "i1",
    dt.int8:    "i8",    dt.int16:  "i16", dt.int32:  "i32", dt.int64:  "i64",
    dt.uint8:   "i8",    dt.uint16: "i16", dt.uint32: "i32", dt.uint64: "i64",
    dt.float32: "float", dt.float64: "double",
    dt.index:   "i64",
}
# fmt: on
STORAGE: dict[DType, str] = {d: "i8" if d is dt.bool_ else t for d, t in VALUE.items() if d is not dt.index}
#: Dtypes of buffers and of arithmetic; the compiler lowers other floats to integers.
NATIVE = tuple(STORAGE)


def value_type(d: DType) -> str:
    """Return the LLVM type of a value. Raises Unsupported for a dtype that instruction selection should have removed."""
    if d not in VALUE:
        raise Unsupported(f"dtype {d}", "llvm")
    return VALUE[d]


def storage_type(d: DType) -> str:
    """Return the LLVM type of an element in memory. Raises Unsupported."""
    if d not in STORAGE:
        raise Unsupported(f"a buffer of {d}", "llvm")
    return STORAGE[d]


def bits(d: DType) -> int:
    """Return the width of an integer value type."""
    return 1 if d is dt.bool_ else d.storage.bits


def render_literal(value: bool | int | float, d: DType) -> str:
    """Return a constant operand. Floats are given by their bits, so that -0.0, subnormals and NaN payloads survive (R23, R28)."""
    if d.kind is DTypeKind.BOOL:
        return "true" if value else "false"
    if d.kind is DTypeKind.FLOAT:
        return render_float_as_double_bits(float(value), d)
    return str(int(value))


def render_float_as_double_bits(value: float, d: DType) -> str:
    """Return a float as the bits of the double of the same value; a NaN becomes quiet and keeps the payload bits that `d` has."""
    word: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    if value != value:
        word = (word | 1 << 51) & ~((1 << (52 - d.man_bits)) - 1)
    return f"0x{word:016X}"


# Vectors. A type is its text.


def lanes_of(u: UOp) -> int:
    """Return the number of lanes of a value; 1 for a scalar. Raises Unsupported for a shape that is no native vector."""
    shape = u.shape
    if not shape:
        return 1
    if len(shape) > 1 or not isinstance(shape[0], int):
        raise Unsupported(f"{u.op.name} of shape {shape} in a kernel", "llvm")
    return shape[0]


def vector_type(t: str, lanes: int) -> str:
    """Return the type of a vector of `t`; of one lane, `t` itself."""
    return t if lanes == 1 else f"<{lanes} x {t}>"


def llvm_type_of_value(u: UOp) -> str:
    """Return the LLVM type of a node's value."""
    shape = u.shape
    if not shape:
        return value_type(u.dtype)
    plain = len(shape) == 1 and shape[0].__class__ is int
    return _cached_vector_type(u.dtype, shape) if plain else vector_type(value_type(u.dtype), lanes_of(u))


@functools.cache
def _cached_vector_type(d: DType, shape: tuple[int]) -> str:
    return vector_type(value_type(d), *shape)


@functools.cache
def split_vector_type(t: str) -> tuple[int, str]:
    """Return the number of lanes and the element type."""
    if not t.startswith("<"):
        return 1, t
    lanes, element = t[1:-1].split(" x ")
    return int(lanes), element


@functools.cache
def with_element(t: str, element: str) -> str:
    """Return the type with as many lanes as `t`, and another element type."""
    return vector_type(element, split_vector_type(t)[0])


def splat(t: str, x: str) -> str:
    """Return a constant with one value in every lane of `t`."""
    return f"splat ({split_vector_type(t)[1]} {x})" if t.startswith("<") else x


@functools.cache
def intrinsic_suffix(t: str) -> str:
    """Return the spelling of a type in the name of an intrinsic."""
    lanes, element = split_vector_type(t)
    short = {"float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"
