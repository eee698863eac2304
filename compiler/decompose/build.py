"""A typed expression over UOps, for writing numerical code as graphs.

`E` holds a node with its dtype and shape, so that constants get the operand's dtype and shape without deriving either again.
Operators build primitive nodes: `+ - * / & | ^ << >>`, `<` and `fma`. Nothing is checked or simplified here: the verifier judges,
and identical subexpressions are one node by interning. A Python number beside an `E` is a constant of its dtype, replicated to
its shape by Stack.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache

from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg, CastArg
from uops.spec.ir.build import const
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Shape = tuple[int, ...]
Number = bool | int | float

#: The unsigned and signed integers of a float's width.
BITS = {
    dt.fp8e4m3: dt.uint8, dt.fp8e5m2: dt.uint8, dt.float16: dt.uint16, dt.bfloat16: dt.uint16,
    dt.float32: dt.uint32, dt.float64: dt.uint64,
}  # fmt: skip
SIGNED = {dt.uint8: dt.int8, dt.uint16: dt.int16, dt.uint32: dt.int32, dt.uint64: dt.int64}


class E:
    """One expression; immutable. `E.of(u)` wraps a node, `.u` unwraps it."""

    __slots__ = ("dtype", "shape", "u")

    def __init__(self, u: UOp, dtype: DType, shape: Shape) -> None:
        self.u = u
        self.dtype = dtype
        self.shape = shape

    @classmethod
    def of(cls, u: UOp) -> E:
        return cls(u, u.dtype, u.shape)

    def const(self, value: Number, dtype: DType | None = None) -> E:
        """A constant in this expression's shape, and dtype unless one is given. The value must be representable (R23)."""
        d = self.dtype if dtype is None else dtype
        return E(constant(value, d, self.shape), d, self.shape)

    def _lift(self, other: E | Number) -> UOp:
        return other.u if isinstance(other, E) else constant(other, self.dtype, self.shape)

    def _same(self, op: Op, *operands: E | Number) -> E:
        return E(UOp(op, (self.u, *map(self._lift, operands))), self.dtype, self.shape)

    def _compare(self, op: Op, other: E | Number) -> E:
        return E(UOp(op, (self.u, self._lift(other))), dt.bool_, self.shape)

    def __add__(self, other: E | Number) -> E:
        return self._same(Op.ADD, other)

    def __sub__(self, other: E | Number) -> E:
        return self._same(Op.SUB, other)

    def __mul__(self, other: E | Number) -> E:
        return self._same(Op.MUL, other)

    def __truediv__(self, other: E | Number) -> E:
        return self._same(Op.DIV, other)

    def __and__(self, other: E | Number) -> E:
        return self._same(Op.AND, other)

    def __or__(self, other: E | Number) -> E:
        return self._same(Op.OR, other)

    def __xor__(self, other: E | Number) -> E:
        return self._same(Op.XOR, other)

    def __lshift__(self, other: E | int) -> E:
        return self._same(Op.SHL, other)

    def __rshift__(self, other: E | int) -> E:
        return self._same(Op.SHR, other)

    def __neg__(self) -> E:
        return self._same(Op.NEG)

    def __lt__(self, other: E | Number) -> E:
        return self._compare(Op.CMPLT, other)

    def __gt__(self, other: E | Number) -> E:
        return E(UOp(Op.CMPLT, (self._lift(other), self.u)), dt.bool_, self.shape)

    def ne(self, other: E | Number) -> E:
        return self._compare(Op.CMPNE, other)

    def eq(self, other: E | Number) -> E:
        return self._compare(Op.CMPEQ, other)

    def fma(self, b: E | Number, c: E | Number) -> E:
        """self * b + c, one rounding."""
        return self._same(Op.MULACC, b, c)

    def maximum(self, other: E | Number) -> E:
        return self._same(Op.MAX, other)

    def trunc(self) -> E:
        return self._same(Op.TRUNC)

    def recip(self) -> E:
        return self._same(Op.RECIP)

    def cast(self, dtype: DType) -> E:
        """A Cast node; this expression when it has the dtype."""
        return self if dtype is self.dtype else E(UOp(Op.CAST, (self.u,), CastArg(dtype)), dtype, self.shape)

    def bitcast(self, dtype: DType) -> E:
        return self if dtype is self.dtype else E(UOp(Op.BITCAST, (self.u,), BitcastArg(dtype)), dtype, self.shape)

    def bits(self) -> E:
        """A float's bits in the unsigned integer of its width."""
        return self.bitcast(BITS[self.dtype])


def constant(value: Number, dtype: DType, shape: Shape = ()) -> UOp:
    """A Const, or for a vector shape the Stack of its copies."""
    u = _scalar(value, dtype, value == 0 and math.copysign(1.0, value) < 0)
    for extent in reversed(shape):
        u = UOp(Op.STACK, (u,) * extent)
    return u


@lru_cache(maxsize=4096)
def _scalar(value: Number, dtype: DType, minus_zero: bool) -> UOp:
    """The Const. Numbers that are equal as keys are one number of the dtype, but for -0.0, which `minus_zero` tells from 0.0."""
    return const(value, dtype)


def where(condition: E, a: E | Number, b: E | Number) -> E:
    """a where the bool `condition` is true, else b; at most one of them a number."""
    like = a if isinstance(a, E) else b
    assert isinstance(like, E)
    return E(UOp(Op.WHERE, (condition.u, like._lift(a), like._lift(b))), like.dtype, condition.shape)


def pick(condition: E, a: Number, b: Number, dtype: DType) -> E:
    """A choice of two constants."""
    return where(condition, condition.const(a, dtype), condition.const(b, dtype))


def horner(x: E, coefficients: Sequence[float]) -> E:
    """sum coefficients[k] * x^k by fused steps, highest first; at least two coefficients."""
    *low, c1, c0 = coefficients
    acc = x.fma(c0, c1)
    for c in reversed(low):
        acc = acc.fma(x, c)
    return acc


def clamp(x: E, lo: Number, hi: Number) -> E:
    """x between the bounds; a NaN stays (a plain compare-and-select, which Max is not on every target)."""
    x = where(x < lo, lo, x)
    return where(x > hi, hi, x)


def bits_of(value: float, dtype: DType) -> int:
    """The bit pattern of a float32 or float64 value."""
    code, word = ("<f", "<I") if dtype is dt.float32 else ("<d", "<Q")
    return int(struct.unpack(word, struct.pack(code, value))[0])
