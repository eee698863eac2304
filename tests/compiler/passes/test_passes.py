"""What each stage makes of a program: its contract, looked at in the graph."""

from typing import Any

import numpy as np
import pytest

from uops.compiler import Config, lower, outputs
from uops.compiler.decompose.threefry import decompose_threefry
from uops.compiler.ir.accumulators import lower_reduces, reduction_identity
from uops.compiler.ir.affine import index_constant
from uops.compiler.passes.callify.callify import callify, inline_calls_and_drop_gradient_markers
from uops.compiler.passes.linearize import order_instructions
from uops.compiler.passes.memory_plan import (
    ALIGNMENT,
    LiveRange,
    assign_offsets_and_get_arena_bytes,
    find_live_ranges,
    place_intermediates_in_arenas_per_device,
)
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.passes.select.index_widths import lower_index_arithmetic
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import VALUES
from uops.spec.errors import CompileError, SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

VERIFY = Config(verify=True, reuse=False)


def count(root: UOp, op: Op) -> int:
    return sum(u.op is op for u in toposort(root))


def kernels(graph: UOp) -> list[UOp]:
    return list(rangeify(callify(graph)).src)


# Callify


def test_functions_are_substituted_and_nested_bodies_own_their_params() -> None:
    inner = b.function(b.tuple_(b.mul(b.param(0, (3,), dt.int32), 2)), b.add(b.param(0, (3,), dt.int32), 1))
    outer = b.function(b.tuple_(b.get(inner, 0)), b.param(5, (3,), dt.int32))
    assert inline_calls_and_drop_gradient_markers(b.get(outer, 0)) is b.mul(b.add(b.param(5, (3,), dt.int32), 1), 2)


def test_overlapping_arguments_are_replaced_at_once() -> None:
    p0, p1 = b.param(0, (3,), dt.int32), b.param(1, (3,), dt.int32)
    swapped = b.function(b.tuple_(b.sub(p0, p1)), p1, p0)
    assert inline_calls_and_drop_gradient_markers(b.get(swapped, 0)) is b.sub(p1, p0)


def test_a_body_with_a_param_that_has_no_argument_is_named() -> None:
    with pytest.raises(SpecError, match="has 1 arguments but its body uses Param 1"):
        inline_calls_and_drop_gradient_markers(
            b.get(b.function(b.tuple_(b.param(1, (3,), dt.int32)), b.param(0, (3,), dt.int32)), 0)
        )


def test_results_go_to_fresh_buffers_numbered_after_the_graphs_own() -> None:
    graph = b.tuple_(b.buffer(4, dt.int8, unique=7), b.add(b.variable("n", 0, 9), 1))
    first, second = outputs(graph)
    assert (first.buffer.arg.unique, second.buffer.arg.unique) == (8, 9)
    assert (second.dtype, second.buffer.dtype, second.shape) == (dt.index, dt.int64, ())
    called = callify(graph)
    assert {first.buffer, second.buffer} <= set(called.src)
    assert callify(graph) is called


def test_arguments_are_memory_then_variables_and_written_ones_are_declared() -> None:
    n = b.variable("n", 1, 4)
    a = b.buffer(4, dt.float32, unique=1)
    called = callify(b.sink(b.store(a, b.add(b.param(3, (4,), dt.float32), b.cast(n, dt.float32)))))
    assert [u.arg.name if u.op is Op.PARAM else u.op for u in called.src[1:]] == [Op.BUFFER, None, "n"]
    assert called.arg.written == (0,)
    assert {u.arg.slot for u in toposort(called.src[0]) if u.op is Op.PARAM} == {0, 1, 2}


# Hazards


def contiguous_sources(graph: UOp) -> list[Op]:
    return [u.src[0].op for u in toposort(callify(graph).src[0]) if u.op is Op.CONTIGUOUS]


def test_a_store_that_reads_its_target_reads_it_fully_first() -> None:
    a = b.buffer(6, dt.float32, unique=1)
    assert contiguous_sources(b.assign(a, b.flip(a, (True,)))) == [Op.FLIP]
    assert contiguous_sources(b.assign(a, b.add(a, 1.0))) == []  # every iteration reads what it overwrites
    other = b.buffer(6, dt.float32, unique=2)
    assert contiguous_sources(b.assign(a, b.add(other, 1.0))) == []


def test_a_value_that_is_used_after_its_memory_changed_is_kept() -> None:
    a = b.buffer(6, dt.float32, unique=1)
    before = b.mul(a, 2.0)
    changed = b.after(a, b.store(b.after(a, before), b.expand(b.reshape(b.const(0.0), (1,)), (6,))))
    assert contiguous_sources(b.add(before, changed)) == [Op.MUL]


