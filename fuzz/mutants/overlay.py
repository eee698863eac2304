"""A package with some files changed: a folder of links to everything else of it.

The working tree stays as it is. Folders on the way to a changed file are real, so that Python keeps what it compiles of them apart;
what it has compiled of the files that are not changed is linked, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from uops.fuzz.mutants.catalogue import PACKAGE

_OWN = "__pycache__"


def overlay(folder: Path, files: Mapping[str, str]) -> Path:
    """Make `folder/uops`, the package with these texts in the place of its files; gives what to put on the import path."""
    _fill(folder / PACKAGE.name, PACKAGE, {PurePosixPath(name).parts: text for name, text in files.items()})
    return folder


def _fill(here: Path, there: Path, files: Mapping[tuple[str, ...], str]) -> None:
    here.mkdir(parents=True)
    heads = {name[0] for name in files}
    for entry in there.iterdir():
        if entry.name == _OWN:
            _link_compiled(here / _OWN, entry, heads)
            continue
        below = {name[1:]: text for name, text in files.items() if name[0] == entry.name}
        if entry.name not in heads:
            (here / entry.name).symlink_to(entry)
        elif () in below:
            (here / entry.name).write_text(below[()], encoding="utf-8")
        else:
            _fill(here / entry.name, entry, below)


def _link_compiled(here: Path, there: Path, changed: set[str]) -> None:
    here.mkdir()
    for entry in there.iterdir():
        if f"{entry.name.partition('.')[0]}.py" not in changed:
            (here / entry.name).symlink_to(entry)
