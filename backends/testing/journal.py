"""What a run has done so far, on disk: one JSON document per line, with a sum, forced to the disk with each.

The first line is the run's heading; a journal with another heading is another run's. The sum of a line covers the line and the sum
of the one before it, so that it covers the heading, too: a line of another journal, or one that was moved, left out or written
twice, is told apart from what was written. A last line that was cut off by the end of a process or of a machine is taken away when
the journal is opened, and what it would have said is done again. A file that is no journal, or is damaged elsewhere, is refused and
left as it is. One process at a time writes a journal.
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
from typing import Any

import uops.spec
from uops.spec.errors import UopsError
from uops.spec.untrusted import describe_path, printable

Json = dict[str, Any]
PACKAGE = Path(uops.spec.__file__).absolute().parents[1]


class OtherCampaign(UopsError):
    """A journal is of another run."""


class InUse(UopsError):
    """A journal is of a run that goes on."""


class NoJournal(UopsError):
    """A file that is no journal, or is damaged."""


#: Bytes of a line, at most.
MOST_BYTES = 1 << 26


class Journal:
    """Append-only, for several threads of one process. What it says is read from the disk, as a long campaign's fills memories."""

    def __init__(self, path: Path, heading: Json) -> None:
        """Open or begin. Raises OtherCampaign, NoJournal, InUse and OSError."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._end = (0, b"")  # where the next line begins, and the sum of the one before it
        is_new = not path.exists()
        self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            self._begin(self._handle, json.loads(json.dumps(heading)))
        except BaseException:
            if is_new and path.is_file() and not path.stat().st_size:  # as on a full disk
                path.unlink()
            self.close()
            raise

    def _begin(self, handle: int, heading: Json) -> None:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise NoJournal(f"{describe_path(self.path)} is no journal: it is no regular file")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed, or its process ends
        except BlockingIOError:
            raise InUse(
                f"{describe_path(self.path)} is written by another process, whose run it is: wait for its end, or name another file"
            ) from None
        found, self._end = _read(self.path, written(heading))
        if found is not None and found != heading:
            raise OtherCampaign(f"{describe_path(self.path)} is of another campaign: {printable(_difference(found, heading))}")
        with self._name_file():
            os.ftruncate(handle, self._end[0])
            os.fsync(handle)
        if found is None:
            self.add(heading)

    def add(self, line: Json) -> None:
        """Write one line; it is on the disk when this returns. If it cannot be, the journal is as it was, and OSError is raised."""
        with self._lock, self._name_file():
            if self._handle is None:
                raise ValueError(f"{describe_path(self.path)} is closed")
            place, before = self._end
            data = written(line, before)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._handle, rest) :]
                os.fsync(self._handle)
                self._end = place + len(data), _sum(data)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._handle, place)
                self._end = place, before
                raise

    @contextlib.contextmanager
    def _name_file(self) -> Iterator[None]:
        """Name the journal in errors of the system raised inside."""
        try:
            yield
        except OSError as e:
            raise type(e)(e.errno, e.strerror, os.fspath(self.path)) from e

    def lines(self) -> Iterator[Json]:
        """Every line but the heading, in the order of their writing; not for use beside `add`. Raises NoJournal where the file was
        changed since it was opened."""
        number = 1
        for number, (line, _, _) in enumerate(_whole(self.path), 1):
            if line is None:
                raise NoJournal(_describe_damage(self.path, number))
            if number > 1:
                yield line

    def of(self, key: str) -> list[Json]:
        """The lines about something, in the order of their writing."""
        with self._lock:
            return [line[key] for line in self.lines() if key in line]

    @contextlib.contextmanager
    def refuse_other_forms(self) -> Iterator[None]:
        """Raise NoJournal if what is read from lines inside has not the form that this version gives them."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
            why = printable(f"{type(e).__name__}: {e}").partition("\n")[0]
            raise NoJournal(f"{describe_path(self.path)} holds a line of another form: {why}") from e

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def lines_so_far(path: Path) -> Iterator[Json]:
    """Every whole line but the heading of a journal that another process writes."""
    for number, (line, _, _) in enumerate(_whole(path) if path.is_file() else ()):
        if line is None:
            return
        if number:
            yield line


