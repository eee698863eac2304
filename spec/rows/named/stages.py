"""The rows of the stages of the lowering pipeline, each with the dialects that it takes and gives."""

from __future__ import annotations

from uops.spec.rows.named.base import ExecutedBy, NamedRow, RowSubject, Statement, state_claims
from uops.spec.verify.dialects import Dialect

_PASSES = "uops.compiler.passes"


def _make_stage(
    name: str, printed: str, takes: Dialect, gives: Dialect, semantics: str, claims: tuple[Statement, ...], *functions: str
) -> NamedRow:
    row_id = f"Stage/{name}"
    statements: tuple[Statement, ...] = (
        (f"of a graph of {takes.name} it makes a graph of {gives.name}", ""),
        ("both graphs compute the same", "P2"),
        *claims,
    )
    executed_by = ExecutedBy(("uops.interp.evaluation:run",), tuple(f"{_PASSES}.{f}" for f in functions))
    columns = {"takes": takes.value, "gives": gives.value}
    return NamedRow(row_id, printed, None, semantics, state_claims(row_id, statements), executed_by, RowSubject.COMPILER, columns)


# fmt: off
ROWS = (
    _make_stage(
        "callify", "Callify", Dialect.TENSOR, Dialect.CALLIFIED, "Makes one stateless function of the tensor graph.",
        (("memory enters the function by its arguments alone", "R63"),),
        "callify.callify:convert_graph_to_call"),
    _make_stage(
        "rangeify", "Rangeify", Dialect.CALLIFIED, Dialect.KERNEL,
        "Splits the function into kernels, and breaks everything down to shape ().",
        (("each value inside of a kernel has shape ()", ""),),
        "rangeify.rangeify:rangeify"),
    _make_stage(
        "optimize", "Optimize", Dialect.KERNEL, Dialect.SCHEDULED,
        "Inserts local buffers, swaps and splits Ranges, and decides which axes are parallel.",
        (("loops are parallel only where no two iterations meet in an element", "R55"),),
        "optimize.optimize:build_scan_or_scatter_or_schedule_kernel", "optimize.heuristics.block_fusion:fuse_kernel_chains"),
    _make_stage(
        "expand", "Expand", Dialect.SCHEDULED, Dialect.EXPANDED, "Expands the parallel Ranges into shape.",
        (("no UPCAST or UNROLL Range is left", ""),),
        "expand:expand_vector_axes_and_split_ends"),
    _make_stage(
        "select", "Instruction Selection", Dialect.EXPANDED, Dialect.SELECTED,
        "Selects instructions of the target, WMMA and native vectors too.",
        (("only ops and dtypes of the target are left", ""), ("index values have a machine width that holds them", "R08")),
        "select.select:select_instructions"),
    _make_stage(
        "linearize", "Linearize", Dialect.SELECTED, Dialect.LINEAR, "Decides the order of execution.",
        (("each instruction stands behind its sources, and inside of the loops that it depends on", "R127"),),
        "linearize:linearize_kernel", "wmma:lower_all_wmmas_to_loops_unless_supported",
        "workgroups:lower_workgroups_to_loops_unless_supported"),
    _make_stage(
        "plan", "Register/Memory Plan", Dialect.LINEAR, Dialect.PLANNED,
        "Allocates memory, and reuses that of values whose lifetimes do not overlap.",
        (("values whose lifetimes overlap share no byte", "R126"), ("memory that the caller sees keeps its place", "")),
        "memory_plan:place_intermediates_in_arenas_per_device", "private_memory:reuse_private_memory"),
    _make_stage(
        "render", "Render", Dialect.PLANNED, Dialect.PROGRAM, "Gives the machine code of each kernel.",
        (("a kernel becomes a Program of its instructions, its source and its machine code", ""),),
        "render:render_and_compile"),
)
# fmt: on
