"""The gradient of overlapping windows is one sum of products, equal to the sum of sums that it replaces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import Tensor
from uops.compiler.tensor.realize import capture
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows.gradients import base
from uops.spec.rows.gradients.windows import sum_products_of_windows

Make = Callable[[Tensor, Tensor], Tensor]
Shapes = tuple[tuple[int, ...], tuple[int, ...]]
#: name -> function of an image and a filter, shapes, whether the sums over windows become one sum of products
CONVOLUTIONS: dict[str, tuple[Make, tuple[int, ...], tuple[int, ...], bool]] = {
    "plain": (lambda x, w: x.conv2d(w), (1, 2, 6, 5), (3, 2, 3, 3), True),
    "padded": (lambda x, w: x.conv2d(w, padding=1), (1, 2, 6, 5), (3, 2, 3, 3), True),
    "padded on one side": (lambda x, w: x.conv2d(w, padding=(2, 0, 0, 1)), (1, 2, 6, 5), (3, 2, 3, 2), True),
    "batch": (lambda x, w: x.conv2d(w), (3, 1, 5, 4), (2, 1, 2, 3), True),
    "groups": (lambda x, w: x.conv2d(w, groups=2), (1, 4, 5, 5), (6, 2, 3, 3), True),
    "one axis": (lambda x, w: x.conv2d(w, padding=1), (2, 3, 9), (4, 3, 4), True),
    "three axes": (lambda x, w: x.conv2d(w), (1, 2, 4, 4, 3), (2, 2, 2, 3, 2), True),
    "stride": (lambda x, w: x.conv2d(w, stride=2), (1, 2, 9, 8), (2, 2, 3, 3), True),
    "stride, with a rest": (lambda x, w: x.conv2d(w, stride=2, padding=1), (1, 2, 8, 9), (2, 2, 3, 3), True),
    "stride, a wide filter": (lambda x, w: x.conv2d(w, stride=2, padding=2), (2, 1, 7, 9), (2, 1, 5, 4), True),
    "stride of three": (lambda x, w: x.conv2d(w, stride=3), (1, 2, 11, 10), (2, 2, 4, 5), True),
    "two strides": (lambda x, w: x.conv2d(w, stride=(2, 1), padding=1), (1, 2, 7, 6), (3, 2, 3, 3), True),
    "stride, groups": (lambda x, w: x.conv2d(w, stride=2, groups=2), (1, 4, 7, 7), (4, 2, 3, 3), True),
    "stride and dilation": (lambda x, w: x.conv2d(w, stride=2, dilation=2), (1, 1, 9, 9), (2, 1, 3, 2), True),
    "dilation": (lambda x, w: x.conv2d(w, dilation=2), (1, 1, 9, 8), (2, 1, 3, 2), True),
    "windows apart": (lambda x, w: x.conv2d(w, stride=3), (1, 2, 9, 9), (2, 2, 2, 2), False),
    "a filter of one": (lambda x, w: x.conv2d(w), (1, 2, 4, 5), (3, 2, 1, 1), False),
}


def gradient_of(name: str, merges: bool) -> tuple[Any, Any, list[UOp]]:
    """Return the gradients of a convolution by image and filter, as arrays, and the Reduces of the first one's graph."""
    make, x_shape, w_shape, _ = CONVOLUTIONS[name]
    rng = np.random.default_rng(3)
    x, w = (Tensor(rng.integers(-9, 9, s).astype(np.float32)) for s in (x_shape, w_shape))
    out = make(x, w)
    cotangent = Tensor(rng.integers(-9, 9, out.shape).astype(np.float32))
    with pytest.MonkeyPatch.context() as patch:
        if not merges:
            patch.setattr(base, "sum_products_of_windows", lambda g, axes: None)
        by_x, by_w = out.gradient(x, w, gradient=cotangent)
    reduces = [u for u in toposort(by_x.uop) if u.op is Op.REDUCE]
    return by_x.numpy(), by_w.numpy(), reduces


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_gradient_is_that_of_the_sums_of_sums(name: str) -> None:
    by_x, by_w, reduces = gradient_of(name, merges=True)
    apart_x, apart_w, apart = gradient_of(name, merges=False)
    np.testing.assert_array_equal(by_x, apart_x)
    np.testing.assert_array_equal(by_w, apart_w)
    assert CONVOLUTIONS[name][3] == (len(reduces) < len(apart))


