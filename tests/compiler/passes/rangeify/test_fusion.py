"""Which values become kernels (`passes/cost`), in which order their elements are stored (`passes/layouts`), what is shared."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import Tensor
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import Config, compile
from uops.compiler.ir.views import IndexArithmetic, reshape_index
from uops.compiler.ir.work import estimate_work_per_element
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.rangeify.cost import RealiseCostModel
from uops.compiler.passes.rangeify.kernels import clamp_to_placeholder_bounds
from uops.compiler.passes.rangeify.layouts import walks_along_rows_of_value
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.tensor.realize import capture
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ParamArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

FRESH = Config(verify=True, reuse=False)


def made(seed: int, *shape: int) -> Tensor:
    return Tensor.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def kernels(graph: UOp) -> list[UOp]:
    return [call.src[0] for call in rangeify(callify(graph)).src]


def count(root: UOp, op: Op) -> int:
    return sum(u.op is op for u in toposort(root))


def p(slot: int, *shape: int) -> UOp:
    return b.param(slot, shape, dt.float32)


def product(x: UOp, y: UOp) -> UOp:
    """A matrix product as the front end writes it."""
    (m, k), (_, n) = x.shape, y.shape
    return b.reshape(b.reduce(b.mul(b.reshape(x, (m, k, 1)), b.reshape(y, (1, k, n))), Op.ADD, (1,)), (m, n))


# Programs


def attention(causal: bool) -> Tensor:
    return made(0, 2, 16, 8).scaled_dot_product_attention(made(1, 2, 16, 8), made(2, 2, 16, 8), is_causal=causal)


def layer() -> Tensor:
    """An encoder layer."""
    batch, sequence, hidden, heads = 1, 16, 32, 4
    x = made(0, batch, sequence, hidden)
    q, k, v = ((x @ made(n, hidden, hidden)).reshape(batch, sequence, heads, hidden // heads).transpose(1, 2) for n in (1, 2, 3))
    seen = q.scaled_dot_product_attention(k, v).transpose(1, 2).reshape(batch, sequence, hidden)
    x = (x + seen @ made(4, hidden, hidden)).layernorm()
    return (x + (x @ made(5, hidden, 64)).gelu() @ made(6, 64, hidden)).layernorm()


def block() -> Tensor:
    """A basic block of ResNet with batch norm as at inference."""

    def norm(t: Tensor, seed: int) -> Tensor:
        weight, bias, mean, var = (made(seed + k, 8) for k in range(4))
        return t.batchnorm(weight, bias, mean, (var.square() + 1e-5).rsqrt())

    x = made(0, 1, 8, 8, 8)
    y = norm(x.conv2d(made(1, 8, 8, 3, 3), padding=1), 10).relu()
    return (norm(y.conv2d(made(2, 8, 8, 3, 3), padding=1), 20) + x).relu()


def cross_entropy() -> Tensor:
    x, label = made(0, 8, 20), Tensor.from_numpy(np.arange(8, dtype=np.int32))
    return -x.log_softmax(-1).gather(1, label.reshape(-1, 1)).mean()


def rms_norm() -> Tensor:
    x = made(0, 8, 16)
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * made(1, 16)


def batch_norm(*shape: int) -> Tensor:
    """As in training: over everything but the channels."""
    x = made(0, *shape)
    centred = x - x.mean((0, 2, 3), keepdim=True)
    return centred * (centred.square().mean((0, 2, 3), keepdim=True) + 1e-5).rsqrt()


def rotary() -> Tensor:
    x, c, s = made(0, 4, 8, 16), made(1, 8, 8), made(2, 8, 8)
    left, right = x[..., :8], x[..., 8:]
    return (left * c - right * s).cat(left * s + right * c, dim=-1)


PROGRAMS: dict[str, tuple[Callable[[], Tensor], int]] = {
    "softmax": (lambda: made(0, 8, 16).softmax(-1), 1),
    "layernorm with weights": (lambda: made(0, 8, 16).layernorm() * made(1, 16) + made(2, 16), 1),
    "RMS norm": (rms_norm, 1),
    "batch norm of a batch, channels outermost": (lambda: batch_norm(2, 4, 4, 8), 1),
    "batch norm of a larger batch": (lambda: batch_norm(8, 16, 14, 14), 1),
    "rotary embedding": (rotary, 1),
    "argmax, its positions without a kernel": (lambda: made(0, 8, 16).argmax(1), 1),
    "product, bias and gelu": (lambda: (made(0, 16, 16) @ made(1, 16, 32) + made(2, 32)).gelu(), 1),
    "two products with gelu between": (lambda: (made(0, 16, 16) @ made(1, 16, 32)).gelu() @ made(2, 32, 16), 2),
    "product and residual, then the norm": (lambda: (made(0, 16, 16) + made(1, 16, 16) @ made(2, 16, 16)).layernorm(), 2),
    "attention: scores, softmax, values": (lambda: attention(False), 3),
    "causal attention, its mask without a kernel": (lambda: attention(True), 3),
    "encoder layer: six products, scores and values, softmax, two norms": (layer, 11),
    "two convolutions with their norms, relus and the skip": (block, 2),
    "cross entropy: greatest, sum, mean of what is picked": (cross_entropy, 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_as_many_kernels_as_it_needs(name: str) -> None:
    build, wanted = PROGRAMS[name]
    graph = capture(build()).graph
    assert len(kernels(graph)) == wanted


@pytest.mark.parametrize("name", PROGRAMS)
def test_fused_programs_keep_their_values(name: str) -> None:
    found = capture(PROGRAMS[name][0]())
    wanted = run(found.graph, found.inputs).values[0]
    got = compile(found.graph, LlvmTarget(), FRESH)(found.inputs).values[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


# What is realised


def test_movement_is_never_a_kernel_of_its_own() -> None:
    """A value that is wanted through views, padding and repetition is realised itself."""
    x = b.exp2(p(0, 64, 64))
    moved = b.pad_by(b.permute(b.reshape(x, (8, 8, 64)), (2, 0, 1)), (1, 1), (0, 0), (1, 1))
    square = b.reshape(moved, (660, 8))
    found = kernels(product(square, p(1, 8, 99)))
    assert [count(k, Op.EXP2) for k in found] == [1, 0]
    assert len(found) == 2


def test_a_sum_that_several_use_is_stored_with_what_is_made_of_it() -> None:
    """The residual belongs to the product's kernel; without it, each reader of the sum would add it again."""
    h = b.add(p(2, 16, 16), product(p(0, 16, 16), p(1, 16, 16)))
    centred = b.sub(h, b.mul(b.reduce(h, Op.ADD, (1,)), 1 / 16))
    first, second = kernels(b.mul(centred, centred))
    assert count(first, Op.PARAM) == 4  # written, two factors, and what is added
    assert count(second, Op.PARAM) == 2  # written and read


