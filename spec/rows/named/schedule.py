"""The rows of axis types, OptOps and address spaces, from `AXIS_TABLE`, `OPTOPS` and `AddrSpace`."""

from __future__ import annotations

from collections.abc import Iterator

from uops.spec.bestiary.tables import AXIS_NAMES
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AXIS_TABLE, GRID, SEQUENTIAL, UNROLLED, WORKGROUP, AxisRow, AxisType
from uops.spec.optops import OPTOPS, TILED, OptOp
from uops.spec.rows.named.base import ExecutedBy, NamedRow, RowSubject, Statement, state_claims, write_as_sentence

_SCHEDULE = "uops.compiler.passes.optimize.schedule"
_BESTIARY_NAMES = {t: name for name, t in AXIS_NAMES.items()}

# ---------------------------------------------------------------------------------------------------------------- axis types

#: Where an axis type comes from, if no Split makes it of another type.
_ORIGINS: dict[AxisType, Statement] = {
    AxisType.PLACEHOLDER: ("the BESTIARY dialect alone has it, and legalize makes it LOOP", "R170"),
    AxisType.LOOP: ("output axes have it before the first OptOp", "R94"),
    AxisType.GLOBAL: ("output axes of parallel targets have it before the first OptOp; no OptOp makes it of another type", "R94"),
    AxisType.WARP: ("TC alone makes it", "R93"),
    AxisType.REDUCE: ("the axes of a Reduce have it before the first OptOp", "R94"),
}


def _state_iteration_order_and_origin(t: AxisType, row: AxisRow) -> Iterator[Statement]:
    yield ("its iterations run in order" if t in SEQUENTIAL else "its iterations may run in any order"), "R57"
    if t in WORKGROUP:
        yield "its iterations are lanes of one workgroup: they meet at its Barriers and share its LOCAL memory", "R60"
    if t in GRID:
        yield "each iteration is a workgroup, with LOCAL and REG memory of its own", "R61"
    if t in UNROLLED:
        yield "every iteration becomes code of its own: after expand there is no loop of this type", ""
    if row.split_from and row.direction is not None:
        sources = " or ".join(s.name for s in AxisType if s in row.split_from)
        yield f"a Split makes it from {sources}, as the {row.direction.value.replace('/', ' or ')} half", "R90"
    if t in _ORIGINS:
        yield _ORIGINS[t]
    if t in TILED:
        yield "a Split makes it from its own type alone", "R91"


_LOOPS = (
    "uops.compiler.passes.linearize:linearize_kernel",
    "uops.backends.llvm.render:STATEMENT[RANGE]",
    "uops.backends.cstyle.render:STATEMENT[RANGE]",
)
#: What the compiler makes of the loops of a type.
_AXIS_COMPILER: dict[AxisType, tuple[str, ...]] = {
    AxisType.PLACEHOLDER: ("uops.spec.bestiary.legalize:LEGALIZE[B_RANGE]", "uops.compiler.pipeline:lower"),
    AxisType.LOOP: _LOOPS,
    AxisType.GLOBAL: (f"{_SCHEDULE}.schedule:set_output_loop_types_before_optops", *_LOOPS),
    AxisType.THREAD: ("uops.compiler.ir.loops:find_parallelizable_outer_thread_loop", *_LOOPS),
    AxisType.WARP: (f"{_SCHEDULE}.tensor_core:tile_for_wmma_or_unrolled_reduce",),
    AxisType.LOCAL: ("uops.compiler.passes.workgroups:lower_workgroups_to_loops_unless_supported", *_LOOPS),
    AxisType.GROUP_REDUCE: (f"{_SCHEDULE}.group:lower_or_serialize_group_reduces",),
    AxisType.UPCAST: ("uops.compiler.passes.expand:expand_vector_axes_and_split_ends",),
    AxisType.REDUCE: ("uops.compiler.ir.accumulators:lower_reduces", *_LOOPS),
    AxisType.UNROLL: ("uops.compiler.passes.expand:expand_vector_axes_and_split_ends",),
}


