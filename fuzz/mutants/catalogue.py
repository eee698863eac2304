"""The catalogue of mutants: bugs as data, one file of `catalogue/` per class.

A mutant replaces a text that occurs once in a file of the package by another text. It says nothing of how it may be found.
`source` says whether it is invented or a bug that somebody had. Those that are `blind` were written from the compiler and the
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

#: The package; paths of mutants are relative to it.
PACKAGE = Path(uops.fuzz.__file__).absolute().parents[1]
#: Folder of the catalogue.
_FOLDER = Path(__file__).with_name("catalogue")
#: Folder -> the backend that runs its code, if that is not the default one.
_BACKENDS = {"backends/opencl": "opencl", "backends/c/": "c", "backends/cstyle": "c", "backends/cuda": "cuda:shim"}


class StaleMutant(UopsError):
    """A mutant whose text does not occur exactly once any more: the file has changed."""


class Edit(NamedTuple):
    """A replacement of `old` by `new` in `file`, a path below the package."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A known bug. `class_` is its class, `breaks` what it makes wrong, `backend` where it is hunted. A mutant with a
    reason in `equivalent` changes no meaning and is not counted.
    """

    id: str
    class_: str
    edit: Edit
    breaks: str
    source: str
    backend: str
    blind: bool = False
    equivalent: str = ""


def load_mutants_by_id_or_class(glob: str = "*") -> tuple[Mutant, ...]:
    """Return the mutants whose id or class matches, by class."""
    rows = ((path.stem, row) for path in sorted(_FOLDER.glob("*.toml")) for row in tomllib.loads(path.read_text())["mutant"])
    mutants = [_parse_mutant(class_, row) for class_, row in rows]
    return tuple(m for m in mutants if fnmatch.fnmatch(m.id, glob) or fnmatch.fnmatch(m.class_, glob))


def _parse_mutant(class_: str, row: dict[str, str | bool]) -> Mutant:
    words = {k: str(row[k]) for k in ("id", "breaks", "source")}
    edit = Edit(*(str(row[k]) for k in ("file", "old", "new")))
    backend = next((b for folder, b in _BACKENDS.items() if edit.file.startswith(folder)), "llvm")
    return Mutant(
        class_=class_, edit=edit, backend=str(row.get("backend", backend)), blind=bool(row.get("blind")),
        equivalent=str(row.get("equivalent", "")), **words,
    )  # fmt: skip


def compute_texts_after_edits(edits: Iterable[Edit]) -> dict[str, str]:
    """Return the texts of the edited files, by path. Raises StaleMutant."""
    texts: dict[str, str] = {}
    for edit in edits:
        text = texts.get(edit.file)
        text = (PACKAGE / edit.file).read_text(encoding="utf-8") if text is None else text
        if text.count(edit.old) != 1:
            head = edit.old.strip().splitlines()[0]
            raise StaleMutant(f"{edit.file}: expected the text of the mutant once, got it {text.count(edit.old)} times: {head}")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts
