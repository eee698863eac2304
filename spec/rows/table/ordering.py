"""Ordering ops: loops, dependencies and roots."""

from __future__ import annotations

from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import RANGES, VerifyContext
from uops.spec.rows.claims import ClaimDraft, distinct_ranges_claim, dtype_claim, is_integer, scalar_claim
from uops.spec.rows.table.base import RowTable


def check_closed_once(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that at most one node of its scope closes a Range (R58, End; R88, closing ranges)."""
    closers = ctx.range_closer_clashes.get(u)
    return None if closers is None else f"closed by {len(closers)} nodes ({', '.join(c.op.name.lower() for c in closers)})"


def check_axis_identity(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that no other Range of the scope has the same axis id (R62, identity)."""
    return f"axis {u.arg.axis_id} is also another range" if u in ctx.axis_id_clashes else None


def _check_sink_name(u: UOp, ctx: VerifyContext) -> str | None:
    return "name is empty" if u.arg is not None and not u.arg.name else None


r = RowTable(Family.ORDERING)
# fmt: off
r(Op.RANGE, "Range", None, "bound", "A loop variable from 0 to bound - 1; no iteration where bound <= 0.", [
    scalar_claim("bound", 0, "R57"),
    dtype_claim("bound", is_integer, "is an integer", "R57", 0),
    ClaimDraft("closed at most once in its scope", check_closed_once, "R58"),
    ClaimDraft("axis_id tells it from the other Ranges of its scope", check_axis_identity, "R62"),
])
r(Op.END, "End", "END", "body range+", "Ends the loops of the ranges around body.", [
    distinct_ranges_claim(1, RANGES),
])
r(Op.AFTER, "After", "AFTER", "buf deps...", "buf itself, once every dep has been executed.")
r(Op.GROUP, "Group", "Group", "u...", "Several effects as one, unordered.")
r(Op.SINK, "Sink", "SINK", "u...", "Several effects as the one root of a graph or kernel.", [
    ClaimDraft("name is not empty", _check_sink_name),
])
r(Op.LINEAR, "Linear", "LINEAR", "uops...", "Instructions, or Calls, in the order of execution.")
# fmt: on
ROWS = tuple(r.rows)
