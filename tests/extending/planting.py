"""Plant an extension of the language in a copy of the package, with one step of its guide left out.

A guide of docs/extending is a list of steps, `## 1. Name the op`. Each step says what to edit, and ends in a line
"Check: `pytest tests/...::test_name`". That test fails until the step is done, and names the file to edit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from uops.fuzz.mutants.catalogue import PACKAGE
from uops.fuzz.mutants.overlay import build_overlay

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "extending"
_STEP = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
_CHECK = re.compile(r"^Check: `pytest ([^`]+)`", re.MULTILINE)


@dataclass(frozen=True)
class Insertion:
    """Text put behind an anchor that occurs exactly once in a file of the package (`spec/ir/ops.py`)."""

    file: str
    anchor: str
    text: str


@dataclass(frozen=True)
class Step:
    """A step of a guide: its number, its title, and the pytest node that fails until it is done."""

    number: int
    title: str
    check: str


def read_steps(guide: str) -> tuple[Step, ...]:
    """Return the steps of `docs/extending/<guide>.md`. Raises AssertionError for a step without exactly one check."""
    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    headings = [*_STEP.finditer(text)]
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    steps = []
    for heading, end in zip(headings, ends, strict=True):
        checks = _CHECK.findall(text[heading.end() : end])
        assert len(checks) == 1, f"{guide}.md: step {heading[1]} needs one line 'Check: `pytest ...`', has {len(checks)}"
        steps.append(Step(int(heading[1]), heading[2], checks[0]))
    return tuple(steps)


def insert_texts(insertions: Iterable[Insertion]) -> dict[str, str]:
    """Return the new text of every file that the insertions change. Raises AssertionError for an anchor that is not unique."""
    texts: dict[str, str] = {}
    for at in insertions:
        text = texts.get(at.file) or (PACKAGE / at.file).read_text(encoding="utf-8")
        assert text.count(at.anchor) == 1, f"{at.file}: the anchor {at.anchor!r} occurs {text.count(at.anchor)} times, not once"
        texts[at.file] = text.replace(at.anchor, at.anchor + at.text)
    return texts


def plant(
    folder: Path, steps: Mapping[int, Iterable[Insertion]], left_out: int | None = None, files: Mapping[str, str] | None = None
) -> Path:  # fmt: skip
    """Create the package below `folder` with all steps done but one, and with `files` as they are made by a command.

    Returns the folder, for the import path.
    """
    insertions = (one for number, step in steps.items() if number != left_out for one in step)
    return build_overlay(folder, insert_texts(insertions) | dict(files or {}))


def run_check(folder: Path, *checks: str) -> tuple[bool, str]:
    """Run tests of this checkout on a planted package. Returns whether they passed, and what pytest printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", *checks]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return process.returncode == 0, process.stdout + process.stderr
