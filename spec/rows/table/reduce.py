"""The reduce op."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import REDUCTIONS, Family, Op
from uops.spec.ir.scope import VerifyContext, ranges_closed_by
from uops.spec.ir.sizes import provably_at_most
from uops.spec.rows.claims import ClaimDraft, distinct_axes_claim
from uops.spec.rows.table.base import RowTable


def _check_reduce_op(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.arg.op in REDUCTIONS else f"got {u.arg.op.name.lower()}"


def _check_axes_or_ranges(u: UOp, ctx: VerifyContext) -> str | None:
    return f"axes {u.arg.axes} and {len(u.ranges)} ranges" if u.arg.axes and u.ranges else None


def _check_sources_are_distinct_ranges(u: UOp, ctx: VerifyContext) -> str | None:
    for k, s in enumerate(u.ranges, 1):
        if s.op is not Op.RANGE:
            return f"source {k} is {s.op.name.lower()}"
    return None if len(set(u.ranges)) == len(u.ranges) else "a range is named twice"


def _check_index_max_nonempty(u: UOp, ctx: VerifyContext) -> str | None:
    return find_possibly_empty_reduction_fault(u) if u.operand.dtype is dt.index and u.arg.op is Op.MAX else None


def find_possibly_empty_reduction_fault(u: UOp) -> str | None:
    """Return what is wrong if a reduction may cover no element, else None.

    The integers have no least and no greatest element, so Max and Min of an empty set of indices have no value (R85).
    """
    bounds = [r.bound.arg.value if r.bound.op is Op.CONST else r.bound for r in ranges_closed_by(u)]
    extents = [*(u.operand.shape[a] for a in u.arg.axes), *bounds]
    return None if all(provably_at_most(1, n) for n in extents) else "a reduced extent may be 0"


r = RowTable(Family.REDUCE)
# fmt: off
r(Op.REDUCE, "Reduce", None, "T r...",
  "Combines T along axes, which become 1, or over the iterations of ranges, which it closes, in any order.", [
    ClaimDraft("op is Add, Max or Mul", _check_reduce_op),
    distinct_axes_claim("axes are distinct axes of T", "R42"),
    ClaimDraft("axes or ranges, not both", _check_axes_or_ranges, "R42"),
    ClaimDraft("every source after T is a Range, once", _check_sources_are_distinct_ranges, "R42", gate=True),
    ClaimDraft("Max of index reduces at least one element", _check_index_max_nonempty, "R85"),
])
# fmt: on
ROWS = tuple(r.rows)
