"""The suite itself: it asks everything it must, refuses those who do nothing, and accepts the interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.cases.elementwise import OPS
from uops.backends.conformance.controls import AllBitsSet, Zeros, repeat_first_input
from uops.backends.conformance.exclusions import (
    EXCLUSIONS,
    LENIENT,
    find_control_allowance,
    find_exclusion,
)
from uops.backends.conformance.judge import Expectation, SegmentVerdict, interpret, judge, outputs_of
from uops.backends.conformance.model import (
    REFUSED,
    CellResult,
    CellStatus,
    ConformanceCase,
    ConformanceCell,
    ConformanceLevel,
    ConformanceTier,
    Segment,
)
from uops.backends.conformance.report.document import compute_total_and_surface_scores
from uops.backends.conformance.runner import ConformanceRun, _merge_verdict_into_cell, draw_sample, run_conformance
from uops.backends.contract import TENSOR_SURFACE, Capabilities
from uops.backends.testing.signatures import is_tested_dtype
from uops.backends.worker import client
from uops.backends.worker.client import query_info_isolating_foreign_backend
from uops.interp import find_executed_ops, run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import UNARY, Op
from uops.spec.result import Result
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import TENSOR_OPS, Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import verify


@pytest.fixture(scope="module")
def smoke() -> list[ConformanceCase]:
    return list(generate_cases(ConformanceTier.SMOKE))


@pytest.fixture(scope="module")
def judged(smoke: list[ConformanceCase]) -> list[tuple[Expectation, Result]]:
    return [(Expectation(c), interpret(c.graph, c.inputs)) for c in smoke]


def test_case_ids_are_unique_and_graphs_well_formed(smoke: list[ConformanceCase]) -> None:
    assert len({c.id for c in smoke}) == len(smoke)
    for c in smoke:
        is_tensor = c.surface == TENSOR_SURFACE and infer_tensor_kernel_or_bestiary_dialect(c.graph) is not Dialect.BESTIARY
        verify(c.graph, Dialect.TENSOR if is_tensor else None)


def test_the_suite_is_the_same_every_time(smoke: list[ConformanceCase]) -> None:
    for first, again in zip(smoke, generate_cases(ConformanceTier.SMOKE), strict=True):
        assert first.id == again.id and first.graph is again.graph
        assert all(np.array_equal(_bytes(first.inputs[k]), _bytes(again.inputs[k])) for k in first.inputs)


def _bytes(x: Any) -> Any:
    return np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)


def test_required_cells_are_the_rows_times_their_legal_dtypes() -> None:
    """Every storable dtype of every row has a cell in the full tier, or an exclusion with a ruling, never both."""
    asked = {(c.row, c.dtype.name) for c in generate_cases(ConformanceTier.FULL)}
    for row in ROWS.values():
        for d in dt.STORABLE:
            assert (find_exclusion(row.id, d.name) is not None) != ((row.id, d.name) in asked), f"{row.id} x {d.name}"


def test_the_exclusions_are_counted() -> None:
    pairs = [(r.id, d.name) for r in ROWS.values() for d in dt.STORABLE if find_exclusion(r.id, d.name)]
    assert len(EXCLUSIONS) == 24
    assert len(pairs) == 95 + 10 * len(dt.FLOATS) + 1 + 7 + 13
    assert len(LENIENT) == 8


def test_every_exclusion_and_leniency_is_used(judged: list[tuple[Expectation, Result]]) -> None:
    for e in EXCLUSIONS:
        assert any(e.covers(r.id, d.name) for r in ROWS.values() for d in dt.STORABLE), e
    cells = {c for e, _ in judged for c in e.case.cells()}
    for x in LENIENT:
        assert any(x.allows_control_to_pass(x.control, c.row, c.dtype, c.edge) for c in cells), x


def test_the_cases_execute_every_op(smoke: list[ConformanceCase]) -> None:
    """Measured by what the interpreter executed."""
    done: set[Op] = set()
    for c in smoke:
        is_tensor = c.surface == TENSOR_SURFACE and infer_tensor_kernel_or_bestiary_dialect(c.graph) is not Dialect.BESTIARY
        done |= find_executed_ops(c.graph, c.inputs) if is_tensor else {u.op for u in toposort(c.graph)}
    assert done == set(ROWS)
    assert done > TENSOR_OPS


def test_every_op_of_several_operands_is_asked_with_one_node_for_them(smoke: list[ConformanceCase]) -> None:
    found = {(c.row, c.dtype): c.graph.src[0] for c in smoke if c.name == "same-operand"}
    wanted = [(op, d) for op in OPS if op not in UNARY and op is not Op.CAST for d in dt.STORABLE if is_tested_dtype(op, d)]
    assert found.keys() == {(ROWS[op].id, d) for op, d in wanted} and len(wanted) == 166 + 14 * len(dt.FLOATS)
    for (_, d), u in found.items():
        assert len({s for s in u.src if s.dtype is d}) == 1 < len(u.src)


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("Decomposed/Sub", lambda x: x * 0 if np.isfinite(x) else 0),  # x - x -> 0, wrong for inf and NaN
        ("Elementwise/CmpNe", lambda x: False),  # x != x -> False, wrong for NaN
        ("Decomposed/Div", lambda x: 1),  # x / x -> 1, wrong for 0, inf and NaN
    ],
)
def test_a_rule_that_forgets_nan_is_seen_on_one_operand(
    row: str, wrong: Callable[[Any], Any], smoke: list[ConformanceCase]
) -> None:
    (case,) = [c for c in smoke if (c.row, c.dtype, c.name) == (row, dt.float32, "same-operand")]
    good = run(case.graph, case.inputs)
    x = case.inputs["p0"]
    spoilt = np.array([wrong(v) for v in x], good.values[0].dtype)
    verdicts = judge(Expectation(case), Result((spoilt, good.values[1]), {}), ConformanceLevel.CORE)
    assert [bool(v.failed) for v in verdicts] == [True, False]


@pytest.fixture(scope="module")
def everything(judged: list[tuple[Expectation, Result]]) -> list[tuple[Expectation, Result]]:
    """The smoke cases, and those of the full tier that have cells of their own."""
    known = {cell for e, _ in judged for cell in e.case.cells()}
    more = [c for c in generate_cases(ConformanceTier.FULL) if not known.issuperset(c.cells())]
    assert len(more) > 300
    return judged + [(Expectation(c), interpret(c.graph, c.inputs)) for c in more]


def test_what_a_backend_declares_and_refuses_fails_and_is_not_run() -> None:
    """A refusal raises no percentage, and no declared deviation makes it an expected failure."""
    name = "uops.backends.conformance.controls:RefusingFloat32"
    refusing = run_conformance(name, query_info_isolating_foreign_backend(name), rows="Decomposed/Neg", jobs=1)
    good = run_conformance("interp", query_info_isolating_foreign_backend("interp"), rows="Decomposed/Neg", jobs=1)
    for level in ConformanceLevel:
        before, after = (
            compute_total_and_surface_scores(good.cells[level].values()),
            compute_total_and_surface_scores(refusing.cells[level].values()),
        )
        refused = [r for r in refusing.cells[level].values() if r.cell.dtype == "float32"]
        assert {(r.status, r.reason, r.elements, r.failed, r.is_refusal, r.run) for r in refused} == {
            (CellStatus.FAIL, REFUSED, 0, 0, True, False)
        }
        assert all(f.message.startswith("refused: refusing does not support ") for r in refused for f in r.failures)
        assert after["refused"] == after["totals"]["fail"] == len(refused) > 0 == before["refused"]
        assert after["required"] == before["required"] == before["run"] == after["run"] + len(refused)
        assert after["passed"] == before["passed"] - len(refused)
        assert after["coverage"] < before["coverage"] and after["conformance"] < before["conformance"]


def test_no_program_is_asked_that_has_a_value_of_an_undeclared_dtype() -> None:
    name = "uops.backends.conformance.controls:RefusingFloat32"
    info = query_info_isolating_foreign_backend(name)
    without = Capabilities(tuple(d for d in info.capabilities.dtypes if d is not dt.float32), surfaces=info.capabilities.surfaces)
    run = run_conformance(name, replace(info, capabilities=without), rows="*/Cast", jobs=1)
    cells = run.cells[ConformanceLevel.CORE].values()
    assert {c.status for c in cells} == {CellStatus.PASS, CellStatus.UNSUPPORTED}
    reasons = {c.reason for c in cells if c.status is CellStatus.UNSUPPORTED and c.cell.dtype != "float32"}
    assert reasons == {"no dtype float32, which a value in the program has"}


def test_a_cell_that_is_refused_in_part_fails_and_counts_what_was_judged() -> None:
    (case, *_) = generate_cases(ConformanceTier.SMOKE, "Decomposed/Neg")
    cell, level = case.cells()[0], ConformanceLevel.CORE
    for order in ((True, False), (False, True)):
        r = ConformanceRun("x", "1", ConformanceTier.SMOKE, "*", {level: {cell: CellResult(cell, CellStatus.NOT_RUN)}})
        for refused in order:
            verdict = SegmentVerdict(case.segments[0], refused=True) if refused else SegmentVerdict(case.segments[0], 4)
            _merge_verdict_into_cell(r, case, verdict, level, Capabilities())
        found = r.cells[level][cell]
        assert (found.status, found.reason, found.elements, found.run) == (CellStatus.FAIL, REFUSED, 4, True)


CONTROLS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "zeros": lambda v, i: Zeros().spoil(v, i),
    "nan": lambda v, i: AllBitsSet().spoil(v, i),
    "first": repeat_first_input,
}


@pytest.mark.slow
@pytest.mark.parametrize("level", ConformanceLevel, ids=lambda x: x.value)
@pytest.mark.parametrize("control", CONTROLS)
def test_no_cell_is_passed_by_doing_nothing(
    control: str, level: ConformanceLevel, everything: list[tuple[Expectation, Result]]
) -> None:
    accepted: dict[ConformanceCell, bool] = {}
    for expected, result in everything:
        outputs = outputs_of(result)
        for s in expected.case.segments:
            spoilt = np.asarray(CONTROLS[control](outputs[s.output], expected.case.inputs))
            cell = expected.case.cell(s)
            fine = bool(expected.accepts(s.output, spoilt, level)[s.start : s.stop].all())
            accepted[cell] = accepted.get(cell, True) and fine
    wrongly = [str(c) for c, ok in accepted.items() if ok and find_control_allowance(control, c.row, c.dtype, c.edge) is None]
    assert not wrongly


@pytest.mark.parametrize("level", ConformanceLevel, ids=lambda x: x.value)
def test_the_interpreter_passes_every_cell(level: ConformanceLevel, judged: list[tuple[Expectation, Result]]) -> None:
    wrong = [f"{e.case.id}: {v.failures[0]}" for e, r in judged for v in judge(e, r, level) if v.failed]
    assert not wrong


def test_what_strict_accepts_core_accepts(judged: list[tuple[Expectation, Result]]) -> None:
    """P3: the core sets hold the strict ones' reference values."""
    for e, _ in judged:
        for key, strict in e.strict.items():
            assert np.asarray(e.core[key].contains(strict.best)).all(), e.case.id