@pytest.mark.parametrize("name", [n for n, (*_, merges) in CONVOLUTIONS.items() if merges])
def test_one_reduce_is_left(name: str) -> None:
    *_, reduces = gradient_of(name, merges=True)
    assert len(reduces) == 1


@pytest.mark.parametrize(
    ("name", "taps"),
    [("stride", 2 * 2), ("stride, a wide filter", 3 * 2), ("stride of three", 2 * 2), ("two strides", 2 * 3), ("plain", 3 * 3)],
)
def test_each_phase_of_a_stride_has_its_own_weights_alone(name: str, taps: int) -> None:
    """Filters of 3, 5 and 4 have 2, 3 and 2 weights per phase of a stride of 2, and filters of 4 and 5 have 2 of one of 3."""
    *_, reduces = gradient_of(name, merges=True)
    (total,) = reduces
    channels = CONVOLUTIONS[name][2][0]
    assert math.prod(total.operand.shape[a] for a in total.arg.axes) == channels * taps


def test_a_convolution_of_a_convolution_has_a_sum_for_each() -> None:
    rng = np.random.default_rng(5)
    x, v, w = (Tensor(rng.integers(-3, 3, s).astype(np.float32)) for s in ((1, 1, 7, 7), (2, 1, 3, 3), (1, 2, 2, 2)))
    (g,) = x.conv2d(v).conv2d(w).sum().gradient(x)
    assert sum(u.op is Op.REDUCE for u in toposort(g.uop)) == 2
    graph, inputs = capture(g)
    np.testing.assert_array_equal(g.numpy(), run(graph, inputs).values[0])


def skewed_sum(support: int, extent: int, rows: int = 3, d: int = 1) -> tuple[UOp, tuple[int, ...]]:
    """Return the sum of rows, each `d` later than the one before, of products that are zero from `support` on."""
    z, w = b.param(0, (2, 1, support), dt.float32), b.param(1, (2, rows, 1), dt.float32)
    sums = b.reshape(b.reduce(b.mul(b.expand(z, (2, rows, support)), w), Op.ADD, (0,)), (rows, support))
    t = b.reshape(b.pad(sums, (0, 0), (rows, extent + d)), (rows * (extent + d),))
    return b.reshape(b.shrink(t, (0,), (rows * extent,)), (rows, extent)), (0,)


def test_rows_that_would_meet_another_weight_stay_as_they_are() -> None:
    """A row's last elements are those of the row before, whose weight is another: they must be zeros."""
    assert sum_products_of_windows(*skewed_sum(support=8, extent=10)) is not None
    assert sum_products_of_windows(*skewed_sum(support=9, extent=10)) is not None
    assert sum_products_of_windows(*skewed_sum(support=10, extent=10)) is None
    assert sum_products_of_windows(*skewed_sum(support=8, extent=10, d=2)) is not None
    assert sum_products_of_windows(*skewed_sum(support=9, extent=10, d=2)) is None


@pytest.mark.parametrize("support", [1, 8, 9])
def test_the_least_zeros_are_enough(support: int) -> None:
    g, axes = skewed_sum(support, extent=10)
    merged = sum_products_of_windows(g, axes)
    assert merged is not None
    rng = np.random.default_rng(support)
    inputs = {"p0": rng.integers(1, 9, (2, 1, support)).astype(np.float32), "p1": rng.integers(1, 9, (2, 3, 1)).astype(np.float32)}
    (got,), (want,) = run(merged, inputs).values, run(b.reduce(g, Op.ADD, axes), inputs).values
    np.testing.assert_array_equal(got, want)


