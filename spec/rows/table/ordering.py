"""Ordering ops: loops, dependencies and roots."""

from __future__ import annotations

from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.rows.claims import Draft, dtype_is, integer, ranges_from, scalar
from uops.spec.rows.table.base import EFFECT, NONE, Table


def closed_once(u: UOp, ctx: Context) -> str | None:
    closers = ctx.closed_twice.get(u)
    return None if closers is None else f"closed by {len(closers)} nodes ({', '.join(c.op.name.lower() for c in closers)})"


def axis_identity(u: UOp, ctx: Context) -> str | None:
    return f"axis {u.arg.axis_id} is also another range" if u in ctx.axis_ids else None


def _sink_name(u: UOp, ctx: Context) -> str | None:
    return "name is empty" if u.arg is not None and not u.arg.name else None


r = Table(Family.ORDERING)
# fmt: off
r(Op.RANGE, "Range", None, "bound", "A loop variable from 0 to bound - 1; no iteration where bound <= 0.", [
    scalar("bound", 0, "R57"),
    dtype_is("bound", integer, "is an integer", "R57", 0),
    Draft("closed at most once in its scope", closed_once, "R58"),
    Draft("axis_id tells it from the other Ranges of its scope", axis_identity, "R62"),
], gradient=NONE)
r(Op.END, "End", "END", "body range+", "Ends the loops of the ranges around body.", [
    ranges_from(1, frozenset({Op.RANGE, Op.B_RANGE})),
], gradient=EFFECT)
r(Op.AFTER, "After", "AFTER", "buf deps...", "buf itself, once every dep has been executed.")
r(Op.GROUP, "Group", "Group", "u...", "Several effects as one, unordered.", gradient=EFFECT)
r(Op.SINK, "Sink", "SINK", "u...", "Several effects as the one root of a graph or kernel.", [
    Draft("name is not empty", _sink_name),
], gradient=EFFECT)
r(Op.LINEAR, "Linear", "LINEAR", "uops...", "Instructions, or Calls, in the order of execution.", gradient=EFFECT)
# fmt: on
ROWS = tuple(r.rows)
