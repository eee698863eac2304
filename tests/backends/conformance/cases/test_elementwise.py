"""Cases of Cast: values beside every halfway point of the target, which tell one rounding from two (R15)."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.elementwise import _make_cast_case
from uops.backends.conformance.judge import Expectation, interpret, judge
from uops.backends.conformance.model import ConformanceLevel, ConformanceTier
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.result import Result

NARROW = [d for d in dt.FLOATS if d.bits < 32]


@pytest.mark.parametrize("tier", ConformanceTier, ids=lambda t: t.value)
@pytest.mark.parametrize("is_large", [True, False])
@pytest.mark.parametrize("target", NARROW, ids=lambda d: d.name)
def test_two_roundings_beyond_the_range_of_the_target_fail(target: DType, is_large: bool, tier: ConformanceTier) -> None:
    """Of float64, a value beside the tie between overflow and the greatest number, or between 0 and the least, becomes the tie."""
    case = _make_cast_case(dt.float64, target, tier)
    x = case.inputs["p0"]
    (right,) = interpret(case.graph, case.inputs).values
    least = float(np.array(1, f"u{target.itemsize}").view(STORAGE[target]).astype(np.float64))
    with np.errstate(all="ignore"):
        beyond = np.abs(x) > target.max_finite if is_large else np.abs(x) < least
        wrong = np.where(beyond, x.astype(np.float32).astype(STORAGE[target]), right)
    verdicts = [judge(Expectation(case), Result((got,), {}), ConformanceLevel.STRICT) for got in (right, wrong)]
    assert [any(v.failed for v in found) for found in verdicts] == [False, True]
