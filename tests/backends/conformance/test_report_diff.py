"""The difference of two reports: which changes are regressions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from uops.backends.conformance.model import CellStatus, ConformanceCell, ConformanceLevel
from uops.backends.conformance.report.diff import WORSE, CellChange, diff_reports, failures_in_first_second_or_both
from uops.backends.conformance.report.document import build_document
from uops.backends.conformance.runner import ConformanceRun

MakeRun = Callable[..., ConformanceRun]
CELL = ConformanceCell("A", "int8", "zero")
ORDINARY = ("Elementwise/Idiv", "int32", "ordinary")
ZERO = ("Elementwise/Idiv", "int32", "zero")
EIGHT = ("Elementwise/Idiv", "int8", "ordinary")


def compare(
    make_run: MakeRun, before: dict[Any, Any], after: dict[Any, Any], level: ConformanceLevel = ConformanceLevel.STRICT
) -> Any:
    return diff_reports(build_document(make_run(before)), build_document(make_run(after)), level)


def test_equal_reports_differ_in_nothing(make_run: MakeRun) -> None:
    d = compare(make_run, {}, {})
    assert not (d.changed or d.new or d.removed or d.heads or d.regressions)
    assert d.same == 8


ASKED = [s for s in CellStatus if s is not CellStatus.NOT_ASKABLE]


@pytest.mark.parametrize(("before", "after"), list(product(ASKED, ASKED)))
def test_a_cell_regresses_exactly_when_its_status_is_worse(before: CellStatus, after: CellStatus) -> None:
    c = CellChange(CELL, before, after)
    assert c.has_worse_status_or_lost_nonfailing_result == (WORSE.index(after) > WORSE.index(before))
    assert c.has_better_status == (WORSE.index(after) < WORSE.index(before))


@pytest.mark.parametrize("status", ASKED)
def test_a_cell_that_is_not_askable_is_compared_as_one_that_is_missing(status: CellStatus) -> None:
    mute = CellStatus.NOT_ASKABLE
    assert (
        CellChange(CELL, status, mute).has_worse_status_or_lost_nonfailing_result
        == CellChange(CELL, status, None).has_worse_status_or_lost_nonfailing_result
    )
    assert (
        CellChange(CELL, mute, status).has_worse_status_or_lost_nonfailing_result
        is CellChange(CELL, None, status).has_worse_status_or_lost_nonfailing_result
        is False
    )
    assert not CellChange(CELL, mute, status).has_better_status and not CellChange(CELL, status, mute).has_better_status


def test_a_surface_that_is_withdrawn_is_a_regression_and_a_new_one_is_none(make_run: MakeRun) -> None:
    withdrawn = compare(make_run, {}, {ORDINARY: CellStatus.NOT_ASKABLE, EIGHT: CellStatus.NOT_ASKABLE})
    assert {c.cell for c in withdrawn.regressions} == {ConformanceCell(*ORDINARY), ConformanceCell(*EIGHT)}
    assert compare(make_run, {ORDINARY: CellStatus.NOT_ASKABLE}, {ORDINARY: CellStatus.FAIL}).regressions == []


def test_a_difference_names_the_rows_that_only_the_second_report_asked(make_run: MakeRun) -> None:
    sin = {("Decomposed/Sin", "float32", edge): CellStatus.NOT_ASKABLE for edge in ("limit", "ordinary")}
    d = compare(make_run, sin, {})
    assert (d.rows, d.newly_asked) == ((3, 4), ["Decomposed/Sin"])
    assert d.to_json()["rows"] == {"before": 3, "after": 4, "newly_asked": ["Decomposed/Sin"]}


def test_a_report_of_version_1_is_compared_with_one_of_today(make_run: MakeRun) -> None:
    """It knew neither surfaces nor cells that are not askable."""
    before = build_document(make_run())
    before["schema_version"] = 1
    del before["silent_rows"], before["backend"]["surfaces"]
    for level in ("strict", "core"):
        for key in ("asked", "rows", "surfaces"):
            del before["scores"][level][key]
        del before["scores"][level]["totals"]["not askable"]
    for c in before["cells"]:
        del c["surface"]
    d = diff_reports(before, build_document(make_run({ORDINARY: CellStatus.NOT_ASKABLE})), ConformanceLevel.STRICT)
    assert d.same == 7 and [c.cell for c in d.regressions] == [ConformanceCell(*ORDINARY)]


def test_every_status_of_an_asked_cell_has_a_place_in_the_order() -> None:
    assert sorted(WORSE, key=lambda s: s.name) == sorted(ASKED, key=lambda s: s.name)
    assert WORSE[0] is CellStatus.PASS and WORSE[-1] is CellStatus.FAIL


def test_a_cell_that_now_fails_is_a_regression(make_run: MakeRun) -> None:
    d = compare(make_run, {}, {ORDINARY: CellStatus.FAIL})
    assert [c.cell for c in d.regressions] == [ConformanceCell(*ORDINARY)]
    assert d.scores["conformance"] == (3 / 8, 2 / 8) and d.scores["coverage"] == (6 / 8, 6 / 8)


def test_declaring_a_passing_cell_unsupported_is_a_regression(make_run: MakeRun) -> None:
    assert len(compare(make_run, {}, {ORDINARY: CellStatus.UNSUPPORTED}).regressions) == 1


def test_a_cell_that_is_repaired_is_none(make_run: MakeRun) -> None:
    d = compare(make_run, {}, {ZERO: CellStatus.PASS})
    assert [c.has_better_status for c in d.changed] == [True]
    assert d.regressions == []


def test_levels_are_compared_separately(make_run: MakeRun) -> None:
    assert len(compare(make_run, {ZERO: CellStatus.PASS}, {}).regressions) == 1
    assert compare(make_run, {ZERO: CellStatus.PASS}, {}, ConformanceLevel.CORE).changed == []


def test_a_new_cell_is_reported_and_is_no_regression(make_run: MakeRun) -> None:
    d = compare(make_run, {ZERO: None}, {})
    assert [(c.cell, c.after) for c in d.new] == [(ConformanceCell(*ZERO), CellStatus.FAIL)]
    assert d.regressions == []


def test_a_cell_that_passed_and_is_gone_is_a_regression(make_run: MakeRun) -> None:
    d = compare(make_run, {}, {EIGHT: None})
    assert [c.cell for c in d.removed] == [c.cell for c in d.regressions] == [ConformanceCell(*EIGHT)]


def test_a_cell_that_failed_and_is_gone_is_none(make_run: MakeRun) -> None:
    d = compare(make_run, {}, {ZERO: None})
    assert len(d.removed) == 1 and d.regressions == []


@pytest.mark.parametrize(
    ("key", "value"), [("rows", "Decomposed/*"), ("tier", "full"), ("dialect", "kernel"), ("sample", {"seed": 0, "of": 2})]
)
def test_a_cell_that_the_second_run_was_not_asked_for_is_not_removed(make_run: MakeRun, key: str, value: str) -> None:
    after = build_document(make_run({EIGHT: None}))
    d = diff_reports(build_document(make_run()), after | {key: value}, ConformanceLevel.STRICT)
    assert d.removed == [] and d.regressions == []
    assert list(d.heads) == [key]


def test_a_report_of_all_dialects_lacks_a_cell_of_a_report_of_one(make_run: MakeRun) -> None:
    before = build_document(make_run()) | {"dialect": "kernel"}
    d = diff_reports(before, build_document(make_run({EIGHT: None})), ConformanceLevel.STRICT)
    assert [c.cell for c in d.regressions] == [ConformanceCell(*EIGHT)]


def test_a_cell_that_was_not_askable_is_new_and_one_that_is_now_is_removed(make_run: MakeRun) -> None:
    mute = {ORDINARY: CellStatus.NOT_ASKABLE}
    now_asked, withdrawn, never_asked = (compare(make_run, *pair) for pair in ((mute, {}), ({}, mute), (mute, mute)))
    assert [c.cell for c in now_asked.new] == [c.cell for c in withdrawn.removed] == [ConformanceCell(*ORDINARY)]
    assert not (now_asked.changed or withdrawn.changed or never_asked.changed or never_asked.new or never_asked.removed)
    assert [d.shared_cell_count for d in (now_asked, withdrawn, never_asked)] == [7, 7, 7]


def test_the_json_of_a_difference_says_what_regressed(make_run: MakeRun) -> None:
    found = compare(make_run, {ZERO: None}, {ORDINARY: CellStatus.FAIL, EIGHT: None}).to_json()
    assert found["regresses"] is True
    assert found["changed"] == [
        {"row": ORDINARY[0], "dtype": "int32", "edge": "ordinary", "before": "pass", "after": "fail", "regresses": True}
    ]
    assert [c["after"] for c in found["new"]] == ["fail"] and [c["before"] for c in found["removed"]] == ["pass"]
    assert found["scores"]["coverage"] == {"before": 5 / 7, "after": 5 / 7}


def test_failures_of_two_backends_are_split(make_run: MakeRun) -> None:
    """What one of the two did not run is in none of the parts."""
    here = build_document(make_run({EIGHT: CellStatus.FAIL, ORDINARY: CellStatus.FAIL}))
    there = build_document(make_run({ZERO: CellStatus.PASS, ORDINARY: CellStatus.NOT_RUN}))
    only_here, only_there, both = (
        [(c["row"], c["dtype"], c["edge"]) for c in part]
        for part in failures_in_first_second_or_both(here, there, ConformanceLevel.STRICT)
    )
    assert sorted(only_here) == sorted([ZERO, EIGHT]) and only_there == [] and both == [("Elementwise/Max", "bfloat16", "nan")]
    assert [len(part) for part in failures_in_first_second_or_both(there, here, ConformanceLevel.STRICT)] == [0, 2, 1]