def test_what_readers_compute_for_less_than_a_store_is_not_stored() -> None:
    """Two kernels need x minus the mean of a row: the means alone are stored, unless a row is short or the arithmetic is long."""

    def count_loops_of_first_kernel(n: int, steps: int) -> int:
        x = p(0, n, n)
        centred = b.sub(x, b.mul(b.reduce(x, Op.ADD, (1,)), 1 / n))
        for _ in range(steps):
            centred = b.mul(centred, centred)
        found = kernels(b.tuple_(b.reduce(centred, Op.ADD, (1,)), b.reduce(centred, Op.ADD, (0,))))
        return count(found[0], Op.RANGE)

    assert count_loops_of_first_kernel(64, 0) == 2  # rows, and the loop of their sum
    assert count_loops_of_first_kernel(64, 6) == count_loops_of_first_kernel(8, 0) == 3  # rows, columns, and the loop of the sum


def test_a_part_of_a_sum_is_computed_alone() -> None:
    (kernel,) = kernels(b.shrink(product(p(0, 16, 8), p(1, 8, 16)), (1, 2), (12, 12)))
    assert sorted(r.bound.arg.value for r in toposort(kernel) if r.op is Op.RANGE) == [8, 12, 12]


def test_a_sum_that_something_else_needs_is_stored_itself() -> None:
    s = b.reduce(p(0, 16, 16), Op.ADD, (1,))
    found = kernels(b.tuple_(b.add(s, b.flip(b.add(s, 1.0), (True, False))), s))
    assert count(found[0], Op.REDUCE) == 1
    assert sum(count(k, Op.REDUCE) for k in found) == 1


def test_a_kernel_has_one_product() -> None:
    both = b.add(product(p(0, 16, 16), p(1, 16, 16)), product(p(2, 16, 16), p(3, 16, 16)))
    assert [count(k, Op.REDUCE) for k in kernels(both)] == [1, 1]


def test_a_product_is_not_computed_in_the_loops_of_another_reduce() -> None:
    total = b.reduce(product(p(0, 16, 16), p(1, 16, 16)), Op.MAX, (0, 1))
    assert [count(k, Op.REDUCE) for k in kernels(total)] == [1, 1]


