"""Which vectors of positions are runs of neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from uops.backends.cstyle.neighbours import first_of_aligned_run, first_of_run, is_multiple_of
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp


@pytest.mark.parametrize(
    ("make", "n", "is_known"),
    [
        (lambda r: B.mul(r, B.const(8, dt.int32)), 8, True),
        (lambda r: B.mul(r, B.const(4, dt.int32)), 8, False),
        (lambda r: B.mul(B.mul(r, B.const(2, dt.int32)), B.const(4, dt.int32)), 8, True),
        (lambda r: B.add(B.mul(r, B.const(8, dt.int32)), B.const(16, dt.int32)), 8, True),
        (lambda r: B.add(B.mul(r, B.const(8, dt.int32)), B.const(4, dt.int32)), 8, False),
        (lambda r: r, 2, False),
        (lambda r: r, 1, True),
    ],
)
def test_multiples_are_known_by_their_factors(make: Any, n: int, is_known: bool) -> None:
    r = B.cast(B.range_(64, 0, AxisType.LOOP), dt.int32)
    assert is_multiple_of(make(r), n) is is_known


def test_only_neighbours_from_an_aligned_one_are_a_run() -> None:
    r = B.cast(B.range_(64, 0, AxisType.LOOP), dt.int32)

    def positions(base: UOp, *steps: int) -> UOp:
        return B.add(B.stack(*[base] * len(steps)), B.stack(*[B.const(s, dt.int32) for s in steps]))

    aligned = B.mul(r, B.const(4, dt.int32))
    assert first_of_aligned_run(positions(aligned, 0, 1, 2, 3), 4) is aligned
    assert first_of_aligned_run(positions(aligned, 0, 1, 3, 2), 4) is None
    assert first_of_aligned_run(positions(aligned, 1, 2, 3, 4), 4) is None
    odd = B.mul(r, B.const(2, dt.int32))
    assert first_of_aligned_run(positions(odd, 0, 1, 2, 3), 4) is None
    assert first_of_run(positions(odd, 0, 1, 2, 3), 4) is odd
    assert first_of_run(positions(odd, 0, 1, 2, 3), 2) is None
