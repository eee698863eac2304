"""The template of `docs/writing-a-backend.md`: short, installed from its wheel, found by its entry point, and scored."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import uops

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
    assert statuses == {"pass", "unsupported"}
    rows = {c["row"] for c in report["cells"] if c["strict"]["status"] == "pass"}
    assert {"Elementwise/Add", "Movement/Pad", "Decomposed/Sub"} <= rows


def test_what_the_template_lacks_stays_in_both_denominators(report: dict[str, Any]) -> None:
    passed = sum(c["strict"]["status"] == "pass" for c in report["cells"])
    scores = report["scores"]["strict"]
    assert 0 < passed < len(report["cells"]) == scores["required"]
    assert scores["passed"] == scores["run"] == passed
    assert scores["conformance"] == scores["coverage"] == passed / scores["required"]


def test_the_guide_names_the_template_and_its_commands() -> None:
    text = GUIDE.read_text()
    assert "examples/backend-template" in text
    assert "uops conform --backend template" in text
