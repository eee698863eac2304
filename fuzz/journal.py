"""What a campaign has done so far, on disk: one JSON document per line, forced to the disk with each.

The first line is the campaign's heading; a journal with another heading is another campaign's. A last line that was cut off by the
end of a process or of a machine is taken away when the journal is opened, and what it would have said is done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
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


class Journal:
    """Append-only, for several threads of one process. What it says is read from the disk, as a long campaign's fills memories."""

    def __init__(self, path: Path, heading: Json) -> None:
        """Open or begin. Raises OtherCampaign, InUse and OSError."""
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
        found = _mended(self.path)
        if found is None:
            self.add(heading)
        elif found != heading:
            wrong = [k for k in sorted(heading.keys() | found.keys()) if heading.get(k) != found.get(k)]
            raise OtherCampaign(f"{self.path} is of another campaign: it differs in {', '.join(wrong)}")

    def add(self, line: Json) -> None:
        """Write one line; it is on the disk when this returns."""
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())

    def lines(self) -> Iterator[Json]:
        """Every line but the heading, in the order of their writing; not for use beside `add`."""
        with self.path.open("rb") as f:
            next(f)
            yield from map(json.loads, f)

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


def _mended(path: Path) -> Json | None:
    """The first line of a journal, None where there is none; what follows the last whole line is taken away."""
    first: Json | None = None
    good = 0
    with path.open("r+b") as f:
        for raw in f:
            if not raw.endswith(b"\n"):
                break
            try:
                line = json.loads(raw)
            except ValueError:  # a block that never reached the disk
                break
            first = line if first is None else first
            good += len(raw)
        if good < f.seek(0, os.SEEK_END):
            f.truncate(good)
            os.fsync(f.fileno())
    return first
