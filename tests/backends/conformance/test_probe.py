"""Gaps are refusals alone: a cell that ran, rightly or wrongly, and was also refused is declared by none."""

from __future__ import annotations

import pytest

from uops.backends.conformance.model import REFUSED, CellResult, CellStatus, ConformanceCell, Failure
from uops.backends.conformance.probe import split_refusals_into_full_gaps_and_partial
from uops.backends.contract import Missing

CELL = ConformanceCell("Elementwise/Cast", "int8", "constant")
WRONG, REFUSAL = Failure("c1", "element 0 of output 0 is outside the allowed set"), Failure("c2", f"{REFUSED}: no cast")


@pytest.mark.parametrize(
    ("elements", "failed", "failures", "is_gap"),
    [(0, 0, [REFUSAL], True), (24, 0, [REFUSAL], False), (24, 24, [WRONG, REFUSAL], False)],
    ids=["refused alone", "refused beside right values", "refused beside wrong values"],
)
def test_a_gap_is_a_refusal_alone(elements: int, failed: int, failures: list[Failure], is_gap: bool) -> None:
    result = CellResult(CELL, CellStatus.FAIL, elements, failed, reason=REFUSED, failures=failures)
    gaps = split_refusals_into_full_gaps_and_partial([result])
    assert gaps.missing == ((Missing(CELL.row, "*", "no cast"),) if is_gap else ())
    assert gaps.partly_refused == (() if is_gap else (result,))
