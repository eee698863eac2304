"""The reduce op."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import at_most
from uops.spec.rows.claims import Draft, axes_valid
from uops.spec.rows.table.base import Table

REDUCE_OPS = frozenset({Op.ADD, Op.MAX, Op.MUL})


def _reduce_op(u: UOp, ctx: Context) -> str | None:
    return None if u.arg.op in REDUCE_OPS else f"got {u.arg.op.name.lower()}"


def _axes_or_ranges(u: UOp, ctx: Context) -> str | None:
    return f"axes {u.arg.axes} and {len(u.src) - 1} ranges" if u.arg.axes and len(u.src) > 1 else None


def _ranges(u: UOp, ctx: Context) -> str | None:
    wrong = next((k for k, s in enumerate(u.src[1:], 1) if s.op is not Op.RANGE), None)
    if wrong is not None:
        return f"source {wrong} is {u.src[wrong].op.name.lower()}"
    return None if len(set(u.src[1:])) == len(u.src) - 1 else "a range is named twice"


def _index_identity(u: UOp, ctx: Context) -> str | None:
    """The integers have no least element, so Max of no index has no value."""
    if u.src[0].dtype is not dt.index or u.arg.op is not Op.MAX:
        return None
    extents = [u.src[0].shape[a] for a in u.arg.axes] + [b.arg.value if b.op is Op.CONST else b for r in u.src[1:] for b in r.src]
    return None if all(at_most(1, n) for n in extents) else "a reduced extent may be 0"


r = Table(Family.REDUCE)
# fmt: off
r(Op.REDUCE, "Reduce", None, "T r...",
  "Combines T along axes, which become 1, or over the iterations of ranges, which it closes, in any order.", [
    Draft("op is Add, Max or Mul", _reduce_op),
    axes_valid("axes are distinct axes of T", "R42"),
    Draft("axes or ranges, not both", _axes_or_ranges, "R42"),
    Draft("every source after T is a Range, once", _ranges, "R42", gate=True),
    Draft("Max of index reduces at least one element", _index_identity, "R85"),
])
# fmt: on
ROWS = tuple(r.rows)
