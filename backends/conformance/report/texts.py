"""What the specification says about the rows of a report, for readers who do not have it at hand."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from uops.spec.ir.ops import Op

_RULING = re.compile(r"\b(?:R\d{2,3}|P\d)\b")


@dataclass(frozen=True, slots=True)
class RowText:
    """One row: `claims` are (id, text, ruling or empty); `rulings` are the ids that the row rests on, those about values first."""

    semantics: str
    claims: tuple[tuple[str, str, str], ...] = ()
    rulings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"semantics": self.semantics, "claims": [list(c) for c in self.claims], "rulings": list(self.rulings)}


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows by id, in the order of the specification; rulings by id."""

    rows: dict[str, RowText] = field(default_factory=dict)
    rulings: dict[str, str] = field(default_factory=dict)


def texts(rows: Collection[str]) -> Texts:
    """The texts of these rows and of every ruling that one of them names."""
    from uops.spec.rows.rows import ROWS
    from uops.spec.rulings import RULINGS

    found: dict[str, RowText] = {}
    for spec in ROWS.values():
        if spec.id in rows:
            named = _named(*MEANING.get(spec.op, ()), spec.semantics, *(t for c in spec.claims for t in (c.ruling, c.text)))
            claims = tuple((c.id, c.text, c.ruling) for c in spec.claims)
            found[spec.id] = RowText(spec.semantics, claims, tuple(r for r in named if r in RULINGS))
    used = {r for row in found.values() for r in row.rulings}
    return Texts(found, {r.id: f"{r.topic}: {r.text}" for r in RULINGS.values() if r.id in used})


def _named(*parts: str) -> Iterator[str]:
    """Ruling ids in the order in which they are named."""
    yield from dict.fromkeys(m for part in parts for m in _RULING.findall(part))


#: Rulings that decide a row's values and that none of its claims, which are about form, has a reason to name.
_FLOAT = ("R16", "R19", "R20")
# fmt: off
MEANING: dict[Op, tuple[str, ...]] = {
    Op.IDIV:      ("R01", "R03", "R04"),
    Op.MOD:       ("R02", "R03", "R04"),
    Op.ADD:       ("R05", "R09", *_FLOAT),
    Op.MUL:       ("R05", "R09", *_FLOAT),
    Op.MAX:       ("R09", "R11"),
    Op.RECIP:     _FLOAT,
    Op.TRUNC:     ("R10", "R16"),
    Op.CAST:      ("R15", "R19", "R20"),
    Op.CMPLT:     ("R12",),
    Op.CMPNE:     ("R12",),
    Op.SHL:       ("R06", "R25"),
    Op.SHR:       ("R06", "R07", "R25"),
    Op.WHERE:     ("R14", "R26", "R28"),
    Op.NEG:       ("R05", "R21"),
    Op.SUB:       ("R05", *_FLOAT),
    Op.DIV:       ("R16", "R19", "R20"),
    Op.CMPGT:     ("R12",),
    Op.CMPGE:     ("R13",),
    Op.CMPLE:     ("R13",),
    Op.CMPEQ:     ("R12",),
    Op.EXP2:      ("R17", "R19"),
    Op.LOG2:      ("R17", "R19"),
    Op.SIN:       ("R17", "R19"),
    Op.SQRT:      _FLOAT,
    Op.POW:       ("R18", "R19"),
    Op.MULACC:    ("R05", "R16"),
    Op.THREEFRY:  ("R22",),
    Op.REDUCE:    ("R32", "R42"),
    Op.PAD:       ("R43", "R28"),
    Op.BITCAST:   ("R46", "R28"),
}
# fmt: on
