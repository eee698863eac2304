"""Elementwise primitives: one result element per position."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.claims import (
    BROADCAST,
    SAME_AXIS,
    SAME_DEVICE,
    ClaimDraft,
    arg_dtype_claim,
    claim_sources_share_dtype,
    dtype_claim,
    is_bitwise,
    is_floating,
    is_integer,
)  # fmt: skip
from uops.spec.rows.table.base import RowTable

#: The last claims of every row with more than one source.
TOGETHER = (BROADCAST, SAME_DEVICE, SAME_AXIS)
SAME = claim_sources_share_dtype("A, B")
FLOATS = dtype_claim("T", is_floating, "is a float", "R10", 0)
INTEGERS = dtype_claim("A", is_integer, "is an integer, not bool", "R09", 0)
BITS = dtype_claim("A", is_bitwise, "is an integer or bool", "R10", 0)
COUNT = dtype_claim("the count", is_integer, "is an integer", "R25", 1)


def binary_claims(*dtype_claims: ClaimDraft) -> tuple[ClaimDraft, ...]:
    """Return the claims of a binary op: one dtype, `dtype_claims`, shapes that broadcast, one device and one axis."""
    return (SAME, *dtype_claims, *TOGETHER)


r = RowTable(Family.ELEMENTWISE)
# fmt: off
r(Op.RECIP, "Recip", None, "T",     "1 / x.", [FLOATS])
r(Op.TRUNC, "Trunc", None, "T",     "x without its fraction; integers and bools as they are.")
r(Op.CAST,  "Cast",  "Cast", "T",   "x converted to dtype: integers wrap, floats round once, a float saturates into an integer.", [
    arg_dtype_claim(lambda d: d is not dt.void, "not void", "R15"),
])
r(Op.ADD,   "Add",   None, "A B",   "a + b; integers wrap, bools or.", binary_claims())
r(Op.MUL,   "Mul",   None, "A B",   "a * b; integers wrap, bools and.", binary_claims())
r(Op.MAX,   "Max",   None, "A B",   "The greater of a and b; NaN if either is.", binary_claims())
r(Op.MOD,   "Mod",   None, "A B",   "a - b * floor(a / b); a where b is 0.", binary_claims(INTEGERS))
r(Op.IDIV,  "Idiv",  None, "A B",   "floor(a / b); 0 where b is 0.", binary_claims(INTEGERS))
r(Op.CMPLT, "CmpLt", None, "A B",   "Whether a < b; false with NaN.", binary_claims())
r(Op.CMPNE, "CmpNe", None, "A B",   "Whether a and b differ; true with NaN.", binary_claims())
r(Op.XOR,   "Xor",   None, "A B",   "Bits in one of a and b but not both.", binary_claims(BITS))
r(Op.OR,    "Or",    None, "A B",   "Bits in a or b.", binary_claims(BITS))
r(Op.AND,   "And",   None, "A B",   "Bits in both a and b.", binary_claims(BITS))
r(Op.SHR,   "Shr",   None, "A B",
  "a shifted right by b: by sign for signed a, with zeros for unsigned.", [INTEGERS, COUNT, *TOGETHER])
r(Op.SHL,   "Shl",   None, "A B",   "a shifted left by b; 0 from the width on.", [INTEGERS, COUNT, *TOGETHER])
r(Op.WHERE, "Where", None, "P A B", "a where p is not zero, else b; both are evaluated.",
  [claim_sources_share_dtype("A, B", 1), *TOGETHER])
# fmt: on
ROWS = tuple(r.rows)
