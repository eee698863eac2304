"""The causes of a report's failing cells, the most frequent first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from uops.backends.conformance.causes.blame import Blame, find_blame
from uops.backends.conformance.causes.find import UNEXPLAINED, describe_cause
from uops.backends.conformance.model import CellStatus

Json = dict[str, Any]


class CauseSummary(NamedTuple):
    """One cause in a report. A cell of several causes counts for each.

    `share` is that of the failing cells. `cell` is an example with few causes and short operands, and `failure` its first failure,
    None if the report has none. `blame` is by that failure.
    """

    id: str
    text: str
    cells: int
    share: float
    elements: int
    rows: list[str]
    cell: Json
    failure: Json | None
    blame: Blame


def summarize_causes(doc: Json, level: str) -> list[CauseSummary]:
    """Return the causes of the failing cells at a level; empty if no failing cell has one, as in older reports.

    A failing cell without a cause is unexplained.
    """
    failing = [c for c in doc["cells"] if c[level]["status"] == CellStatus.FAIL.value]
    if not any(c[level].get("causes") for c in failing):
        return []
    by_cause: dict[str, list[Json]] = {}
    for cell in failing:
        for cause in cell[level].get("causes") or {UNEXPLAINED: cell[level]["failed"]}:
            by_cause.setdefault(cause, []).append(cell)
    adapter = doc["backend"].get("adapter", ())
    summaries = [_summarize(cause, cells, level, len(failing), adapter) for cause, cells in by_cause.items()]
    return sorted(summaries, key=lambda s: (-s.cells, s.id))


def _summarize(cause: str, cells: list[Json], level: str, failing_count: int, adapter: Collection[str]) -> CauseSummary:
    example = min(cells, key=lambda c: _rank_example(c[level]))
    failures = [f for f in example[level]["failures"] if f.get("cause") == cause] or example[level]["failures"]
    return CauseSummary(
        cause,
        describe_cause(cause),
        len(cells),
        len(cells) / failing_count,
        sum((c[level].get("causes") or {cause: c[level]["failed"]})[cause] for c in cells),
        list(dict.fromkeys(c["row"] for c in cells)),
        example,
        failures[0] if failures else None,
        find_blame(cause, str(failures[0]["message"]) if failures else "", adapter),
    )


def _rank_example(verdict: Json) -> tuple[int, int, int]:
    """Return the key by which examples are sorted: the causes, whether operands are missing, and the characters of all values."""
    failures = verdict["failures"]
    if not failures:
        return len(verdict.get("causes") or ()), 1, 0
    words = [*failures[0]["operands"], failures[0]["got"] or "", failures[0]["allowed"] or ""]
    return len(verdict.get("causes") or ()), not failures[0]["operands"], sum(map(len, words))


def count_explained_cells(doc: Json, level: str) -> tuple[int, int]:
    """Return the number of failing cells all of whose wrong elements have a cause, and the number of failing cells."""
    failing = [c[level] for c in doc["cells"] if c[level]["status"] == CellStatus.FAIL.value]
    return sum(bool(v.get("causes")) and UNEXPLAINED not in v["causes"] for v in failing), len(failing)
