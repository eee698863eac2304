"""Whether a reader stands what strangers give it.

A `Format` is a row: samples of whole files, how users reach the reader, and what may come out. `campaign` draws inputs, each a pure
function of the format's name, the seed and a number, and gives what went wrong, with the number. The outcome of an input is a
result, or an error of this package or the system in one line that says which file it is about; within its time, and without a
change of any file but the one that is read. Where a format is `told_apart`, the result is one that an unharmed file has, or none.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import hostile_mutate as mutate

from uops.spec.errors import Crash, UopsError

#: Inputs of a format in the usual tests, and in those of an environment of their own.
SAMPLE, MANY = 150, 20_000
#: Seconds for one input.
LIMIT = 10.0


@dataclass(frozen=True)
class Format:
    """`samples()` gives whole files; `read(path)` is what users reach, and gives what is compared. `name` is that of the file: an
    error has it, or one of `says`. `told_apart(result, those of the samples)` says whether a harmed file may have a result."""

    title: str
    kind: str
    samples: Callable[[], Sequence[bytes]]
    read: Callable[[Path], Any]
    name: str = "foreign"
    says: tuple[str, ...] = ()
    told_apart: Callable[[Any, Sequence[Any]], bool] | None = None
    seal: Callable[[bytes], bytes] = field(default=lambda data: data)


@dataclass(frozen=True)
class Wrong:
    """What a reader did with input `k`: `why`, and the input."""

    title: str
    k: int
    why: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.title}, input {self.k}: {self.why}; it begins with {self.data[:200]!r}"


class Late(BaseException):
    """An input takes longer than its limit."""


def inputs(row: Format, count: int, seed: int = 0) -> Iterator[tuple[int, bytes]]:
    """Numbers and inputs."""
    samples, mutations = _samples(row), mutate.of(row.kind)
    for k in range(count):
        draw = random.Random(f"{row.title}/{seed}/{k}")
        data = draw.choice(mutations)(draw, samples)
        for _ in range(draw.choice((0, 0, 0, 1, 2))):
            data = draw.choice(mutations[:6])(draw, [data])
        yield k, row.seal(data)


@cache
def _samples(row: Format) -> tuple[bytes, ...]:
    return tuple(row.samples())


@cache
def unharmed(row: Format) -> tuple[Any, ...]:
    """The results of the samples; None of one that is refused, as another's journal is."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for data in _samples(row):
            with suppress(UopsError):
                found.append(outcome(row, Path(folder), row.seal(data)))
    return tuple(found)


def campaign(row: Format, count: int, folder: Path, seed: int = 0) -> list[Wrong]:
    """Everything that went wrong; sentinels in the folder, and beside it, are not touched."""
    allowed, found = unharmed(row), []
    place = folder / "place"
    place.mkdir(exist_ok=True)
    (folder / "beside").write_bytes(b"beside")
    (place / "sentinel").write_bytes(b"sentinel")
    before = digest(folder, row.name)
    for k, data in inputs(row, count, seed):
        try:
            result = outcome(row, place, data)
            if row.told_apart and not row.told_apart(result, allowed):
                found.append(Wrong(row.title, k, f"another result than an unharmed file has: {str(result)[:300]}", data))
        except (UopsError, OSError) as e:
            if why := misspoken(e, row):
                found.append(Wrong(row.title, k, why, data))
        except Late:
            found.append(Wrong(row.title, k, f"no answer within {LIMIT} s", data))
        except Exception as e:
            found.append(Wrong(row.title, k, f"{type(e).__name__}: {e}"[:500], data))
        if (after := digest(folder, row.name)) != before:
            found.append(Wrong(row.title, k, "other files were changed", data))
            before = after
    return found


def outcome(row: Format, place: Path, data: bytes) -> Any:
    """What the reader gives of a file with these bytes, or raises; warnings are held to what errors are."""
    path = place / row.name
    path.write_bytes(data)
    with limit(LIMIT), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = row.read(path)
    for w in said:
        if why := misspoken(w.message, row):
            raise AssertionError(f"warning: {why}")
    return result


def misspoken(e: BaseException | str, row: Format) -> str | None:
    """What is wrong with an error's text: it has more than a line, or does not say what it is about."""
    text = str(e)
    if isinstance(e, Crash):
        return f"a crash of ours: {text[:300]}"
    if "\n" in text.strip("\n") or any(ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 for c in text):
        return f"more than one printable line: {text[:300]!r}"
    if not any(word in text for word in (row.name, *row.says)):
        return f"the file is not named: {type(e).__name__}: {text[:300]}"
    return None


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise Late when the time is over."""

    def over(number: int, frame: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def digest(folder: Path, but: str) -> str:
    """Names and contents of all files below a folder, but those of this name."""
    found = hashlib.sha256()
    for at, inner, files in os.walk(folder):
        inner.sort()
        for name in sorted(files):
            if name != but:
                found.update(os.path.join(at, name).encode() + b"\0" + Path(at, name).read_bytes() + b"\0")
    return found.hexdigest()
