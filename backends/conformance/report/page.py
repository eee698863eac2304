"""A report as one static HTML page: rows x dtypes, coloured by the worst edge class, with everything known about a cell behind it.

The page needs nothing but itself: styles, script and data are inside. The matrix is plain HTML, so that it can be read, searched
and printed without the script; what a cell shows when it is opened comes from one JSON block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import floor
from pathlib import Path
from typing import Any

import jinja2

from uops.backends.conformance.model import Level, Status
from uops.backends.conformance.report.texts import Texts
from uops.spec.ir import dtypes as dt

Json = dict[str, Any]
HERE = Path(__file__).parent

#: What a cell shows when it stands for several edge classes: the first of these that one of them has.
WORST = (Status.FAIL, Status.NOT_RUN, Status.UNSUPPORTED, Status.XFAIL, Status.PASS)
_RANK = {s.value: k for k, s in enumerate(WORST)}
#: Short names for class attributes.
KEY = {Status.PASS: "pass", Status.FAIL: "fail", Status.XFAIL: "xfail", Status.UNSUPPORTED: "none", Status.NOT_RUN: "wait"}
_KEY_OF = {s.value: k for s, k in KEY.items()}
MEANING = {
    Status.PASS: "every element is in its allowed set",
    Status.FAIL: "an element is outside its allowed set, or the program gave no result or was refused",
    Status.XFAIL: "fails as the backend declared before the run, with a link",
    Status.UNSUPPORTED: "declared before the run as not there",
    Status.NOT_RUN: "required, but the run ended before it",
}


@dataclass(frozen=True, slots=True)
class Face:
    """What one matrix cell shows at one level."""

    key: str
    label: str
    ulp: float

    @staticmethod
    def of(verdicts: list[Json]) -> Face:
        worst = min((v["status"] for v in verdicts), key=_RANK.__getitem__)
        same = sum(v["status"] == worst for v in verdicts)
        n = len(verdicts)
        label = str(n) if worst == Status.PASS.value else f"{same}/{n}" if same < n or worst == Status.FAIL.value else str(n)
        return Face(_KEY_OF[worst], label, max(v["max_ulp"] for v in verdicts))


@dataclass(frozen=True, slots=True)
class Square:
    """One matrix cell; None in a row of squares means that the row has no such dtype."""

    strict: Face
    core: Face

    @staticmethod
    def of(cells: list[Json]) -> Square:
        return Square(Face.of([c["strict"] for c in cells]), Face.of([c["core"] for c in cells]))


@dataclass(frozen=True, slots=True)
class Line:
    """One matrix row."""

    id: str
    name: str
    hint: str
    squares: list[Square | None]
    ulp: dict[str, float]


def page(doc: Json, texts: Texts, programs: Mapping[str, str]) -> str:
    """The page. `programs` maps the reproducer names of `doc` to their text."""
    names = _dtypes(doc)
    by_row = {row: list(cells) for row, cells in groupby(doc["cells"], key=lambda c: c["row"])}
    lines = [_line(row, cells, names, texts) for row, cells in _in_order(by_row, texts)]
    loader, strict = jinja2.FileSystemLoader(HERE), jinja2.StrictUndefined
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=strict)
    environment.filters |= {"percent": percent, "number": number, "ulp": ulp}
    return environment.get_template("page.html.j2").render(
        doc=doc,
        families=[(family, list(of)) for family, of in groupby(lines, key=lambda line: family_of(line.id))],
        dtypes=[(name, *parts(dt.DTYPES[name].short if name in dt.DTYPES else name)) for name in names],
        statuses=[(s.value, KEY[s], MEANING[s]) for s in Status],
        failing=[c for c in doc["cells"] if c[doc["level"]]["status"] == Status.FAIL.value],
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
        data=embed(_data(doc, by_row, texts, programs)),
    )


def _dtypes(doc: Json) -> list[str]:
    """The columns: the language's order, then names it does not know."""
    used = {c["dtype"] for c in doc["cells"]}
    return [d.name for d in dt.ALL if d.name in used] + sorted(used - dt.DTYPES.keys())


