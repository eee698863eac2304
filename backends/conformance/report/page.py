"""A report as one static HTML page: rows x dtypes, coloured by the worst edge class, with the details of each cell.

The page is self-contained: styles, script and data are inside. The matrix is plain HTML, so it can be read, searched and printed
without the script. The details of a cell come from one JSON block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import floor
from pathlib import Path
from typing import Any

import jinja2

from uops.backends.conformance.causes.summary import count_explained_cells, summarize_causes
from uops.backends.conformance.model import CellStatus, ConformanceLevel
from uops.backends.conformance.report.texts import SpecTexts
from uops.spec.ir import dtypes as dt

Json = dict[str, Any]
HERE = Path(__file__).parent

#: Precedence of statuses: a cell of several edge classes shows the first of these that one of them has.
WORST = (
    CellStatus.FAIL, CellStatus.NOT_RUN, CellStatus.UNSUPPORTED, CellStatus.XFAIL, CellStatus.BY_TRAIT, CellStatus.PASS,
    CellStatus.NOT_ASKABLE
)  # fmt: skip
_RANK = {s.value: k for k, s in enumerate(WORST)}
#: Status -> CSS class.
KEY = {
    CellStatus.PASS: "pass",
    CellStatus.FAIL: "fail",
    CellStatus.BY_TRAIT: "trait",
    CellStatus.XFAIL: "xfail",
    CellStatus.UNSUPPORTED: "none",
    CellStatus.NOT_ASKABLE: "mute",
    CellStatus.NOT_RUN: "wait",
}
_KEY_OF = {s.value: k for s, k in KEY.items()}
#: Status -> its legend.
MEANING = {
    CellStatus.PASS: "every element is in its allowed set",
    CellStatus.FAIL: "an element is outside its allowed set, or the program gave no result or was refused",
    CellStatus.BY_TRAIT: "every wrong element is what a trait gives that the backend declares: in no score but its own",
    CellStatus.XFAIL: "fails as the backend declared before the run, with a link",
    CellStatus.UNSUPPORTED: "declared before the run as not there",
    CellStatus.NOT_ASKABLE: "of a surface that the backend does not declare: counted apart, in no score but its own",
    CellStatus.NOT_RUN: "required, but the run ended before it",
}


@dataclass(frozen=True, slots=True)
class CellBadge:
    """The content of one matrix cell at one level."""

    key: str
    label: str
    ulp: float

    @staticmethod
    def from_verdicts(verdicts: list[Json]) -> CellBadge:
        """Summarize the verdicts of a cell's edge classes."""
        worst = min((v["status"] for v in verdicts), key=_RANK.__getitem__)
        same = sum(v["status"] == worst for v in verdicts)
        n = len(verdicts)
        label = f"{same}/{n}" if same < n or worst == CellStatus.FAIL.value else str(n)
        return CellBadge(_KEY_OF[worst], label, max(v["max_ulp"] for v in verdicts))


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One matrix cell; None in a row of squares means that the row has no such dtype."""

    strict: CellBadge
    core: CellBadge

    @staticmethod
    def from_cells(entries: list[Json]) -> MatrixCell:
        """Summarize the edge classes of one row and dtype."""
        return MatrixCell(
            CellBadge.from_verdicts([c["strict"] for c in entries]), CellBadge.from_verdicts([c["core"] for c in entries])
        )


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One matrix row."""

    id: str
    name: str
    hint: str
    squares: list[MatrixCell | None]
    ulp: dict[str, float]


def render_page(doc: Json, texts: SpecTexts, programs: Mapping[str, str], newly_asked: Sequence[str] = ()) -> str:
    """Render the page. `programs` maps the reproducer names of `doc` to their text.

    `newly_asked` are the rows that a baseline did not ask.
    """
    names = _list_dtype_columns(doc)
    by_row = {row: list(cells) for row, cells in groupby(doc["cells"], key=lambda c: c["row"])}
    lines = [_make_matrix_row(row, cells, names, texts) for row, cells in _sort_rows_by_family_in_spec_order(by_row, texts)]
    return load_template("page.html.j2").render(
        doc=doc,
        newly_asked=newly_asked,
        families=[(family, list(rows)) for family, rows in groupby(lines, key=lambda line: family_of(line.id))],
        dtypes=[(name, *split_dtype_name(dt.DTYPES[name].short if name in dt.DTYPES else name)) for name in names],
        statuses=[(s.value, KEY[s], MEANING[s]) for s in CellStatus],
        causes=summarize_causes(doc, doc["level"]),
        explained=count_explained_cells(doc, doc["level"]),
        failing=[c for c in doc["cells"] if c[doc["level"]]["status"] == CellStatus.FAIL.value],
        style=read_style(),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
        data=escape_json_for_script(_collect_page_script_data(doc, by_row, texts, programs)),
    )


def load_template(name: str) -> jinja2.Template:
    """Load a template of this folder. It escapes what it is given, and formats numbers as all pages do."""
    loader, strict = jinja2.FileSystemLoader(HERE), jinja2.StrictUndefined
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=strict)
    environment.filters |= {"percent": format_percent, "number": format_count, "ulp": format_ulp}
    return environment.get_template(name)


