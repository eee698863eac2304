"""Cases of the OptOps: a schedule that pads a reduction by another value than its identity fails."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.conformance.cases.schedules import TABLE, _make_schedule_case
from uops.backends.conformance.judge import Expectation, interpret, judge
from uops.backends.conformance.model import ConformanceLevel
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.optops import Padto

IDENTITY = "uops.compiler.passes.optimize.schedule.schedule.reduction_identity"
NUMBERS = [d for d in dt.STORABLE if d is not dt.bool_]


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("d", NUMBERS, ids=lambda d: d.name)
@pytest.mark.parametrize("edge", ["reduce", "reduce-max"])
def test_a_reduction_that_is_padded_by_another_value_than_its_identity_fails(
    edge: str, d: DType, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = [c for c in TABLE if c.optop is Padto and c.edge == edge]
    is_identity = padding == 0 and (edge == "reduce" or d.min == 0)
    monkeypatch.setattr(IDENTITY, lambda op, kind: b.const(padding, kind))
    case = _make_schedule_case(d, row)
    with np.errstate(all="ignore"):
        verdicts = judge(Expectation(case), interpret(case.graph, case.inputs), ConformanceLevel.STRICT)
    assert any(v.failed for v in verdicts) != is_identity
