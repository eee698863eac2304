"""The examples of the front end run, and what they assert holds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[3] / "examples" / "tensor").glob("*.py"))


def test_there_are_examples() -> None:
    assert len(FILES) >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_example_runs(path: Path) -> None:
    runpy.run_path(str(path))
