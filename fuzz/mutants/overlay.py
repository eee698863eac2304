"""A copy of the package with some files changed, made of links to all other files.

The working tree is left alone. Folders on the way to a changed file are real, so that Python stores their bytecode apart;
bytecode of unchanged files is linked, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from uops.fuzz.mutants.catalogue import PACKAGE

#: Folder of bytecode.
_BYTECODE = "__pycache__"


def build_overlay(folder: Path, files: Mapping[str, str]) -> Path:
    """Create `folder/uops`, the package with these texts in place of its files. Returns the folder, for the import path."""
    _link_tree(folder / PACKAGE.name, PACKAGE, {PurePosixPath(path).parts: text for path, text in files.items()})
    return folder


def _link_tree(target: Path, source: Path, files: Mapping[tuple[str, ...], str]) -> None:
    """Link every entry of a folder, except those that contain a changed file; these are created."""
    target.mkdir(parents=True)
    changed = {path[0] for path in files}
    for entry in source.iterdir():
        if entry.name == _BYTECODE:
            _link_bytecode(target / _BYTECODE, entry, changed)
            continue
        below = {path[1:]: text for path, text in files.items() if path[0] == entry.name}
        if entry.name not in changed:
            (target / entry.name).symlink_to(entry)
        elif () in below:
            (target / entry.name).write_text(below[()], encoding="utf-8")
        else:
            _link_tree(target / entry.name, entry, below)


def _link_bytecode(target: Path, source: Path, changed: set[str]) -> None:
    target.mkdir()
    for entry in source.iterdir():
        if f"{entry.name.partition('.')[0]}.py" not in changed:
            (target / entry.name).symlink_to(entry)
