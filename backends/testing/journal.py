"""The journal of a run on disk: one JSON document per line, with a checksum, synced to the disk line by line.

The first line is the run's heading; another heading means another run. A line's sum covers the line and the sum of the line before,
and so, transitively, the heading. Lines of another journal, and lines that were moved, dropped or duplicated, are detected. A last
line that a dying process or machine cut off is removed on opening, and its work is done again. A file that is not a journal, or is
damaged elsewhere, is rejected and left unchanged. One process at a time writes a journal.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import uops.spec
from uops.spec.errors import UopsError
from uops.spec.untrusted import describe_path, escape_unprintable

Json = dict[str, Any]
PACKAGE = Path(uops.spec.__file__).absolute().parents[1]


class JournalMismatch(UopsError):
    """A journal belongs to another run."""


class JournalInUse(UopsError):
    """A journal belongs to a run in progress."""


class BadJournal(UopsError):
    """A file is not a journal, or is damaged."""


#: Largest size of a line, in bytes.
MOST_BYTES = 1 << 26


class _IntactEnd(NamedTuple):
    """The place of the next line of a journal, and the sum of the line before, empty for none."""

    offset: int
    last_sum: bytes


class _ReadLine(NamedTuple):
    """A line of a journal's file: parsed, None if it was altered; its bytes; its sum."""

    parsed: Json | None
    raw: bytes
    line_sum: bytes


class Journal:
    """An append-only journal, for several threads of one process. Its lines are read from the disk, since they may not fit in
    memory."""

    def __init__(self, path: Path, heading: Json) -> None:
        """Open or create the journal. Raises JournalMismatch, BadJournal, JournalInUse and OSError."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._end = _IntactEnd(0, b"")
        is_new = not path.exists()
        self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            self._lock_and_start_or_resume(self._handle, json.loads(json.dumps(heading)))
        except BaseException:
            if is_new and path.is_file() and not path.stat().st_size:  # as on a full disk
                path.unlink()
            self.close()
            raise

    def _lock_and_start_or_resume(self, handle: int, heading: Json) -> None:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BadJournal(f"{describe_path(self.path)} is not a journal: it is not a regular file")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed, or its process ends
        except BlockingIOError:
            raise JournalInUse(
                f"{describe_path(self.path)} is in use by another run: wait for its end, or name another file"
            ) from None
        recorded, self._end = _read_heading_and_end_of_intact_lines(self.path, encode_line(heading))
        if recorded is not None and recorded != heading:
            difference = escape_unprintable(_describe_heading_difference(recorded, heading))
            raise JournalMismatch(f"{describe_path(self.path)} is of another campaign: {difference}")
        with self._name_file_in_errors():
            os.ftruncate(handle, self._end.offset)
            os.fsync(handle)
        if recorded is None:
            self.add(heading)

    def add(self, line: Json) -> None:
        """Write one line; it is on the disk on return. On failure, the journal is unchanged and OSError is raised.

        Raises ValueError for a line of more than MOST_BYTES, which could not be read back.
        """
        with self._lock, self._name_file_in_errors():
            if self._handle is None:
                raise ValueError(f"{describe_path(self.path)} is closed")
            offset, previous_sum = self._end
            data = encode_line(line, previous_sum)
            if len(data) > MOST_BYTES:
                raise ValueError(f"a line of {describe_path(self.path)} must have at most {MOST_BYTES} bytes, got {len(data)}")
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._handle, rest) :]
                os.fsync(self._handle)
                self._end = _IntactEnd(offset + len(data), _line_sum(data))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._handle, offset)
                self._end = _IntactEnd(offset, previous_sum)
                raise

    @contextlib.contextmanager
    def _name_file_in_errors(self) -> Iterator[None]:
        """Name the journal in errors of the system raised inside."""
        try:
            yield
        except OSError as e:
            raise type(e)(e.errno, e.strerror, os.fspath(self.path)) from e

    def lines_after_heading(self) -> Iterator[Json]:
        """Yield every line but the heading, in the order of writing. Don't use it concurrently with `add`.

        Raises BadJournal if the file was changed since it was opened.
        """
        end = _IntactEnd(0, b"")
        for number, (line, raw, line_sum) in enumerate(_read_intact_and_damaged_lines(self.path), 1):
            if line is None:
                raise BadJournal(_describe_damaged_line(self.path, number))
            end = _IntactEnd(end.offset + len(raw), line_sum)
            if number > 1:
                yield line
        if end != self._end:  # whole lines were removed or added
            raise BadJournal(f"{describe_path(self.path)} is damaged: its end is not the line written last; it was left as it is")

    def entries_under(self, key: str) -> list[Json]:
        """Return the values that lines have under a key, in the order of writing."""
        with self._lock:
            return [line[key] for line in self.lines_after_heading() if key in line]

    @contextlib.contextmanager
    def refuse_malformed_lines(self) -> Iterator[None]:
        """Raise BadJournal if reading lines inside fails on a missing key or a malformed value."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
            why = escape_unprintable(f"{type(e).__name__}: {e}").partition("\n")[0]
            raise BadJournal(f"{describe_path(self.path)} holds a malformed line: {why}") from e

    def close(self) -> None:
        """Close the file, which releases its lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def read_lines_after_heading_so_far(path: Path) -> Iterator[Json]:
    """Yield every whole line but the heading of a journal that another process writes."""
    for number, (line, _, _) in enumerate(_read_intact_and_damaged_lines(path) if path.is_file() else ()):
        if line is None:
            return
        if number:
            yield line


def digest_sources(package: Path = PACKAGE) -> str:
    """Return a digest of this package's sources, which decide results beside settings and versions of dependencies."""
    digest = hashlib.sha256()
    for folder, subfolders, files in os.walk(package, followlinks=True):
        subfolders.sort()
        for name in sorted(f for f in files if f.endswith((".py", ".jsonl"))):  # the ledger decides which rules are active
            digest.update(name.encode() + b"\0" + hashlib.sha256(Path(folder, name).read_bytes()).digest())
    return digest.hexdigest()


