"""Causes in runs, reports and pages: counted by cell, each with an example that has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from uops.backends.conformance.causes.blame import Blame, find_blame, list_adapter_files
from uops.backends.conformance.causes.find import CRASH, REFUSAL, TIMEOUT, UNEXPLAINED
from uops.backends.conformance.causes.summary import count_explained_cells, summarize_causes
from uops.backends.conformance.model import ConformanceCell, ConformanceLevel
from uops.backends.conformance.report.document import SCHEMA, build_document
from uops.backends.conformance.report.page import render_page
from uops.backends.conformance.report.texts import collect_spec_texts
from uops.backends.conformance.runner import ConformanceRun, run_conformance
from uops.backends.worker.client import query_info_isolating_foreign_backend

MakeRun = Callable[..., ConformanceRun]
STRICT = ConformanceLevel.STRICT
ZERO, NAN = ConformanceCell("Elementwise/Idiv", "int32", "zero"), ConformanceCell("Elementwise/Max", "bfloat16", "nan")


def control(name: str, rows: str) -> ConformanceRun:
    backend = f"uops.backends.conformance.controls:{name}"
    return run_conformance(backend, query_info_isolating_foreign_backend(backend), rows=rows, jobs=1)


def test_a_summary_counts_cells_and_elements_by_cause(make_run: MakeRun) -> None:
    run = make_run()
    run.cells[STRICT][ZERO].causes = {"quotient-by-zero": 2, UNEXPLAINED: 1}
    run.cells[STRICT][NAN].causes = {"quotient-by-zero": 8}
    doc = build_document(run)
    first, second = summarize_causes(doc, "strict")
    assert (first.id, first.cells, first.share, first.elements) == ("quotient-by-zero", 2, 1.0, 10)
    assert first.rows == ["Elementwise/Idiv", "Elementwise/Max"] and "all bits set" in first.text
    assert (second.id, second.cells, second.share, second.elements) == (UNEXPLAINED, 1, 0.5, 1)
    assert count_explained_cells(doc, "strict") == (1, 2)
    jsonschema.validate(doc, json.loads(SCHEMA.read_text()))


def test_a_failing_cell_without_a_cause_is_unexplained(make_run: MakeRun) -> None:
    run = make_run()
    run.cells[STRICT][ZERO].causes = {"quotient-by-zero": 3}
    doc = build_document(run)
    assert [(s.id, s.cells, s.elements) for s in summarize_causes(doc, "strict")] == [
        ("quotient-by-zero", 1, 3),
        (UNEXPLAINED, 1, 8),
    ]
    assert count_explained_cells(doc, "strict") == (1, 2)


def test_a_report_that_was_not_asked_for_causes_has_none(make_run: MakeRun) -> None:
    assert summarize_causes(build_document(make_run()), "strict") == []


def test_a_run_names_the_cause_with_an_example_that_has_it() -> None:
    """The control drops NaNs: a NaN result becomes zero."""
    doc = build_document(control("NoNan", "Elementwise/Add"))
    (cause,) = summarize_causes(doc, "strict")
    assert cause.id == "nan-lost" and cause.share == 1.0 and cause.cells > 10
    assert cause.failure is not None and cause.failure["cause"] == "nan-lost" and "nan" in cause.failure["allowed"]
    page = render_page(doc, collect_spec_texts({"Elementwise/Add"}), {})
    assert f"{cause.cells} of {cause.cells} failing cells are explained" in page and "<code>nan-lost</code>" in page


@pytest.mark.parametrize(("name", "cause"), [("CrashingOnFloat32Input", CRASH), ("RefusingFloat32", REFUSAL)])
def test_a_program_without_a_result_has_its_cause_in_the_report(name: str, cause: str) -> None:
    summaries = summarize_causes(build_document(control(name, "Decomposed/Neg")), "strict")
    assert summaries and all(s.id.startswith(cause) and s.failure is not None for s in summaries)


def test_an_exception_is_a_cause_with_its_text() -> None:
    (cause,) = summarize_causes(build_document(control("RaisesOnNanInput", "Decomposed/Neg")), "strict")
    assert cause.id == cause.text and cause.id.startswith("exception: ValueError")


def test_every_failure_of_a_cell_names_its_cause(tmp_path: Path) -> None:
    run = control("Zeros", "Elementwise/Add")
    failing = run.failing_cells(STRICT)
    assert failing and all(sum(c.causes.values()) == c.failed for c in failing)
    assert all(f.cause in c.causes for c in failing for f in c.failures)


@pytest.mark.parametrize(
    ("cause", "message", "blame"),
    [
        (
            "exception: TypeError: N",
            "error: TypeError: takes 2 [jax_adapter.py:12 add < evaluator.py:80 visit]",
            Blame.ADAPTER,
        ),
        ("exception: KeyError: 'x'", "error: KeyError: 'x' [mine.py:3 <lambda> < serve.py:150 run]", Blame.ADAPTER),
        ("exception: TypeError: N", "error: TypeError: bad [lax.py:12 add < jax_adapter.py:80 add]", Blame.BACKEND),
        ("exception: RuntimeError: N", "error: RuntimeError: bad shape [jax_adapter.py:12 add]", Blame.BACKEND),
        ("exception: TypeError: N", "error: TypeError: [jax_adapter.py:12 add] is named in the text", Blame.BACKEND),
        (REFUSAL + "no Pow", "refused: no Pow", Blame.REFUSAL),
        (TIMEOUT, "timeout: no answer within 5 s", Blame.TIMEOUT),
        (CRASH, "crash: ended by SIGFPE", Blame.BACKEND),
        ("quotient-by-zero", "element 3 of output 0 is outside the allowed set", Blame.BACKEND),
    ],
)
def test_the_blame_is_where_an_exception_was_raised(cause: str, message: str, blame: Blame) -> None:
    assert find_blame(cause, message, ["jax_adapter.py", "evaluator.py", "mine.py"]) is blame


def test_files_of_adapters_are_those_between_the_judge_and_a_library() -> None:
    assert list_adapter_files("llvm") == list_adapter_files("interp") == list_adapter_files("nowhere") == []
    assert "jax_adapter.py" in (files := list_adapter_files("jax:jit")) and "evaluator.py" in files and "__init__.py" not in files
    assert {"mine.py", "evaluator.py"} <= {*list_adapter_files("package.mine:Backend")}
