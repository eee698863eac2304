"""`uops conform`: exit status, files, summary, baseline and diff; the suite itself is a fake."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import Result

from uops.backends.conformance import model
from uops.backends.conformance.model import CellStatus, ConformanceLevel, ConformanceTier, SchedulePolicy
from uops.backends.conformance.report import write
from uops.backends.testing.journal import Journal
from uops.cli.commands.conform import LEVELS, OPTS, SUBJECTS, TIERS, find_reason_unwritable
from uops.cli.common import WIDE
from uops.compiler import Config
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.rows import rows_of_subject
from uops.spec.verify.dialects import Dialect

Uops = Callable[..., Result]
ADD, LIMIT = ("Elementwise/Add", "int8", "zero"), ("Elementwise/Add", "int8", "limit")
INTERP = "interp"


def test_the_choices_are_those_of_the_suite() -> None:
    assert tuple(t.value for t in ConformanceTier) + ("exhaustive",) == TIERS
    assert tuple(level.value for level in ConformanceLevel) == LEVELS
    assert SchedulePolicy().kind == OPTS[0]
    assert [SchedulePolicy(kind, 7, 3).environment for kind in OPTS] == [
        {},
        {"UOPS_OPTIMIZE": "0"},
        {"UOPS_FORCED": "7"},
        {"UOPS_BEAM": "3"},
    ]
    assert [Config.from_environment(SchedulePolicy(kind, 7, 3).environment) for kind in OPTS] == [
        Config(),
        Config(optimize=False),
        Config(forced=7),
        Config(beam=3),
    ]


def test_a_run_that_passes_has_status_0_and_a_full_report(uops: Uops, suite: Any, tmp_path: Path) -> None:
    result = uops("conform", "--backend", "interp")
    assert result.exit_code == 0, result.output
    assert {f.name for f in (tmp_path / "report").iterdir()} == {"report.json", "junit.xml", "index.html"}
    assert "conformance" in result.output and "coverage" in result.output and result.output.count("100 %") == 7
    assert f"100 % at level strict, over 2 of {len(rows_of_subject(RowSubject.BACKEND))} rows: 3 of 3 cells passed" in result.output
    assert f"rows without a cell, {len(rows_of_subject(RowSubject.BACKEND)) - 2}: " in result.output
    assert "report/index.html" in result.output.replace("\\", "/")
    assert suite.calls == [
        {"backend": INTERP, "name": "interp", "tier": ConformanceTier.SMOKE, "rows": "*", "jobs": suite.calls[0]["jobs"]}
    ]
    assert json.loads((tmp_path / "report/report.json").read_text())["backend"]["name"] == "interp"


def test_options_reach_the_suite(uops: Uops, suite: Any, tmp_path: Path) -> None:
    result = uops(
        "conform", "-b", "interp", "--tier", "full", "--level", "core", "--rows", "Elementwise/*", "-j", "3", "--report", "there"
    )
    assert result.exit_code == 0
    assert (
        suite.calls[0]["tier"] is ConformanceTier.FULL and suite.calls[0]["rows"] == "Elementwise/*" and suite.calls[0]["jobs"] == 3
    )
    assert json.loads((tmp_path / "there/report.json").read_text())["level"] == "core"


def test_a_journal_reaches_the_suite(uops: Uops, suite: Any) -> None:
    assert uops("conform", "-b", "interp", "--journal", "there.jsonl").exit_code == 0
    assert suite.calls[0]["journal"] == Path("there.jsonl")


def test_a_sample_reaches_the_suite_and_the_summary_says_of_how_many(uops: Uops, suite: Any, tmp_path: Path) -> None:
    shown = uops("conform", "-b", INTERP, "--sample", "3", "--seed", "5", "--report", str(tmp_path / "r"))
    assert shown.exit_code == 0 and suite.calls[0] | {"sample": 3, "sample_seed": 5} == suite.calls[0]
    assert "a sample of 3 of 9,000 programs (seed 5)" in " ".join(shown.output.split())
    doc = json.loads((tmp_path / "r" / "report.json").read_text())
    assert doc["sample"] == {"seed": 5, "of": 9000}
    assert not {"Elementwise/Add", "Elementwise/Mul"} & set(doc["silent_rows"]), "a row that was not drawn is not one without cells"


def test_a_sample_of_other_subjects_is_refused(uops: Uops, suite: Any) -> None:
    assert uops("conform", "--subject", "front-end", "--sample", "3").exit_code == 2
    assert uops("conform", "-b", INTERP, "--tier", "exhaustive", "--sample", "3").exit_code == 2


def test_without_a_terminal_progress_is_told_in_lines(uops: Uops, suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert uops("conform", "-b", "interp").stderr == ""
    monkeypatch.setattr(sys.modules["uops.cli.commands.conform"], "EVERY", 0.0)
    assert uops("conform", "-b", "interp", "--json").stderr == "interp, smoke: 1 of 2 after 0 s\n"


def test_schedules_reach_the_suite_and_the_report(uops: Uops, suite: Any, tmp_path: Path) -> None:
    suite.applied = {"Split REDUCE to UNROLL inner by 4": 3, "Nolocals": 2}
    result = uops("conform", "-b", "llvm", "--opts", "forced", "--seed", "7")
    assert result.exit_code == 0 and suite.calls[0]["schedules"] == SchedulePolicy("forced", 7)
    told = json.loads((tmp_path / "report/report.json").read_text())["schedules"]
    assert told == {"kind": "forced", "seed": 7, "applied": suite.applied}
    assert re.search(r"Split REDUCE to UNROLL inner +3 *$", result.output, re.MULTILINE) and "seed 7" in result.output
    assert uops("conform", "-b", "llvm", "--opts", "search", "--beam", "3", "--json").exit_code == 0
    assert json.loads((tmp_path / "report/report.json").read_text())["schedules"] == {"kind": "search", "beam": 3}


def test_a_failing_cell_has_status_1_and_a_reproducer(uops: Uops, suite: Any, tmp_path: Path) -> None:
    suite.statuses[ADD] = CellStatus.FAIL
    result = uops("conform", "--backend", "interp")
    assert result.exit_code == 1
    for text in ("failing at level strict", "Elementwise/Add", "int8", "zero", "p0 = 3 (0x03): got 9 (0x09), allowed 8 (0x08)"):
        assert text in result.output
    assert "66.66 %" in result.output
    assert (tmp_path / "report/reproducers/Elementwise-Add-int8-edges.uops").is_file()


@pytest.mark.parametrize(
    ("status", "code"),
    [(CellStatus.PASS, 0), (CellStatus.UNSUPPORTED, 0), (CellStatus.XFAIL, 0), (CellStatus.NOT_RUN, 1), (CellStatus.FAIL, 1)],
)
def test_declared_gaps_do_not_fail_a_run(uops: Uops, suite: Any, status: model.CellStatus, code: int) -> None:
    suite.statuses[ADD] = status
    assert uops("conform", "--backend", "interp").exit_code == code


@pytest.mark.parametrize("status", [CellStatus.UNSUPPORTED, CellStatus.NOT_ASKABLE])
def test_a_run_in_which_nothing_was_run_has_status_2(uops: Uops, suite: Any, status: model.CellStatus) -> None:
    """Declaring everything away is no pass."""
    suite.statuses = dict.fromkeys(suite.statuses, status)
    result = uops("conform", "--backend", "interp")
    assert result.exit_code == 2
    assert "Warning: nothing was run at level strict" in result.stderr and "Traceback" not in result.stderr


def test_the_summary_says_what_was_not_asked(uops: Uops, suite: Any) -> None:
    suite.statuses[("Codegen/Barrier", "int8", "local")] = CellStatus.NOT_ASKABLE
    result = uops("conform", "--backend", "interp")
    assert result.exit_code == 0
    assert "not asked, 1: cells of the surface tensor" in result.output
    assert "rows of which nothing was asked, 1: Codegen/Barrier" in result.output
    assert len(re.findall(rf"75\.00 % +2 / {len(rows_of_subject(RowSubject.BACKEND))} ", result.output)) == 2


def test_an_interrupted_run_writes_what_it_has_and_has_status_130(uops: Uops, suite: Any, tmp_path: Path) -> None:
    suite.complete = False
    suite.statuses[ADD] = CellStatus.NOT_RUN
    result = uops("conform", "--backend", "interp")
    assert result.exit_code == 130
    assert "interrupted" in result.output
    assert json.loads((tmp_path / "report/report.json").read_text())["complete"] is False


def test_json_is_the_only_thing_on_standard_output(uops: Uops, suite: Any) -> None:
    suite.statuses[ADD] = CellStatus.FAIL
    result = uops("conform", "--backend", "interp", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["failing"] == [{"row": ADD[0], "dtype": ADD[1], "edge": ADD[2]}]
    assert (found["scores"]["strict"]["passed"], found["scores"]["strict"]["required"]) == (2, 3)
    assert found["report"] == "report" and found["baseline"] is None


def test_output_into_a_pipe_is_not_cut_at_80_columns(uops: Uops, suite: Any) -> None:
    suite.statuses[ADD] = CellStatus.FAIL
    lines = uops("conform", "--backend", "interp").output.splitlines()
    assert 80 < max(map(len, lines)) <= WIDE


def test_only_the_first_twenty_failing_rows_are_listed(uops: Uops, suite: Any) -> None:
    suite.statuses = {(f"Elementwise/Row{k:02}", "int8", "zero"): CellStatus.FAIL for k in range(23)}
    output = uops("conform", "--backend", "interp").output
    assert sum(f"Row{k:02}" in output for k in range(23)) == 20 and "and 3 more rows" in output


# ------------------------------------------------------------------------------------------------------------ baseline


def test_a_regression_against_the_baseline_fails_a_run_without_failing_cells(uops: Uops, suite: Any) -> None:
    assert uops("conform", "-b", "interp", "--report", "before").exit_code == 0
    assert uops("conform", "-b", "interp", "--baseline", "before/report.json").exit_code == 0
    suite.statuses[ADD] = CellStatus.UNSUPPORTED
    assert uops("conform", "-b", "interp").exit_code == 0
    result = uops("conform", "-b", "interp", "--baseline", "before")
    assert result.exit_code == 1
    assert "1 regression" in result.output and "against the baseline" in result.output


def test_a_better_run_than_the_baseline_passes(uops: Uops, suite: Any) -> None:
    suite.statuses[ADD] = CellStatus.FAIL
    assert uops("conform", "-b", "interp", "--report", "before").exit_code == 1
    suite.statuses[ADD] = CellStatus.PASS
    result = uops("conform", "-b", "interp", "--baseline", "before", "--json")
    assert result.exit_code == 0
    assert [c["after"] for c in json.loads(result.output)["baseline"]["changed"]] == ["pass"]


def test_a_baseline_without_a_common_cell_guards_nothing(uops: Uops, suite: Any) -> None:
    assert uops("conform", "-b", "interp", "--report", "before").exit_code == 0
    suite.statuses = {("Movement/Pad", "int8", "zero"): CellStatus.PASS}
    result = uops("conform", "-b", "interp", "--rows", "Movement/*", "--report", "after", "--baseline", "before", "--json")
    assert result.exit_code == 2
    assert "Warning: the baseline and this run have no cell in common" in result.stderr
    assert json.loads(result.stdout)["baseline"]["compared"] == 0
    result = uops("conform", "--diff", "before", "after")
    assert (result.exit_code, "before and after have no cell in common" in result.stderr) == (2, True)
    suite.statuses = {("Movement/Pad", "int8", "zero"): CellStatus.FAIL}
    assert uops("conform", "-b", "interp", "--rows", "Movement/*", "--baseline", "before").exit_code == 1


def test_a_bad_baseline_is_reported_before_anything_runs(uops: Uops, suite: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    result = uops("conform", "-b", "interp", "--baseline", "x.json")
    assert result.exit_code == 2 and "schema version None" in result.stderr
    assert suite.calls == []


# ---------------------------------------------------------------------------------------------------------------- diff


@pytest.fixture
def two_reports(uops: Uops, suite: Any) -> tuple[str, str]:
    """Report b has one cell worse, one better and one more than report a."""
    suite.statuses[LIMIT] = CellStatus.FAIL
    uops("conform", "-b", "interp", "--report", "a")
    suite.statuses |= {ADD: CellStatus.FAIL, LIMIT: CellStatus.PASS, ("Elementwise/Sub", "int8", "zero"): CellStatus.PASS}
    uops("conform", "-b", "interp", "--report", "b")
    suite.calls.clear()
    return "a", "b"


def test_diff_shows_what_changed_and_fails_when_the_second_is_worse(uops: Uops, two_reports: tuple[str, str], suite: Any) -> None:
    result = uops("conform", "--diff", *two_reports)
    assert result.exit_code == 1
    assert "1 regression, 2 changed, 1 new, 0 removed, 1 as before" in result.output
    assert "66.66 % -> 75.00 %" in result.output
    assert result.output.index("worse") < result.output.index("better") < result.output.index("Elementwise/Sub")
    assert suite.calls == []


def test_diff_is_json_when_asked(uops: Uops, two_reports: tuple[str, str]) -> None:
    found = json.loads(uops("conform", "--diff", *two_reports, "--json").output)
    assert found["regresses"] is True and len(found["changed"]) == 2 and len(found["new"]) == 1


def test_diff_of_a_report_with_itself_is_empty(uops: Uops, two_reports: tuple[str, str]) -> None:
    result = uops("conform", "--diff", "a", "a/report.json")
    assert result.exit_code == 0 and "0 regressions, 0 changed" in result.output


# -------------------------------------------------------------------------------------------------------- wrong questions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--backend NAME"),
        (("--backend", "nobody"), "no backend is called 'nobody'"),
        (("--backend", "interp", "--tier", "huge"), "huge"),
        (("--backend", "interp", "--jobs", "0"), "--jobs"),
        (("--backend", "interp", "--diff", ".", "."), "leave out --backend"),
        (("--diff", ".", "nowhere"), "nowhere"),
        (("--diff", ".", "."), "is not a report"),
        (("--backend", "interp", "--tier", "exhaustive", "--baseline", "."), "exhaustive"),
        (("--backend", "llvm", "--tier", "exhaustive", "--opts", "forced"), "one schedule"),
        (("--backend", "llvm", "--tier", "exhaustive", "--journal", "there"), "its journal"),
        (("--backend", "interp", "--opts", "forced"), "interp is none"),
    ],
)
def test_a_wrong_question_has_status_2(uops: Uops, suite: Any, arguments: tuple[str, ...], message: str) -> None:
    result = uops("conform", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr and "Traceback" not in result.stderr
    assert suite.calls == []


def test_a_glob_that_matches_no_row_is_a_wrong_question(uops: Uops, suite: Any, tmp_path: Path) -> None:
    suite.statuses = {}
    result = uops("conform", "-b", "interp", "--rows", "Nothing/*")
    assert result.exit_code == 2 and "'Nothing/*'" in result.stderr
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("tier", ["smoke", "exhaustive"])
@pytest.mark.parametrize("place", ["file/report", "file", "taken"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    uops: Uops, suite: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, tier: str
) -> None:
    fake = FakeExhaustive(0)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr("uops.backends.conformance.exhaustive", fake, raising=False)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "taken/report.json").mkdir(parents=True)
    result = uops("conform", "-b", "interp", "--tier", tier, "--report", place)
    assert result.exit_code == 2
    assert "--report" in result.stderr and place.partition("/")[0] in result.stderr and "Traceback" not in result.stderr
    assert suite.calls == [] and fake.only is None
    assert (tmp_path / "file").read_text() == "kept" and {f.name for f in tmp_path.iterdir()} == {"file", "taken"}


def test_a_report_that_fails_at_the_end_is_written_elsewhere(
    uops: Uops, suite: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report/reproducers").write_text("in the way")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    suite.statuses[ADD] = CellStatus.FAIL
    result = uops("conform", "-b", "interp", "--json")
    (place,) = (tmp_path / "temporary").iterdir()
    assert result.exit_code == 1 and str(place) in result.stderr
    assert json.loads(result.stdout)["report"] == str(place)
    assert {f.name for f in place.iterdir()} == {"report.json", "junit.xml", "index.html", "reproducers"}


def test_a_run_that_passes_and_whose_report_is_elsewhere_has_status_2(
    uops: Uops, suite: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = write.write_report

    def full(run: Any, place: Path, *arguments: Any, **settings: Any) -> Any:
        if place == Path("report"):
            raise OSError(28, "No space left on device", str(place))
        return real(run, place, *arguments, **settings)

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(write, "write_report", full)
    result = uops("conform", "-b", "interp")
    assert result.exit_code == 2 and "No space left on device" in result.stderr and str(tmp_path / "temporary") in result.stderr


def test_a_place_without_permission_is_unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(dir: Path) -> None:
        raise PermissionError(13, "Permission denied")

    assert find_reason_unwritable(tmp_path / "a/b") is None and not (tmp_path / "a").exists()
    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    assert find_reason_unwritable(tmp_path / "a/b") == f"{tmp_path}: Permission denied"


# ---------------------------------------------------------------------------------------------------------- exhaustive


class FakeExhaustive(ModuleType):
    """`uops.backends.conformance.exhaustive` with two functions, of which `wrong` elements are wrong."""

    def __init__(self, wrong: int) -> None:
        super().__init__("uops.backends.conformance.exhaustive")
        self.wrong = wrong
        self.only: tuple[str, ...] | None = None

    def function_names(self) -> tuple[str, ...]:
        return ("sin/float64", "exp2/float32")

    def run_or_resume_exhaustive_tier(
        self, backend: str, jobs: int, progress: Any, report_dir: Path, only: tuple[str, ...] | None, cluster: str | None
    ) -> dict[str, Any]:
        from dataclasses import make_dataclass

        self.only = only
        fields = ("name", "inputs", "wrong", "inexact", "max_ulp", "worst", "examples")
        tally = make_dataclass("Tally", fields)
        report_dir.mkdir()
        progress(1, 1)
        return {
            n: tally(n, 1 << 32, self.wrong, 5, 1.5, "0x1p-3", ["bad"] if self.wrong else []) for n in only or self.function_names()
        }


@pytest.mark.parametrize("wrong", [0, 3])
def test_the_exhaustive_tier_prints_a_table_and_fails_on_a_wrong_element(
    uops: Uops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    monkeypatch.setitem(sys.modules, "uops.backends.conformance.exhaustive", FakeExhaustive(wrong))
    monkeypatch.setattr("uops.backends.conformance.exhaustive", sys.modules["uops.backends.conformance.exhaustive"], raising=False)
    result = uops("conform", "-b", "interp", "--tier", "exhaustive")
    assert result.exit_code == (1 if wrong else 0), result.output
    assert "sin/float64" in result.output and "1.500" in result.output and ("bad" in result.output) == bool(wrong)
    found = json.loads((tmp_path / "report/exhaustive.json").read_text())
    assert [t["name"] for t in found["functions"]] == ["exp2/float32", "sin/float64"]


def test_rows_choose_functions_of_the_exhaustive_tier(uops: Uops, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeExhaustive(0)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr("uops.backends.conformance.exhaustive", fake, raising=False)
    assert uops("conform", "-b", "interp", "--tier", "exhaustive", "--rows", "Decomposed/Exp2").exit_code == 0
    assert fake.only == ("exp2/float32",)
    for rows in ("Movement/Pad", "Movement/*", "Decomposed/Ex"):
        result = uops("conform", "-b", "interp", "--tier", "exhaustive", "--rows", rows, "--report", "other")
        assert result.exit_code == 2 and "there are Decomposed/Exp2, Decomposed/Sin" in result.stderr


@pytest.mark.parametrize(
    "arguments", [("--journal", "report/progress.jsonl"), ("--tier", "exhaustive", "--rows", "Decomposed/Sqrt")]
)
def test_a_journal_that_another_run_writes_is_refused_in_one_line(uops: Uops, arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    other = Journal(tmp_path / "report/progress.jsonl", {"campaign": 1})
    result = uops("conform", "-b", "interp", *arguments)
    other.close()
    assert result.exit_code == 2 and result.stdout == ""
    assert "progress.jsonl is in use by another run" in result.stderr and len(result.stderr.splitlines()) == 1


# Subjects that are no backend


def test_each_subject_of_rows_can_be_judged() -> None:
    assert set(SUBJECTS.values()) == {s.value for s in RowSubject}


def test_a_subject_has_a_report_of_its_own(uops: Uops, tmp_path: Path) -> None:
    result = uops("conform", "--subject", "front-end", "--rows", "Function/Run")
    assert result.exit_code == 0, result.output
    assert "100 % at level strict, over 1 of 39 rows: 10 of 10 cells passed" in result.output
    assert "rows that judge other subjects (--subject), 171: 145 of backends, 8 of the compiler" in result.output
    report = json.loads((tmp_path / "report/report.json").read_text())
    assert report["subject"] == "front end" and {c["row"] for c in report["cells"]} == {"Function/Run"}
    assert "Conformance report: front end" in (tmp_path / "report/index.html").read_text()


def test_the_compiler_is_judged_for_a_target(uops: Uops, tmp_path: Path) -> None:
    result = uops("conform", "--subject", "compiler", "--backend", "c", "--rows", "Stage/none")
    assert result.exit_code == 2 and "no case of the smoke tier has a row that matches 'Stage/none'" in result.output


@pytest.mark.parametrize(
    ("subject", "option", "named"),
    [
        ("front-end", ("--backend", "llvm"), "--backend"),
        ("specification", ("--opts", "none"), "--opts"),
        ("compiler", ("--sample", "3"), "--sample"),
        ("compiler", ("--tier", "exhaustive"), "--subject"),
    ],
)
def test_an_option_that_says_nothing_about_a_subject_is_refused(
    uops: Uops, subject: str, option: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    result = uops("conform", "--subject", subject, *option)
    assert result.exit_code == 2 and named in result.output and not (tmp_path / "report").exists()


def test_reports_of_two_subjects_have_nothing_in_common(uops: Uops, request: pytest.FixtureRequest) -> None:
    assert uops("conform", "--subject", "front-end", "--rows", "Function/Run", "--report", "front").exit_code == 0
    request.getfixturevalue("suite")  # a fake in place of the runner, which the first report needs
    assert uops("conform", "--backend", "interp", "--report", "backend").exit_code == 0
    result = uops("conform", "--diff", "front", "backend")
    assert result.exit_code == 2 and "no cell in common" in result.output


# Programs in the form of a stage


def test_a_dialect_reaches_the_suite_and_the_report(uops: Uops, suite: Any, tmp_path: Path) -> None:
    result = uops("conform", "--backend", "interp", "--dialect", "LINEAR")
    assert result.exit_code == 0 and "3 programs lowered to linear" in result.output
    assert suite.calls[0]["dialect"] is Dialect.LINEAR
    assert json.loads((tmp_path / "report/report.json").read_text())["dialect"] == "linear"


@pytest.mark.parametrize("dialect", ["tensor", "bestiary"])
def test_a_dialect_that_no_stage_gives_is_a_wrong_question(uops: Uops, dialect: str, tmp_path: Path) -> None:
    result = uops("conform", "--backend", "c", "--dialect", dialect)
    assert result.exit_code == 2 and f"no stage gives programs of {dialect}" in result.output
    assert not (tmp_path / "report").exists()


def test_the_summary_names_the_causes_of_failing_cells(uops: Uops) -> None:
    arguments = ("conform", "-b", "uops.backends.conformance.controls:NoNan", "--rows", "Decomposed/Neg", "-j", "1")
    result = uops(*arguments)
    assert result.exit_code == 1, result.output
    found = re.search(r"causes at level strict: (\d+) of (\d+) failing cells are explained", result.output)
    assert found and found[1] == found[2] != "0"
    assert "a number is given where the result is NaN" in " ".join(result.output.split())
    (cause,) = json.loads(uops(*arguments, "--json").stdout)["causes"]
    assert cause | {"elements": 0} == {
        "id": "nan-lost", "text": "a number is given where the result is NaN", "blame": "the backend",
        "cells": int(found[1]), "elements": 0,
        "rows": ["Decomposed/Neg"],
    }  # fmt: skip


def test_two_backends_are_judged_side_by_side(uops: Uops, tmp_path: Path) -> None:
    arguments = ("conform", "-b", "numpy", "--against", "interp", "--rows", "Elementwise/Mod", "-j", "1")
    result = uops(*arguments)
    assert result.exit_code == 1, result.output
    found = re.search(r"(\d+) cells fail on numpy alone, 0 on interp alone, 0 on both", result.output)
    assert found and int(found[1]) > 0 and "failing on numpy alone, level strict" in result.output
    assert (tmp_path / "report/against/report.json").is_file()
    against = json.loads(uops(*arguments, "--json").stdout)["against"]
    assert against["backend"]["name"] == "interp" and len(against["only_here"]) == int(found[1])
    assert (against["only_there"], against["both"]) == ([], 0)
    back = uops("conform", "-b", "interp", "--against", "numpy", "--rows", "Elementwise/Mod", "-j", "1")
    assert back.exit_code == 0 and f"0 cells fail on interp alone, {found[1]} on numpy alone" in back.output


@pytest.mark.parametrize("options", [("--probe",), ("--tier", "exhaustive")])
def test_against_compares_cells(uops: Uops, options: tuple[str, ...]) -> None:
    result = uops("conform", "-b", "numpy", "--against", "interp", *options)
    assert result.exit_code == 2 and "leave out" in result.output


def test_cells_by_trait_are_counted_apart_and_fail_no_run(uops: Uops, suite: Any) -> None:
    assert "trait" not in uops("conform", "-b", INTERP).output
    suite.statuses |= {ADD: CellStatus.BY_TRAIT}
    shown = uops("conform", "-b", INTERP)
    assert shown.exit_code == 0 and "by trait" in shown.output and "66.66 %" in shown.output
    assert "100 % with the traits that the backend declares; cells by trait: 1" in " ".join(shown.output.split())


def write_blessings(path: Path, *entries: tuple[str, ...]) -> str:
    keys = ("row", "dtype", "edge", "reason", "link")
    path.write_text("".join("[[cells]]\n" + "".join(f'{k} = "{v}"\n' for k, v in zip(keys, e, strict=True)) for e in entries))
    return str(path)


WHY = ("no carry", "https://example.org/1")


def test_blessed_cells_stay_failures_and_the_status_heeds_them(uops: Uops, suite: Any, tmp_path: Path) -> None:
    suite.statuses |= {ADD: CellStatus.FAIL, LIMIT: CellStatus.FAIL}
    both = write_blessings(tmp_path / "both.toml", ("Elementwise/Add", "int*", "*", *WHY))
    shown = uops("conform", "-b", INTERP, "--bless", both)
    assert shown.exit_code == 0 and "2 of 2 failing cells are blessed" in " ".join(shown.output.split())
    doc = json.loads((tmp_path / "report/report.json").read_text())
    assert doc["scores"]["strict"]["totals"]["fail"] == 2 and doc["scores"]["strict"]["passed"] == 1
    one = write_blessings(tmp_path / "one.toml", (*ADD, *WHY))
    shown = uops("conform", "-b", INTERP, "--bless", one)
    assert shown.exit_code == 1 and "1 of 2 failing cells are blessed" in " ".join(shown.output.split())


def test_blessed_cells_that_pass_end_a_run_with_status_1(uops: Uops, suite: Any, tmp_path: Path) -> None:
    suite.statuses |= {ADD: CellStatus.FAIL}
    stale = write_blessings(tmp_path / "stale.toml", (*ADD, *WHY), (*LIMIT, *WHY), ("Elementwise/Sub", "int8", "zero", *WHY))
    shown = uops("conform", "-b", INTERP, "--bless", stale, "--json")
    assert shown.exit_code == 1 and json.loads(shown.stdout)
    assert shown.stderr.count("remove the entry") == 1 and "Elementwise/Add int8 limit" in shown.stderr


def test_a_new_file_of_blessed_cells_lists_those_that_fail(uops: Uops, suite: Any, tmp_path: Path) -> None:
    suite.statuses |= {ADD: CellStatus.FAIL, ("Elementwise/Mul", "int8", "zero"): CellStatus.FAIL}
    new = tmp_path / "new.toml"
    assert uops("conform", "-b", INTERP, "--bless", str(new)).exit_code == 1
    entries = tomllib.loads(new.read_text())["cells"]
    assert [(e["row"], e["dtype"], e["edge"]) for e in entries] == [ADD, ("Elementwise/Mul", "int8", "*")]
    shown = uops("conform", "-b", INTERP, "--bless", str(new))
    assert shown.exit_code == 2 and "entry 1: reason must be text that is not empty" in " ".join(shown.output.split())
    new.write_text(new.read_text().replace('""', '"known"'))
    assert uops("conform", "-b", INTERP, "--bless", str(new)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[cells", "is no TOML"),
        ("x = 1", "expected [[cells]] alone"),
        ("[[cells]]\nrow = 'x'", "entry 1: expected row, dtype, edge, reason, link"),
        ("cells = [3]", "entry 1: expected row"),
    ],
)
def test_a_malformed_file_of_blessed_cells_is_refused_before_the_run(
    uops: Uops, suite: Any, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "bad.toml").write_text(text)
    shown = uops("conform", "-b", INTERP, "--bless", str(tmp_path / "bad.toml"))
    assert shown.exit_code == 2 and says in " ".join(shown.output.split()) and not suite.calls
    shown = uops("conform", "-b", INTERP, "--bless", str(tmp_path / "none" / "b.toml"))
    assert shown.exit_code == 2 and "cannot be written" in " ".join(shown.output.split()) and not suite.calls


def test_blessing_is_of_cells(uops: Uops, suite: Any) -> None:
    assert uops("conform", "-b", INTERP, "--bless", "b.toml", "--probe").exit_code == 2
    assert uops("conform", "-b", INTERP, "--bless", "b.toml", "--tier", "exhaustive").exit_code == 2
