"""What a campaign has done so far, on disk: one JSON document per line, with a checksum, forced to the disk with each.

The first line is the campaign's heading; a journal with another heading is another campaign's. A last line that was cut off by the
end of a process or of a machine is taken away when the journal is opened, and what it would have said is done again. A file that is
no journal, or is damaged elsewhere, is refused and left as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uops.fuzz
from uops.spec.errors import UopsError

Json = dict[str, Any]
PACKAGE = Path(uops.fuzz.__file__).absolute().parents[1]


class OtherCampaign(UopsError):
    """A directory holds the journal of another campaign."""


class InUse(UopsError):
    """A directory holds the journal of a campaign that is running."""


class NoJournal(UopsError):
    """A file that is no journal, or is damaged."""


class Journal:
    """Append-only, for several threads of one process. What it says is read from the disk, as a long campaign's fills memories."""

    def __init__(self, path: Path, heading: Json) -> None:
        """Open or begin. Raises OtherCampaign, NoJournal, InUse and OSError."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._file = path.open("ab")
        try:
            self._begin(json.loads(json.dumps(heading)))
        except BaseException:
            self._file.close()
            raise

    def _begin(self, heading: Json) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed, or its process ends
        except BlockingIOError:
            raise InUse(f"{self.path} is written by another process, whose campaign it is") from None
        found, good = _read(self.path, written(heading))
        if found is not None and found != heading:
            raise OtherCampaign(f"{self.path} is of another campaign: {_difference(found, heading)}")
        if good < self.path.stat().st_size:
            os.truncate(self.path, good)
            os.fsync(self._file.fileno())
        if found is None:
            self.add(heading)

    def add(self, line: Json) -> None:
        """Write one line; it is on the disk when this returns."""
        data = written(line)
        with self._lock:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())

    def lines(self) -> Iterator[Json]:
        """Every line but the heading, in the order of their writing; not for use beside `add`."""
        with self.path.open("rb") as f:
            next(f)
            for raw in f:
                found = _parsed(raw)
                assert found is not None, "it was whole when the journal was opened"
                yield found

    def of(self, key: str) -> list[Json]:
        """The lines about something, in the order of their writing."""
        with self._lock:
            return [line[key] for line in self.lines() if key in line]

    def close(self) -> None:
        self._file.close()


def tree(package: Path = PACKAGE) -> str:
    """A digest of the sources of this package: what decides a result, beside what is asked and the versions of others."""
    found = hashlib.sha256()
    for folder, within, files in os.walk(package, followlinks=True):
        within.sort()
        for name in sorted(f for f in files if f.endswith((".py", ".jsonl"))):  # the ledger decides which rules there are
            found.update(name.encode() + b"\0" + hashlib.sha256(Path(folder, name).read_bytes()).digest())
    return found.hexdigest()


#: The end of a line: a key whose value is the checksum of what would be the line without it.
_END = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\n\Z')


def written(line: Json) -> bytes:
    """A line, which is not empty, as it is on the disk."""
    data = json.dumps(line, separators=(",", ":")).encode()
    return b'%s,"crc32":"%08x"}\n' % (data[:-1], zlib.crc32(data))


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


def _read(path: Path, heading: bytes) -> tuple[Json | None, int]:
    """The first line of a journal, None where there is none, and the length of its whole lines. Raises NoJournal."""
    first: Json | None = None
    good, bad = 0, 0
    with path.open("rb") as f:
        for number, raw in enumerate(f, 1):
            if bad:
                raise NoJournal(f"{path} is damaged: line {bad} is not as it was written; it was left as it is")
            line = _parsed(raw)
            if line is None:
                if first is None and not heading.startswith(raw.rstrip(b"\0")):
                    raise NoJournal(f"{path} is no journal: its first line is no heading; it was left as it is")
                if raw.endswith(b"\n") and b"\0" not in raw:  # neither cut off nor a block that never reached the disk
                    raise NoJournal(f"{path} is damaged: line {number} is not as it was written; it was left as it is")
                bad = number
                continue
            first = line if first is None else first
            good += len(raw)
    return first, good


def _parsed(raw: bytes) -> Json | None:
    """What was written as this line; None where it is no whole line, or another one than was written."""
    end = _END.search(raw)
    if end is None:
        return None
    data = raw[: end.start()] + b"}"
    found = json.loads(data) if zlib.crc32(data) == int(end[1], 16) else None
    return found if isinstance(found, dict) else None
