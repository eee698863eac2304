"""Readers of files that strangers made: a result, or one line with the file, and nothing else (docs/reliability.md)."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hostile_formats import FORMATS, HOLES
from hostile_harness import MANY, SAMPLE, Format, campaign, inputs, unharmed

from uops.backends import cache

BY_TITLE = {row.title: row for row in FORMATS}


@pytest.fixture(params=BY_TITLE)
def row(request: pytest.FixtureRequest) -> Format:
    if request.param.startswith("certificate"):
        pytest.importorskip("z3")
    return BY_TITLE[request.param]


def test_harmed_files_are_a_result_or_a_line(row: Format, tmp_path: Path) -> None:
    found = campaign(row, SAMPLE, tmp_path)
    assert not found, "\n".join(map(str, found[:5]))


def test_unharmed_files_are_read(row: Format) -> None:
    assert any(result is not None for result in unharmed(row))


def test_a_planted_hole_is_found(row: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unharmed(row)
    HOLES[row.title](monkeypatch)
    assert campaign(row, SAMPLE, tmp_path)


def test_inputs_are_a_function_of_the_seed(row: Format) -> None:
    assert list(inputs(row, 5)) == list(inputs(row, 5))
    assert list(inputs(row, 5)) != list(inputs(row, 5, seed=1))


@pytest.mark.hostile
def test_many_harmed_files_are_a_result_or_a_line(row: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = time.monotonic()
    found = campaign(row, MANY, tmp_path, seed=1)
    with capsys.disabled():
        print(f"\n{row.title}: {MANY:,} inputs, {len(found)} wrong, {time.monotonic() - start:.0f} s")
    assert not found, "\n".join(map(str, found[:20]))


def test_no_duration_is_read_off_a_clock_that_can_be_set() -> None:
    """Only the ages of files are: of cached objects, which a clock that jumped makes stale at worst."""
    package = Path(cache.__file__).resolve().parents[1]
    found = {
        str(f.relative_to(package))
        for folder in ("spec", "interp", "compiler", "backends", "fuzz", "src/uops/cli")
        for f in (package / folder).rglob("*.py")
        if re.search(r"\btime\.time\(|\btime\.time_ns\(|\bimport time\b.*\btime as\b", f.read_text(encoding="utf-8"))
    }
    assert found == {"backends/cache.py"}
