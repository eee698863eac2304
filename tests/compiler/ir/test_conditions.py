"""Conditions are taken off the terms of a sum, whichever branch of a Where holds the zero."""

from __future__ import annotations

import pytest

from uops.compiler.ir.conditions import split_conditions
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

OPPOSITE = {
    Op.CMPLT: Op.CMPGE,
    Op.CMPGE: Op.CMPLT,
    Op.CMPLE: Op.CMPGT,
    Op.CMPGT: Op.CMPLE,
    Op.CMPNE: Op.CMPEQ,
    Op.CMPEQ: Op.CMPNE,
}


@pytest.mark.parametrize("op", OPPOSITE, ids=lambda op: op.name)
def test_a_zero_where_the_comparison_holds_is_taken_off_as_the_opposite(op: Op) -> None:
    i, value = b.variable("i", 0, 9), b.param(0, (), dt.float32)
    zero = b.const(0.0, dt.float32)
    got = split_conditions(Op.ADD, UOp(Op.WHERE, (UOp(op, (i, b.index(3))), zero, value)))
    assert got == ((UOp(OPPOSITE[op], (i, b.index(3))),), value)


def test_a_comparison_of_floats_has_no_opposite() -> None:
    x, value = b.param(1, (), dt.float32), b.param(0, (), dt.float32)
    term = UOp(Op.WHERE, (UOp(Op.CMPLT, (x, value)), b.const(0.0, dt.float32), value))
    assert split_conditions(Op.ADD, term) == ((), term)
