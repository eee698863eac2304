"""The rulings of `rulings.md`, by id: `RULINGS["R43"].text`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Ruling(NamedTuple):
    """One decision where the seed documents leave a gap: id (`R43`), topic and text."""

    id: str
    topic: str
    text: str


_ROW = re.compile(r"^\| (R\d{2,3}) \| (.+?) \| (.+) \|$")
_PRINCIPLE = re.compile(r"^\*\*(P\d)\.\*\* (.+)$")


def parse_rulings(text: str) -> dict[str, Ruling]:
    """Return the rulings of a Markdown text by id, in order.

    Raises ValueError if an id appears twice or a table row cannot be read.
    """
    rulings: dict[str, Ruling] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        row, principle = _ROW.match(raw), _PRINCIPLE.match(raw)
        if row is None and principle is None:
            if raw.startswith(("| R", "**P")):
                raise ValueError(f"line {number} is no ruling: {raw}")
            continue
        ruling = Ruling(*row.groups()) if row else Ruling(principle[1], "principle", principle[2])  # type: ignore[index]
        if ruling.id in rulings:
            raise ValueError(f"line {number}: {ruling.id} appears twice")
        rulings[ruling.id] = ruling
    return rulings


RULINGS: dict[str, Ruling] = parse_rulings(Path(__file__).with_name("rulings.md").read_text(encoding="utf-8"))
