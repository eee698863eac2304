"""Typed expressions over UOps, for writing numerical code as graphs.

`Expr` holds a node with its dtype and shape, so that constants get both from their operand and nothing is derived again.
Operators build primitive nodes: `+ - * / & | ^ << >>`, `<` and `fma`. Nothing is checked or simplified here: the verifier checks,
and interning makes identical subexpressions one node. A Python number beside an `Expr` is a constant of its dtype, replicated to
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

#: float dtype -> the unsigned integer of its width
BITS: dict[DType, DType] = {d: d.word for d in dt.FLOATS}
#: unsigned integer -> the signed integer of its width
SIGNED: dict[DType, DType] = {d.word: d for d in dt.INTS if d.is_signed}


class Expr:
    """An immutable expression: `Expr.of(u)` wraps a node, `.u` unwraps it."""

    __slots__ = ("dtype", "shape", "u")

    def __init__(self, u: UOp, dtype: DType, shape: Shape) -> None:
        self.u = u
        self.dtype = dtype
        self.shape = shape

    @classmethod
    def of(cls, u: UOp) -> Expr:
        """Return the expression of a node."""
        return cls(u, u.dtype, u.shape)

    def const_like(self, value: Number, dtype: DType | None = None) -> Expr:
        """Return a constant in this expression's shape, and in its dtype unless one is given.

        The value must be representable (R23).
        """
        d = self.dtype if dtype is None else dtype
        return Expr(build_constant_or_stack_of_copies(value, d, self.shape), d, self.shape)

    def _to_node(self, other: Expr | Number) -> UOp:
        return other.u if isinstance(other, Expr) else build_constant_or_stack_of_copies(other, self.dtype, self.shape)

    def _build(self, op: Op, *operands: Expr | Number) -> Expr:
        """Build a node of this dtype and shape, with this expression as its first operand."""
        return Expr(UOp(op, (self.u, *map(self._to_node, operands))), self.dtype, self.shape)

    def _build_comparison(self, op: Op, other: Expr | Number) -> Expr:
        return Expr(UOp(op, (self.u, self._to_node(other))), dt.bool_, self.shape)

    def __add__(self, other: Expr | Number) -> Expr:
        return self._build(Op.ADD, other)

    def __sub__(self, other: Expr | Number) -> Expr:
        return self._build(Op.SUB, other)

    def __mul__(self, other: Expr | Number) -> Expr:
        return self._build(Op.MUL, other)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return self._build(Op.DIV, other)

    def __and__(self, other: Expr | Number) -> Expr:
        return self._build(Op.AND, other)

    def __or__(self, other: Expr | Number) -> Expr:
        return self._build(Op.OR, other)

    def __xor__(self, other: Expr | Number) -> Expr:
        return self._build(Op.XOR, other)

    def __lshift__(self, other: Expr | int) -> Expr:
        return self._build(Op.SHL, other)

    def __rshift__(self, other: Expr | int) -> Expr:
        return self._build(Op.SHR, other)

    def __neg__(self) -> Expr:
        return self._build(Op.NEG)

    def __lt__(self, other: Expr | Number) -> Expr:
        return self._build_comparison(Op.CMPLT, other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return Expr(UOp(Op.CMPLT, (self._to_node(other), self.u)), dt.bool_, self.shape)

    def ne(self, other: Expr | Number) -> Expr:
        """Return CmpNe with another expression."""
        return self._build_comparison(Op.CMPNE, other)

    def eq(self, other: Expr | Number) -> Expr:
        """Return CmpEq with another expression."""
        return self._build_comparison(Op.CMPEQ, other)

    def fma(self, b: Expr | Number, c: Expr | Number) -> Expr:
        """Return self * b + c with one rounding."""
        return self._build(Op.MULACC, b, c)

    def maximum(self, other: Expr | Number) -> Expr:
        """Return Max with another expression."""
        return self._build(Op.MAX, other)

    def trunc(self) -> Expr:
        """Return Trunc of this expression."""
        return self._build(Op.TRUNC)

    def recip(self) -> Expr:
        """Return Recip of this expression."""
        return self._build(Op.RECIP)

    def cast(self, dtype: DType) -> Expr:
        """Return a Cast, or this expression if it has the dtype."""
        return self if dtype is self.dtype else Expr(UOp(Op.CAST, (self.u,), CastArg(dtype)), dtype, self.shape)

    def bitcast(self, dtype: DType) -> Expr:
        """Return a Bitcast, or this expression if it has the dtype."""
        return self if dtype is self.dtype else Expr(UOp(Op.BITCAST, (self.u,), BitcastArg(dtype)), dtype, self.shape)

    def bits(self) -> Expr:
        """Return a float's bits in the unsigned integer of its width."""
        return self.bitcast(BITS[self.dtype])


def build_constant_or_stack_of_copies(value: Number, dtype: DType, shape: Shape = ()) -> UOp:
    """Return a Const, or for a vector shape the Stack of its copies."""
    u = _memoized_const(value, dtype, value == 0 and math.copysign(1.0, value) < 0)
    for extent in reversed(shape):
        u = UOp(Op.STACK, (u,) * extent)
    return u


@lru_cache(maxsize=4096)
def _memoized_const(value: Number, dtype: DType, is_minus_zero: bool) -> UOp:
    """Return the Const of a value.

    Numbers that are equal as keys are one number of the dtype, but for -0.0, which `is_minus_zero` tells from 0.0.
    """
    return const(value, dtype)


def where(condition: Expr, if_true: Expr | Number, if_false: Expr | Number) -> Expr:
    """Return `if_true` where the bool `condition` is true, else `if_false`; at most one of them is a number."""
    like = if_true if isinstance(if_true, Expr) else if_false
    assert isinstance(like, Expr)
    return Expr(UOp(Op.WHERE, (condition.u, like._to_node(if_true), like._to_node(if_false))), like.dtype, condition.shape)


def select_constants(condition: Expr, a: Number, b: Number, dtype: DType) -> Expr:
    """Return a choice of two constants of a dtype."""
    return where(condition, condition.const_like(a, dtype), condition.const_like(b, dtype))


def horner(x: Expr, coefficients_lowest_first: Sequence[float]) -> Expr:
    """Return sum coefficients[k] * x^k by fused steps, highest first; there are at least two coefficients."""
    *rest, second, highest = coefficients_lowest_first
    total = x.fma(highest, second)
    for c in reversed(rest):
        total = total.fma(x, c)
    return total


def clamp(x: Expr, lo: Number, hi: Number) -> Expr:
    """Return x between the bounds; a NaN stays, as compare and select pass it on (Max does not on every target)."""
    x = where(x < lo, lo, x)
    return where(x > hi, hi, x)


def float_bits(value: float, dtype: DType) -> int:
    """Return the bit pattern of a float32 or float64 value."""
    code, word = ("<f", "<I") if dtype is dt.float32 else ("<d", "<Q")
    return int(struct.unpack(word, struct.pack(code, value))[0])
