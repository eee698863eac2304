"""Blessed cells: those that are known to fail, each with a reason and a link, in a TOML file that people edit.

Takes: a report, and such a file. Gives: the failing cells that the file covers, those that it does not, and the entries whose cells
all pass. Blessed cells stay failures in every score. Only the exit status of a run heeds the file.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from uops.backends.conformance.model import CellStatus
from uops.spec.untrusted import BadFile, describe_path, escape_to_one_line, read_text

Json = dict[str, Any]

_HEADER = """\
# Cells that are known to fail. They stay failures in every score; only the exit status of `uops conform --bless` heeds them.
# Each entry needs a reason, and a link to where it is explained. `row`, `dtype` and `edge` may be globs, such as "int*".
"""


class Blessing(NamedTuple):
    """An entry: globs over the row, dtype and edge class of cells, and why they may fail."""

    row: str
    dtype: str
    edge: str
    reason: str
    link: str

    def covers(self, cell: Json) -> bool:
        """Return True if a cell of a report is one of the entry's."""
        return all(fnmatchcase(cell[key], getattr(self, key)) for key in ("row", "dtype", "edge"))

    def __str__(self) -> str:
        return f"{self.row} {self.dtype} {self.edge}"


class BlessedReport(NamedTuple):
    """The failing cells of a report that are blessed, those that are not, and the entries whose cells were run and do not fail."""

    blessed: list[Json]
    others: list[Json]
    stale: list[Blessing]


def read_blessings(path: Path) -> list[Blessing]:
    """Read a file of blessed cells. Raises BadFile, with the entry, if it is malformed or lacks a reason or a link."""
    name = describe_path(path)
    try:
        document = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as e:
        raise BadFile(f"{name} is no TOML: {escape_to_one_line(str(e))}") from None
    entries = document.get("cells")
    if set(document) != {"cells"} or not isinstance(entries, list):
        raise BadFile(f"{name} is no list of blessed cells: expected [[cells]] alone")
    return [_parse_entry(entry, f"{name}, entry {k}") for k, entry in enumerate(entries, 1)]


def _parse_entry(entry: Any, place: str) -> Blessing:
    if not isinstance(entry, dict) or set(entry) != set(Blessing._fields):
        raise BadFile(f"{place}: expected {', '.join(Blessing._fields)}")
    for key in Blessing._fields:
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise BadFile(f"{place}: {key} must be text that is not empty")
    return Blessing(**entry)


def apply_blessings(doc: Json, blessings: Sequence[Blessing]) -> BlessedReport:
    """Divide the failing cells of a report at the level that decides."""
    level, blessed, others = doc["level"], list[Json](), list[Json]()
    failing = [c for c in doc["cells"] if c[level]["status"] == CellStatus.FAIL.value]
    for cell in failing:
        (blessed if any(entry.covers(cell) for entry in blessings) else others).append(cell)
    passing = [c for c in doc["cells"] if c[level]["status"] == CellStatus.PASS.value]
    stale = [e for e in blessings if any(map(e.covers, passing)) and not any(map(e.covers, failing))]
    return BlessedReport(blessed, others, stale)


def render_failing_cells_as_entries(doc: Json) -> str:
    """Return the text of a file with the failing cells, whose reasons and links are to be filled in.

    A row and dtype all of whose cells fail is one entry.
    """
    level, by_dtype = doc["level"], dict[tuple[str, str], list[Json]]()
    for cell in doc["cells"]:
        by_dtype.setdefault((cell["row"], cell["dtype"]), []).append(cell)
    entries: list[tuple[str, str, str]] = []
    for (row, dtype), cells in by_dtype.items():
        failing = [c for c in cells if c[level]["status"] == CellStatus.FAIL.value]
        entries += [(row, dtype, edge) for edge in (["*"] if len(failing) == len(cells) else [c["edge"] for c in failing])]
    return _HEADER + "".join(map(_render_entry, entries))


def _render_entry(cell: Iterable[str]) -> str:
    row, dtype, edge = map(json.dumps, cell)  # a JSON text is one of TOML
    return f'\n[[cells]]\nrow = {row}\ndtype = {dtype}\nedge = {edge}\nreason = ""\nlink = ""\n'