#: The end of a line: the key `sum`, whose value is the sum of the line without it.
_END = re.compile(rb',"sum":"([0-9a-f]{16})"\}\n\Z')


def encode_line(line: Json, previous_sum: bytes = b"") -> bytes:
    """Encode a nonempty line as stored after one with the sum `previous_sum`; a heading follows none."""
    data = json.dumps(line, separators=(",", ":")).encode()
    return b'%s,"sum":"%s"}\n' % (data[:-1], _digest_line(previous_sum, data))


def encode_journal(lines: Iterable[Json]) -> bytes:
    """Encode a journal: a heading and its lines."""
    encoded, previous_sum = [], b""
    for line in lines:
        encoded.append(encode_line(line, previous_sum))
        previous_sum = _line_sum(encoded[-1])
    return b"".join(encoded)


def _digest_line(previous_sum: bytes, data: bytes) -> bytes:
    return hashlib.sha256(previous_sum + data).hexdigest()[:16].encode()


def _line_sum(line: bytes) -> bytes:
    """Return the sum at the end of a line."""
    return line[-19:-3]


def _describe_heading_difference(stored: Json, expected: Json) -> str:
    """Describe the keys in which two headings differ; with the values if a heading is one named set of settings."""
    different = [k for k in sorted(expected.keys() | stored.keys()) if expected.get(k) != stored.get(k)]
    if len(expected) == 1 and stored.keys() == expected.keys():
        (name,) = different
        recorded, current = stored[name], expected[name]
        if isinstance(recorded, dict) and isinstance(current, dict):
            keys = [k for k in sorted(current.keys() | recorded.keys()) if current.get(k) != recorded.get(k)]
            changes = [f"{name}.{k} ({json.dumps(recorded.get(k))} there, {json.dumps(current.get(k))} here)" for k in keys]
            return f"it differs in {', '.join(changes)}; use another --report"
    return f"it differs in {', '.join(different)}"


def _read_heading_and_end_of_intact_lines(path: Path, own_heading: bytes) -> tuple[Json | None, _IntactEnd]:
    """Return the heading of a journal, or None, then the end of its whole lines. Raises BadJournal."""
    first: Json | None = None
    end, damaged_line = _IntactEnd(0, b""), 0
    for number, (line, raw, total) in enumerate(_read_intact_and_damaged_lines(path), 1):
        if damaged_line:
            raise BadJournal(_describe_damaged_line(path, damaged_line))
        if line is None:
            if first is None and not own_heading.startswith(raw.rstrip(b"\0")):
                raise BadJournal(f"{describe_path(path)} is not a journal: its first line is not a heading; it was left as it is")
            if raw.endswith(b"\n") and b"\0" not in raw:  # neither cut off nor a block that was never written
                raise BadJournal(_describe_damaged_line(path, number))
            damaged_line = number
            continue
        first = line if first is None else first
        end = _IntactEnd(end.offset + len(raw), total)
    return first, end


def _describe_damaged_line(path: Path, number: int) -> str:
    return f"{describe_path(path)} is damaged: line {number} is not as it was written; it was left as it is"


def _read_intact_and_damaged_lines(path: Path) -> Iterator[_ReadLine]:
    """Yield each line of a file. After one that was altered, no line is parsed."""
    previous_sum = b""
    with path.open("rb") as f:
        while raw := f.readline(MOST_BYTES):
            line = _verify_and_parse_line(raw, previous_sum)
            previous_sum = _line_sum(raw) if line is not None else b"damaged"
            yield _ReadLine(line, raw, previous_sum)


def _verify_and_parse_line(raw: bytes, previous_sum: bytes) -> Json | None:
    """Parse a line that follows one with the sum `previous_sum`; None if it is incomplete or does not belong there."""
    end = _END.search(raw)
    if end is None:
        return None
    data = raw[: end.start()] + b"}"
    try:
        line = json.loads(data) if _digest_line(previous_sum, data) == end[1] else None
    except (ValueError, RecursionError):  # not written by `encode_line`
        return None
    return line if isinstance(line, dict) else None
