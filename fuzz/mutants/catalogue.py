"""The catalogue of mutants: bugs as data, one file of `catalogue/` per class.

Each is a text of one file of the package that is there once, and another text for it: nothing here knows how it might be found.
`source` says whether it is made up or a bug that somebody had. Those that are `blind` were written from the compiler and the
backends alone, before their author had read an oracle or a generator.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import uops.fuzz
from uops.spec.errors import UopsError
from uops.spec.ir.record import dataclass

#: The package: mutants name files below it.
PACKAGE = Path(uops.fuzz.__file__).absolute().parents[1]
_FOLDER = Path(__file__).with_name("catalogue")
#: Folders whose bugs a backend has that is not the fastest one to run.
_BACKENDS = {"backends/opencl": "opencl", "backends/c/": "c", "backends/cstyle": "c"}


class Stale(UopsError):
    """The text that a mutant changes is not there, or not once: somebody has changed the file."""


class Edit(NamedTuple):
    """`old` becomes `new` in `file`, a path below the package."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`class_` is the kind of bug, `breaks` what it makes wrong, `backend` where it is looked for. An `equivalent` one changes no
    meaning, for the reason that it gives, and is not counted."""

    id: str
    class_: str
    edit: Edit
    breaks: str
    source: str
    backend: str
    blind: bool = False
    equivalent: str = ""


def catalogue(glob: str = "*") -> tuple[Mutant, ...]:
    """The mutants whose id or class matches, by class."""
    rows = ((path.stem, row) for path in sorted(_FOLDER.glob("*.toml")) for row in tomllib.loads(path.read_text())["mutant"])
    found = [_mutant(class_, row) for class_, row in rows]
    return tuple(m for m in found if fnmatch.fnmatch(m.id, glob) or fnmatch.fnmatch(m.class_, glob))


def _mutant(class_: str, row: dict[str, str | bool]) -> Mutant:
    words = {k: str(row[k]) for k in ("id", "breaks", "source")}
    edit = Edit(*(str(row[k]) for k in ("file", "old", "new")))
    backend = next((b for folder, b in _BACKENDS.items() if edit.file.startswith(folder)), "llvm")
    return Mutant(
        class_=class_, edit=edit, backend=str(row.get("backend", backend)), blind=bool(row.get("blind")),
        equivalent=str(row.get("equivalent", "")), **words,
    )  # fmt: skip


def changed(edits: Iterable[Edit]) -> dict[str, str]:
    """The files that the edits change, as they are then. Raises Stale."""
    found: dict[str, str] = {}
    for e in edits:
        text = found.get(e.file)
        text = (PACKAGE / e.file).read_text(encoding="utf-8") if text is None else text
        if text.count(e.old) != 1:
            raise Stale(f"{e.file} has {text.count(e.old)} times, not once: {e.old.strip().splitlines()[0]}")
        found[e.file] = text.replace(e.old, e.new)
    return found