def _in_order(by_row: Mapping[str, list[Json]], texts: Texts) -> Iterable[tuple[str, list[Json]]]:
    """Rows in the order of the specification, families together, unknown ones last."""
    place = {row: k for k, row in enumerate(texts.rows)}
    families: dict[str, int] = {}
    for row in sorted(by_row, key=lambda r: (place.get(r, len(place)), r)):
        families.setdefault(family_of(row), len(families))
    order = sorted(by_row, key=lambda r: (families[family_of(r)], place.get(r, len(place)), r))
    return [(row, by_row[row]) for row in order]


def family_of(row: str) -> str:
    return row.partition("/")[0]


def _line(row: str, cells: list[Json], names: list[str], texts: Texts) -> Line:
    of: dict[str, list[Json]] = {}
    for c in cells:
        of.setdefault(c["dtype"], []).append(c)
    squares = [Square.of(of[name]) if name in of else None for name in names]
    highest = {level.value: max(c[level.value]["max_ulp"] for c in cells) for level in Level}
    text = texts.rows.get(row)
    return Line(row, row.partition("/")[2] or row, text.semantics if text else "", squares, highest)


# ---------------------------------------------------------------------------------------------------------------- data


class _Pool:
    """Strings that occur often, by position."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.at.setdefault(text, len(self.at))


def _data(doc: Json, by_row: Mapping[str, list[Json]], texts: Texts, programs: Mapping[str, str]) -> Json:
    """What the script shows: cells[row][dtype] is a list of [edge, strict verdict, core verdict or 0 where it is the same]."""
    pool = _Pool()
    cells: dict[str, dict[str, list[Any]]] = {}
    for row, entries in by_row.items():
        for c in entries:
            strict, core = _verdict(c["strict"], pool), _verdict(c["core"], pool)
            cells.setdefault(row, {}).setdefault(c["dtype"], []).append([pool(c["edge"]), strict, 0 if core == strict else core])
    return {
        "level": doc["level"],
        "backend": doc["backend"]["name"],
        "keys": {s.value: KEY[s] for s in Status},
        "cells": cells,
        "strings": list(pool.at),
        "rows": {row: texts.rows[row].to_json() for row in by_row if row in texts.rows},
        "rulings": dict(texts.rulings),
        "programs": dict(programs),
    }


def _verdict(v: Json, pool: _Pool) -> list[Any]:
    """[status, elements, failed, ulp, sets, reason, failures], strings by position, the trailing empty ones left out."""
    sets = " · ".join(f"{kind} {number(n)}" for kind, n in sorted(v["sets"].items(), key=lambda item: -item[1]))
    found = [pool(v["status"]), v["elements"], v["failed"], v["max_ulp"], pool(sets), pool(v["reason"] or ""), v["failures"]]
    return found if v["failures"] else found[:-1]


def embed(data: Json) -> str:
    """JSON that may stand inside a script element: it has no character that could end it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(c): f"\\u{ord(c):04x}" for c in "&<>\u2028\u2029"})


# ------------------------------------------------------------------------------------------------------------- numbers


def percent(ratio: float | None) -> str:
    """`98.73`: rounded down, so that only everything is 100."""
    if ratio is None:
        return "–"
    return "100" if ratio == 1 else f"{floor(ratio * 10000) / 100:.2f}"


def number(n: int) -> str:
    """Thousands apart."""
    return f"{n:,}".replace(",", "\u202f")


def ulp(x: float) -> str:
    """A distance in ulp, in three or four characters."""
    return "" if x == 0 else f"{x:.0f}" if x == int(x) and x < 1e4 else f"{x:.1f}" if x < 1e3 else f"{x:.0e}".replace("e+0", "e")


def parts(short: str) -> tuple[str, str]:
    """A dtype's name in two parts between which a line may end: `f8`, `e4m3`."""
    at = short.find("e", 1) if len(short) > 5 else -1
    return (short[:at], short[at:]) if at > 0 else (short, "")
