"""Large Reduces to few results: kernels of parts that cores share, and results that are those of plain ones."""

from typing import Any

import numpy as np
import pytest

import uops
from uops.compiler import Config, lower
from uops.compiler.passes.rangeify.split_reduce import MAX_PARTS, MAX_RESULTS, MIN_PARTS
from uops.compiler.target import Thresholds
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

MIN_ELEMENTS = Thresholds().split_reduce_elements

Shape = tuple[int, ...]


def loops(graph: UOp, pyref: Any) -> list[tuple[int, ...]]:
    """Extents of the output loops of each kernel."""
    found = []
    for call in lower(graph, pyref, "rangeify", Config()).src:
        ends = [u for u in toposort(call.src[0]) if u.op is Op.END]
        found.append(tuple(int(r.src[0].arg.value) for u in reversed(ends) for r in u.src[1:]))
    return found


def total(shape: Shape, axes: Shape, op: Op = Op.ADD, dtype: dt.DType = dt.int32) -> UOp:
    return b.reduce(b.param(0, shape, dtype), op, axes)


@pytest.mark.parametrize(
    ("shape", "axes", "parts"),
    [
        ((MIN_ELEMENTS,), (0,), (MAX_PARTS,)),
        ((2, 37 * 16411), (1,), (2, 37)),
        ((1024, 3, 512), (0, 1, 2), (MAX_PARTS,)),
        ((7, 800, 1000), (0, 1, 2), (50,)),
        ((MIN_PARTS, 32768), (0, 1), (MAX_PARTS,)),
    ],
)
def test_parts_are_a_kernel_before_the_one_that_combines_them(shape: Shape, axes: Shape, parts: Shape, pyref: Any) -> None:
    first, last = loops(total(shape, axes), pyref)
    assert first == parts and len(last) <= 1


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((MIN_ELEMENTS // 2,), (0,)), ((2 * MAX_RESULTS, MIN_ELEMENTS), (1,)), ((MIN_ELEMENTS, MAX_RESULTS + 1), (0,))],
)
def test_small_reduces_and_those_with_results_enough_stay_whole(shape: Shape, axes: Shape, pyref: Any) -> None:
    assert len(loops(total(shape, axes), pyref)) == 1


def test_what_has_a_closed_form_is_not_cut(pyref: Any) -> None:
    """One element of many, chosen by a sum over all: nothing but that element is read."""
    n = 2 * MIN_ELEMENTS
    here = b.eq(uops.Tensor.arange(n).uop, b.reshape(b.cast(b.param(1, (), dt.int32), dt.int32), (1,)))
    (kernel,) = lower(b.reduce(b.where(here, b.param(0, (n,), dt.float32), 0.0), Op.ADD, (0,)), pyref, "rangeify", Config()).src
    assert not any(u.op in (Op.REDUCE, Op.RANGE) for u in toposort(kernel.src[0]))


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX, Op.MUL])
@pytest.mark.parametrize(
    ("shape", "axes"), [((MIN_ELEMENTS + 21,), (0,)), ((3, 524309), (1,)), ((2, 600, 1009), (1, 2)), ((1031, 1021), (0, 1))]
)
def test_parts_and_what_is_left_give_what_the_whole_gives(shape: Shape, axes: Shape, op: Op) -> None:
    rng = np.random.default_rng(7)
    x = rng.integers(1, 3, shape, np.int32) * 2 - 1 if op is Op.MUL else rng.integers(-9, 9, shape, np.int32)
    (got,) = uops.compile(total(shape, axes, op), backend="llvm")({"p0": x}).values
    plain = {Op.ADD: np.add, Op.MAX: np.maximum, Op.MUL: np.multiply}[op]
    wanted = x
    for k in axes:
        wanted = plain.reduce(wanted, axis=k, keepdims=True, dtype=np.int32)
    np.testing.assert_array_equal(got, wanted)


def test_a_nan_in_any_part_is_in_the_result() -> None:
    x = np.zeros(MIN_ELEMENTS + 5, np.float32)
    for at in (0, MIN_ELEMENTS // 2, MIN_ELEMENTS + 4):
        x[at] = np.nan
        (got,) = uops.compile(total(x.shape, (0,), Op.MAX, dt.float32), backend="llvm")({"p0": x}).values
        assert np.isnan(got).all()
        x[at] = 0