def tree(package: Path = PACKAGE) -> str:
    """A digest of the sources of this package: what decides a result, beside what is asked and the versions of others."""
    found = hashlib.sha256()
    for folder, within, files in os.walk(package, followlinks=True):
        within.sort()
        for name in sorted(f for f in files if f.endswith((".py", ".jsonl"))):  # the ledger decides which rules there are
            found.update(name.encode() + b"\0" + hashlib.sha256(Path(folder, name).read_bytes()).digest())
    return found.hexdigest()


#: The end of a line: a key whose value is the sum of what would be the line without it.
_END = re.compile(rb',"sum":"([0-9a-f]{16})"\}\n\Z')


def written(line: Json, before: bytes = b"") -> bytes:
    """A line, which is not empty, as it is on the disk behind one with the sum `before`; a heading is behind none."""
    data = json.dumps(line, separators=(",", ":")).encode()
    return b'%s,"sum":"%s"}\n' % (data[:-1], _digest(before, data))


def text(lines: Iterable[Json]) -> bytes:
    """The journal of a heading and these lines."""
    found, before = [], b""
    for line in lines:
        found.append(written(line, before))
        before = _sum(found[-1])
    return b"".join(found)


def _digest(before: bytes, data: bytes) -> bytes:
    return hashlib.sha256(before + data).hexdigest()[:16].encode()


def _sum(line: bytes) -> bytes:
    """The sum that a line ends with."""
    return line[-19:-3]


def _difference(found: Json, wanted: Json) -> str:
    """In what two headings differ; with the values where a heading is one set of settings under a name."""
    wrong = [k for k in sorted(wanted.keys() | found.keys()) if wanted.get(k) != found.get(k)]
    if len(wanted) == 1 and found.keys() == wanted.keys():
        (name,) = wrong
        there, here = found[name], wanted[name]
        if isinstance(there, dict) and isinstance(here, dict):
            differ = [k for k in sorted(here.keys() | there.keys()) if here.get(k) != there.get(k)]
            told = [f"{name}.{k} ({json.dumps(there.get(k))} there, {json.dumps(here.get(k))} here)" for k in differ]
            return f"it differs in {', '.join(told)}; use another --report"
    return f"it differs in {', '.join(wrong)}"


def _read(path: Path, heading: bytes) -> tuple[Json | None, tuple[int, bytes]]:
    """The first line of a journal, None where there is none; the length of its whole lines, and the last one's sum. Raises
    NoJournal."""
    first: Json | None = None
    end, bad = (0, b""), 0
    for number, (line, raw, total) in enumerate(_whole(path), 1):
        if bad:
            raise NoJournal(_describe_damage(path, bad))
        if line is None:
            if first is None and not heading.startswith(raw.rstrip(b"\0")):
                raise NoJournal(f"{describe_path(path)} is no journal: its first line is no heading; it was left as it is")
            if raw.endswith(b"\n") and b"\0" not in raw:  # neither cut off nor a block that never reached the disk
                raise NoJournal(_describe_damage(path, number))
            bad = number
            continue
        first = line if first is None else first
        end = end[0] + len(raw), total
    return first, end


def _describe_damage(path: Path, number: int) -> str:
    return f"{describe_path(path)} is damaged: line {number} is not as it was written; it was left as it is"


def _whole(path: Path) -> Iterator[tuple[Json | None, bytes, bytes]]:
    """Each line of a file with its bytes and its sum; None for one that is not what was written there, and for all behind it."""
    before = b""
    with path.open("rb") as f:
        while raw := f.readline(MOST_BYTES):
            line = _parsed(raw, before)
            before = _sum(raw) if line is not None else b"damaged"
            yield line, raw, before


def _parsed(raw: bytes, before: bytes) -> Json | None:
    """What was written as this line, behind one with the sum `before`; None where it is no whole line, or another one."""
    end = _END.search(raw)
    if end is None:
        return None
    data = raw[: end.start()] + b"}"
    try:
        found = json.loads(data) if _digest(before, data) == end[1] else None
    except (ValueError, RecursionError):  # nothing that we wrote
        return None
    return found if isinstance(found, dict) else None
