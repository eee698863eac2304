"""A rewrite step that changes a value is wrong, and what the rulings leave open is not."""

from __future__ import annotations

from uops.compiler.rewrite import Step
from uops.fuzz.wrong_rule import wrong_step
from uops.spec import build as b
from uops.spec import dtypes as dt
from uops.spec.axes import AxisType
from uops.spec.node import UOp
from uops.spec.ops import Op

X, Y = b.load(b.at(b.param(0, (9,), dt.float32), 0)), b.load(b.at(b.param(1, (9,), dt.float32), 0))
N = b.load(b.at(b.param(2, (9,), dt.int32), 0))


def is_wrong(before: UOp, after: UOp) -> bool:
    return wrong_step([Step("r", before, after, {})]) is not None


def test_a_step_to_another_value_is_wrong() -> None:
    assert is_wrong(b.sub(N, N), b.const(1, dt.int32))
    assert is_wrong(b.mul(X, b.const(0.0, dt.float32)), b.const(0.0, dt.float32))
    assert not is_wrong(b.sub(N, N), b.const(0, dt.int32))


def test_operands_of_a_float_max_may_change_places_R11() -> None:
    assert not is_wrong(b.maximum(X, Y), b.maximum(Y, X))
    assert is_wrong(b.maximum(X, Y), X)


def test_nothing_is_said_of_a_range_up_to_a_variable() -> None:
    n = b.variable("n", 1, 9)
    r = UOp(Op.RANGE, (n,), b.range_(4, 0, AxisType.LOOP).arg)
    assert not is_wrong(b.mod(r, n), r)
    assert not is_wrong(b.mod(r, n), b.add(r, 1))