def read_style() -> str:
    """Return the style sheet of all pages."""
    return (HERE / "page.css").read_text(encoding="utf-8")


def _list_dtype_columns(doc: Json) -> list[str]:
    """Return the columns: dtypes in the language's order, then unknown names."""
    used = {c["dtype"] for c in doc["cells"]}
    return [d.name for d in dt.ALL if d.name in used] + sorted(used - dt.DTYPES.keys())


def _sort_rows_by_family_in_spec_order(by_row: Mapping[str, list[Json]], texts: SpecTexts) -> Iterable[tuple[str, list[Json]]]:
    """Sort rows in the order of the specification, families together, unknown ones last."""
    position = {row: k for k, row in enumerate(texts.rows)}
    families: dict[str, int] = {}
    for row in sorted(by_row, key=lambda r: (position.get(r, len(position)), r)):
        families.setdefault(family_of(row), len(families))
    order = sorted(by_row, key=lambda r: (families[family_of(r)], position.get(r, len(position)), r))
    return [(row, by_row[row]) for row in order]


def family_of(row: str) -> str:
    """Return the family of a row, the first part of its id."""
    return row.partition("/")[0]


def _make_matrix_row(row: str, cells: list[Json], dtype_names: list[str], texts: SpecTexts) -> MatrixRow:
    by_dtype: dict[str, list[Json]] = {}
    for c in cells:
        by_dtype.setdefault(c["dtype"], []).append(c)
    squares = [MatrixCell.from_cells(by_dtype[name]) if name in by_dtype else None for name in dtype_names]
    highest = {level.value: max(c[level.value]["max_ulp"] for c in cells) for level in ConformanceLevel}
    text = texts.rows.get(row)
    return MatrixRow(row, row.partition("/")[2] or row, text.semantics if text else "", squares, highest)


# ---------------------------------------------------------------------------------------------------------------- data


class _StringPool:
    """A pool of strings; calling it returns the position of a string."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.at.setdefault(text, len(self.at))


def _collect_page_script_data(doc: Json, by_row: Mapping[str, list[Json]], texts: SpecTexts, programs: Mapping[str, str]) -> Json:
    """Collect the data of the page's script: cells[row][dtype] is a list of [edge, strict verdict, core verdict or 0 where it is
    the same]."""
    pool = _StringPool()
    cells: dict[str, dict[str, list[Any]]] = {}
    for row, entries in by_row.items():
        for c in entries:
            strict, core = _pack_verdict(c["strict"], pool), _pack_verdict(c["core"], pool)
            cells.setdefault(row, {}).setdefault(c["dtype"], []).append([pool(c["edge"]), strict, 0 if core == strict else core])
    return {
        "level": doc["level"],
        "backend": doc["backend"]["name"],
        "keys": {s.value: KEY[s] for s in CellStatus},
        "cells": cells,
        "strings": list(pool.at),
        "rows": {row: texts.rows[row].to_json() for row in by_row if row in texts.rows},
        "rulings": dict(texts.rulings),
        "programs": dict(programs),
    }


def _pack_verdict(verdict: Json, pool: _StringPool) -> list[Any]:
    """Pack a verdict as [status, elements, failed, ulp, sets, reason, failures]: strings by position, no trailing empty list."""
    sets = " · ".join(f"{kind} {format_count(n)}" for kind, n in sorted(verdict["sets"].items(), key=lambda item: -item[1]))
    fields = [
        pool(verdict["status"]),
        verdict["elements"],
        verdict["failed"],
        verdict["max_ulp"],
        pool(sets),
        pool(verdict["reason"] or ""),
        verdict["failures"],
    ]
    return fields if verdict["failures"] else fields[:-1]


def escape_json_for_script(data: Json) -> str:
    """Encode data as JSON without the characters that could end a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(c): f"\\u{ord(c):04x}" for c in "&<>\u2028\u2029"})


# ------------------------------------------------------------------------------------------------------------- numbers


def format_percent(ratio: float | None) -> str:
    """Format a ratio as percent, such as `98.73`, rounded down, so that only 1 gives 100."""
    if ratio is None:
        return "–"
    return "100" if ratio == 1 else f"{floor(ratio * 10000 + 1e-9) / 100:.2f}"


def format_count(n: int) -> str:
    """Format a count with thin spaces between thousands."""
    return f"{n:,}".replace(",", "\u202f")


def format_ulp(x: float) -> str:
    """Format a distance in ulp in three or four characters."""
    return "" if x == 0 else f"{x:.0f}" if x == int(x) and x < 1e4 else f"{x:.1f}" if x < 1e3 else f"{x:.0e}".replace("e+0", "e")


def split_dtype_name(short: str) -> tuple[str, str]:
    """Split a dtype's name where a line may break: `f8`, `e4m3`."""
    at = short.find("e", 1) if len(short) > 5 else -1
    return (short[:at], short[at:]) if at > 0 else (short, "")
