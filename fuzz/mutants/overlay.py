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


def build_overlay(folder: Path, changed_texts: Mapping[str, str]) -> Path:
    """Create `folder/uops`, the package with these texts in place of its files. Returns the folder, for the import path."""
    _create_linked_copy(folder / PACKAGE.name, PACKAGE, {PurePosixPath(path).parts: text for path, text in changed_texts.items()})
    return folder


def _create_linked_copy(new_folder: Path, original_folder: Path, changed_texts: Mapping[tuple[str, ...], str]) -> None:
    """Link every entry of a folder, except those that contain a changed file; these are created."""
    new_folder.mkdir(parents=True)
    changed = {path[0] for path in changed_texts}
    for entry in original_folder.iterdir():
        if entry.name == _BYTECODE:
            _link_unchanged_bytecode(new_folder / _BYTECODE, entry, changed)
            continue
        below = {path[1:]: text for path, text in changed_texts.items() if path[0] == entry.name}
        if entry.name not in changed:
            (new_folder / entry.name).symlink_to(entry)
        elif () in below:
            (new_folder / entry.name).write_text(below[()], encoding="utf-8")
        else:
            _create_linked_copy(new_folder / entry.name, entry, below)


def _link_unchanged_bytecode(new_folder: Path, original_folder: Path, changed_names: set[str]) -> None:
    new_folder.mkdir()
    for entry in original_folder.iterdir():
        if f"{entry.name.partition('.')[0]}.py" not in changed_names:
            (new_folder / entry.name).symlink_to(entry)