def _run(name: str, rows: str = "*/Add") -> Any:
    backend = f"uops.backends.conformance.controls:{name}"
    return run_conformance(backend, query_info_isolating_foreign_backend(backend), tier=ConformanceTier.SMOKE, rows=rows, jobs=1)


@pytest.mark.parametrize(("name", "status"), [("CrashingOnFloat32Input", "crash"), ("HangingOnFloat32Input", "timeout")])
def test_a_crash_or_a_hang_fails_its_cells_and_ends_nothing(name: str, status: str) -> None:
    backend = f"uops.backends.conformance.controls:{name}"
    found = run_conformance(
        backend,
        query_info_isolating_foreign_backend(backend),
        rows="Movement/Flip",
        jobs=1,
        limits=client.Limits(timeout=1.0 if name == "HangingOnFloat32Input" else 60.0),
    )
    failing = found.failing_cells(ConformanceLevel.STRICT)
    assert {c.cell.dtype for c in failing} == {"float32"}
    assert all(status in c.failures[0].message for c in failing)
    assert {found.reproducers[c.failures[0].case].row for c in failing} == {"Movement/Flip"}
    assert CellStatus.PASS in _statuses(found, ConformanceLevel.STRICT).values()


def test_a_wrong_nan_payload_shows_both_bit_patterns() -> None:
    """Where values only move, they are judged by bits, and a NaN says nothing without them."""
    given = np.array([0x7FC00123, 0x3F800000], np.uint32).view(np.float32)
    graph = b.flip(b.param(0, (2,), dt.float32), [True])
    case = ConformanceCase("Movement/Flip", dt.float32, "payload", graph, {"p0": given}, (Segment("payload", 0, 0, 2),))
    wrong = np.array([0x3F800000, 0x7FC00000], np.uint32).view(np.float32)
    (verdict,) = judge(Expectation(case), Result((wrong,), {}), ConformanceLevel.STRICT)
    (failure,) = verdict.failures
    assert (failure.got, failure.allowed) == ("nan (0x7fc00000)", "nan (0x7fc00123)")


