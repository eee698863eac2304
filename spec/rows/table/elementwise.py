"""Elementwise primitives: one result element per position."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.claims import (
    BROADCAST,
    SAME_AXIS,
    SAME_DEVICE,
    Draft,
    arg_dtype_is,
    bits,
    dtype_is,
    floating,
    integer,
    same_dtype,
)  # fmt: skip
from uops.spec.rows.table.base import NONE, Table

#: The tail of every row with more than one source.
TOGETHER = (BROADCAST, SAME_DEVICE, SAME_AXIS)
SAME = same_dtype("A, B")
FLOATS = dtype_is("T", floating, "is a float", "R10", 0)
INTEGERS = dtype_is("A", integer, "is an integer, not bool", "R09", 0)
BITS = dtype_is("A", bits, "is an integer or bool", "R10", 0)
COUNT = dtype_is("the count", integer, "is an integer", "R25", 1)


def binary(*dtype_claims: Draft) -> tuple[Draft, ...]:
    return (SAME, *dtype_claims, *TOGETHER)


r = Table(Family.ELEMENTWISE)
# fmt: off
r(Op.RECIP, "Recip", None, "T",     "1 / x.", [FLOATS])
r(Op.TRUNC, "Trunc", None, "T",     "x without its fraction; integers and bools as they are.", gradient=NONE)
r(Op.CAST,  "Cast",  "Cast", "T",   "x converted to dtype: integers wrap, floats round once, a float saturates into an integer.", [
    arg_dtype_is(lambda d: d is not dt.void, "not void", "R15"),
])
r(Op.ADD,   "Add",   None, "A B",   "a + b; integers wrap, bools or.", binary())
r(Op.MUL,   "Mul",   None, "A B",   "a * b; integers wrap, bools and.", binary())
r(Op.MAX,   "Max",   None, "A B",   "The greater of a and b; NaN if either is.", binary())
r(Op.MOD,   "Mod",   None, "A B",   "a - b * floor(a / b); a where b is 0.", binary(INTEGERS))
r(Op.IDIV,  "Idiv",  None, "A B",   "floor(a / b); 0 where b is 0.", binary(INTEGERS), gradient=NONE)
r(Op.CMPLT, "CmpLt", None, "A B",   "Whether a < b; false with NaN.", binary(), gradient=NONE)
r(Op.CMPNE, "CmpNe", None, "A B",   "Whether a and b differ; true with NaN.", binary(), gradient=NONE)
r(Op.XOR,   "Xor",   None, "A B",   "Bits in one of a and b but not both.", binary(BITS), gradient=NONE)
r(Op.OR,    "Or",    None, "A B",   "Bits in a or b.", binary(BITS), gradient=NONE)
r(Op.AND,   "And",   None, "A B",   "Bits in both a and b.", binary(BITS), gradient=NONE)
r(Op.SHR,   "Shr",   None, "A B",
  "a shifted right by b: by sign for signed a, with zeros for unsigned.", [INTEGERS, COUNT, *TOGETHER], gradient=NONE)
r(Op.SHL,   "Shl",   None, "A B",   "a shifted left by b; 0 from the width on.", [INTEGERS, COUNT, *TOGETHER], gradient=NONE)
r(Op.WHERE, "Where", None, "P A B", "a where p is not zero, else b; both are evaluated.", [same_dtype("A, B", 1), *TOGETHER])
# fmt: on
ROWS = tuple(r.rows)
