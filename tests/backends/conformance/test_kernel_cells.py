"""Kernel cells: the interpreter passes them all, and a backend that misreads one row fails cells of that very row."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.conformance import kernel_controls as controls
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.cases.kernels import generate_kernel_cases
from uops.backends.conformance.cases.loops import KERNEL_AXES, edge_of_axis, generate_loop_cases
from uops.backends.conformance.cases.native import generate_native_cases, translate_native_text
from uops.backends.conformance.controls import Interp
from uops.backends.conformance.judge import Expectation, judge
from uops.backends.conformance.model import CellStatus, ConformanceCase, ConformanceLevel, ConformanceTier
from uops.backends.conformance.runner import run_conformance
from uops.backends.contract import Backend, Capabilities
from uops.backends.registry import BackendInfo
from uops.interp import run
from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import LAUNCH_DIALECTS, Dialect
from uops.spec.verify.verifier import find_broken_claims

LEVELS = list(ConformanceLevel)


@pytest.fixture(scope="module")
def cases() -> list[ConformanceCase]:
    """The kernel cases of two dtypes."""
    every = (*generate_loop_cases(ConformanceTier.SMOKE), *generate_kernel_cases(ConformanceTier.SMOKE))
    return [c for c in every if c.dtype in (dt.float32, dt.uint8)]


def failing_edges(backend: Backend, cases: list[ConformanceCase], row: str) -> set[str]:
    """Return the edge classes of a row in which a backend gives a wrong result, or none."""
    failed = set()
    for c in cases:
        if c.row == row:
            try:
                verdicts = judge(Expectation(c), backend.run(c.graph, c.inputs), ConformanceLevel.STRICT)
            except UopsError:
                failed.add(c.name)
            else:
                failed |= {v.segment.edge for v in verdicts if v.failed}
    return failed


@pytest.mark.parametrize("level", LEVELS, ids=lambda x: x.value)
def test_the_interpreter_passes_every_kernel_cell(level: ConformanceLevel, cases: list[ConformanceCase]) -> None:
    for c in cases:
        assert not any(v.failed for v in judge(Expectation(c), Interp().run(c.graph, c.inputs), level)), c.id


def test_every_launch_is_well_formed_in_a_dialect(cases: list[ConformanceCase]) -> None:
    for c in cases:
        launch = c.graph.op is Op.LINEAR
        assert any(not find_broken_claims(c.graph, d) for d in (LAUNCH_DIALECTS if launch else (Dialect.TENSOR,))), c.id


def test_every_order_of_lanes_gives_the_same_result(cases: list[ConformanceCase]) -> None:
    """No case races, so a backend may run in any order what the specification leaves unordered."""
    for c in cases:
        if c.dtype is dt.uint8:
            want = run(c.graph, c.inputs).buffers
            for schedule in (1, 2):
                got = run(c.graph, c.inputs, schedule=schedule).buffers
                assert all(np.array_equal(got[k], v) for k, v in want.items()), c.id


def test_every_segment_is_a_whole_buffer_and_each_result_differs_from_the_inputs(cases: list[ConformanceCase]) -> None:
    for c in cases:
        got = run(c.graph, c.inputs).buffers
        assert {s.output for s in c.segments} == got.keys(), c.id
        assert all((s.start, s.stop) == (0, got[str(s.output)].size) for s in c.segments), c.id
        assert any(k not in c.inputs or not np.array_equal(v, c.inputs[k]) for k, v in got.items()), c.id


BARRIERS = {"local", "warp", "group-reduce", "specials", "two-meetings", "in-loop", "global-memory", "two-axes"}
ADDS = {"loop", "global", "thread", "local", "upcast", "one-element", "scatter"}
GATED_LOADS = {f"kernel-gated-{k}" for k in ("inside", "below", "above", "nowhere")}
GATED_STORES = {*(f"kernel-gated-{k}" for k in ("inside", "below", "above", "lanes", "upcast")), "vector-gated"}
VECTORS = {"lanes", "lanes-strided", "lanes-reversed"}


@pytest.mark.parametrize(
    ("control", "row", "edges"),
    [
        (controls.IgnoresBarriers, "Codegen/Barrier", BARRIERS),
        (controls.DropsGates, "Load/Load", GATED_LOADS),
        (controls.DropsGates, "Store/Store", GATED_STORES),
        (controls.EntersEveryIf, "Codegen/If", {"list", "list-nested", "list-loop", "graph"}),
        (controls.LosesAdds, "Codegen/AtomicAdd", ADDS),
        (controls.RunsFirstVectorLane, "Movement/Index", VECTORS),
        (controls.RunsFirstVectorLane, "Movement/Stack", {"vector-of-loads"}),
    ],
)  # fmt: skip
def test_a_backend_that_misreads_a_row_fails_its_cells(
    control: type[Backend], row: str, edges: set[str], cases: list[ConformanceCase]
) -> None:
    assert failing_edges(control(), cases, row) == edges


@pytest.mark.parametrize("control", [controls.IgnoresBarriers, controls.DropsGates, controls.LosesAdds, controls.EntersEveryIf])
def test_what_a_control_misreads_is_all_that_it_fails(control: type[Backend], cases: list[ConformanceCase]) -> None:
    """Rows without Barriers, gates, Ifs and AtomicAdds are passed, so it is the misreading that fails, not the control."""
    assert failing_edges(control(), cases, "Ordering/Range") == set()
    assert failing_edges(control(), cases, "Codegen/Special") == set()


@pytest.mark.parametrize("kind", KERNEL_AXES, ids=lambda t: t.name.lower())
def test_each_axis_type_has_a_cell_that_fails_when_its_loops_stop_early(kind: AxisType, cases: list[ConformanceCase]) -> None:
    edge = edge_of_axis(kind)
    failed = failing_edges(controls.first_iteration_of(kind)(), cases, "Ordering/Range")
    assert edge in failed and not {f"{edge_of_axis(t)}" for t in KERNEL_AXES if t is not kind} & failed


def test_the_cells_hold_every_op_and_axis_type_of_kernels(cases: list[ConformanceCase]) -> None:
    nodes = {u for c in cases for u in toposort(c.graph)}
    wanted = {Op.RANGE, Op.END, Op.LINEAR, Op.SPECIAL, Op.BARRIER, Op.IF, Op.ENDIF, Op.ATOMICADD, Op.SINK, Op.AFTER, Op.GROUP}
    assert wanted <= {u.op for u in nodes}
    assert {u.arg.type for u in nodes if u.op is Op.RANGE} == set(KERNEL_AXES)


@pytest.mark.parametrize(
    ("surfaces", "askable"), [(("tensor",), False), (("kernel",), True), (("renderer",), True), (("tensor", "kernel"), True)]
)
def test_a_cell_of_a_surface_that_is_not_declared_is_not_askable(surfaces: tuple[str, ...], askable: bool) -> None:
    info = BackendInfo("interp", "1", Capabilities(surfaces=surfaces), False)
    found = run_conformance("interp", info, rows="Ordering/End", jobs=1)
    statuses = {r.status for r in found.cells[ConformanceLevel.STRICT].values()}
    assert statuses == {CellStatus.PASS if askable else CellStatus.NOT_ASKABLE}
    assert found.surfaces == surfaces


def test_a_cell_belongs_to_one_surface() -> None:
    surfaces: dict[object, set[str]] = {}
    for c in generate_cases(ConformanceTier.SMOKE):
        for cell in c.cells():
            surfaces.setdefault(cell, set()).add(c.surface)
    assert all(len(s) == 1 for s in surfaces.values())


def test_native_text_is_in_the_language_of_the_backend() -> None:
    """It means the same in each. Other cases have no text."""

    def texts(case: ConformanceCase) -> list[str]:
        return [u.arg.fmt for u in toposort(case.graph) if u.op in (Op.CUSTOM, Op.CUSTOMI)]

    native = [c for c in generate_native_cases(ConformanceTier.SMOKE) if texts(c)]
    assert {c.row for c in native} == {"Codegen/Custom", "Bestiary/CustomI"}
    for c in native:
        translated = translate_native_text(c, "llvm")
        assert set(texts(translated)).isdisjoint(texts(c)) and translated.meaning is c.graph, c.id
        assert translate_native_text(c, "c") is c and translate_native_text(c, "opencl") is c
    other = next(generate_loop_cases(ConformanceTier.SMOKE))
    assert translate_native_text(other, "llvm") is other
