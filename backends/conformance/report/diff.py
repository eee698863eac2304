"""The difference of two reports, and whether the second is worse.

A cell *regresses* when its status gets worse, in the order of `WORSE`. It also regresses when it ran without failing before and is
missing although the second run required it. A cell of the second report alone is new, which is no regression, whatever its status.
A cell that a report counts as not askable is compared as if that report lacked it.
"""

from __future__ import annotations

import fnmatch
from dataclasses import asdict, dataclass, field
from typing import Any

from uops.backends.conformance.model import RAN, CellStatus, ConformanceCell, ConformanceLevel
from uops.backends.conformance.report.document import cell_of
from uops.spec.rows.named.base import RowSubject

Json = dict[str, Any]
#: Statuses, best first.
WORSE = (
    CellStatus.PASS, CellStatus.BY_TRAIT, CellStatus.XFAIL, CellStatus.UNSUPPORTED, CellStatus.NOT_RUN, CellStatus.FAIL
)  # fmt: skip
#: A cell that a report lacks, or says that it did not ask.
_NOT_ASKED = (None, CellStatus.NOT_ASKABLE)
_RANK = {s: k for k, s in enumerate(WORSE)}
#: Keys of a report's head that decide whether two reports are comparable.
_HEAD = ("subject", "backend", "versions", "specification", "platform", "tier", "rows", "dialect", "sample", "schedules")
#: What older reports, which lack a key of the head, stand for.
_DEFAULT_HEAD = {"subject": RowSubject.BACKEND.value}


@dataclass(frozen=True, slots=True)
class CellChange:
    """A cell's status before and after; None where a report lacks the cell."""

    cell: ConformanceCell
    before: CellStatus | None
    after: CellStatus | None

    @property
    def is_asked_by_both(self) -> bool:
        """True if both reports asked the cell."""
        return self.before not in _NOT_ASKED and self.after not in _NOT_ASKED

    @property
    def has_worse_status_or_lost_nonfailing_result(self) -> bool:
        """True if the cell is worse after the change."""
        if self.before in _NOT_ASKED:
            return False
        if self.after in _NOT_ASKED:
            return self.before in RAN - {CellStatus.FAIL}
        return _RANK[self.after] > _RANK[self.before]

    @property
    def has_better_status(self) -> bool:
        """True if the cell is better after the change."""
        if self.before in _NOT_ASKED or self.after in _NOT_ASKED:
            return False
        return _RANK[self.after] < _RANK[self.before]


@dataclass(frozen=True, slots=True)
class ReportDiff:
    """The changes of the second report at one level; `scores` maps conformance and coverage to (before, after).

    `rows` are the numbers of rows of which each report asked a cell, and `newly_asked` the rows that only the second asked.
    """

    level: ConformanceLevel
    changed: list[CellChange] = field(default_factory=list)
    new: list[CellChange] = field(default_factory=list)
    removed: list[CellChange] = field(default_factory=list)
    scores: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    heads: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    same: int = 0
    rows: tuple[int, int] = (0, 0)
    newly_asked: list[str] = field(default_factory=list)

    @property
    def regressions(self) -> list[CellChange]:
        """The changes that regress."""
        return [c for c in (*self.changed, *self.removed) if c.has_worse_status_or_lost_nonfailing_result]

    @property
    def shared_cell_count(self) -> int:
        """The number of cells that both reports asked."""
        return self.same + len(self.changed)

    def to_json(self) -> Json:
        """Return the difference as JSON."""
        return {
            "level": self.level.value,
            "regresses": bool(self.regressions),
            "scores": {k: {"before": a, "after": b} for k, (a, b) in self.scores.items()},
            "heads": {k: {"before": a, "after": b} for k, (a, b) in self.heads.items()},
            "rows": {"before": self.rows[0], "after": self.rows[1], "newly_asked": self.newly_asked},
            "same": self.same,
            "compared": self.shared_cell_count,
            "changed": [_change_to_json(c) for c in self.changed],
            "new": [_change_to_json(c) for c in self.new],
            "removed": [_change_to_json(c) for c in self.removed],
        }


def _change_to_json(c: CellChange) -> Json:
    status = {"before": c.before.value if c.before else None, "after": c.after.value if c.after else None}
    return asdict(c.cell) | status | {"regresses": c.has_worse_status_or_lost_nonfailing_result}


def diff_reports(before: Json, after: Json, level: ConformanceLevel) -> ReportDiff:
    """Compare two documents. A cell is not removed if `after` was not to run it (its subject, tier, rows, dialect or sample)."""
    a, b = _map_cell_statuses(before, level), _map_cell_statuses(after, level)
    same_suite = (
        all(_read_head(before, k) == _read_head(after, k) for k in ("tier", "subject"))
        and _read_head(after, "sample") is None
        and _read_head(after, "dialect") in (None, _read_head(before, "dialect"))
    )
    asked_before, asked_after = (sorted({cell.row for cell, s in cells.items() if s not in _NOT_ASKED}) for cells in (a, b))
    changes = [CellChange(cell, a.get(cell), b.get(cell)) for cell in sorted(a.keys() | b.keys())]
    return ReportDiff(
        level,
        changed=[c for c in changes if c.is_asked_by_both and c.before is not c.after],
        new=[c for c in changes if c.before in _NOT_ASKED and c.after not in _NOT_ASKED],
        removed=[
            c
            for c in changes
            if c.before not in _NOT_ASKED
            and (
                c.after is CellStatus.NOT_ASKABLE
                or (c.after is None and same_suite and fnmatch.fnmatchcase(c.cell.row, after["rows"]))
            )
        ],
        scores={k: (before["scores"][level.value][k], after["scores"][level.value][k]) for k in ("conformance", "coverage")},
        heads={k: (x, y) for k in _HEAD if (x := _read_head(before, k)) != (y := _read_head(after, k))},
        same=sum(c.is_asked_by_both and c.before is c.after for c in changes),
        rows=(len(asked_before), len(asked_after)),
        newly_asked=[row for row in asked_after if row not in asked_before],
    )


def failures_in_first_second_or_both(
    first_report: Json, second_report: Json, level: ConformanceLevel
) -> tuple[list[Json], list[Json], list[Json]]:
    """Return the cells that fail in the first report alone, in the second alone, and in both. Alone: the other passes them.

    A cell that one of them did not run is in none of the three.
    """
    a, b = _map_cell_statuses(first_report, level), _map_cell_statuses(second_report, level)
    fail, right = CellStatus.FAIL, CellStatus.PASS

    def select(cells: list[Json], here: CellStatus, there: CellStatus) -> list[Json]:
        return [c for c in cells if (a.get(cell_of(c)), b.get(cell_of(c))) == (here, there)]

    cells = first_report["cells"]
    return select(cells, fail, right), select(second_report["cells"], right, fail), select(cells, fail, fail)


def _read_head(doc: Json, key: str) -> Any:
    return doc.get(key, _DEFAULT_HEAD.get(key))


def _map_cell_statuses(doc: Json, level: ConformanceLevel) -> dict[ConformanceCell, CellStatus]:
    return {cell_of(c): CellStatus(c[level.value]["status"]) for c in doc["cells"]}