def test_index_operands_of_a_target_are_read_before_it_changes() -> None:
    a = b.buffer(4, dt.int32, unique=1)
    at = b.cast(a, dt.index)
    assert contiguous_sources(b.store(b.at(a, at), b.param(0, (4,), dt.int32))) == [Op.CAST]


# Rangeify


def test_an_elementwise_chain_is_one_kernel_and_a_reduce_takes_what_follows_it() -> None:
    x = b.param(0, (8, 4), dt.float32)
    assert len(kernels(b.exp2(b.mul(b.add(x, 1.0), x)))) == 1
    assert len(kernels(b.add(b.reduce(b.mul(x, x), Op.ADD, (1,)), 1.0))) == 1


def test_a_reduce_is_computed_in_the_outer_loops_of_its_consumer() -> None:
    x = b.param(0, (8, 4), dt.float32)
    rows, columns = b.reduce(x, Op.ADD, (1,)), b.reduce(x, Op.ADD, (0,))
    assert len(kernels(b.sub(x, rows))) == 1
    assert len(kernels(b.sub(x, columns))) == 2  # the rows are the outer loop


def test_a_softmax_and_a_layernorm_are_one_kernel() -> None:
    x = b.param(0, (8, 4), dt.float32)
    e = b.exp2(b.sub(x, b.reduce(x, Op.MAX, (1,))))
    assert len(kernels(b.div(e, b.reduce(e, Op.ADD, (1,))))) == 1
    d = b.sub(x, b.mul(b.reduce(x, Op.ADD, (1,)), 0.25))
    assert len(kernels(b.div(d, b.sqrt(b.reduce(b.mul(d, d), Op.ADD, (1,)))))) == 1


def test_a_float_sum_is_never_computed_by_two_kernels() -> None:
    x = b.param(0, (8, 4), dt.float32)
    total = b.reduce(x, Op.ADD, (1,))
    both = kernels(b.add(total, b.flip(total, (True, False))))
    assert [count(k, Op.REDUCE) for k in both] == [1, 0]


def test_a_cheap_value_is_computed_again_and_a_dear_one_once() -> None:
    x = b.param(0, (8,), dt.float32)
    cheap, dear = b.exp2(x), b.pow_(x, x)
    assert [count(k, Op.EXP2) for k in kernels(b.add(cheap, b.flip(cheap, (True,))))] == [2]
    long = b.param(0, (4096,), dt.float32)
    dear = b.pow_(long, long)
    assert [count(k, Op.POW) for k in kernels(b.add(dear, b.flip(dear, (True,))))] == [1, 0]


def test_a_value_is_not_computed_again_in_loops_it_does_not_depend_on() -> None:
    x, y = b.param(0, (64, 64), dt.float32), b.param(1, (64, 64), dt.float32)
    product = b.mul(b.reshape(b.exp2(x), (64, 64, 1)), b.reshape(y, (1, 64, 64)))
    assert [count(k, Op.EXP2) for k in kernels(b.reduce(product, Op.ADD, (1,)))] == [1, 0]


def test_work_does_not_double_with_every_shared_use() -> None:
    x = b.param(0, (8,), dt.float32)
    for _ in range(40):
        x = b.add(x, b.flip(x, (True,)))
    assert sum(count(k, Op.ADD) for k in kernels(x)) < 400


def test_kernels_are_flat_and_address_in_bounds_or_gated() -> None:
    x = b.param(0, (4, 6), dt.float32)
    (kernel,) = kernels(b.pad(b.shrink(b.permute(x, (1, 0)), (1, 1), (4, 2)), (2, 0), (7, 3)))
    for u in toposort(kernel.src[0]):
        if u.op is Op.PARAM:
            assert len(u.shape) == 1
        if u.op is Op.LOAD and len(u.src) == 1:
            lo, hi = u.src[0].src[1].min_max or (None, None)
            assert 0 <= lo
            assert hi < u.src[0].src[0].shape[0]
    assert any(u.op is Op.LOAD and len(u.src) == 3 for u in toposort(kernel.src[0]))


def test_a_load_that_does_not_change_with_its_gate_has_none() -> None:
    """The bias of a channel, where the pixels are padded: made once for all of them, and never outside of its memory."""
    biased = b.add(b.param(0, (3, 4), dt.float32), b.expand(b.reshape(b.param(1, (3,), dt.float32), (3, 1)), (3, 4)))
    (kernel,) = kernels(b.maximum(b.pad(biased, (0, 1), (3, 6)), 0.0))
    loads = {u.src[0].src[0].shape: u for u in toposort(kernel.src[0]) if u.op is Op.LOAD}
    assert len(loads[12,].src) == 3 and len(loads[3,].src) == 1


