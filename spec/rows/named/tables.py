"""The rows of the second document's tables: priorities, range-ending and expandable operations, reductions; a claim per entry."""

from __future__ import annotations

from collections.abc import Iterable

from uops.spec.bestiary.tables import EXPANDABLE_BY_NAME, PRIORITY, RANGE_ENDING, REDUCE_IDENTITIES, REDUCE_OPS
from uops.spec.ir.ops import Op
from uops.spec.rows.named.base import ExecutedBy, NamedRow, RowSubject, Statement, state_claims

#: Entries of the range-ending table that a ruling words otherwise than the rest.
_CALLS: dict[Op, str] = {
    Op.CALL: "CALL runs once per value of the Ranges among its sources from {first} on that no other node closes, and ends them",
    Op.FUNCTION: "FUNCTION, which is its substituted body, keeps the Ranges among its sources from {first} on open in its values",
}


def _state_range_ending(op: Op, first: int) -> Statement:
    if op in _CALLS:
        return _CALLS[op].format(first=first), "R121"
    return f"{op.name.removeprefix('B_')} ends the Ranges among its sources from {first} on", "R109"


def _make_table_row(
    name: str, printed: str, semantics: str, statements: Iterable[Statement], executed_by: ExecutedBy, subject: RowSubject
) -> NamedRow:
    row_id = f"Table/{name}"
    return NamedRow(row_id, None, printed, semantics, state_claims(row_id, statements), executed_by, subject)


PRIORITY_ROW = _make_table_row(
    "Priority",
    "Priority",
    "Loops of a lower priority are further out; equal priorities are ordered by axis id.",
    ((f"loops of type {name} have priority {priority}", "R109") for name, priority in PRIORITY.items()),
    ExecutedBy(
        ("uops.interp.kernel.structure.blocks:closed_ranges_outermost_first", "uops.interp.bestiary.plan:ScopePlan.loop_levels"),
        ("uops.compiler.ir.loops:sort_by_nesting", "uops.compiler.passes.optimize.schedule.schedule:close_output_loops_into_sink"),
    ),
    RowSubject.SPECIFICATION,
)
RANGE_ENDING_ROW = _make_table_row(
    "RangeEnding",
    "Range-Ending Operations",
    "Operations that close the loops of Ranges, and the first source that may be a Range.",
    (_state_range_ending(op, first) for op, first in RANGE_ENDING.items()),
    ExecutedBy(
        ("uops.interp.bestiary.plan:ScopePlan.ranges_ended_by", "uops.interp.bestiary.plan:ScopePlan.loop_body_sources"),
        ("uops.spec.bestiary.legalize:legalize", "uops.compiler.pipeline:lower"),
    ),
    RowSubject.BACKEND,
)
EXPANDABLE_ROW = _make_table_row(
    "Expandable",
    "Expandable Operations",
    "Operations through which the lanes of an UNROLL propagate.",
    ((f"the lanes of an UNROLL below a source propagate through {name}", "R111") for name in EXPANDABLE_BY_NAME),
    ExecutedBy(
        ("uops.interp.bestiary.values:find_axes_of_vector_lanes",),
        ("uops.spec.bestiary.lower:find_axes_of_unroll_whose_lanes_reach", "uops.compiler.pipeline:lower"),
    ),
    RowSubject.BACKEND,
)
REDUCE_OP_ROW = _make_table_row(
    "ReduceOp",
    "ReduceOp",
    "Operations that combine the elements of a reduction, and their identities.",
    ((f"{name} of nothing is {REDUCE_IDENTITIES[name]}", "R102" if op is Op.MIN else "R32") for name, op in REDUCE_OPS.items()),
    ExecutedBy(
        ("uops.interp.ops.reduce:FOLDS", "uops.interp.bestiary.values:reduce_axes_to_size_one"),
        ("uops.compiler.ir.accumulators:lower_reduces",),
    ),
    RowSubject.BACKEND,
)

ROWS = (PRIORITY_ROW, RANGE_ENDING_ROW, EXPANDABLE_ROW, REDUCE_OP_ROW)
