"""The gaps of a backend as declarations, from the refusals of a run.

Refusals alone become gaps: a wrong value, a crash, an exception or a timeout is a failure, which no declaration of a gap covers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uops.backends.conformance.model import REFUSED, CellResult, CellStatus
from uops.backends.contract import Missing


class ProbedGaps(NamedTuple):
    """The gaps to declare, and the cells that a backend refused of a row and dtype whose other cells it ran."""

    missing: tuple[Missing, ...]
    partly_refused: tuple[CellResult, ...]


def split_refusals_into_full_gaps_and_partial(cells: Iterable[CellResult]) -> ProbedGaps:
    """Return what the refusals among the cells of a run amount to. Cells of surfaces that were not asked are left out."""
    by_row: dict[str, dict[str, list[CellResult]]] = {}
    for c in cells:
        if c.status is not CellStatus.NOT_ASKABLE:
            by_row.setdefault(c.cell.row, {}).setdefault(c.cell.dtype, []).append(c)
    missing, partly = list[Missing](), list[CellResult]()
    for row, by_dtype in by_row.items():
        refused = {d: cs for d, cs in by_dtype.items() if all(c.is_refusal and not c.run for c in cs)}
        partly += [c for d, cs in by_dtype.items() if d not in refused for c in cs if c.is_refusal]
        if refused and len(refused) == len(by_dtype):
            missing.append(Missing(row, "*", _reason_of(next(iter(refused.values())))))
        else:
            missing += [Missing(row, d, _reason_of(cs)) for d, cs in refused.items()]
    return ProbedGaps(tuple(missing), tuple(partly))


def _reason_of(cells: list[CellResult]) -> str:
    """Return the backend's own words of its first refusal."""
    message = next((f.message for c in cells for f in c.failures if f.message.startswith(REFUSED)), REFUSED)
    return message.removeprefix(f"{REFUSED}: ")


def format_gaps_as_missing_declarations(gaps: ProbedGaps) -> str:
    """Return the gaps as the text of a declaration, with what cannot be declared as comments."""
    lines = ["unsupported=(", *(f"    Missing({m.row!r}, {m.dtype!r}, {m.reason!r})," for m in gaps.missing), "),"]
    if gaps.partly_refused:
        lines += ["# Refused, though other cells of the same row and dtype run: no declaration covers these."]
        lines += [f"#   {c.cell}" for c in gaps.partly_refused]
    return "\n".join(lines) + "\n"
