"""Index values are unbounded integers (R08, R29), up to a limit of resources that is an error, not a hang."""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import SpecError, Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def _squared(times: int) -> UOp:
    x = b.index(9)
    for _ in range(times):
        x = UOp(Op.MUL, (x, x))
    return x


def test_products_of_hundreds_of_digits_are_exact() -> None:
    (got,) = run(_squared(10), {}).values
    assert int(got) == 9 ** (2**10)


def test_a_product_beyond_the_limit_is_refused_at_once() -> None:
    with pytest.raises(Unsupported, match="index values beyond"):
        run(_squared(60), {})


@pytest.mark.parametrize("d", dt.INTS, ids=str)
def test_an_index_is_shifted_by_counts_of_every_dtype(d: dt.DType) -> None:
    for op, want in ((Op.SHL, -40), (Op.SHR, -1)):
        (got,) = run(UOp(op, (b.variable("i", -9, 9), b.param(0, (), d))), {"i": -5, "p0": np.array(3, d.name)}).values
        assert int(got) == want


@pytest.mark.parametrize("wrong", [2.5, None, "3"])
def test_an_object_array_that_is_no_index_is_refused_with_the_element(wrong: object) -> None:
    given = np.array([2**70, wrong], object)
    with pytest.raises(SpecError, match=f"'p0' must hold integers, got {wrong!r}"):
        run(b.param(0, (2,), dt.index), {"p0": given})


WIDE = b.param(0, (3,), dt.index)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (UOp(Op.INDEX, (WIDE, b.index(1))), 2**64 - 1),
        (UOp(Op.MAX, (UOp(Op.INDEX, (WIDE, b.index(0))), b.index(-1))), 2**63),
        (UOp(Op.STACK, (b.index(5), UOp(Op.INDEX, (WIDE, b.index(0))))), [5, 2**63]),
        (UOp(Op.NEG, (UOp(Op.INDEX, (WIDE, b.index(2))),)), -(2**70)),
    ],
    ids=["index", "max", "stack", "neg"],
)
def test_an_element_beyond_63_bits_stays_an_integer(graph: UOp, expected: object) -> None:
    (got,) = run(graph, {"p0": np.array([2**63, 2**64 - 1, 2**70], object)}).values
    assert got.tolist() == expected


def test_integers_of_numpy_in_an_object_array_do_not_wrap() -> None:
    given = np.array([np.int8(100), 2**70, np.uint64(2**64 - 1)], object)
    (got,) = run(UOp(Op.ADD, (WIDE, WIDE)), {"p0": given}).values
    assert got.tolist() == [200, 2**71, 2**65 - 2]