def test_a_class_fails_for_its_own_elements_alone() -> None:
    """A program in which one element raises is run again class by class."""
    found = _run("RaisesOnNanInput", "*/Neg")
    need: dict[ConformanceCell, bool] = {}
    for c in generate_cases(ConformanceTier.SMOKE, "*/Neg"):
        for s in c.segments:
            x = np.asarray(c.inputs.get("p0", 0)).reshape(-1)[s.start : s.stop]
            with np.errstate(invalid="ignore"):
                need[c.cell(s)] = need.get(c.cell(s), False) or bool(np.isnan(x.astype(np.float64)).any())
    for level in ConformanceLevel:
        assert {c: s is CellStatus.FAIL for c, s in _statuses(found, level).items()} == need
    assert 0 < sum(need.values()) < len(need) / 2
    (failure, *_) = found.failing_cells(ConformanceLevel.STRICT)[0].failures
    assert "a NaN" in failure.message
    case = found.reproducers[failure.case]
    assert [s.edge for s in case.segments] == ["nan"] and np.isnan(case.inputs["p0"].astype(np.float64)).any()


def test_a_failure_of_no_single_class_fails_them_all() -> None:
    """The control counts different values, of which a class alone has few."""
    found = _run("RaisesOnManyDistinctInputValues", "*/Neg")
    statuses = _statuses(found, ConformanceLevel.CORE)
    edges = {c.edge for c, s in statuses.items() if s is CellStatus.FAIL and c.dtype == "int32"}
    assert edges == {c.edge for c in statuses if c.dtype == "int32"} - {"constant"}
    assert any(
        "not when its classes run alone" in f.message for r in found.failing_cells(ConformanceLevel.CORE) for f in r.failures
    )


