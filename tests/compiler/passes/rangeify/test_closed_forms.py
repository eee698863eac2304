"""Reductions without their loops (`passes/closed`, `passes/elements`): which loops are gone; the values are the interpreter's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops import Tensor
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import Config, compile
from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.conditions import recover_index_if_casts_cannot_wrap
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.rangeify.closed_forms import find_closed_form
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.tensor.realize import capture
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions as c

F32, I32 = dt.float32, dt.int32
FRESH = Config(verify=True, reuse=False)


def p(slot: int, *shape: Any, dtype: dt.DType = F32) -> UOp:
    return b.param(slot, shape, dtype)


def loops(graph: UOp) -> list[int]:
    """The extents of the loops of reductions in all kernels."""
    bodies = [call.src[0] for call in rangeify(callify(graph)).src]
    found = {r for k in bodies for u in toposort(k) if u.op is Op.REDUCE for r in u.src[1:]}
    return sorted(int(r.src[0].arg.value) if r.src[0].op is Op.CONST else -1 for r in found)


def agree(graph: UOp, inputs: dict[str, Any]) -> None:
    """The same values, where the sign of zero and of NaN are free (R20, R32)."""
    wanted, got = run(graph, inputs), compile(graph, LlvmTarget(), FRESH)(inputs)
    for w, g in zip(wanted.values, got.values, strict=True):
        assert w.dtype == g.dtype
        np.testing.assert_array_equal(np.asarray(w), np.asarray(g))


def row(n: int, dtype: dt.DType = I32) -> UOp:
    return b.reshape(c.arange(n, dtype), (1, n))


def column(x: UOp) -> UOp:
    return b.reshape(x, (*x.shape, 1))


def masked(mask: UOp, x: UOp, zero: float = 0) -> UOp:
    return b.where(mask, x, b.const(zero, x.dtype))


SPECIAL = np.array([1.5, np.nan, np.inf, -np.inf, -0.0, 3e38, -2.25], np.float32)
PICKED = np.array([0, 6, 4, -1, 7, 2, 1, 5, 3, -(2**31), 2**31 - 1], np.int32)
EVERY = {"p0": SPECIAL, "p1": PICKED}


# What is closed


def test_a_sequence_has_no_loop_whatever_its_dtype() -> None:
    for d in (dt.int32, dt.int64, dt.uint32, dt.uint64, dt.int8, dt.uint8):
        assert loops(c.arange(100, d)) == []
    agree(b.tuple_(*(c.arange(300, d) for d in (dt.int32, dt.uint64, dt.int8, dt.uint8))), {})


def test_a_triangle_and_what_is_chosen_by_it_have_no_loop() -> None:
    below = b.le(row(9), column(c.arange(7)))
    assert loops(masked(below, p(0, 7, 9))) == []
    agree(masked(below, p(0, 7, 9)), {"p0": np.arange(63, dtype=np.float32).reshape(7, 9)})


def test_a_gather_by_one_hot_reads_one_element() -> None:
    graph = c.gather(p(0, 7), p(1, 11, dtype=I32))
    assert loops(graph) == []
    agree(graph, EVERY)


def test_a_gather_of_a_computed_value_computes_one_element() -> None:
    graph = c.gather(b.exp2(p(0, 7)), p(1, 11, dtype=I32))
    assert loops(graph) == []
    wanted, got = run(graph, EVERY).values[0], compile(graph, LlvmTarget(), FRESH)(EVERY).values[0]
    np.testing.assert_allclose(wanted, got, rtol=1e-6)


@pytest.mark.parametrize("d", [dt.int8, dt.uint8, dt.int16, dt.uint32, dt.int64])
def test_the_index_of_a_gather_may_have_any_integer_dtype(d: dt.DType) -> None:
    low, high = max(-3, d.min), min(d.max, 2**40)
    picked = np.array([low, 0, 3, 6, 7, high, d.max, d.min]).astype(np.dtype(d.name))
    graph = c.gather(p(0, 7), p(1, 8, dtype=d))
    assert loops(graph) == []
    agree(graph, {"p0": SPECIAL, "p1": picked})


def test_an_index_that_no_machine_integer_holds_keeps_its_loop() -> None:
    """R08: what a kernel computes must have a width."""
    graph = c.gather(p(0, 7), p(1, 4, dtype=dt.uint64))
    assert loops(graph) == [7]
    agree(graph, {"p0": SPECIAL, "p1": np.array([2, 7, 2**63, 2**64 - 1], np.uint64)})


@pytest.mark.parametrize("axes", [(1, 2, 3), (3, 2), (1, 2)])
def test_a_gather_may_be_the_index_of_a_gather(axes: tuple[int, ...]) -> None:
    """x[second[first[at]]], and sums of it, in which each index may be out of range."""
    x, second, first, at = p(0, 7), p(1, 5, dtype=I32), p(2, 4, dtype=I32), p(3, 6, dtype=I32)

    def axis(u: UOp, k: int) -> UOp:
        return b.reshape(u, tuple(u.shape[0] if j == k else 1 for j in range(4)))

    def selects(index: UOp, k: int, n: int) -> UOp:
        return b.eq(axis(index, k), axis(c.arange(n, I32), k + 1))

    inner = masked(selects(second, 2, 7), axis(x, 3))
    whole = masked(selects(at, 0, 4), masked(selects(first, 1, 5), inner))
    numbers, indices = np.arange(1, 8, dtype=np.float32), ([3, 6, -1, 0, 7], [4, 1, 9, 2], [0, 1, 2, 3, -5, 4])
    inputs = {f"p{k}": np.array(v, np.int32) for k, v in enumerate(indices, 1)}
    agree(b.reduce(whole, Op.ADD, axes), {"p0": numbers, **inputs})


def test_one_of_several_reduced_axes_may_be_closed() -> None:
    """Cross entropy: the sum over rows of the element that the label picks."""
    x, label = p(0, 5, 7), p(1, 5, dtype=I32)
    graph = b.reduce(masked(b.eq(row(7), column(label)), x), Op.ADD, (0, 1))
    assert loops(graph) == [5]
    values = np.arange(35, dtype=np.float32).reshape(5, 7)
    values[2, 3:] = np.nan
    agree(graph, {"p0": values, "p1": np.array([6, 0, 2, 9, -1], np.int32)})


def test_a_product_with_a_mask_is_a_choice_for_integers_only() -> None:
    """0 * NaN is NaN: a float that is not selected would contribute (R50)."""
    mask = b.eq(row(7), column(p(1, 11, dtype=I32)))
    whole = b.reduce(b.mul(b.cast(mask, I32), b.reshape(p(0, 7, dtype=I32), (1, 7))), Op.ADD, (1,))
    real = b.reduce(b.mul(b.cast(mask, F32), b.reshape(p(0, 7), (1, 7))), Op.ADD, (1,))
    assert (loops(whole), loops(real)) == ([], [7])
    agree(whole, {"p0": np.arange(-3, 4, dtype=np.int32), "p1": PICKED})
    agree(real, EVERY)


def test_a_scatter_reads_every_index() -> None:
    """The position is in the data: there is no value of the loop to solve for."""
    graph = c.scatter_add(p(0, 4), p(1, 3, dtype=I32), p(2, 3))
    assert loops(graph) == [3]


def test_a_count_below_a_length_in_memory_has_no_loop() -> None:
    length = p(0, 6, dtype=I32)
    graph = b.reduce(b.cast(b.lt(row(10), column(length)), I32), Op.ADD, (1,))
    assert loops(graph) == []
    agree(graph, {"p0": np.array([-5, 0, 1, 9, 10, 2**31 - 1], np.int32)})


def test_a_masked_sum_of_one_value_is_its_multiple_and_nothing_if_the_mask_is_empty() -> None:
    """Guarded: 0 * inf is NaN."""
    length, x = p(1, 7, dtype=I32), p(0, 7)
    graph = b.reduce(masked(b.ge(row(8), column(length)), b.expand(column(x), (7, 8))), Op.ADD, (1,))
    assert loops(graph) == []
    lengths = np.array([0, 8, 8, 7, 3, -4, 9], np.int32)
    agree(graph, {"p0": np.array([1.5, np.nan, np.inf, -np.inf, -0.0, 3.0, np.nan], np.float32), "p1": lengths})


def test_narrow_floats_are_multiplied_in_float32() -> None:
    """70000 has no float16."""
    graph = b.reduce(masked(b.ge(row(70000), 0), b.expand(column(p(0, 3, dtype=dt.float16)), (3, 70000))), Op.ADD, (1,))
    assert loops(graph) == []
    got = compile(graph, LlvmTarget(), FRESH)({"p0": np.array([0.0, 0.25, -0.125], np.float16)}).values[0]
    assert got.reshape(-1).tolist() == [0.0, 17504.0, -8752.0]  # rounded to a multiple of 16 and of 8


def test_a_greatest_value_under_a_mask() -> None:
    length, x = p(1, 4, dtype=I32), p(0, 4)
    counted = b.reduce(masked(b.lt(row(5), column(length)), b.expand(column(x), (4, 5)), -np.inf), Op.MAX, (1,))
    chosen = b.reduce(masked(b.eq(row(4), column(length)), b.reshape(x, (1, 4)), -np.inf), Op.MAX, (1,))
    assert loops(b.tuple_(counted, chosen)) == []
    agree(b.tuple_(counted, chosen), {"p0": np.array([np.nan, -1, np.inf, 2], np.float32), "p1": np.array([1, 0, 3, -2], np.int32)})


def test_windows_that_count_their_elements_have_no_loop() -> None:
    """What an average pool without its border divides by: ones summed over both axes of a window."""
    for stride in (1, 2):
        ones = Tensor.ones(1, 1, 6, 5).avg_pool2d(3, stride=stride, padding=1, count_include_pad=False)
        graph = capture(ones).graph
        assert loops(graph) == []
        agree(graph, {})


def test_what_a_mask_of_floats_selects_keeps_its_loop() -> None:
    positions = b.cast(row(7), F32)
    graph = b.reduce(masked(b.eq(positions, column(p(1, 3))), b.reshape(p(0, 7), (1, 7))), Op.ADD, (1,))
    assert loops(graph) == [7]
    agree(graph, {"p0": np.arange(7, dtype=np.float32), "p1": np.array([2.0, 2.5, np.nan], np.float32)})


def test_an_empty_or_a_wrapping_sequence_is_right() -> None:
    """int8 positions repeat after 256: an equality with them has several solutions, and keeps its loop."""
    graph = b.reduce(masked(b.eq(row(300, dt.int8), column(p(0, 3, dtype=dt.int8))), b.const(1, I32)), Op.ADD, (1,))
    assert loops(graph) == [300]
    agree(graph, {"p0": np.array([5, -1, 100], np.int8)})
    agree(b.reduce(masked(b.eq(row(0), column(p(0, 3, dtype=I32))), b.const(1, I32)), Op.ADD, (1,)), {"p0": np.zeros(3, np.int32)})


# All comparisons, factors and signs


def test_every_comparison_is_solved_as_it_counts() -> None:
    """Sums over r < 9 of (k r + i op 4 ? 2 : 0), and of (k r == i - 5 ? r * r : 0), for every k, op and order of operands."""
    i = column(c.arange(11))
    compared = (b.lt, b.le, b.gt, b.ge)
    sums, picks = [], []
    for k in (-3, -2, -1, 1, 2, 3):
        r = b.mul(row(9), k)
        sums += [b.reduce(masked(f(b.add(r, i), 4), b.const(2, I32)), Op.ADD, (1,)) for f in compared]
        sums += [b.reduce(masked(f(4, b.add(r, i)), b.const(2, I32)), Op.ADD, (1,)) for f in compared]
        picks.append(b.reduce(masked(b.eq(r, b.sub(i, 5)), b.mul(row(9), row(9))), Op.ADD, (1,)))
    two_sided = b.and_(b.ge(b.add(row(9), i), 5), b.lt(b.mul(row(9), 2), i))
    graph = b.tuple_(*sums, *picks, b.reduce(masked(two_sided, b.const(1, I32)), Op.ADD, (1,)))
    assert loops(graph) == []
    agree(graph, {})


@pytest.mark.parametrize("k", [-3, -1, 1, 2, 3])
def test_thresholds_may_be_any_word(k: int) -> None:
    """FOUND 047: sums over r < 9 of (k r op x ? 2 : 0) for any x, which one more, or the negative of which, no word may hold."""
    x, r = column(p(0, 16, dtype=dt.int64)), b.mul(b.cast(row(9), dt.int64), k)
    compared = (b.lt, b.le, b.gt, b.ge)
    sums = [b.reduce(masked(f(*ab), b.const(2, I32)), Op.ADD, (1,)) for f in compared for ab in ((r, x), (x, r))]
    assert loops(b.tuple_(*sums)) == []
    edges = [-(2**63), 1 - 2**63, 2 - 2**63, 2**63 - 1, 2**63 - 2, 2**63 - 3]
    agree(b.tuple_(*sums), {"p0": np.array([*edges, *range(-2, 3), 4 * k, 8 * k - 1, 8 * k, 8 * k + 1, 9 * k])})


def test_a_range_of_symbolic_extent_is_closed() -> None:
    n = b.variable("n", 0, 9)
    ones = b.expand(b.reshape(b.const(3, I32), (1,)), (n,))
    graph = b.reduce(ones, Op.ADD, (0,))
    assert loops(graph) == []
    for value in (0, 1, 9):
        agree(graph, {"n": value})


def test_an_extent_that_is_not_in_normal_form() -> None:
    """FOUND 057: what is read inside of the padding depends on the loop, whose bound is simplified."""
    n = b.variable("n", 1, 4)
    x = b.mul(p(0, n, dtype=I32), b.cast(b.variable("k", -9, 9), I32))
    graph = b.reduce(b.pad(x, (0,), (UOp(Op.ADD, (n, index_constant(0))),)), Op.ADD, (0,))
    for value in (1, 3):
        agree(graph, {"n": value, "k": 2, "p0": np.arange(5, 5 + value, dtype=np.int32)})
    one = UOp(Op.ADD, (UOp(Op.SUB, (n, n)), index_constant(1)))
    agree(b.reduce(b.expand(b.reshape(p(0, dtype=I32), (1,)), (one,)), Op.ADD, (0,)), {"n": 2, "p0": np.int32(7)})


def test_what_lies_outside_of_memory_is_not_read_where_it_is_not_chosen() -> None:
    """FOUND 060: a sum of equal elements inside of a padding is a multiple of one, which is there where the padding is not."""
    x = b.expand(b.pad(p(0, 1, 18), (0, 10), (1, 31)), (3, 31))
    v = b.reshape(b.cast(b.variable("v", 0, 9), I32), (1, 1))
    chosen = masked(b.eq(b.expand(v, (3, 31)), p(1, 1, 31, dtype=I32)), x, 0.0)
    graph = b.reduce(chosen, Op.ADD, (0,))
    assert loops(graph) == []
    (call,) = rangeify(callify(graph)).src
    read = [u for u in toposort(call.src[0]) if u.op is Op.LOAD and u.dtype is F32]
    assert [len(u.src) for u in read] == [3]  # gated
    agree(
        graph,
        {"p0": np.arange(18, dtype=np.float32).reshape(1, 18), "p1": (np.arange(31, dtype=np.int32) % 2).reshape(1, 31), "v": 1},
    )


def test_the_place_of_one_element_may_be_the_negative_of_any_word() -> None:
    """FOUND 058: the sum over r < 4 of (-r == x ? r + 10 : 0); where the negative fits, the loop is gone."""
    for d, left in ((dt.int64, [4]), (dt.int32, [])):
        x, r = column(p(0, 6, dtype=d)), b.cast(row(4), d)
        graph = b.reduce(masked(b.eq(b.mul(r, -1), x), b.add(r, 10)), Op.ADD, (1,))
        assert loops(graph) == left
        agree(graph, {"p0": np.array([0, -1, -3, -4, d.max, d.min], d.name)})


def test_a_condition_whose_bounds_exceed_64_bits_is_not_solved() -> None:
    r = UOp(Op.RANGE, (index_constant(10),), RangeArg(0, AxisType.REDUCE))
    simplify, simple = Rewriter(INDEXING), lambda e, u: u in toposort(e)
    far = b.cast(p(0, dtype=dt.int64), dt.index)
    one, none = b.const(1, I32), b.const(0, I32)
    near = UOp(Op.WHERE, (UOp(Op.CMPLT, (r, far)), one, none))
    moved = UOp(Op.WHERE, (UOp(Op.CMPLT, (UOp(Op.ADD, (r, index_constant(1))), far)), one, none))
    assert find_closed_form(Op.ADD, moved, r, simplify, simple) is None
    assert find_closed_form(Op.MUL, near, r, simplify, simple) is None
    assert recover_index_if_casts_cannot_wrap(b.cast(UOp(Op.MUL, (r, index_constant(100))), dt.int8)) is None
    assert recover_index_if_casts_cannot_wrap(b.cast(r, dt.int8)) is r
