"""The template of `docs/writing-a-backend.md`: short, installed from its wheel, found by its entry point, and scored."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uops
from uops.backends.contract import Backend

TEMPLATE = Path(__file__).parents[2] / "examples" / "backend-template"
GUIDE = Path(__file__).parents[2] / "docs" / "writing-a-backend.md"


def test_the_template_is_short() -> None:
    lines = sum(len(p.read_text().splitlines()) for p in TEMPLATE.rglob("*") if p.suffix in (".py", ".toml", ".ini"))
    assert lines < 150


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The template's wheel, installed beside `uops` and judged by the command line."""
    place = tmp_path_factory.mktemp("template")
    source = shutil.copytree(TEMPLATE, place / "source")  # building leaves files beside the sources
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", place / "wheels", source], check=True)
    (wheel,) = (place / "wheels").glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", place / "site", wheel], check=True)
    ours = str(Path(uops.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place / "site"), ours])}
    command = [sys.executable, "-m", "uops", "conform", "--backend", "template", "--report", str(place / "report"), "--jobs", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads((place / "report" / "report.json").read_text())
    return found


def test_what_the_template_declares_passes(report: dict[str, Any]) -> None:
    statuses = {c["strict"]["status"] for c in report["cells"]}
    assert statuses == {"pass", "unsupported", "not askable"}
    assert {c["surface"] for c in report["cells"] if c["strict"]["status"] == "not askable"} == {"kernel", "native", "devices"}
    rows = {c["row"] for c in report["cells"] if c["strict"]["status"] == "pass"}
    assert {"Elementwise/Add", "Movement/Pad", "Decomposed/Sub", "Source/Const"} <= rows


def test_what_the_template_lacks_stays_in_both_denominators(report: dict[str, Any]) -> None:
    passed = sum(c["strict"]["status"] == "pass" for c in report["cells"])
    scores = report["scores"]["strict"]
    asked = [c for c in report["cells"] if c["surface"] == "tensor"]
    assert 0 < passed < len(asked) == scores["required"] < len(report["cells"])
    assert scores["passed"] == scores["run"] == passed
    assert scores["conformance"] == scores["coverage"] == passed / scores["required"]


@pytest.mark.parametrize("kinds", ["tensor", pytest.param("all", marks=pytest.mark.slow)])
def test_the_template_refuses_what_it_lacks_of_random_programs(tmp_path: Path, kinds: str) -> None:
    """And nothing that it takes is wrong."""
    path = os.pathsep.join([str(TEMPLATE / "src"), str(Path(uops.__file__).parents[1])])
    command = [
        sys.executable,
        "-m",
        "uops",
        "fuzz",
        "--backend",
        "uops_template:Template",
        "-n",
        "400",
        "--kinds",
        kinds,
        "--jobs",
        "1",
    ]
    done = subprocess.run(
        [*command, "--report", str(tmp_path)], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads((tmp_path / "report.json").read_text())
    assert 0 < found["refused"] < found["cases"] == 400


HERE = {"p0": np.array([[1, 2, 3]], np.int32), "p1": np.array([[1, 2, 3]], np.int32), "n": 2, "k": 40}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '%0 = param (), slot=none, name="k", bounds=[0, 99] : i32\n%1 = param (1, 3), slot=0 : i32\n%2 = add %0, %1',
            [[41, 42, 43]],
        ),
        ("%0 = const 2 : i32\n%1 = const 3 : i32\n%2 = tuple %0, %1", 2),
    ],
)
def test_the_template_takes_variables_and_several_values(template: Backend, text: str, expected: Any) -> None:
    assert template.run(uops.parse(text), HERE).values[0].tolist() == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("%0 = const 1.0 : f8e5m2", "no dtype fp8e5m2"),
        ("%0 = param (2), slot=0 : i64\n%1 = add %0, %0", "no dtype int64"),
        ("%0 = param (1, 3), slot=0 : i32\n%1 = mod %0, %0", "MOD"),
        ('%0 = param (), slot=none, name="n", bounds=[0, 9] : index', "index"),
    ],
)
def test_the_template_refuses_before_it_evaluates(template: Backend, text: str, why: str) -> None:
    with pytest.raises(uops.Unsupported, match=why):
        template.run(uops.parse(text), {})


@pytest.fixture
def template(monkeypatch: pytest.MonkeyPatch) -> Backend:
    monkeypatch.syspath_prepend(str(TEMPLATE / "src"))
    found: Backend = importlib.import_module("uops_template").Template()
    return found


def test_the_guide_names_the_template_and_its_commands() -> None:
    text = GUIDE.read_text()
    assert "examples/backend-template" in text
    assert "uops new-backend mine" in text and "uops conform --backend mine" in text
