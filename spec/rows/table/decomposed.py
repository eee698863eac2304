"""Elementwise ops that the document defines by others; each stays a node until instruction selection (P1)."""

from __future__ import annotations

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.claims import claim_sources_share_dtype, dtype_claim, is_boolean, is_numeric
from uops.spec.rows.table.base import RowTable
from uops.spec.rows.table.elementwise import FLOATS, TOGETHER, binary_claims

NUMERIC = dtype_claim("A", is_numeric, "is not bool", "R09", 0)
APPROXIMATION = "core: a polynomial within R17, chosen by the compiler"


def _negate_comparison(compare: UOp) -> UOp:
    """Build CmpNe(compare, 1), the negation of a bool."""
    return UOp(Op.CMPNE, (compare, b.const(True)))


def _multiply_by_minus_one(x: UOp) -> UOp:
    return b.mul(x, b.const(-1, x.dtype))


def sqrt(u: UOp) -> UOp:
    """Build the decomposition of Sqrt: exp2(log2(x) / 2)."""
    return b.exp2(b.mul(b.log2(u.operand), 0.5))


# Threefry2x32 (R22): 20 rounds in five groups of four. After each group the next two key words and the group's number are added.
#: Bits by which the rounds of a group rotate, for even and odd groups.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
#: The constant that the third key word is combined with.
PARITY = 0x1BD11BDA


def _low_word(x: UOp) -> UOp:
    return b.cast(x, dt.uint32)


def _high_word(x: UOp) -> UOp:
    return b.cast(b.shr(x, b.const(32, dt.uint64)), dt.uint32)


def _rotate_left(x: UOp, n: int) -> UOp:
    return b.or_(b.shl(x, b.const(n, dt.uint32)), b.shr(x, b.const(32 - n, dt.uint32)))


def threefry(u: UOp) -> UOp:
    """Build the decomposition of Threefry: its rounds as 32-bit arithmetic on the words of counter and key (R22)."""
    counter, key = u.src  # lhs, rhs
    x0, x1 = _low_word(counter), _high_word(counter)
    k0, k1 = _low_word(key), _high_word(key)
    keys = (k0, k1, b.xor(b.xor(k0, k1), b.const(PARITY, dt.uint32)))
    x0, x1 = b.add(x0, keys[0]), b.add(x1, keys[1])
    for group in range(5):
        for n in ROTATIONS[group % 2]:
            x0 = b.add(x0, x1)
            x1 = b.xor(_rotate_left(x1, n), x0)
        x0 = b.add(x0, keys[(group + 1) % 3])
        x1 = b.add(b.add(x1, keys[(group + 2) % 3]), b.const(group + 1, dt.uint32))
    high = b.shl(b.cast(x1, dt.uint64), b.const(32, dt.uint64))
    return b.or_(high, b.cast(x0, dt.uint64))


def _is_uint64(d: DType) -> bool:
    return d is dt.uint64


r = RowTable(Family.DECOMPOSED)
# fmt: off
r(Op.NEG,    "Neg",    None, "A",
  "-x; the sign bit of a float, modulo 2^n for integers.", [NUMERIC], lambda u: _multiply_by_minus_one(u.operand))
r(Op.SUB,    "Sub",    None, "A B",
  "a - b.", binary_claims(dtype_claim("A", is_numeric, "is not bool", "R80", 0)), lambda u: b.add(u.lhs, b.neg(u.rhs)))
r(Op.DIV,    "Div",    None, "A B", "a / b.", binary_claims(FLOATS), lambda u: b.mul(u.lhs, b.recip(u.rhs)))
r(Op.CMPGT,  "CmpGt",  None, "A B", "Whether a > b.", binary_claims(), lambda u: b.lt(u.rhs, u.lhs))
r(Op.CMPGE,  "CmpGe",  None, "A B", "Whether a >= b; false with NaN.",
  binary_claims(), lambda u: _negate_comparison(b.lt(u.lhs, u.rhs)))
r(Op.CMPLE,  "CmpLe",  None, "A B", "Whether a <= b; false with NaN.",
  binary_claims(), lambda u: _negate_comparison(b.lt(u.rhs, u.lhs)))
r(Op.CMPEQ,  "CmpEq",  None, "A B", "Whether a = b.", binary_claims(), lambda u: _negate_comparison(b.ne(u.lhs, u.rhs)))
r(Op.NOT,    "Not",    None, "A",
  "The other bool.", [dtype_claim("A", is_boolean, "is bool", "R09", 0)], lambda u: _negate_comparison(u.operand))
r(Op.EXP2,   "Exp2",   None, "A",   "2 to the power x.", [FLOATS], APPROXIMATION)
r(Op.LOG2,   "Log2",   None, "A",   "The binary logarithm of x.", [FLOATS], APPROXIMATION)
r(Op.SIN,    "Sin",    None, "A",   "The sine of x radians.", [FLOATS], APPROXIMATION)
r(Op.SQRT,   "Sqrt",   None, "A",   "The square root of x, correctly rounded.", [FLOATS], sqrt)
r(Op.POW,    "Pow",    None, "A B",
  "a to the power b, as IEEE 754 pow.", binary_claims(FLOATS), lambda u: b.exp2(b.mul(b.log2(u.lhs), u.rhs)))
r(Op.MULACC, "Mulacc", None, "A B C",
  "a * b + c, rounded once.", [claim_sources_share_dtype("A, B, C"), *TOGETHER], lambda u: b.add(b.mul(u.lhs, u.rhs), u.addend))
r(Op.THREEFRY, "Threefry", None, "A B", "Threefry2x32 of counter a under key b, words low first.", [
    dtype_claim("counter and key", _is_uint64, "are uint64", "R22", 0, 1), *TOGETHER,
], threefry)
# fmt: on
ROWS = tuple(r.rows)
