"""The findings on tinygrad: rules, scripts and prose agree, and the check sees a failure that nothing explains."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.model import ConformanceTier
from uops.spec.rulings import RULINGS

FOLDER = Path(__file__).parents[3] / "docs" / "findings"
DOCUMENT: dict[str, Any] = json.loads((FOLDER / "tinygrad-0.14.json").read_text(encoding="utf-8"))
PROSE = (FOLDER / "tinygrad-0.14.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("findings_check", FOLDER / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _failure(**given: Any) -> dict[str, Any]:
    return {"message": "", "operands": [], "got": None, "allowed": None, **given}


def _report(row: str, dtype: str, edge: str, *failures: dict[str, Any]) -> dict[str, Any]:
    level = {"status": "fail", "failures": list(failures)}
    cell = {"row": row, "dtype": dtype, "edge": edge, "strict": level, "core": {"status": "pass", "failures": []}}
    return {"backend": {"name": "tinygrad"}, "cells": [cell]}


MAX_NAN = _failure(operands=["p0 = 1.0 (0x3f800000)", "p1 = nan (0x7fc00000)"], got="1.0 (0x3f800000)", allowed="nan")


def test_a_failure_that_looks_like_its_finding_is_explained_and_counted(check: ModuleType) -> None:
    counts, unexplained = check.check(_report("Elementwise/Max", "float32", "nan", MAX_NAN), DOCUMENT)
    assert counts["strict"] == {"T02": 1} and not counts["core"] and not unexplained


@pytest.mark.parametrize(
    "report",
    [
        _report("Elementwise/Max", "float32", "ordinary", {**MAX_NAN, "operands": ["p0 = 1.0 (0x3f800000)"], "allowed": "2.0"}),
        _report("Elementwise/Add", "int32", "ordinary", _failure(got="3 (0x00000003)", allowed="4")),
        _report("Elementwise/Max", "float32", "nan", MAX_NAN, _failure(message="crash: ended by SIGSEGV")),
        _report("Elementwise/Add", "int32", "ordinary"),
    ],
    ids=["other-value", "no-rule", "second-failure", "nothing-recorded"],
)
def test_another_failure_is_reported(check: ModuleType, report: dict[str, Any]) -> None:
    assert len(check.check(report, DOCUMENT)[1]) == 1


def test_the_command_ends_with_status_1_when_something_is_not_explained(tmp_path: Path) -> None:
    statuses = []
    for k, failure in enumerate((MAX_NAN, _failure(message="crash: ended by SIGSEGV"))):
        path = tmp_path / f"{k}.json"
        path.write_text(json.dumps(_report("Elementwise/Max", "float32", "nan", failure)), encoding="utf-8")
        done = subprocess.run([sys.executable, FOLDER / "check.py", path], capture_output=True, text=True, check=False)
        statuses.append((done.returncode, "not explained: " in done.stdout))
    assert statuses == [(0, False), (1, True)]


def test_every_rule_covers_a_cell_of_the_suite_and_names_findings() -> None:
    cells = {(cell.row, cell.dtype, cell.edge) for case in generate_cases(ConformanceTier.SMOKE) for cell in case.cells()}
    for rules in DOCUMENT["rules"].values():
        for rule in rules:
            assert set(rule["findings"]) <= set(DOCUMENT["findings"])
            globs = rule["row"], rule["dtype"], rule["edge"]
            assert any(all(map(fnmatchcase, cell, globs)) for cell in cells), rule


def test_each_finding_has_a_script_of_its_own_rulings_and_a_row_in_the_prose() -> None:
    scripts = {f["script"] for f in DOCUMENT["findings"].values()}
    assert len(scripts) == len(DOCUMENT["findings"])
    assert scripts == {p.name for p in (FOLDER / "scripts").glob("[0-9]*.py")}
    for name, finding in DOCUMENT["findings"].items():
        text = (FOLDER / "scripts" / finding["script"]).read_text(encoding="utf-8")
        assert set(finding["rulings"]) <= set(RULINGS), name
        assert set(finding["rulings"]) <= set(re.findall(r"R\d\d", text.splitlines()[0])), name
        assert f"| {name} |" in PROSE and finding["script"] in PROSE, name


SCORE = re.compile(r"^\| (\S+) \| (strict|core) \| .* \(([\d,]+) of ([\d,]+)\) \| .* \| (\d+) \| (\d+) \|$", re.MULTILINE)


def _cells(text: str) -> tuple[int, int]:
    """The strict and the core cells that a part of the page gives to findings, in its table and in its list of the shared ones."""
    found = re.findall(r"(?:^\| T\d\d \|.*\||[:;] T\d\d) (\d+), (\d+)(?: \|$|(?=[;.]))", text, re.MULTILINE)
    return sum(int(strict) for strict, _ in found), sum(int(core) for _, core in found)


def test_the_cells_of_the_findings_add_up_to_the_failing_cells() -> None:
    number = {(s[0], s[1]): [int(n.replace(",", "")) for n in s[2:]] for s in SCORE.findall(PROSE)}
    python, x86 = PROSE.split("### On CPU:X86")
    for device, text in (("PYTHON", python), ("CPU:X86", x86)):
        for level, cells in zip(("strict", "core"), _cells(text), strict=True):
            passed, required, failing, unsupported = number.pop((device, level))
            assert cells == failing == required - passed - unsupported, (device, level)
    assert not number


def test_scripts_use_tinygrad_alone() -> None:
    for script in (FOLDER / "scripts").glob("[0-9]*.py"):
        imports = set(re.findall(r"^(?:import|from) (\w+)", script.read_text(encoding="utf-8"), re.MULTILINE))
        assert imports <= {"collections", "math", "struct", "subprocess", "sys", "tinygrad"}, script.name


def test_the_check_is_told_when_a_rule_is_taken_away(check: ModuleType) -> None:
    without = copy.deepcopy(DOCUMENT)
    without["rules"]["tinygrad"] = [r for r in without["rules"]["tinygrad"] if "T02" not in r["findings"]]
    assert check.check(_report("Elementwise/Max", "float64", "nan", MAX_NAN), without)[1]


@pytest.mark.parametrize("script", ["03_wrapped_comparison.py", "20_division_by_zero.py"])
def test_a_script_ends_with_status_1_while_tinygrad_diverges(script: str) -> None:
    pytest.importorskip("tinygrad", reason="tinygrad is not installed (extra `peers`)")
    done = subprocess.run([sys.executable, FOLDER / "scripts" / script], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout.startswith("expected ")