def _statuses(found: Any, level: ConformanceLevel) -> dict[ConformanceCell, CellStatus]:
    return {c: r.status for c, r in found.cells[level].items()}


def test_cells_that_differ_by_a_declared_trait_alone_are_scored_apart() -> None:
    name = "uops.backends.conformance.controls:FlushingSubnormals"
    info = query_info_isolating_foreign_backend(name)
    with_trait = run_conformance(name, info, rows="Elementwise/M*", jobs=1).cells[ConformanceLevel.STRICT]
    undeclared = replace(info, capabilities=replace(info.capabilities, traits=()))
    without = run_conformance(name, undeclared, rows="Elementwise/M*", jobs=1).cells[ConformanceLevel.STRICT]
    flushed = {c for c, r in without.items() if r.status is CellStatus.FAIL}
    assert flushed and {r.status for c, r in without.items() if c not in flushed} == {CellStatus.PASS}
    assert flushed == {c for c, r in with_trait.items() if r.status is CellStatus.BY_TRAIT}
    assert all("R19" in str(with_trait[c].reason) and with_trait[c].failures for c in flushed)
    before, after = (compute_total_and_surface_scores(cells.values()) for cells in (without, with_trait))
    assert after["passed"] == before["passed"] < before["required"] and after["conformance"] == before["conformance"]
    assert before["with_traits"] == before["conformance"] < after["with_traits"] == 1