def test_reshapes_leave_no_division_where_axes_match() -> None:
    x = b.param(0, (4, 6, 8), dt.float32)
    (kernel,) = kernels(b.reshape(b.add(b.reshape(x, (24, 8)), 1.0), (4, 6, 8)))
    assert count(kernel, Op.IDIV) == count(kernel, Op.MOD) == 0


def test_what_is_empty_has_no_kernel() -> None:
    assert kernels(b.add(b.param(0, (0, 3), dt.float32), 1.0)) == []


def test_a_deep_chain_is_lowered_without_recursion(pyref: Any) -> None:
    x = b.param(0, (2,), dt.int32)
    for k in range(4000):
        x = UOp(Op.XOR if k % 2 else Op.ADD, (x, b.param(0, (2,), dt.int32)))
    linear = lower(x, pyref, upto="linearize", config=Config())
    assert len(linear.src[0].src[0].src) > 4000


# Expand, selection


@pytest.mark.parametrize(
    ("op", "d", "value"),
    [
        (Op.ADD, dt.float32, 0.0),
        (Op.MUL, dt.int8, 1),
        (Op.MAX, dt.int16, -(2**15)),
        (Op.MAX, dt.uint8, 0),
        (Op.MAX, dt.fp8e4m3, -448.0),
    ]
    + [(Op.MAX, dt.float64, -np.inf), (Op.ADD, dt.bool_, False), (Op.MUL, dt.bool_, True), (Op.MAX, dt.bool_, False)],
)
def test_identities_are_those_of_r32(op: Op, d: dt.DType, value: Any) -> None:
    assert reduction_identity(op, d).const == value


def test_small_floats_accumulate_in_float32_and_round_once() -> None:
    (call,) = kernels(b.reduce(b.param(0, (4,), dt.float16), Op.ADD, (0,)))
    done = lower_reduces(call.src[0])
    assert count(done, Op.REDUCE) == 0
    registers = [u for u in toposort(done) if u.op is Op.BUFFER]
    assert [(r.arg.addrspace, r.dtype) for r in registers] == [(AddrSpace.REG, dt.float32)]
    assert sum(u.op is Op.CAST and u.dtype is dt.float16 for u in toposort(done)) == 1


def stored(value: UOp) -> UOp:
    return b.sink(b.store(b.at(b.param(0, (1,), dt.int64), 0), b.cast(value, dt.int64)), name="k")


@pytest.mark.parametrize(("high", "width"), [(2**31 - 1, dt.int32), (2**31, dt.int64), (2**63 - 1, dt.int64)])
def test_index_values_get_the_narrowest_width_that_is_proved(high: int, width: dt.DType) -> None:
    body = lower_index_arithmetic(stored(b.variable("n", 0, high, slot=1)))
    casts = [u.dtype for u in toposort(body) if u.op is Op.CAST and u.src[0].op is Op.PARAM]
    assert casts == [width]


def test_an_index_value_that_no_width_holds_cannot_be_compiled() -> None:
    n = b.variable("n", 0, 2**62, slot=1)
    with pytest.raises(CompileError, match=r"R08 .* which int64 does not hold"):
        lower_index_arithmetic(stored(b.mul(n, 4)))


def test_threefry_gives_the_published_vectors() -> None:
    vectors = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    for counter, key, wanted in vectors:
        words = [b.const(low | high << 32, dt.uint64) for low, high in (counter, key)]
        got = Rewriter(VALUES)(decompose_threefry(UOp(Op.THREEFRY, tuple(words)))).const
        assert (got & 0xFFFFFFFF, got >> 32) == wanted


# Linearize


def order_of(graph: UOp, pyref: Any) -> tuple[UOp, ...]:
    (call,) = lower(graph, pyref, upto="linearize", config=VERIFY).src
    return call.src[0].src


def test_what_a_loop_does_not_change_stands_before_it(pyref: Any) -> None:
    x, y = b.param(0, (8,), dt.float32), b.param(1, (1,), dt.float32)
    found = order_of(b.add(x, b.sqrt(y)), pyref)
    at = {u.op: k for k, u in enumerate(found)}
    assert at[Op.SQRT] < at[Op.RANGE] < at[Op.ADD] < at[Op.END]


def test_loops_of_two_reduces_follow_each_other_inside_the_outer_one(pyref: Any) -> None:
    x = b.param(0, (3, 4), dt.float32)
    found = order_of(b.mul(b.reduce(x, Op.ADD, (1,)), b.reduce(x, Op.MAX, (1,))), pyref)
    assert [u.op for u in found if u.op in (Op.RANGE, Op.END)] == [Op.RANGE, Op.RANGE, Op.END, Op.RANGE, Op.END, Op.END]


