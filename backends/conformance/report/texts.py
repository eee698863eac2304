"""The specification's texts about the rows of a report, for readers without the specification at hand."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from uops.spec.ir.ops import ALU, BITWISE, Op
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.rows import OpSpec, rows_of_subject
from uops.spec.rulings import RULINGS

_RULING = re.compile(r"\b(?:R\d{2,3}|P\d)\b")


@dataclass(frozen=True, slots=True)
class RowText:
    """The texts of one row: `claims` are (id, text, ruling or empty), and `rulings` the ids that the row rests on, about values
    first."""

    semantics: str
    claims: tuple[tuple[str, str, str], ...] = ()
    rulings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the texts as JSON."""
        return {"semantics": self.semantics, "claims": [list(c) for c in self.claims], "rulings": list(self.rulings)}


@dataclass(frozen=True, slots=True)
class SpecTexts:
    """Rows by id, in the order of the specification, and rulings by id."""

    rows: dict[str, RowText] = field(default_factory=dict)
    rulings: dict[str, str] = field(default_factory=dict)


def collect_spec_texts(rows: Collection[str]) -> SpecTexts:
    """Collect the texts of these rows and of every ruling that one of them names."""
    row_texts: dict[str, RowText] = {}
    for row in rows_of_subject(RowSubject.BACKEND):
        if row.id in rows:
            meaning = MEANING.get(row.op, ()) if isinstance(row, OpSpec) else ()
            ruling_ids = _find_ruling_ids(*meaning, row.semantics, *(t for c in row.claims for t in (c.ruling, c.text)))
            claims = tuple((c.id, c.text, c.ruling) for c in row.claims)
            row_texts[row.id] = RowText(row.semantics, claims, tuple(r for r in ruling_ids if r in RULINGS))
    used_rulings = {r for row in row_texts.values() for r in row.rulings}
    return SpecTexts(row_texts, {r.id: f"{r.topic}: {r.text}" for r in RULINGS.values() if r.id in used_rulings})


def _find_ruling_ids(*parts: str) -> Iterator[str]:
    """Yield ruling ids in the order of their first occurrence."""
    yield from dict.fromkeys(m for part in parts for m in _RULING.findall(part))


#: Rulings that decide float values; claims are about form and do not name them.
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
    **dict.fromkeys((*BITWISE, Op.NOT), ()),  # whose claims cite all
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
assert MEANING.keys() >= ALU - {Op.MIN}, (
    f"backends/conformance/report/texts.py: say which rulings decide {ALU - {Op.MIN} - MEANING.keys()}"
)
