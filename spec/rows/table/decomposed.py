"""Elementwise ops that the document defines by others; each stays a node until instruction selection (P1)."""

from __future__ import annotations

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.claims import boolean, dtype_is, numeric, same_dtype
from uops.spec.rows.table.base import NONE, Table
from uops.spec.rows.table.elementwise import FLOATS, TOGETHER, binary

NUMERIC = dtype_is("A", numeric, "is not bool", "R09", 0)
APPROXIMATION = "core: a polynomial within R17, chosen by the compiler"


def _flip(compare: UOp) -> UOp:
    """CmpNe(compare, 1)."""
    return UOp(Op.CMPNE, (compare, b.const(True)))


def _neg(x: UOp) -> UOp:
    return b.mul(x, b.const(-1, x.dtype))


def sqrt(u: UOp) -> UOp:
    return b.exp2(b.mul(b.log2(u.src[0]), 0.5))


# Threefry2x32 (R22): 20 rounds in five groups of four; after each group the next two key words and the group's number are added.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def _low(x: UOp) -> UOp:
    return b.cast(x, dt.uint32)


def _high(x: UOp) -> UOp:
    return b.cast(b.shr(x, b.const(32, dt.uint64)), dt.uint32)


def _rotate(x: UOp, n: int) -> UOp:
    return b.or_(b.shl(x, b.const(n, dt.uint32)), b.shr(x, b.const(32 - n, dt.uint32)))


def threefry(u: UOp) -> UOp:
    """The rounds as 32-bit arithmetic on the words of (counter, key)."""
    counter, key = u.src
    x0, x1 = _low(counter), _high(counter)
    k0, k1 = _low(key), _high(key)
    keys = (k0, k1, b.xor(b.xor(k0, k1), b.const(PARITY, dt.uint32)))
    x0, x1 = b.add(x0, keys[0]), b.add(x1, keys[1])
    for group in range(5):
        for n in ROTATIONS[group % 2]:
            x0 = b.add(x0, x1)
            x1 = b.xor(_rotate(x1, n), x0)
        x0 = b.add(x0, keys[(group + 1) % 3])
        x1 = b.add(b.add(x1, keys[(group + 2) % 3]), b.const(group + 1, dt.uint32))
    high = b.shl(b.cast(x1, dt.uint64), b.const(32, dt.uint64))
    return b.or_(high, b.cast(x0, dt.uint64))


def _uint64(d: DType) -> bool:
    return d is dt.uint64


r = Table(Family.DECOMPOSED)
# fmt: off
r(Op.NEG,    "Neg",    None, "A",   "-x; the sign bit of a float, modulo 2^n for integers.", [NUMERIC], lambda u: _neg(u.src[0]))
r(Op.SUB,    "Sub",    None, "A B",
  "a - b.", binary(dtype_is("A", numeric, "is not bool", "R80", 0)), lambda u: b.add(u.src[0], b.neg(u.src[1])))
r(Op.DIV,    "Div",    None, "A B", "a / b.", binary(FLOATS), lambda u: b.mul(u.src[0], b.recip(u.src[1])))
r(Op.CMPGT,  "CmpGt",  None, "A B", "Whether a > b.", binary(), lambda u: b.lt(u.src[1], u.src[0]), NONE)
r(Op.CMPGE,  "CmpGe",  None, "A B", "Whether a >= b; false with NaN.", binary(), lambda u: _flip(b.lt(u.src[0], u.src[1])), NONE)
r(Op.CMPLE,  "CmpLe",  None, "A B", "Whether a <= b; false with NaN.", binary(), lambda u: _flip(b.lt(u.src[1], u.src[0])), NONE)
r(Op.CMPEQ,  "CmpEq",  None, "A B", "Whether a = b.", binary(), lambda u: _flip(b.ne(u.src[0], u.src[1])), NONE)
r(Op.NOT,    "Not",    None, "A",
  "The other bool.", [dtype_is("A", boolean, "is bool", "R09", 0)], lambda u: _flip(u.src[0]), NONE)
r(Op.EXP2,   "Exp2",   None, "A",   "2 to the power x.", [FLOATS], APPROXIMATION)
r(Op.LOG2,   "Log2",   None, "A",   "The binary logarithm of x.", [FLOATS], APPROXIMATION)
r(Op.SIN,    "Sin",    None, "A",   "The sine of x radians.", [FLOATS], APPROXIMATION)
r(Op.SQRT,   "Sqrt",   None, "A",   "The square root of x, correctly rounded.", [FLOATS], sqrt)
r(Op.POW,    "Pow",    None, "A B",
  "a to the power b, as IEEE 754 pow.", binary(FLOATS), lambda u: b.exp2(b.mul(b.log2(u.src[0]), u.src[1])))
r(Op.MULACC, "Mulacc", None, "A B C",
  "a * b + c, rounded once.", [same_dtype("A, B, C"), *TOGETHER], lambda u: b.add(b.mul(*u.src[:2]), u.src[2]))
r(Op.THREEFRY, "Threefry", None, "A B", "Threefry2x32 of counter a under key b, words low first.", [
    dtype_is("counter and key", _uint64, "are uint64", "R22", 0, 1), *TOGETHER,
], threefry, NONE)
# fmt: on
ROWS = tuple(r.rows)
