"""The run of a subject's cells: what counts as passed, as failed and as not run, and how it resumes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uops.backends.conformance.model import CellStatus, ConformanceLevel, ConformanceTier
from uops.backends.conformance.report.document import build_document
from uops.backends.conformance.runner import ConformanceRun
from uops.backends.conformance.subjects import run as runs
from uops.backends.conformance.subjects.model import Answer, SubjectCase, cell_of_claim
from uops.backends.testing.journal import JournalMismatch
from uops.spec.errors import Crash
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.rows.named.base import RowSubject

SHAPE = cell_of_claim("PROPERTY.SHAPE.C1", "values")
AXIS = cell_of_claim("PROPERTY.AXIS.C1", "values")


def run_cases(monkeypatch: pytest.MonkeyPatch, *cases: SubjectCase, **options: Any) -> ConformanceRun:
    monkeypatch.setattr(runs, "generate_property_cases", lambda tier: iter(cases))
    return runs.run_subject(RowSubject.SPECIFICATION, name="specification", version="1", **options)


def case(name: str, *answers: Answer, cells: tuple = (SHAPE,)) -> SubjectCase:
    return SubjectCase(name, cells, lambda: iter(answers), b.param(0, (2,), dt.int32), {})


def test_a_cell_fails_with_one_fault_of_many_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run_cases(monkeypatch, case("a", Answer(SHAPE), Answer(SHAPE, "wrong")), case("b", Answer(SHAPE)))
    for level in ConformanceLevel:
        result = outcome.cells[level][SHAPE]
        assert (result.status, result.elements, result.failed) == (CellStatus.FAIL, 3, 1)
        assert [f.message for f in result.failures] == ["wrong"]
    assert list(outcome.reproducers) == ["a"]


def test_a_cell_that_nothing_answers_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run_cases(monkeypatch, case("a", Answer(SHAPE), cells=(SHAPE, AXIS)))
    statuses = {cell.row: r.status for cell, r in outcome.cells[ConformanceLevel.STRICT].items()}
    assert statuses == {SHAPE.row: CellStatus.PASS, AXIS.row: CellStatus.NOT_RUN}


def test_a_case_that_raises_fails_all_of_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> Iterator[Answer]:
        yield Answer(SHAPE)
        raise ValueError("broken judge")

    outcome = run_cases(monkeypatch, SubjectCase("a", (SHAPE, AXIS), ask))
    assert {r.status for r in outcome.cells[ConformanceLevel.STRICT].values()} == {CellStatus.FAIL}


def test_other_rows_are_neither_required_nor_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run_cases(monkeypatch, case("a", Answer(SHAPE), Answer(AXIS, "wrong"), cells=(SHAPE, AXIS)), rows="*/shape")
    assert [r.status for r in outcome.cells[ConformanceLevel.STRICT].values()] == [CellStatus.PASS]


def test_a_resumed_run_asks_only_what_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt() -> Iterator[Answer]:
        raise KeyboardInterrupt

    def ask_again() -> Iterator[Answer]:
        raise AssertionError("asked again")

    journal = tmp_path / "journal"
    first = case("a", Answer(SHAPE, "wrong"))
    interrupted = run_cases(monkeypatch, first, SubjectCase("b", (AXIS,), interrupt), journal=journal)
    assert not interrupted.complete and interrupted.cells[ConformanceLevel.STRICT][AXIS].status is CellStatus.NOT_RUN
    answered = SubjectCase("a", (SHAPE,), ask_again, first.graph, {})
    resumed = run_cases(monkeypatch, answered, case("b", Answer(AXIS), cells=(AXIS,)), journal=journal)
    whole = run_cases(monkeypatch, first, case("b", Answer(AXIS), cells=(AXIS,)))
    assert resumed.complete and resumed.cells == whole.cells and resumed.reproducers.keys() == whole.reproducers.keys()


def test_several_processes_judge_as_one_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cases = [case(f"{k}", Answer(SHAPE, "wrong" if k % 3 == 0 else None), Answer(AXIS), cells=(SHAPE, AXIS)) for k in range(20)]
    one, two = (run_cases(monkeypatch, *cases, jobs=jobs, journal=tmp_path / f"{jobs}") for jobs in (1, 2))
    assert one.cells == two.cells and one.reproducers.keys() == two.reproducers.keys()
    assert (tmp_path / "1").read_text() == (tmp_path / "2").read_text()


def test_a_process_that_ends_is_a_crash_and_what_was_judged_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    judged_by = tmp_path / "judged"

    def end_process() -> Iterator[Answer]:
        os._exit(3)

    def ask() -> Iterator[Answer]:
        judged_by.touch()
        yield Answer(SHAPE)

    cases = SubjectCase("a", (SHAPE,), ask), SubjectCase("b", (SHAPE,), end_process)
    with pytest.raises(Crash, match="--jobs 1"):
        run_cases(monkeypatch, *cases, jobs=2, journal=tmp_path / "journal")
    judged_by.unlink()
    run_cases(monkeypatch, cases[0], case("b", Answer(SHAPE)), journal=tmp_path / "journal")
    assert not judged_by.exists()


def test_a_journal_is_of_one_subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_cases(monkeypatch, case("a", Answer(SHAPE)), journal=tmp_path / "journal")
    with pytest.raises(JournalMismatch):
        runs.run_subject(RowSubject.FRONT_END, name="specification", version="1", journal=tmp_path / "journal")


def test_cells_of_a_subject_count_in_its_own_score_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    doc = build_document(run_cases(monkeypatch, case("a", Answer(SHAPE))))
    score = doc["scores"]["strict"]
    assert doc["subject"] == "specification" and list(score["surfaces"]) == ["specification"]
    assert (score["required"], score["passed"]) == (1, 1)
    assert doc["specification"]["rows"] == 6 and doc["specification"]["other_rows"]["backend"] == 145
    assert doc["silent_rows"]  # the rows of the specification of which this run has no case


@pytest.mark.parametrize("subject", [RowSubject.FRONT_END, RowSubject.SPECIFICATION])
def test_all_rows_of_a_subject_have_cells_that_pass(subject: RowSubject) -> None:
    outcome = runs.run_subject(subject, name="uops", version="1", tier=ConformanceTier.SMOKE)
    assert {r.status for r in outcome.cells[ConformanceLevel.STRICT].values()} == {CellStatus.PASS}
    assert build_document(outcome)["silent_rows"] == []
