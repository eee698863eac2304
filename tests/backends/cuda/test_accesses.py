"""Expressions of a lane's number: their values, and which of them C computes without casts."""

from __future__ import annotations

import pytest

from uops.backends.cuda.accesses import evaluate_for_lane
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

WARP = B.range_(32, 0, AxisType.WARP)
LANE = B.cast(WARP, dt.int32)


def number(value: int) -> UOp:
    return B.const(value, dt.int32)


def test_an_expression_has_the_value_of_its_ops() -> None:
    eighth, rest = UOp(Op.IDIV, (LANE, number(8))), UOp(Op.MOD, (LANE, number(8)))
    u = B.add(B.mul(eighth, number(40)), UOp(Op.SHL, (UOp(Op.AND, (rest, number(6))), number(1))))
    for narrow in (u, B.cast(u, dt.uint8)):
        assert [evaluate_for_lane(narrow, WARP, t) for t in range(32)] == [t // 8 * 40 + (t % 8 & 6) * 2 for t in range(32)]
    assert evaluate_for_lane(UOp(Op.SHR, (LANE, number(2))), WARP, 31) == 7
    assert evaluate_for_lane(B.add(LANE, B.cast(B.range_(4, 1), dt.int32)), WARP, 0) is None


@pytest.mark.parametrize(
    "u",
    [
        pytest.param(UOp(Op.IDIV, (LANE, number(0))), id="idiv by 0, R03"),
        pytest.param(UOp(Op.MOD, (LANE, number(0))), id="mod by 0, R03"),
        pytest.param(UOp(Op.IDIV, (B.mul(LANE, number(-1)), number(2))), id="idiv of a negative number, which C rounds up"),
        pytest.param(UOp(Op.SHL, (LANE, number(-1))), id="shl by a negative count, R06"),
        pytest.param(UOp(Op.SHL, (LANE, number(40))), id="shl by more than the width, R06"),
        pytest.param(UOp(Op.SHR, (LANE, number(40))), id="shr by more than the width, R06"),
        pytest.param(UOp(Op.SHL, (LANE, number(31))), id="shl beyond the dtype"),
        pytest.param(B.mul(B.cast(LANE, dt.int64), B.const(1 << 30, dt.int64)), id="more than an int of C"),
        pytest.param(B.cast(B.mul(LANE, number(9)), dt.uint8), id="a cast that wraps"),
        pytest.param(B.cast(B.mul(B.cast(LANE, dt.float32), B.const(0.5, dt.float32)), dt.int32), id="floats"),
    ],
)
def test_a_value_that_c_computes_otherwise_is_none(u: UOp) -> None:
    assert evaluate_for_lane(u, WARP, 31) is None