def test_a_product_without_reuse_is_any_sum() -> None:
    """One row: every element of the matrix is used once."""
    row = b.reduce(b.mul(b.reshape(p(0, 64), (64, 1)), p(1, 64, 64)), Op.ADD, (0,))
    order = toposort(row)
    assert not RealiseCostModel(order, {}).is_contraction_with_operand_reuse(row)
    (whole,) = (u for u in toposort(product(p(0, 64, 64), p(1, 64, 64))) if u.op is Op.REDUCE)
    assert RealiseCostModel(toposort(whole), {}).is_contraction_with_operand_reuse(whole)


def test_output_loops_nest_as_the_reduces_in_them_need_but_for_the_last() -> None:
    """Its iterations are neighbours in memory: what is reduced down the columns of a matrix is a kernel of its own."""
    x = p(0, 4, 6, 8)
    (one,) = kernels(b.sub(x, b.reduce(x, Op.ADD, (0, 2))))
    outer = next(u.src[1] for u in toposort(one) if u.op is Op.END and u.src[0].op is Op.END and u.src[0].src[0].op is Op.END)
    assert (outer.arg.axis_id, outer.src[0].arg.value) == (0, 6)
    assert len(kernels(b.sub(x, b.reduce(x, Op.ADD, (0, 1))))) == 2
    crossing = b.sub(b.sub(x, b.reduce(x, Op.ADD, (0, 2))), b.reduce(x, Op.ADD, (1, 2)))
    assert len(kernels(crossing)) == 2  # both cannot be outermost
    nested = b.sub(b.sub(x, b.reduce(x, Op.ADD, (0, 2))), b.reduce(x, Op.ADD, (2,)))
    assert len(kernels(nested)) == 1


def test_a_value_wanted_at_many_places_of_one_kernel_is_stored() -> None:
    x = b.mul(b.exp2(p(0, 64)), 2.0)
    windows = [b.shrink(x, (k,), (48,)) for k in range(16)]
    total = windows[0]
    for w in windows[1:]:
        total = b.add(total, w)
    assert [count(k, Op.EXP2) for k in kernels(total)] == [1, 0]


def test_work_is_that_of_what_is_not_in_memory_yet() -> None:
    dear = b.exp2(b.exp2(p(0, 8)))
    twice = b.add(dear, b.flip(dear, (True,)))
    alone = estimate_work_per_element(toposort(twice))
    shared = estimate_work_per_element(toposort(twice), {}, {dear: 2})
    assert shared[twice] < alone[twice] / 3


# Layouts


def stored_in_order(graph: UOp) -> bool:
    """Whether no kernel divides to find an address."""
    return all(count(k, Op.IDIV) == count(k, Op.MOD) == 0 for k in kernels(graph))


def test_heads_are_stored_as_they_are_read() -> None:
    """(sequence, heads * size) -> (heads, sequence, size): the product stores rows of heads, and the next one divides nothing."""
    heads = b.permute(b.reshape(product(p(0, 16, 32), p(1, 32, 32)), (16, 4, 8)), (1, 0, 2))
    assert stored_in_order(product(b.reshape(heads, (64, 8)), p(2, 8, 16)))
    rows = b.reshape(b.permute(b.exp2(p(0, 4, 16, 8)), (1, 0, 2)), (16, 32))
    assert stored_in_order(product(rows, p(1, 32, 16)))


