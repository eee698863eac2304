"""Languages of the C family as data: the differences between their texts.

The dtypes of a SELECTED kernel have the same short names in all of them (`i32`, `u8`, `f64`, `b1`), so the expressions of `alu`
and the functions of `helpers` are common text. `index` is i64: only a loop counter or a variable still has it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.ops import Op

# fmt: off
ALIAS: dict[DType, str] = {
    dt.bool_:   "b1",
    dt.int8:    "i8",  dt.int16:   "i16", dt.int32:  "i32", dt.int64:  "i64",
    dt.uint8:   "u8",  dt.uint16:  "u16", dt.uint32: "u32", dt.uint64: "u64",
    dt.float32: "f32", dt.float64: "f64",
    dt.index:   "i64",
}
#: `long` has 64 bits in OpenCL C and on every 64-bit POSIX system. b1, the type of a bool value, is each language's own.
TYPEDEFS = (
    "typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;",
    "typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;",
    "typedef float f32; typedef double f64;",
)
_SUFFIX: dict[DType, str] = {
    dt.int8:    "",    dt.int16:   "",    dt.int32:  "",    dt.int64:  "l",
    dt.uint8:   "",    dt.uint16:  "",    dt.uint32: "u",   dt.uint64: "ul",
    dt.index:   "l",
}
# fmt: on
#: Dtypes of buffers and of arithmetic; the compiler lowers other floats to integers.
NATIVE = tuple(d for d in ALIAS if d is not dt.index)
#: Largest number of work-items in a group: that of CUDA, and the smallest limit of a PoCL device, which allocates private
#: arrays for each.
MAX_LANES = 1024
#: Magnitude below which integral floats are written in decimal digits, which every parser reads exactly.
_PLAIN = 1 << 20


class HelperProvider(Protocol):
    """A writer that expressions ask for helper functions."""

    language: Language

    def require_helper(self, kind: str, *dtypes: DType) -> str:
        """Have a helper defined before the kernel; return its name."""
        ...

    def define_function(self, name: str, text: str) -> str:
        """Have a function of the backend's own defined before the kernel; return its name."""
        ...


@dataclass(frozen=True, slots=True)
class WorkgroupSyntax:
    """The syntax by which a language numbers and synchronizes the work-items of a launch.

    `group` and `lane` are formats of the number of a workgroup, and of a work-item in it, in dimension {}. A launch has
    `dimensions` of them. A language with one dimension numbers any loops by it, the innermost fastest: neighbouring work-items
    then touch neighbouring elements. `dynamic` formats an extent that argument {} holds. A group has at most
    `max_lanes` work-items.

    `barrier` is the statement of a Barrier. `exchanges` maps an element size in bytes to an expression: it compares the word at {0}
    with {1}, replaces it by {2} if they are equal, and returns what was there. `exchange_pragmas` has what it needs before.
    `has_atomic_volatile_reads` is True if a volatile read of a word does not race with its exchanges.
    `local_pool` is the name of the array of bytes in which LOCAL buffers lie; None if each is an array of its own.
    """

    group: str
    lane: str
    dimensions: int
    barrier: str
    exchanges: Mapping[int, str]
    exchange_pragmas: Mapping[int, str] = field(default_factory=dict)
    has_atomic_volatile_reads: bool = False
    dynamic: str = "{}"
    local_pool: str | None = None
    max_lanes: int = MAX_LANES

    @property
    def is_linear(self) -> bool:
        """True if all loops of a launch share one dimension."""
        return self.dimensions == 1


