"""The dtypes of the language (ruling R24).

Gives: one frozen `DType` per name, the promotion lattice of the builders (R25) and the ranges used by `min_max`.
A dtype is compared with `is`; `DTYPES` maps the full name and `SHORT` the name used in `.uops` text.
"""

from __future__ import annotations

import math
from enum import Enum
from fractions import Fraction

from uops.spec.ir.members import quick
from uops.spec.ir.record import dataclass


@quick
class Kind(Enum):
    """What a dtype's values are."""

    VOID = "void"
    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    INDEX = "index"


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One scalar type. `exp_bits` and `man_bits` (without the hidden bit) describe a float's layout."""

    name: str
    short: str
    kind: Kind
    bits: int
    exp_bits: int = 0
    man_bits: int = 0

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return _by_name, (self.name,)

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 0 for `void` and `index`, which have no storage (R29)."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """True for the signed and unsigned machine integers and for `index`; false for bool."""
        return self.kind in (Kind.INT, Kind.UINT, Kind.INDEX)

    @property
    def is_signed(self) -> bool:
        return self.kind in (Kind.INT, Kind.INDEX, Kind.FLOAT)

    @property
    def has_inf(self) -> bool:
        """Every float has infinities but fp8e4m3 (R15: e4m3fn)."""
        return self.is_float and self is not fp8e4m3

    @property
    def bias(self) -> int:
        return (1 << (self.exp_bits - 1)) - 1

    @property
    def max_finite(self) -> float:
        """Largest finite value of a float dtype, exactly representable in a Python float."""
        if self is fp8e4m3:
            return 448.0
        top = Fraction((1 << (self.man_bits + 1)) - 1, 1 << self.man_bits) * Fraction(2) ** self.bias
        return float(top)

    @property
    def min(self) -> int | float:
        """Least value: of a float -inf (-448 for fp8e4m3), of index -inf (unbounded integers, R08)."""
        return _RANGE[self][0]

    @property
    def max(self) -> int | float:
        return _RANGE[self][1]


# fmt: off
void     = DType("void",     "void",   Kind.VOID,  0)
bool_    = DType("bool",     "bool",   Kind.BOOL,  8)
int8     = DType("int8",     "i8",     Kind.INT,   8)
int16    = DType("int16",    "i16",    Kind.INT,   16)
int32    = DType("int32",    "i32",    Kind.INT,   32)
int64    = DType("int64",    "i64",    Kind.INT,   64)
uint8    = DType("uint8",    "u8",     Kind.UINT,  8)
uint16   = DType("uint16",   "u16",    Kind.UINT,  16)
uint32   = DType("uint32",   "u32",    Kind.UINT,  32)
uint64   = DType("uint64",   "u64",    Kind.UINT,  64)
fp8e4m3  = DType("fp8e4m3",  "f8e4m3", Kind.FLOAT, 8,  4,  3)
fp8e5m2  = DType("fp8e5m2",  "f8e5m2", Kind.FLOAT, 8,  5,  2)
float16  = DType("float16",  "f16",    Kind.FLOAT, 16, 5,  10)
bfloat16 = DType("bfloat16", "bf16",   Kind.FLOAT, 16, 8,  7)
float32  = DType("float32",  "f32",    Kind.FLOAT, 32, 8,  23)
float64  = DType("float64",  "f64",    Kind.FLOAT, 64, 11, 52)
index    = DType("index",    "index",  Kind.INDEX, 0)
# fmt: on

ALL = (
    void, bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64, index,
)  # fmt: skip
INTS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
FLOATS = (fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64)
#: Dtypes that a buffer can hold: everything but void and index (R29).
STORABLE = (bool_, *INTS, *FLOATS)

DTYPES = {d.name: d for d in ALL}
SHORT = {d.short: d for d in ALL}


#: Bits that the value of an index Const may have, written by hand or by a compiler (R08).
INDEX_BITS = 4096


def _range(d: DType) -> tuple[int | float, int | float]:
    if d.kind is Kind.BOOL:
        return False, True
    if d.kind is Kind.INT:
        return -(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1
    if d.kind is Kind.UINT:
        return 0, (1 << d.bits) - 1
    if d is fp8e4m3:
        return -448.0, 448.0
    return -math.inf, math.inf


_RANGE = {d: _range(d) for d in ALL}


def _by_name(name: str) -> DType:
    return DTYPES[name]


# The published promotion lattice of the builders (R25): an edge leads to the next wider dtype. Every two dtypes have one least
# upper bound, so that promotion is associative. A float wins over an integer, uint64 over a signed integer; two fp8 kinds meet in
# float16, and bfloat16 meets any other float of at most 16 bits in float32.
_UP: dict[DType, tuple[DType, ...]] = {
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


def _above(d: DType) -> frozenset[DType]:
    return frozenset({d}.union(*(_above(e) for e in _UP[d])))


_ABOVE = {d: _above(d) for d in _UP}


def promote(a: DType, b: DType) -> DType:
    """Least dtype of the lattice that is above both (R25); raises KeyError for `void`."""
    common = _ABOVE[a] & _ABOVE[b]
    return next(d for d in common if common <= _ABOVE[d])