def test_the_values_of_a_layout_are_those_of_the_view() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        t = (x @ y).reshape(6, 4, 5).transpose(0, 1).flip(1)
        return t.reshape(4, 30) @ made(9, 30, 8)

    found = capture(f(made(0, 6, 12), made(1, 12, 20)))
    wanted = run(found.graph, found.inputs).values[0]
    got = compile(found.graph, LlvmTarget(), FRESH)(found.inputs).values[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_the_last_axis_stays_the_last_one() -> None:
    """Lanes are its: a product is not stored as columns because a transposition reads it."""
    x = b.exp2(p(0, 4, 6))
    assert walks_along_rows_of_value(x, [b.reshape(x, (2, 2, 6))])
    assert not walks_along_rows_of_value(x, [b.permute(x, (1, 0))])
    split = b.reshape(x, (4, 2, 3))
    assert walks_along_rows_of_value(x, [split, b.permute(split, (1, 0, 2))])
    assert not walks_along_rows_of_value(x, [split, b.permute(split, (0, 2, 1))])
    assert walks_along_rows_of_value(x, [split, b.flip(split, (True, True, False))])
    assert not walks_along_rows_of_value(x, [split, b.flip(split, (False, False, True))])
    halves = b.reshape(x, (8, 3))
    assert walks_along_rows_of_value(x, [halves, b.flip(halves, (True, False))])  # the halves of a row in reversed order


# Reshape


def test_a_reshape_divides_in_the_groups_of_axes_that_change_only() -> None:
    at = IndexArithmetic(Rewriter(INDEXING))
    index = tuple(UOp(Op.RANGE, (b.index(n),), RangeArg(k, AxisType.LOOP)) for k, n in enumerate((6, 7, 20)))
    found = reshape_index(at, (6, 7, 20), (2, 3, 1, 7, 4, 5), index)
    assert found[3] is index[1]
    assert all(index[2] not in toposort(i) for i in found[:4])


SHAPES = [
    ((2, 3, 4, 5), (6, 20)),
    ((1, 1, 6), (2, 3)),
    ((4, 6), (6, 4)),
    ((4, 1, 6), (2, 2, 3, 2)),
    ((1,), ()),
    ((12,), (1, 3, 4, 1)),
]


@pytest.mark.parametrize(("old", "new"), SHAPES, ids=str)
def test_a_reshape_keeps_row_major_positions(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    at = IndexArithmetic(Rewriter(INDEXING))
    for flat in range(math.prod(new)):
        index = at.unflatten(b.index(flat), new)
        there = reshape_index(at, new, old, index)
        assert [i.arg.value for i in there] == list(np.unravel_index(flat, old)) if old else there == ()


# Kernels that are alike


def test_kernels_that_differ_in_their_memory_only_have_one_body() -> None:
    x: Any = p(0, 8, 8)
    for k in range(1, 6):
        x = b.contiguous(b.exp2(b.add(x, p(k, 8, 8))))
    found = kernels(x)
    assert (len(found), len(set(found))) == (5, 1)


def test_a_norm_that_two_kernels_want_is_one_kernel() -> None:
    """Not one for its mean, one for its variance, and the arithmetic in both readers."""
    x = made(0, 4, 8).layernorm()
    out = x + (x @ made(1, 8, 4)) @ made(2, 4, 8)
    assert len(kernels(capture(out).graph)) == 3


@pytest.mark.parametrize("d", [dt.int32, dt.int64, dt.uint32, dt.uint64])
def test_places_that_another_kernel_computed_lie_where_they_did(d: dt.DType) -> None:
    """FOUND 062: what is read back of a remainder may be any number, for all that its kernel knows; the address says it is not."""
    place = UOp(Op.ADD, (UOp(Op.MOD, (b.param(0, (1,), d), b.const(9, d))), b.const(1, d)))
    graph = UOp(Op.INDEX, (UOp(Op.INDEX, (b.flip(p(1, 10, 4), (True, True)), place)), b.param(2, (336,), dt.int32)))
    *_, call = rangeify(callify(graph)).src
    assert len(rangeify(callify(graph)).src) == 2
    addresses = [u.src[1] for u in toposort(call.src[0]) if u.op is Op.INDEX and u.src[0].shape == (40,)]
    assert addresses and all(u.min_max[0] >= -4 and u.min_max[1] < 44 for u in addresses)
    inputs = {
        "p0": np.array([d.max - 3], d.name),
        "p1": np.arange(40, dtype=np.float32).reshape(10, 4),
        "p2": np.zeros(336, np.int32),
    }
    np.testing.assert_array_equal(compile(graph, LlvmTarget())(inputs).values[0], run(graph, inputs).values[0])


@pytest.mark.parametrize("most", [2**64 - 1, 2**64 - 2, 2**63 + 7, 2**63, 2**63 - 1, 9])
@pytest.mark.parametrize("least", [1, 2])
def test_an_unsigned_number_is_clamped_to_bounds_that_int64_may_not_hold(least: int, most: int) -> None:
    placeholder = UOp(Op.PARAM, (b.SCALAR,), ParamArg(None, dt.uint64, name="%0", bounds=(least, most)))
    clamped = clamp_to_placeholder_bounds(b.param(0, (), dt.uint64), placeholder)
    assert clamped.min_max == (least, most)
    for value in (0, least, least + 3, 2**63, most, 2**64 - 1):
        (result,) = run(clamped, {"p0": np.array(value, np.uint64)}).values
        assert int(result) == min(max(value, least), most)


def test_an_unsigned_position_from_another_kernel_is_where_it_was() -> None:
    position = b.contiguous(b.maximum(b.param(0, (4,), dt.uint64), b.const(1, dt.uint64)))
    graph = b.at(p(1, 4), position)
    inputs = {"p0": np.array([0, 2, 1, 3], np.uint64), "p1": np.array([11, 21, 31, 41], np.float32)}
    np.testing.assert_array_equal(compile(graph, LlvmTarget(), FRESH)(inputs).values[0], run(graph, inputs).values[0])
