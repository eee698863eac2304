"""Facts about nodes of a SELECTED kernel that every renderer needs.

The module has the dtype classes that choose an instruction, and the bounds that make a guard redundant.
"""

from __future__ import annotations

from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory

_COLUMN = {DTypeKind.BOOL: "b", DTypeKind.INT: "s", DTypeKind.INDEX: "s", DTypeKind.UINT: "u", DTypeKind.FLOAT: "f"}
#: Instructions of native text, which may write to any memory that they are given.
_NATIVE_TEXT = frozenset({Op.CUSTOM, Op.INS})


def dtype_class_letter(d: DType) -> str:
    """Return the column of an instruction table: b(ool), s(igned), u(nsigned) or f(loat)."""
    return _COLUMN[d.kind]


def value_bounds(u: UOp) -> tuple[float, float]:
    """Return bounds of the values of `u`: its dtype's where nothing tighter is known."""
    return u.min_max or (u.dtype.min, u.dtype.max)


def is_within(u: UOp, lo: float, hi: float) -> bool:
    """Return True if every value of `u` lies in [lo, hi]."""
    least, most = value_bounds(u)
    return lo <= least and most <= hi


def never_equals(u: UOp, value: int) -> bool:
    """Return True if `u` never has the value."""
    lo, hi = value_bounds(u)
    return not lo <= value <= hi


def may_differ_in_sign(u: UOp) -> bool:
    """Return True if lhs and rhs may differ in sign, where a floor of their quotient differs from truncation."""
    (a, A), (c, C) = value_bounds(u.lhs), value_bounds(u.rhs)
    return not ((a >= 0 and c >= 0) or (A <= 0 and C <= 0))


def find_written_slots(instructions: tuple[UOp, ...]) -> set[int]:
    """Return the slots of Params that a kernel may write."""
    touched: set[UOp] = set()
    for u in instructions:
        if u.op is Op.STORE:
            touched.add(base_memory(u.buffer))
        elif u.op is Op.ATOMICADD:
            touched.add(base_memory(u.index))
        elif u.op in _NATIVE_TEXT:
            return {v.arg.slot for v in instructions if v.op is Op.PARAM}
    return {u.arg.slot for u in touched if u.op is Op.PARAM}
