"""The numbers that a dtype has."""

from __future__ import annotations

import pytest

from uops.compiler.prove.typings import can_represent
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


@pytest.mark.parametrize(
    ("d", "value", "expected"),
    [
        (dt.float64, 2**53, True),
        (dt.float64, 2**53 + 1, False),
        (dt.float64, -(2**53) - 1, False),
        (dt.float64, 2**1024, False),
        (dt.float32, 2**24 + 1, False),
        (dt.float32, 2**128, False),
        (dt.float16, 65504, True),
        (dt.float32, 0.1, False),
        (dt.fp8e4m3, float("inf"), False),
        (dt.int8, -128, True),
        (dt.int8, 128, False),
        (dt.bool_, 2, False),
    ],
)
def test_a_dtype_has_the_numbers_that_it_represents_exactly(d: DType, value: float, expected: bool) -> None:
    assert can_represent(d, value) is expected