def _make_axis_row(t: AxisType, row: AxisRow) -> NamedRow:
    row_id = f"AxisType/{t.name}"
    interp = (
        f"uops.interp.bestiary.plan:KINDS[{t.name}]",
        "uops.interp.kernel.structure.blocks:Loop",
        *(("uops.interp.kernel.lane_machine.workgroup:Workgroup",) if t in WORKGROUP else ()),
    )
    return NamedRow(
        row_id,
        None if t is AxisType.PLACEHOLDER else t.name,
        _BESTIARY_NAMES.get(t),
        write_as_sentence(row.semantics),
        state_claims(row_id, _state_iteration_order_and_origin(t, row)),
        ExecutedBy(interp, _AXIS_COMPILER[t]),
        RowSubject.BACKEND,
        {
            "letter": t.letter,
            "priority": row.priority,
            "split_from": sorted(s.letter for s in row.split_from),
            "direction": row.direction.value if row.direction else None,
            "ordered": row.ordered,
        },
    )


# ------------------------------------------------------------------------------------------------------------------- OptOps


def _make_optop_row(optop: type[OptOp]) -> NamedRow:
    name, row = optop.__name__, optop.row
    row_id = f"OptOp/{name}"
    return NamedRow(
        row_id,
        name if row.printed else None,
        None,
        row.semantics,
        state_claims(row_id, (("the kernel computes what it did before", "P2"), *row.claims)),
        ExecutedBy(
            ("uops.interp.kernel.run:run_kernel",),
            (f"{_SCHEDULE}.optops:_APPLICATIONS[{name}]", f"{_SCHEDULE}.optops:apply"),
        ),
        RowSubject.BACKEND,
        {"axis": row.axis, "arg": row.arg},
    )


# ----------------------------------------------------------------------------------------------------------- address spaces

_SPACES: dict[AddrSpace, tuple[str, Statement, ExecutedBy]] = {
    AddrSpace.GLOBAL: (
        "Memory of the device, which every kernel of a program may use.",
        ("every workgroup and every kernel sees the same elements", "R61"),
        ExecutedBy(
            ("uops.interp.tensor.actions:MEANING[BUFFER]",),
            ("uops.compiler.passes.memory_plan:place_intermediates_in_arenas_per_device",),
        ),
    ),
    AddrSpace.LOCAL: (
        "Memory of one workgroup.",
        ("each workgroup has elements of its own, which its lanes share", "R128"),
        ExecutedBy(
            ("uops.interp.kernel.lane_machine.machine:LaneMachine",),
            (
                f"{_SCHEDULE}.local_memory:stage_in_one_local_buffer",
                "uops.compiler.passes.workgroups:lower_workgroups_to_loops_unless_supported",
            ),
        ),
    ),
    AddrSpace.REG: (
        "Memory of one lane.",
        ("each lane has elements of its own", "R128"),
        ExecutedBy(
            ("uops.interp.kernel.lane_machine.machine:LaneMachine",),
            (
                "uops.compiler.ir.accumulators:lower_reduces",
                "uops.compiler.passes.workgroups:lower_workgroups_to_loops_unless_supported",
            ),
        ),
    ),
}


def _make_space_row(space: AddrSpace) -> NamedRow:
    semantics, claim, executed_by = _SPACES[space]
    row_id = f"AddrSpace/{space.name}"
    bestiary = space.name.capitalize() if space is not AddrSpace.REG else None
    claims = state_claims(row_id, (claim, ("an element that was not written is never read: reading it is a Trap", "R61")))
    return NamedRow(row_id, space.name, bestiary, semantics, claims, executed_by, RowSubject.BACKEND)


AXIS_ROWS = tuple(_make_axis_row(t, row) for t, row in AXIS_TABLE.items())
OPTOP_ROWS = tuple(map(_make_optop_row, OPTOPS))
SPACE_ROWS = tuple(map(_make_space_row, AddrSpace))
ROWS = (*SPACE_ROWS, *AXIS_ROWS, *OPTOP_ROWS)
