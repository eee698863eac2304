"""Whatever fails while a file is written, what was there before is there afterwards, and an error names the file."""

from __future__ import annotations

import builtins
import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_writers import WRITERS, Writer

from uops.spec.untrusted import SCRATCH, writer

BY_TITLE = {row.title: row for row in WRITERS}
ERRORS = (errno.ENOSPC, errno.EACCES, errno.EIO)
CASES = [(row.title, call) for row in WRITERS for call in row.calls]


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder; those that a killed process had begun are not looked at."""
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file() and not f.name.endswith(SCRATCH)}


def begun(row: Writer, folder: Path) -> dict[str, bytes]:
    """A folder with the first version."""
    folder.mkdir(mode=0o700, exist_ok=True)
    row.write(folder, 1)
    found = contents(folder)
    assert found
    return found


class Half:
    """A file that takes half of what is written, and then no more."""

    def __init__(self, file: Any, error: OSError) -> None:
        self.file, self.error = file, error

    def __enter__(self) -> Half:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()

    def fileno(self) -> int:
        return int(self.file.fileno())

    def write(self, data: bytes) -> int:
        self.file.write(data[: len(data) // 2])
        raise self.error


def plant(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Let a call of the system fail."""
    error = OSError(number, os.strerror(number))
    write = os.write

    def fail(*_: object, **__: object) -> None:
        raise error

    def half(handle: int, data: bytes) -> int:
        write(handle, bytes(data)[: len(data) // 2])
        raise error

    def small(path: str, mode: str) -> Half:
        return Half(builtins.open(path, mode), error)

    planted: dict[str, Callable[[], None]] = {
        "open": lambda: monkeypatch.setattr(writer, "open", fail, raising=False),
        "write": lambda: monkeypatch.setattr(writer, "open", small, raising=False),
        "replace": lambda: monkeypatch.setattr(os, "replace", fail),
        "fsync": lambda: monkeypatch.setattr(os, "fsync", fail),
        "os.write": lambda: monkeypatch.setattr(os, "write", half),
    }
    planted[call]()


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize(("title", "call"), CASES)
def test_a_failing_call_leaves_what_was_there(
    title: str, call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, folder = BY_TITLE[title], tmp_path / "folder"
    before = begun(row, folder)
    with monkeypatch.context() as patched:
        plant(patched, call, number)
        try:
            row.write(folder, 2)
            assert row.quiet
        except OSError as e:
            assert any(Path(name).name in str(e) for name in (*before, "journal.jsonl")), str(e)
            assert os.strerror(number) in str(e) and len(str(e).strip().splitlines()) == 1
    assert contents(folder) == before
    assert [f for f in folder.rglob("*") if f.name.endswith(SCRATCH)] == []
    row.write(folder, 2)
    assert contents(folder) != before


@pytest.mark.parametrize("title", BY_TITLE)
def test_a_kill_before_the_rename_leaves_what_was_there(
    title: str, tmp_path: Path, status_in_fork: Callable[[Callable[[], object]], int]
) -> None:
    """Of a journal the kill comes before a line is known to be on the disk."""
    row, folder = BY_TITLE[title], tmp_path / "folder"
    before = begun(row, folder)

    def work() -> None:
        os.replace = os.fsync = lambda *_: os._exit(9)
        row.write(folder, 2)

    assert status_in_fork(work) == 9
    after = contents(folder)
    assert after.keys() == before.keys()
    assert all(data.startswith(before[name]) if title == "journal" else data == before[name] for name, data in after.items())
    row.write(folder, 2)


@pytest.mark.parametrize("title", BY_TITLE)
def test_where_no_file_may_grow_what_was_there_stays(
    title: str, tmp_path: Path, status_in_fork: Callable[[Callable[[], object]], int]
) -> None:
    """A limit of the system in place of a full disk: the first bytes are written, then no more."""
    row, folder = BY_TITLE[title], tmp_path / "folder"
    before = begun(row, folder)
    most = sum(map(len, before.values())) + 20 if title == "journal" else 8

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        try:
            row.write(folder, 2)
        except OSError as e:
            os._exit(7 if "File too large" in str(e) and any(Path(name).name in str(e) for name in before) else 8)

    assert status_in_fork(work) == (0 if row.quiet else 7)
    assert contents(folder) == before
    row.write(folder, 2)


def test_a_writer_in_place_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status_in_fork: Callable[[Callable[[], object]], int]
) -> None:
    """A hole: the file is emptied before the new bytes are there."""
    hole = Writer("in place", lambda folder, version: (folder / "x").write_text(f"{version}" * 100))
    monkeypatch.setitem(BY_TITLE, "in place", hole)
    with pytest.raises(AssertionError):
        test_where_no_file_may_grow_what_was_there_stays("in place", tmp_path, status_in_fork)
