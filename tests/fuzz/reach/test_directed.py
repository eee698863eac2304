"""The kinds of a directed campaign: those whose cases ran the lines, in proportion."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from uops.fuzz.campaign.examine import Setup
from uops.fuzz.generate.kinds import KINDS
from uops.fuzz.reach import directed
from uops.fuzz.reach.directed import KindTrial, add_trial_of_ended_process, direct_kinds, read_trials

ALL = ("tensor", "ops", "symbolic")


def test_time_is_spent_in_proportion_to_the_cases_that_ran_the_lines() -> None:
    """Half of the cases of a kind at twice the seconds: the kind is drawn a quarter as often, and weights are undone."""
    trials = {"programs": KindTrial(10, 10, 1.0), "symbolic": KindTrial(10, 5, 2.0), "tensor": KindTrial(10, 0, 1.0)}
    assert KINDS["programs"].weight == KINDS["symbolic"].weight
    assert Counter(direct_kinds(trials, ALL)) == {"programs": 12, "symbolic": 3}
    heavier = {"tensor": KindTrial(10, 10, 1.0), "symbolic": KindTrial(10, 10, 1.0)}
    counts = Counter(direct_kinds(heavier, (*ALL, "wide")))
    assert counts["tensor"] * KINDS["tensor"].weight == pytest.approx(counts["symbolic"] * KINDS["symbolic"].weight, rel=0.25)


def test_a_rare_kind_is_drawn() -> None:
    trials = {"programs": KindTrial(100, 100, 1.0), "symbolic": KindTrial(100, 1, 1.0)}
    assert direct_kinds(trials, ALL).count("symbolic") == 1


@pytest.mark.parametrize("reached", [(0, 0), (9, 8)])
def test_equal_time_where_no_kind_is_special(reached: tuple[int, int]) -> None:
    trials = {k: KindTrial(10, n, seconds) for k, n, seconds in zip(("programs", "symbolic"), reached, (3.0, 1.0), strict=True)}
    assert Counter(direct_kinds(trials, ("programs", "symbolic"))) == {"programs": 4, "symbolic": 12}


def test_no_kinds_where_none_was_tried() -> None:
    assert direct_kinds({}, ALL) == direct_kinds({"ops": KindTrial()}, ALL) == ()


def test_trials_are_read_among_other_texts() -> None:
    lines = ["a warning", '{"kind": "ops"}', '{"kind": "ops", "seconds": 0.5, "reached": true}', "[]", '{"kind": "rules"}', '{"kin']
    trials = read_trials(lines)
    assert trials == {"ops": KindTrial(1, 1, 0.5), "rules": KindTrial()}
    assert add_trial_of_ended_process(trials)["rules"] == KindTrial(1, 1, 0.0)


def try_kinds(lines: dict[str, list[int]], directory: Path) -> subprocess.CompletedProcess[str]:
    setup = json.dumps(Setup("llvm", 0, ("methods", "launches"), ("kernels", "allowed")).to_json())
    command = [sys.executable, "-m", "uops.fuzz.reach.try_kinds", setup, json.dumps(lines), "0.05"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_the_cases_of_each_kind_say_whether_they_ran_a_line(tmp_path: Path) -> None:
    """Only launches are made by this generator; its module is loaded by the hook."""
    import uops.fuzz.generate.kernels.written_by_hand as module

    text = Path(module.__file__).read_text().splitlines()
    line = next(k for k, words in enumerate(text, 1) if words.startswith("def generate_launch_of_kernels("))
    result = try_kinds({"uops.fuzz.generate.kernels.written_by_hand": [line]}, tmp_path)
    assert result.returncode == 0, result.stderr
    trials = read_trials(result.stdout.splitlines())
    assert list(trials) == ["methods", "launches"]
    assert trials["methods"].cases >= 3
    assert trials["methods"].reached == 0
    assert trials["launches"].reached == trials["launches"].cases >= 3


@pytest.mark.parametrize(
    ("module", "why"),
    [("uops.fuzz.reach.recorder", "must be installed before"), ("uops.no_such", "expected a module of this package")],
)
def test_a_module_that_cannot_record_is_an_error(tmp_path: Path, module: str, why: str) -> None:
    result = try_kinds({module: [1]}, tmp_path)
    assert result.returncode != 0
    assert why in result.stderr
    assert not read_trials(result.stdout.splitlines())


def test_a_kind_whose_case_ends_the_process_counts_and_the_others_are_tried() -> None:
    asked: list[tuple[str, ...]] = []

    def run_process(kinds: Sequence[str]) -> tuple[bool, list[str]]:
        asked.append(tuple(kinds))
        printed = [
            line for k in kinds[:2] for line in (json.dumps({"kind": k}), json.dumps({"kind": k, "seconds": 1, "reached": False}))
        ]
        return len(kinds) < 3, printed

    trials = directed.try_kinds(("ops", "rules", "wide", "tensor"), run_process)
    assert asked == [("ops", "rules", "wide", "tensor"), ("wide", "tensor")]
    assert trials["rules"] == KindTrial(2, 1, 1.0)
    assert trials["tensor"] == trials["wide"] == KindTrial(1, 0, 1.0)
    assert directed.try_kinds(("ops",), lambda kinds: (False, [])) == {}