@dataclass(frozen=True, slots=True)
class Language:
    """A language of the C family.

    `functions` names the functions of the language, or of a library, that round correctly; `prototypes` declares them. `buffer`
    and `scalar` are formats of the expressions by which a kernel reads argument number {}. `spaces` qualifies pointers and
    buffers. `workgroups` is None in a language without them. `wide_unsigned` is True if the toolchain converts u64 to floats
    without a function of its own library. In a kernel with barriers, a private buffer has at least `least_private_bytes`.
    `wrapping_functions` has, for some integers, the name and definition of a function from u32 that does what a cast should.
    `opaque_functions` has functions that return their operand, which the toolchain then takes for no constant. `unroll_hint` is a
    line before a loop that should be unrolled {} times. `non_affine_loop_hint` is one before a loop that reads at positions like k
    % 8. `part_bounds` are expressions of the iterations of a THREAD loop that one call runs, the first and the exclusive last;
    None if the launch numbers them. `float32_by_float64` has the ops of float32 that the toolchain does not round correctly, of
    which Cast is that of 64-bit integers. They are computed in float64 and rounded again, to the same result. `vector_lanes` has
    the lengths of the vectors by which neighbouring elements are loaded and stored.
    """

    name: str
    bool_type: str
    pragmas: tuple[str, ...]
    function_head: str
    buffer: str
    scalar: str
    functions: Mapping[tuple[Op, DType], str]
    prototypes: Mapping[str, str] = field(default_factory=dict)
    spaces: Mapping[AddrSpace, str] = field(default_factory=dict)
    workgroups: WorkgroupSyntax | None = None
    wide_unsigned: bool = True
    least_private_bytes: int = 0
    wrapping_functions: Mapping[DType, tuple[str, str]] = field(default_factory=dict)
    opaque_functions: Mapping[DType, tuple[str, str]] = field(default_factory=dict)
    unroll_hint: str = ""
    non_affine_loop_hint: str = ""
    part_bounds: tuple[str, str] | None = None
    float32_by_float64: frozenset[Op] = frozenset()
    vector_lanes: tuple[int, ...] = ()

    def native_value_type(self, d: DType) -> str:
        """Return the name of a value's type. Raises Unsupported for a dtype that instruction selection should have removed."""
        if d not in ALIAS:
            raise Unsupported(f"dtype {d}", self.name)
        return ALIAS[d]

    def native_storage_type(self, d: DType) -> str:
        """Return the type of an element in memory: a bool is one byte, 0 or 1. Raises Unsupported."""
        if d not in NATIVE:
            raise Unsupported(f"a buffer of {d}", self.name)
        return "u8" if d is dt.bool_ else ALIAS[d]

    def space_qualifier(self, space: AddrSpace) -> str:
        """Return the qualifier of memory, followed by a blank."""
        return self.spaces.get(space, "")


def render_literal(value: bool | int | float, d: DType, needs: HelperProvider) -> str:
    """Return a constant operand: an expression that binds tighter than any binary operator."""
    if d.kind is DTypeKind.BOOL:
        return "1" if value else "0"
    if d.is_float:
        return _render_float(float(value), d, needs)
    return render_integer(int(value), d)


def render_integer(value: int, d: DType) -> str:
    """Return an integer constant. The least signed one has no literal, as its digits alone are one too large."""
    suffix, width = _SUFFIX[d], d.storage.bits
    if d.is_signed and value == -(1 << (width - 1)) and width >= 32:
        return f"(-{-value - 1}{suffix} - 1)"
    return f"{value}{suffix}"


def render_finite_float(value: float, d: DType) -> str:
    """Return a finite float in hexadecimal digits, so that no parser rounds it."""
    suffix = "f" if d is dt.float32 else ""
    if abs(value) < _PLAIN and value == int(value) and (value or not _is_negative(value)):
        return f"{value:.1f}{suffix}"
    digits, exponent = value.hex().split("p")
    return f"{digits.rstrip('0').rstrip('.')}p{exponent}{suffix}"


def _render_float(value: float, d: DType, needs: HelperProvider) -> str:
    """Return a float constant; infinities, NaNs and -0.0 are given by their bits, which survive every parser (R23, R28)."""
    finite = value - value == 0.0
    if finite and (value or not _is_negative(value)):
        return render_finite_float(value, d)
    return f"{needs.require_helper('reinterpret', d.word, d)}({float32_or_float64_bits(value, d):#x}{_SUFFIX[d.word]})"


def _is_negative(value: float) -> bool:
    return struct.pack(">d", value)[0] >> 7 == 1


def float32_or_float64_bits(value: float, d: DType) -> int:
    """Return the bits of `value` in float32 or float64; a NaN becomes quiet and keeps the payload bits that `d` has."""
    word: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    if value != value:
        word |= 1 << 51
        return word if d is dt.float64 else (word >> 63 << 31) | 0x7F800000 | (word >> 29 & 0x7FFFFF)
    code = "<I", "<f"
    return word if d is dt.float64 else int(struct.unpack(code[0], struct.pack(code[1], value))[0])
