"""The data model of cells that judge no backend: cases and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uops.backends.conformance.model import ConformanceCell
from uops.spec.ir.node import UOp
from uops.spec.rows.named.base import StatedClaim
from uops.spec.rows.rows import NAMED_ROWS


class Answer(NamedTuple):
    """The answer to one question about a cell: what is wrong, or None."""

    cell: ConformanceCell
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class SubjectCase:
    """Questions about the cells `cells`, asked together; `name` is unique among the cases of a subject.

    `ask` yields their answers, at least one per cell if all is well: a cell without an answer was not run. If it raises, all of
    them fail. `graph` and `inputs` reproduce the case, where it is one program.
    """

    name: str
    cells: tuple[ConformanceCell, ...]
    ask: Callable[[], Iterable[Answer]]
    graph: UOp | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


def cell_of_claim(claim_id: str, what: str, dtype: str = "void") -> ConformanceCell:
    """Return the cell that judges a claim: its edge class is the claim's number and `what` is asked, as in `c2-shared-input`."""
    claim = CLAIMS[claim_id]
    return ConformanceCell(claim.spec, dtype, f"{claim.id.rpartition('.')[2].lower()}-{what}")


def claim_of_cell(cell: ConformanceCell) -> StatedClaim:
    """Return the claim that a cell of `cell_of_claim` judges."""
    number = int(cell.edge.partition("-")[0].removeprefix("c"))
    return NAMED_ROWS[cell.row].claims[number - 1]


def make_check_case(claim_id: str, what: str, dtype: str, check: Callable[[], Iterable[str | None]]) -> SubjectCase:
    """Return the case of one cell of a claim; `check` yields a fault, or None, for each thing that it asks."""
    cell = cell_of_claim(claim_id, what, dtype)
    return SubjectCase(str(cell), (cell,), lambda: (Answer(cell, fault) for fault in check()))


def expect(what: str, expected: object, got: object) -> str | None:
    """Return None if both are equal, else the fault that says so."""
    return None if expected == got else f"{what}: expected {expected}, got {got}"


#: Id -> claim, of the rows that are no op.
CLAIMS = {c.id: c for row in NAMED_ROWS.values() for c in row.claims}
