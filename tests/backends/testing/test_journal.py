"""A journal refuses what it could not read back, and notices that its file was changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from uops.backends.testing import journal as module
from uops.backends.testing.journal import BadJournal, Journal, encode_line


def test_a_line_that_is_too_long_to_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    journal = Journal(path, {"run": 1})
    journal.add({"x": "y" * 100})
    monkeypatch.setattr(module, "MOST_BYTES", len(encode_line({"x": "y" * 100})))
    journal.add({"x": "z" * 100})
    with pytest.raises(ValueError, match=r"at most \d+ bytes, got"):
        journal.add({"x": "y" * 101})
    journal.add({"x": 1})
    journal.close()
    assert [line["x"] for line in Journal(path, {"run": 1}).lines_after_heading()] == ["y" * 100, "z" * 100, 1]


@pytest.mark.parametrize("is_cut_off", [True, False], ids=["cut off", "added to"])
def test_whole_lines_that_were_cut_off_or_added_since_it_was_opened_are_noticed(tmp_path: Path, is_cut_off: bool) -> None:
    path = tmp_path / "j"
    journal = Journal(path, {"run": 1})
    for x in (1, 2):
        journal.add({"x": x})
    assert [line["x"] for line in journal.lines_after_heading()] == [1, 2]
    lines = path.read_bytes().splitlines(keepends=True)
    if is_cut_off:
        os.truncate(path, len(b"".join(lines[:2])))
    else:
        path.write_bytes(b"".join(lines) + encode_line({"x": 3}, lines[-1][-19:-3]))
    with pytest.raises(BadJournal, match="line written last"):
        list(journal.lines_after_heading())


def test_a_file_that_was_emptied_is_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", {"run": 1})
    os.truncate(tmp_path / "j", 0)
    with pytest.raises(BadJournal, match="line written last"):
        list(journal.lines_after_heading())
