"""Cases of elementwise ops: values that tell one rounding of a Cast from two (R15), and special values that meet."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.elementwise import _make_cast_case, _make_edge_class_case
from uops.backends.conformance.judge import Expectation, interpret, judge
from uops.backends.conformance.model import ConformanceLevel, ConformanceTier
from uops.backends.conformance.pools import edge_classes
from uops.backends.testing.values import special_bits_for_operand_pairs
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
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


@pytest.mark.parametrize("d", [dt.int8, dt.int16, dt.int32, dt.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD], ids=lambda op: op.name)
def test_the_least_integer_by_minus_one_is_asked_in_the_smoke_tier(op: Op, d: DType) -> None:
    """Some processors trap there, and a library may give something else (R04, wrapping)."""
    case = _make_edge_class_case(op, d, (d, d), ConformanceTier.SMOKE, "edges")
    (right,) = interpret(case.graph, case.inputs).values
    wrong = np.where((case.inputs["p0"] == d.min) & (case.inputs["p1"] == -1), 7, right).astype(right.dtype)
    verdicts = [judge(Expectation(case), Result((got,), {}), ConformanceLevel.STRICT) for got in (right, wrong)]
    assert not any(v.failed for v in verdicts[0])
    assert "limit" in {s.edge for s, v in zip(case.segments, verdicts[1], strict=True) if v.failed}


@pytest.mark.parametrize("d", [dt.int32, dt.uint8, dt.float32], ids=lambda d: d.name)
def test_every_two_special_values_meet(d: DType) -> None:
    """As far as one of the two is of an edge class at all."""
    case = _make_edge_class_case(Op.MAX, d, (d, d), ConformanceTier.SMOKE, "edges")
    x, y = (case.inputs[key].view(f"u{d.itemsize}").reshape(-1).tolist() for key in ("p0", "p1"))
    special, edges = special_bits_for_operand_pairs(d), {v for pool in edge_classes(d).values() for v in pool}
    assert {(a, b) for a in special for b in special if a in edges or b in edges} <= set(zip(x, y, strict=True))
