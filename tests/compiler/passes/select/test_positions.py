"""Index vectors as sums: equal sums have one form, in whatever way they are computed."""

import pytest

from uops.compiler.passes.select.positions import IndexLanes, IndexSums
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
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
    found = IndexSums(dt.int32).derive_index_lanes_if_affine(value, (0, 1))
    assert found == lanes
    is_constant = all(isinstance(k, int) for k in lanes.terms.values())
    assert (found.constant_lane_offsets is not None) == is_constant


FAR, NEAR, SIGNED = b.variable("far", 70_000, 70_010), b.variable("near", 0, 2 * 10**9), b.variable("signed", -(10**8), 10**8)
SCALED = b.mul(b.sub(FAR, 70_000), 70_000)
BALANCED = b.add(b.sub(NEAR, 2 * 10**9), b.range_(2 * 10**9, 1))
LOW, HIGH = b.variable("low", -2 * 10**9, -(10**9)), b.variable("high", 42_000, 43_000)
TAKEN_BACK = b.add(LOW, b.mul(b.sub(HIGH, 42_000), 50_000))
APART = stack(b.sub(SIGNED, 2 * 10**9), b.add(SIGNED, 2 * 10**9))


@pytest.mark.parametrize(
    ("value", "lanes"),
    [
        (SCALED, IndexLanes({(FAR, 0): 70_000}, (-4_900_000_000,))),
        (BALANCED, IndexLanes({(NEAR, 0): 1, (b.range_(2 * 10**9, 1), 0): 1}, (-2 * 10**9,))),
        (TAKEN_BACK, IndexLanes({(LOW, 0): 1, (HIGH, 0): 50_000}, (-2_100_000_000,))),
        (APART, IndexLanes({(SIGNED, 0): 1}, (-2 * 10**9, 2 * 10**9))),
    ],
    ids=[
        "a product and a constant",
        "the sum of two terms",
        "a product that a term takes back",
        "the distance of two lanes",
    ],
)
def test_a_sum_that_the_integer_does_not_compute_stays_as_it_is_written_R08(value: UOp, lanes: IndexLanes) -> None:
    """Every value that is written fits int32; multiplied out, reordered or as an offset, one does not."""
    positions = tuple(range(len(lanes.constant)))
    assert IndexSums(dt.int64).derive_index_lanes_if_affine(value, positions) == lanes
    found = IndexSums(dt.int32).derive_index_lanes_if_affine(value, positions)
    assert found == (IndexLanes({(value, 0): 1}, (0,)) if len(positions) == 1 else None)
    assert IndexSums(dt.int32).derive_index_lanes_if_affine(value, (0,)) is not None
