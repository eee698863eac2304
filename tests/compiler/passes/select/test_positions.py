"""Index vectors as sums: equal sums have one form, in whatever way they are computed."""

import pytest

from uops.compiler.passes.select.positions import IndexLanes, IndexSums
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

LOOP = b.range_(8, 0)


def stack(*elements: UOp | int) -> UOp:
    return UOp(Op.STACK, tuple(b.index(e) if isinstance(e, int) else e for e in elements))


LANES = stack(LOOP, b.mul(LOOP, 2))


@pytest.mark.parametrize(
    ("value", "lanes"),
    [
        (UOp(Op.ADD, (UOp(Op.MUL, (LANES, stack(0, 0))), stack(3, 4))), IndexLanes({}, (3, 4))),
        (UOp(Op.SUB, (LANES, LANES)), IndexLanes({}, (0, 0))),
        (UOp(Op.SUB, (LANES, stack(0, LOOP))), IndexLanes({(LOOP, 0): 1}, (0, 0))),
        (UOp(Op.MUL, (LANES, stack(2, 1))), IndexLanes({(LOOP, 0): 2}, (0, 0))),
        (UOp(Op.ADD, (LANES, stack(0, 1))), IndexLanes({(LOOP, 0): (1, 2)}, (0, 1))),
    ],
    ids=["no term is left", "its own difference", "a sum of one coefficient", "a product of one coefficient", "two coefficients"],
)
def test_a_coefficient_is_a_tuple_only_where_lanes_differ(value: UOp, lanes: IndexLanes) -> None:
    found = IndexSums().derive_index_lanes_if_affine(value, (0, 1))
    assert found == lanes
    is_constant = all(isinstance(k, int) for k in lanes.terms.values())
    assert (found.constant_lane_offsets is not None) == is_constant