def test_a_backend_that_declares_to_flush_conforms_at_core_R19() -> None:
    run = _run("FlushingSubnormals", "Elementwise/Mul")
    core = run.cells[ConformanceLevel.CORE].values()
    assert {r.status for r in core} == {CellStatus.PASS} and not any(r.failed or r.failures or r.causes for r in core)
    assert CellStatus.BY_TRAIT in _statuses(run, ConformanceLevel.STRICT).values()


def test_flushed_results_are_wrong_at_core_where_no_backend_declares_to_flush_R19() -> None:
    info = query_info_isolating_foreign_backend("uops.backends.conformance.controls:FlushingSubnormals")
    undeclared = replace(info, capabilities=replace(info.capabilities, traits=()))
    run = run_conformance("uops.backends.conformance.controls:FlushingSubnormals", undeclared, rows="Elementwise/Mul", jobs=1)
    assert CellStatus.FAIL in _statuses(run, ConformanceLevel.CORE).values()


def test_a_trait_excuses_nothing_else() -> None:
    statuses = Counter(r.status for r in _run("FlushingSubnormals").cells[ConformanceLevel.STRICT].values())
    assert statuses[CellStatus.BY_TRAIT] and statuses[CellStatus.FAIL]


def test_the_empty_backend_scores_nothing() -> None:
    found = _run("Empty", "*")
    assert set(_statuses(found, ConformanceLevel.CORE).values()) == {CellStatus.UNSUPPORTED}
    assert len(found.cells[ConformanceLevel.CORE]) > 3000


def test_a_backend_that_refuses_what_it_declared_fails() -> None:
    assert set(_statuses(_run("Refusing"), ConformanceLevel.CORE).values()) == {CellStatus.FAIL}


def test_the_zeros_backend_fails_everywhere() -> None:
    assert set(_statuses(_run("Zeros", "*/M*"), ConformanceLevel.CORE).values()) == {CellStatus.FAIL}


def test_a_backend_that_drops_nans_fails_exactly_where_nans_must_come_out(judged: list[tuple[Expectation, Result]]) -> None:
    found = _run("NoNan", "*/Mul")
    need = set()
    for e, r in judged:
        if not e.case.row.endswith("/Mul"):
            continue
        for s in e.case.segments:
            values = np.asarray(outputs_of(r)[s.output]).reshape(-1)[s.start : s.stop]
            if e.case.dtype.is_float and np.isnan(values.astype(np.float64)).any():
                need.add(e.case.cell(s))
    statuses = _statuses(found, ConformanceLevel.STRICT)
    assert need and {c for c, s in statuses.items() if s is CellStatus.FAIL} == need


@pytest.mark.slow
def test_the_interpreter_as_a_backend_scores_everything() -> None:
    found = _run("Interp", "*")
    for level in ConformanceLevel:
        assert set(_statuses(found, level).values()) == {CellStatus.PASS}


def test_a_sample_has_the_same_cases_for_a_seed_and_keeps_their_order() -> None:
    cases = list(generate_cases(ConformanceTier.SMOKE, "Elementwise/*"))
    drawn = draw_sample(cases, 20, 1)
    assert len(drawn) == 20 and drawn == [c for c in cases if c in drawn] == draw_sample(list(cases), 20, 1)
    assert drawn != draw_sample(cases, 20, 2) and draw_sample(cases, len(cases) + 5, 1) == cases
    assert set(map(id, drawn)) <= set(map(id, draw_sample(cases, 30, 1))), "a larger sample holds a smaller one"


def test_a_sample_is_of_what_the_backend_can_be_asked_and_all_of_it_is_run() -> None:
    run = run_conformance(
        "interp", query_info_isolating_foreign_backend("interp"), rows="Elementwise/Add", jobs=1, sample=4, sample_seed=7
    )
    statuses = Counter(c.status for c in run.cells[ConformanceLevel.STRICT].values())
    assert run.cases == 4 and set(statuses) == {CellStatus.PASS}
    assert run.sample is not None and run.sample.cases > 4 and run.sample.rows == {"Elementwise/Add"}
