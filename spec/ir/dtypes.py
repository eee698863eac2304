"""The dtypes of the language (R24).

Gives: one `DType` object per dtype, the promotion lattice of the builders (R25, operand dtypes) and the value ranges that `min_max`
uses. Dtypes are compared with `is`. `DTYPES` maps full names, `SHORT` the names in `.uops` texts.
"""

from __future__ import annotations

import math
from enum import Enum
from fractions import Fraction

from uops.spec.ir.members import fast_enum
from uops.spec.ir.record import dataclass


@fast_enum
class DTypeKind(Enum):
    """The kind of a dtype's values."""

    VOID = "void"
    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    INDEX = "index"


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """A scalar type, as a row of columns; every other number of a format follows from them.

    `exp_bits` and `man_bits` (without the hidden bit) describe the layout of a float. A float that is `finite_only` has no
    infinities: its greatest exponent has numbers, too, and its one NaN per sign is all ones. `ml_dtypes_name` is the name, in
    the package ml_dtypes, of a float that NumPy lacks.
    """

    name: str
    short: str
    kind: DTypeKind
    bits: int
    exp_bits: int = 0
    man_bits: int = 0
    finite_only: bool = False
    ml_dtypes_name: str = ""

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return _dtype_by_name, (self.name,)

    @property
    def itemsize(self) -> int:
        """The bytes of one element; 0 for `void` and `index`, which have no storage (R29)."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        """True for the floating-point dtypes."""
        return self.kind is DTypeKind.FLOAT

    @property
    def is_integer(self) -> bool:
        """True for the signed and unsigned machine integers and for `index`; false for bool."""
        return self.kind in (DTypeKind.INT, DTypeKind.UINT, DTypeKind.INDEX)

    @property
    def is_signed(self) -> bool:
        """True for signed integers, `index` and floats."""
        return self.kind in (DTypeKind.INT, DTypeKind.INDEX, DTypeKind.FLOAT)

    @property
    def storage(self) -> DType:
        """The dtype of memory that holds values of this one: int64 for `index`, which has no storage of its own (R29)."""
        return int64 if self.kind is DTypeKind.INDEX else self

    @property
    def word(self) -> DType:
        """The unsigned integer of the same width, which holds the bits. Raises KeyError for `void` and `index`."""
        return _WORDS[self.bits]

    @property
    def wide(self) -> DType:
        """The dtype in which arithmetic of this one may be carried out: float32 for a small float, else this one."""
        return float32 if self.is_float and self.bits < float32.bits else self

    @property
    def array_name(self) -> str:
        """The name of the dtype of arrays of such values, in NumPy or else in ml_dtypes."""
        return self.ml_dtypes_name or self.storage.name

    @property
    def has_inf(self) -> bool:
        """True for every float that is not `finite_only`."""
        return self.is_float and not self.finite_only

    @property
    def may_saturate(self) -> bool:
        """True for the floats of 8 bits, whose overflow may give the greatest finite value under `core` (R15, Cast)."""
        return self.is_float and self.bits == 8

    @property
    def bias(self) -> int:
        """The exponent bias of a float."""
        return (1 << (self.exp_bits - 1)) - 1

    @property
    def min_exponent(self) -> int:
        """The exponent of the least normal value of a float, which is 2 to that power."""
        return 1 - self.bias

    @property
    def smallest_normal(self) -> float:
        """The least positive normal value of a float."""
        return math.ldexp(1.0, self.min_exponent)

    @property
    def smallest_subnormal(self) -> float:
        """The least positive value of a float: the spacing of its subnormals."""
        return math.ldexp(1.0, self.min_exponent - self.man_bits)

    @property
    def unit_roundoff(self) -> float:
        """The greatest relative error of one rounding to nearest, in the normal range of a float."""
        return math.ldexp(1.0, -(self.man_bits + 1))

    @property
    def max_finite(self) -> float:
        """The largest finite value of a float dtype, exactly representable as a Python float."""
        greatest = (1 << (self.man_bits + 1)) - 1 - self.finite_only  # all ones are NaN where there is no infinity
        return float(Fraction(greatest, 1 << self.man_bits) * Fraction(2) ** (self.bias + self.finite_only))

    @property
    def min(self) -> int | float:
        """The least value: -inf for floats with infinities and for index, whose integers are unbounded (R08)."""
        return _RANGE[self][0]

    @property
    def max(self) -> int | float:
        """The greatest value: inf for floats with infinities and for index."""
        return _RANGE[self][1]


# fmt: off
void     = DType("void",     "void",   DTypeKind.VOID,  0)
bool_    = DType("bool",     "bool",   DTypeKind.BOOL,  8)
int8     = DType("int8",     "i8",     DTypeKind.INT,   8)
int16    = DType("int16",    "i16",    DTypeKind.INT,   16)
int32    = DType("int32",    "i32",    DTypeKind.INT,   32)
int64    = DType("int64",    "i64",    DTypeKind.INT,   64)
uint8    = DType("uint8",    "u8",     DTypeKind.UINT,  8)
uint16   = DType("uint16",   "u16",    DTypeKind.UINT,  16)
uint32   = DType("uint32",   "u32",    DTypeKind.UINT,  32)
uint64   = DType("uint64",   "u64",    DTypeKind.UINT,  64)
fp8e4m3  = DType("fp8e4m3",  "f8e4m3", DTypeKind.FLOAT, 8,  4,  3,  finite_only=True, ml_dtypes_name="float8_e4m3fn")
fp8e5m2  = DType("fp8e5m2",  "f8e5m2", DTypeKind.FLOAT, 8,  5,  2,  ml_dtypes_name="float8_e5m2")
float16  = DType("float16",  "f16",    DTypeKind.FLOAT, 16, 5,  10)
bfloat16 = DType("bfloat16", "bf16",   DTypeKind.FLOAT, 16, 8,  7,  ml_dtypes_name="bfloat16")
float32  = DType("float32",  "f32",    DTypeKind.FLOAT, 32, 8,  23)
float64  = DType("float64",  "f64",    DTypeKind.FLOAT, 64, 11, 52)
index    = DType("index",    "index",  DTypeKind.INDEX, 0)
# fmt: on

ALL = (
    void, bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64, index,
)  # fmt: skip
INTS = tuple(d for d in ALL if d.kind in (DTypeKind.INT, DTypeKind.UINT))
FLOATS = tuple(d for d in ALL if d.is_float)
#: Dtypes that a buffer can hold: all but void and index (R29).
STORABLE = tuple(d for d in ALL if d.bits)
#: Width -> the unsigned integer.
_WORDS = {d.bits: d for d in ALL if d.kind is DTypeKind.UINT}

DTYPES = {d.name: d for d in ALL}
SHORT = {d.short: d for d in ALL}


#: The maximum bit length of an index Const's value, written by hand or by a compiler (R08).
INDEX_BITS = 4096


def _value_range(d: DType) -> tuple[int | float, int | float]:
    if d.kind is DTypeKind.BOOL:
        return False, True
    if d.kind is DTypeKind.INT:
        return -(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1
    if d.kind is DTypeKind.UINT:
        return 0, (1 << d.bits) - 1
    return (-d.max_finite, d.max_finite) if d.finite_only else (-math.inf, math.inf)


_RANGE = {d: _value_range(d) for d in ALL}


def _dtype_by_name(name: str) -> DType:
    return DTYPES[name]


# The promotion lattice of the builders (R25, operand dtypes): an edge leads to the next wider dtype. Any two dtypes have one least
# upper bound, so promotion is associative. A float wins over an integer, uint64 over a signed integer. The two fp8 dtypes meet in
# float16; bfloat16 meets any other float of at most 16 bits in float32.
_NEXT_WIDER: dict[DType, tuple[DType, ...]] = {
    bool_: (uint8, int8, index),
    index: (uint8, int8),
    uint8: (uint16, int16),
    int8: (int16,),
    uint16: (uint32, int32),
    int16: (int32,),
    uint32: (uint64, int64),
    int32: (int64,),
    int64: (uint64,),
    uint64: (fp8e4m3, fp8e5m2, bfloat16),
    fp8e4m3: (float16,),
    fp8e5m2: (float16,),
    float16: (float32,),
    bfloat16: (float32,),
    float32: (float64,),
    float64: (),
}


def _wider_dtypes(d: DType) -> frozenset[DType]:
    return frozenset({d}.union(*(_wider_dtypes(e) for e in _NEXT_WIDER[d])))


#: Dtype -> itself and all wider dtypes.
_WIDER = {d: _wider_dtypes(d) for d in _NEXT_WIDER}


def promote(a: DType, b: DType) -> DType:
    """Return the least dtype of the promotion lattice that is at least as wide as both (R25); raises KeyError for `void`."""
    common = _WIDER[a] & _WIDER[b]
    return next(d for d in common if common <= _WIDER[d])
