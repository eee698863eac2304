"""The judge compares by bits what only moves (R28), and takes all NaNs for one elsewhere (R20)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.judge import Expectation, interpret, judge
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, ConformanceTier
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.rows.rows import ROWS

#: The rows of R28, movement and markers by the groups of their ids.
MOVING = [r.id for op, r in ROWS.items() if r.id.startswith(("Movement/", "Marker/")) or op in (Op.LOAD, Op.STORE, Op.WHERE)]
#: A signalling NaN of float32, and bits that make another NaN of it.
SIGNALLING = 0x7F800001
FLIPPED_BITS = {"quiet": 1 << 22, "sign": 1 << 31, "payload": 3}


@pytest.fixture(scope="module")
def cases() -> list[ConformanceCase]:
    """The cases of float32, except launches of kernels: these are judged by bits in every row."""
    return [c for c in generate_cases(ConformanceTier.SMOKE) if c.dtype is dt.float32 and not c.is_exact]


def fill_with_nans(case: ConformanceCase) -> ConformanceCase:
    """Return the case with a signalling NaN in each float32 element of its inputs, or its bits in each uint32 element."""

    def fill(v: Any) -> Any:
        is_filled = isinstance(v, np.ndarray) and v.dtype in (np.float32, np.uint32)
        return np.full(v.shape, SIGNALLING, np.uint32).view(v.dtype) if is_filled else v

    return replace(case, inputs={k: fill(v) for k, v in case.inputs.items()})


def is_float32(v: Any) -> bool:
    return isinstance(v, np.ndarray) and v.dtype == np.float32


def flip_bits_of_nans(result: Result, bits: int) -> Result:
    """Return the result with the bits flipped in each float32 NaN."""

    def flip(v: Any) -> Any:
        return (
            np.where(np.isnan(v), v.view(np.uint32) ^ np.uint32(bits), v.view(np.uint32)).view(np.float32) if is_float32(v) else v
        )

    return Result(tuple(map(flip, result.values)), {k: flip(v) for k, v in result.buffers.items()})


def accepts(case: ConformanceCase, result: Result, level: ConformanceLevel) -> bool:
    return not any(v.failed for v in judge(Expectation(case), result, level))


@pytest.mark.parametrize("level", ConformanceLevel, ids=lambda x: x.value)
@pytest.mark.parametrize("row", [*MOVING, "Elementwise/Add"])
def test_a_nan_keeps_its_bits_in_each_row_that_moves_values_and_is_any_nan_in_one_that_computes_R28(
    row: str, level: ConformanceLevel, cases: list[ConformanceCase]
) -> None:
    accepted_changes = []
    for case in map(fill_with_nans, (c for c in cases if c.row == row)):
        right = interpret(case.graph, case.inputs)
        assert accepts(case, right, level)
        accepted_changes.append({k for k, bits in FLIPPED_BITS.items() if accepts(case, flip_bits_of_nans(right, bits), level)})
    assert accepted_changes
    assert (set() in accepted_changes) is (row in MOVING)
