"""The file of `uops conform --bless`: read before the run, and heeded after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import echo
from uops.spec.untrusted import describe_path, escape_to_one_line

if TYPE_CHECKING:
    from uops.backends.conformance.report.blessed import BlessedReport

Json = dict[str, Any]


def require_readable_or_new(path: Path) -> None:
    """Raise BadFile for a malformed file of blessed cells, and BadParameter for one that can neither be read nor written."""
    from uops.backends.conformance.report.blessed import read_blessings

    if path.exists():
        read_blessings(path)
    elif not os.access(path.absolute().parent, os.W_OK):
        raise click.BadParameter(f"{describe_path(path)} cannot be written", param_hint="--bless")


def bless_failing_cells_and_print(doc: Json, path: Path, *, err: bool) -> BlessedReport | None:
    """Say which failing cells of a report the file lists, and return them. A new file is written instead, and blesses nothing."""
    from uops.backends.conformance.report.blessed import apply_blessings, read_blessings, render_failing_cells_as_entries
    from uops.spec.untrusted import write_text

    if not path.exists():
        write_text(path, render_failing_cells_as_entries(doc))
        echo(f"{describe_path(path)} is new and lists the cells that fail: give each a reason and a link", err=err)
        return None
    found = apply_blessings(doc, read_blessings(path))
    failing = len(found.blessed) + len(found.others)
    echo(f"{len(found.blessed):,} of {failing:,} failing cells are blessed by {describe_path(path)}", err=err)
    for entry in found.stale:
        echo(f"{describe_path(path)} blesses cells that pass, remove the entry: {escape_to_one_line(str(entry))}", err=err)
    return found
