"""What renderers read off the nodes of a SELECTED kernel, whatever language they write.

The classes of dtypes that choose an instruction, the bounds that make a guard superfluous, the memory behind a reference.
"""

from __future__ import annotations

from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

_COLUMN = {Kind.BOOL: "b", Kind.INT: "s", Kind.INDEX: "s", Kind.UINT: "u", Kind.FLOAT: "f"}


def column(d: DType) -> str:
    """The column of an instruction table: b(ool), s(igned), u(nsigned) or f(loat)."""
    return _COLUMN[d.kind]


def bounds(u: UOp) -> tuple[float, float]:
    """The values that `u` can have, its dtype's where nothing more is known."""
    return u.min_max or (u.dtype.min, u.dtype.max)


def within(u: UOp, lo: float, hi: float) -> bool:
    """Whether every value of `u` lies in [lo, hi]."""
    least, most = bounds(u)
    return lo <= least and most <= hi


def excludes(u: UOp, value: int) -> bool:
    """Whether `u` can never have the value."""
    lo, hi = bounds(u)
    return not lo <= value <= hi


def opposed(u: UOp) -> bool:
    """Whether the two operands' signs may differ, so that a floor of their quotient differs from truncation."""
    (a, A), (c, C) = bounds(u.src[0]), bounds(u.src[1])
    return not ((a >= 0 and c >= 0) or (A <= 0 and C <= 0))


def memory(u: UOp) -> UOp:
    """The Param or Buffer that a reference is a view of."""
    while u.op in _VIEWS:
        u = u.src[0]
    return u


_VIEWS = frozenset({Op.INDEX, Op.AFTER, Op.BITCAST})
