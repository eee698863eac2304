"""The dtypes that an op takes, asked of the claims of its row.

Whoever enumerates elementwise ops (conformance cases, generators, oracles, tests) asks here, so that the row alone says it.
"""

from __future__ import annotations

from functools import cache

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VerifyContext
from uops.spec.rows.claims import Claim
from uops.spec.rows.rows import ROWS


def arity(op: Op) -> int:
    """Return the number of sources of an op whose schema has neither optional nor repeated ones."""
    return ROWS[op].schema.min_sources


def accepts_dtypes(op: Op, operand_dtypes: tuple[DType, ...], cast_to: DType | None = None) -> bool:
    """Return True if no claim of an elementwise op's row objects to operands of these dtypes; `to` is the dtype of a Cast."""
    return find_claim_broken_by_dtypes(op, operand_dtypes, cast_to) is None


@cache
def find_claim_broken_by_dtypes(op: Op, operand_dtypes: tuple[DType, ...], cast_to: DType | None = None) -> Claim | None:
    """Return the first claim of an elementwise op's row that operands of these dtypes break; None if they are legal."""
    u = UOp(op, tuple(b.param(k, (), d) for k, d in enumerate(operand_dtypes)), None if cast_to is None else CastArg(cast_to))
    ctx = VerifyContext(u, [*u.src, u])
    return next((c for c in ROWS[op].claims if c.check(u, ctx) is not None), None)


def operand_dtypes(op: Op, d: DType) -> tuple[DType, ...]:
    """Return operands of one dtype, but for the condition of a Where, which is bool."""
    return (dt.bool_, d, d) if op is Op.WHERE else (d,) * arity(op)
