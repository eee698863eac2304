"""Bounds of integers, scalars and lanes of vectors."""

import pytest

from uops.compiler.validate.fingerprints.bounds import IntegerBounds
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

SMALL = b.cast(b.load(b.at(b.param(0, (8,), dt.uint8), 0)), dt.int32)
ANY = b.load(b.at(b.param(1, (8,), dt.int32), 0))


@pytest.mark.parametrize(
    ("u", "expected"),
    [
        (SMALL, (0, 255)),
        (ANY, (dt.int32.min, dt.int32.max)),
        (b.add(b.mul(SMALL, -3), 1), (-764, 1)),
        (b.stack(SMALL, b.const(-5, dt.int32)), (-5, 255)),
        (b.at(b.stack(SMALL, b.const(-5, dt.int32)), 1), (-5, 255)),
        (b.add(ANY, 1), (dt.int32.min, dt.int32.max)),
        (UOp(Op.MAX, (ANY, b.const(7, dt.int32))), (7, dt.int32.max)),
        (UOp(Op.MOD, (ANY, b.const(7, dt.int32))), (0, 6)),
        (UOp(Op.MOD, (ANY, b.const(-7, dt.int32))), None),
        (b.where(b.lt(ANY, 0), SMALL, b.const(300, dt.int32)), (0, 300)),
        (b.cast(b.const(300, dt.int32), dt.uint8), (0, 255)),
        (b.cast(UOp(Op.MOD, (ANY, b.const(7, dt.int32))), dt.uint8), (0, 6)),
    ],
)
def test_bounds(u, expected):
    low, high = IntegerBounds().of(u)
    assert (low, high) == expected if expected else (low <= -6 and high >= 0)


def test_a_sum_keeps_its_range_only_if_no_value_leaves_it():
    bounds = IntegerBounds()
    assert bounds.keeps_range(b.add(SMALL, SMALL)) and not bounds.keeps_range(b.add(ANY, ANY))
    assert bounds.keeps_range(b.add(b.stack(SMALL, SMALL), b.stack(SMALL, SMALL)))