def test_a_reduce_that_one_outer_loop_does_not_change_still_nests(pyref: Any) -> None:
    x, y = b.param(0, (3, 2, 4), dt.float32), b.param(1, (2, 5), dt.float32)
    both = b.mul(b.reshape(b.reduce(x, Op.ADD, (2,)), (3, 2)), b.expand(b.reshape(b.reduce(y, Op.MAX, (1,)), (1, 2)), (3, 2)))
    lower(both, pyref, upto="linearize", config=VERIFY)


def test_loops_that_cross_are_refused() -> None:
    p0 = b.param(0, (64,), dt.int32)
    r, s = b.range_(4, 0), b.range_(4, 1)
    value = UOp(Op.ADD, (r, UOp(Op.MUL, (s, index_constant(4)))))
    one = b.end(b.store(b.at(p0, value), b.const(1)), r)
    two = b.end(b.store(b.at(p0, UOp(Op.ADD, (value, index_constant(16)))), b.const(1)), s)
    with pytest.raises(CompileError, match="nest"):
        order_instructions(b.sink(one, two, name="k"))


# Plan


def chain(pyref: Any, length: int) -> tuple[UOp, UOp]:
    x: UOp = b.param(0, (100,), dt.float32)
    for _ in range(length):
        x = b.contiguous(b.add(x, 1.0))
    return lower(x, pyref, upto="linearize", config=VERIFY), callify(x)


def test_intermediates_share_bytes_when_their_lives_do_not_meet(pyref: Any) -> None:
    linear, called = chain(pyref, 8)
    planned = place_intermediates_in_arenas_per_device(linear, called.src[1:])
    arenas = {u for u in toposort(planned) if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.GLOBAL} - set(called.src)
    (arena,) = arenas
    assert arena.arg.size == 2 * (-(-400 // ALIGNMENT) * ALIGNMENT)


def test_no_two_live_intermediates_overlap(pyref: Any) -> None:
    x = b.param(0, (10,), dt.float32)
    parts = [b.contiguous(b.mul(x, float(k))) for k in range(6)]
    total = parts[0]
    for k, part in enumerate(parts[1:]):
        total = b.contiguous(b.add(total, b.flip(part, (k % 2 == 0,))))
    linear, external = lower(total, pyref, upto="linearize", config=VERIFY), callify(total).src[1:]
    lives = find_live_ranges(linear, external)
    planned = place_intermediates_in_arenas_per_device(linear, external)
    offset = {}
    for before, after in zip(linear.src, planned.src):
        offset.update({old: new.src[1].const for old, new in zip(before.src[1:], after.src[1:]) if new.op is Op.SLICE})
    assert len(lives) > 6
    for one in lives:
        assert offset[one.buffer] % ALIGNMENT == 0
        for other in lives:
            if one is not other and one.first <= other.last and other.first <= one.last:
                assert abs(offset[one.buffer] - offset[other.buffer]) >= 40


class Watched(LiveRange):
    """Counts how often anything of it is read."""

    reads = 0

    def __getattribute__(self, name: str) -> Any:
        Watched.reads += 1
        return super().__getattribute__(name)


def test_an_intermediate_is_compared_with_those_that_live_when_it_is_born(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(lives: int) -> int:
        monkeypatch.setattr(Watched, "reads", 0)
        chain = [Watched(b.buffer(100, dt.float32, unique=k), k, k + 1) for k in range(lives)]
        assert assign_offsets_and_get_arena_bytes(chain) == 2 * (-(-400 // ALIGNMENT) * ALIGNMENT)
        return Watched.reads

    assert reads(400) < 5 * reads(100)


def test_memory_that_the_caller_sees_keeps_its_place(pyref: Any) -> None:
    a = b.buffer(6, dt.float32, unique=1)
    graph = b.assign(a, b.flip(a, (True,)))
    planned = lower(graph, pyref, upto="plan", config=VERIFY)
    assert {u.arg.unique for u in toposort(planned) if u.op is Op.BUFFER} >= {1, outputs(graph)[0].buffer.arg.unique}


def test_an_output_shares_its_number_with_no_buffer_of_the_graph() -> None:
    unused = b.buffer(4, dt.float32, unique=7)
    body = b.tuple_(b.param(0, (4,), dt.float32), b.param(1, (4,), dt.float32))
    root = b.get(b.function(body, b.buffer(4, dt.float32, unique=1), unused), 0)
    assert outputs(root)[0].buffer.arg.unique == 8
