"""The dtypes on which elementwise ops are tested: those that the op's row accepts."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.rows.signatures import accepts_dtypes, operand_dtypes

#: Ops whose rows take bools, but that are tested on the other dtypes only: on bools they are the identity, and an Or of an And.
_UNTESTED_ON_BOOL = frozenset({Op.TRUNC, Op.MULACC})


def is_tested_dtype(op: Op, d: DType) -> bool:
    """Return True if the op is tested on operands of this dtype; for Cast, on results of it."""
    if op in _UNTESTED_ON_BOOL and d is dt.bool_:
        return False
    return accepts_dtypes(op, operand_dtypes(op, d), d if op is Op.CAST else None)
