"""The difference of two reports, and whether the second is worse.

A cell *regresses* when its status became worse, in the order of `WORSE`, or when it was run without failing before and is gone
although the second run was asked for it. A cell that only the second report has is new; it is no regression, whatever its status.
"""

from __future__ import annotations

import fnmatch
from dataclasses import asdict, dataclass, field
from typing import Any

from uops.backends.conformance.model import RAN, Cell, Level, Status
from uops.backends.conformance.report.document import cell_of

Json = dict[str, Any]
#: Best first.
WORSE = (Status.PASS, Status.XFAIL, Status.UNSUPPORTED, Status.NOT_RUN, Status.FAIL)
_RANK = {s: k for k, s in enumerate(WORSE)}
#: Facts of a report's head that decide whether two reports are about the same thing.
_HEAD = ("backend", "versions", "specification", "platform", "tier", "rows", "schedules")


@dataclass(frozen=True, slots=True)
class Change:
    """A cell's status before and after; None where the report does not have the cell."""

    cell: Cell
    before: Status | None
    after: Status | None

    @property
    def regresses(self) -> bool:
        if self.before is None:
            return False
        if self.after is None:
            return self.before in RAN - {Status.FAIL}
        return _RANK[self.after] > _RANK[self.before]

    @property
    def improves(self) -> bool:
        return self.before is not None and self.after is not None and _RANK[self.after] < _RANK[self.before]


@dataclass(frozen=True, slots=True)
class Difference:
    """What `after` changes at one level; `scores` maps conformance and coverage to (before, after)."""

    level: Level
    changed: list[Change] = field(default_factory=list)
    new: list[Change] = field(default_factory=list)
    removed: list[Change] = field(default_factory=list)
    scores: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    heads: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    same: int = 0

    @property
    def regressions(self) -> list[Change]:
        return [c for c in (*self.changed, *self.removed) if c.regresses]

    @property
    def compared(self) -> int:
        """Cells that both reports have."""
        return self.same + len(self.changed)

    def to_json(self) -> Json:
        return {
            "level": self.level.value,
            "regresses": bool(self.regressions),
            "scores": {k: {"before": a, "after": b} for k, (a, b) in self.scores.items()},
            "heads": {k: {"before": a, "after": b} for k, (a, b) in self.heads.items()},
            "same": self.same,
            "compared": self.compared,
            "changed": [_entry(c) for c in self.changed],
            "new": [_entry(c) for c in self.new],
            "removed": [_entry(c) for c in self.removed],
        }


def _entry(c: Change) -> Json:
    status = {"before": c.before.value if c.before else None, "after": c.after.value if c.after else None}
    return asdict(c.cell) | status | {"regresses": c.regresses}


def difference(before: Json, after: Json, level: Level) -> Difference:
    """Compare two documents. Cells of `before` that `after` was not asked for (another tier, other rows) are not removed."""
    a, b = _statuses(before, level), _statuses(after, level)
    asked = before["tier"] == after["tier"]
    changes = [Change(cell, a.get(cell), b.get(cell)) for cell in sorted(a.keys() | b.keys())]
    return Difference(
        level,
        changed=[c for c in changes if c.before and c.after and c.before is not c.after],
        new=[c for c in changes if not c.before],
        removed=[c for c in changes if not c.after and asked and fnmatch.fnmatchcase(c.cell.row, after["rows"])],
        scores={k: (before["scores"][level.value][k], after["scores"][level.value][k]) for k in ("conformance", "coverage")},
        heads={k: (before.get(k), after.get(k)) for k in _HEAD if before.get(k) != after.get(k)},
        same=sum(c.before is c.after for c in changes),
    )


def _statuses(doc: Json, level: Level) -> dict[Cell, Status]:
    return {cell_of(c): Status(c[level.value]["status"]) for c in doc["cells"]}