def test_zeros_in_front_move_the_end_of_what_is_not_zero() -> None:
    z, w = b.param(0, (2, 1, 9), dt.float32), b.param(1, (2, 3, 1), dt.float32)
    sums = b.reshape(b.reduce(b.mul(b.expand(z, (2, 3, 9)), w), Op.ADD, (0,)), (3, 9))
    for offset, is_merged in ((0, True), (1, False)):
        rows = b.reshape(b.shrink(b.reshape(b.pad(sums, (0, offset), (3, 11)), (33,)), (0,), (30,)), (3, 10))
        assert (sum_products_of_windows(rows, (0,)) is not None) == is_merged


def spread_and_skewed_sum(
    entries: int, stride: int, rows: int, extent: int, shapes: Shapes | None = None, offset: int = 0
) -> tuple[UOp, tuple[int, ...]]:
    """Return the sum of rows, each one later than the one before, of products that are `stride` apart.

    `shapes` are those of the factors, and `offset` is the place of a row's first element.
    """
    full = (2, rows, entries)
    z, w = (b.param(k, n, dt.float32) for k, n in enumerate(shapes or ((2, 1, entries), (2, rows, 1))))
    sums = b.reshape(b.reduce(b.mul(b.expand(z, full), b.expand(w, full)), Op.ADD, (0,)), (rows, entries))
    spread = b.reshape(b.pad(b.reshape(sums, (rows, entries, 1)), (0, 0, 0), (rows, entries, stride)), (rows, entries * stride))
    t = b.reshape(b.pad(spread, (0, offset), (rows, extent + 1)), (rows * (extent + 1),))
    return b.reshape(b.shrink(t, (0,), (rows * extent,)), (rows, extent)), (0,)


@pytest.mark.parametrize("entries", [1, 2, 3])
@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6])
def test_phases_add_up_what_the_rows_do(entries: int, stride: int, rows: int) -> None:
    """Rows that reach one element into the next lose it; those that reach further would meet another weight."""
    rng = np.random.default_rng(entries)
    inputs = {f"p{k}": rng.integers(1, 9, n).astype(np.float32) for k, n in enumerate([(2, 1, entries), (2, rows, 1)])}
    reach = stride * (entries - 1) + rows
    for extent in range(max(entries * stride, reach - 4), reach + 3):
        g, axes = spread_and_skewed_sum(entries, stride, rows, extent)
        merged = sum_products_of_windows(g, axes)
        assert (merged is not None) == (extent >= reach - 1)
        for u in [merged] if merged is not None else []:
            (total,) = (v for v in toposort(u) if v.op is Op.REDUCE)
            assert math.prod(total.operand.shape[a] for a in total.arg.axes) == 2 * -(-rows // stride)
            np.testing.assert_array_equal(
                run(u, inputs).values[0], run(b.reduce(g, Op.ADD, axes), inputs).values[0].reshape(u.shape)
            )


#: name -> shapes of the factors, place of the first element, and axes of the sum.
OTHERS: dict[str, tuple[Shapes, int, tuple[int, ...]]] = {
    "each row has a carrier of its own": (((2, 4, 3), (2, 4, 1)), 0, (0,)),
    "weights vary along a row": (((2, 1, 3), (2, 4, 3)), 0, (0,)),
    "both vary": (((2, 4, 3), (2, 4, 3)), 0, (0,)),
    "rows begin later": (((2, 1, 3), (2, 4, 1)), 1, (0,)),
    "the sum is along the rows": (((2, 1, 3), (2, 4, 1)), 0, (1,)),
    "the sum is over all": (((2, 1, 3), (2, 4, 1)), 0, (0, 1)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_sum_of_phases_keeps_its_value(name: str) -> None:
    shapes, offset, axes = OTHERS[name]
    g, _ = spread_and_skewed_sum(3, 2, 4, 12, shapes, offset)
    rng = np.random.default_rng(3)
    inputs = {f"p{k}": rng.integers(1, 9, n).astype(np.float32) for k, n in enumerate(shapes)}
    merged = sum_products_of_windows(g, axes)
    want = run(b.reduce(g, Op.ADD, axes), inputs).values[0]
    for u in [merged] if merged is not None else []:
        np.testing.assert_array_equal(run(u, inputs).values[0].reshape(want.shape), want)
