"""Expand: which axes a value gets, in which order, and what is refused."""

import pytest
from schedules import LOOP, REDUCE, UNROLL, UPCAST, nested, scheduled, split

from uops.compiler.passes.expand import expand
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions as c
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

F32 = dt.float32


def p(slot: int, *shape: int) -> UOp:
    return b.param(slot, shape, F32)


def expanded(body: UOp, *sizes: int) -> list[UOp]:
    """The nodes of a kernel over Params of these sizes, after Expand, judged before and after."""
    arguments = [b.buffer(n, F32, unique=100 + k) for k, n in enumerate(sizes)]
    root = UOp(Op.LINEAR, (b.call(body, *arguments),))
    verify(root, Dialect.SCHEDULED)
    root = expand(root)
    verify(root, Dialect.EXPANDED)
    return toposort(root.src[0].src[0])


def nodes(root: UOp, op: Op) -> list[UOp]:
    return [u for u in toposort(root) if u.op is op]


def test_a_kernel_without_vector_axes_stays_as_it_is() -> None:
    root = scheduled(b.add(p(0, 8), p(1, 8)))
    assert expand(root) is root


def test_axes_are_ordered_by_type_then_id() -> None:
    """An UNROLL axis stands after an UPCAST axis with a higher id."""
    j, i = b.range_(3, 1, UNROLL), b.range_(4, 2, UPCAST)
    value = b.load(b.at(p(1, 12), b.add(b.mul(j, 4), i)))
    body = b.sink(b.end(b.store(b.at(p(0, 12), b.add(b.mul(i, 3), j)), value), i, j), name="k")
    order = expanded(body, 12, 12)
    assert [u.shape for u in order if u.op is Op.RESHAPE and u.src[0].op is Op.LOAD] == [(4, 3)]
    assert not [u for u in order if u.op in (Op.RANGE, Op.END)]


def test_a_value_has_the_axes_that_it_depends_on_and_no_other() -> None:
    root = scheduled(c.gemm(p(0, 4, 8), p(1, 8, 16)), split(0, 2, UPCAST), split(1, 16, UPCAST), nested(0))
    found = expand(root)
    assert sorted(u.shape for u in nodes(found, Op.LOAD)) == [(2,), (16,)]
    assert [u.shape for u in nodes(found, Op.REDUCE)] == [(2, 16)]
    assert [u.src[0].shape for u in nodes(found, Op.STORE)] == [(32,)]


def test_a_reduce_over_loops_and_lanes_reduces_the_loops_outside() -> None:
    found = expand(scheduled(b.reduce(p(0, 3, 32), Op.ADD, (1,)), split(1, 8, UNROLL)))
    inner, outer = nodes(found, Op.REDUCE)
    assert inner.arg.axes == (0,) and inner.shape == (1,) and len(inner.src) == 1
    assert outer.arg.axes == () and outer.shape == () and len(outer.src) == 2


def test_a_reduce_over_lanes_alone_has_no_loop() -> None:
    found = expand(scheduled(b.reduce(p(0, 3, 8), Op.ADD, (1,)), split(1, 8, UNROLL)))
    assert [u.arg.axes for u in nodes(found, Op.REDUCE)] == [(0,)]


def test_a_value_that_a_reduced_axis_does_not_change_counts_once_per_lane() -> None:
    i, k = b.range_(4, 0), b.range_(8, 1, UNROLL)
    total = UOp(Op.REDUCE, (b.load(b.at(p(1, 4), i)), k), ReduceArg(Op.ADD))
    order = expanded(b.sink(b.end(b.store(b.at(p(0, 4), i), total), i), name="k"), 4, 4)
    assert [u.src[0].shape for u in order if u.op is Op.REDUCE] == [(8,)]


def test_a_gate_with_more_axes_than_the_address_gives_all_operands_its_axes() -> None:
    i, u = b.range_(4, 0), b.range_(8, 1, UPCAST)
    gate = b.lt(b.add(i, u), 6)
    value = b.load(b.at(p(1, 4), i), b.const(0.0), gate)
    order = expanded(b.sink(b.end(b.store(b.at(p(0, 32), b.add(b.mul(i, 8), u)), value), i, u), name="k"), 32, 4)
    loads = [x for x in order if x.op is Op.LOAD]
    assert [[s.shape for s in x.src] for x in loads] == [[(8,), (8,), (8,)]]


def test_a_gate_without_lanes_stays_a_scalar() -> None:
    i, u = b.range_(4, 0), b.range_(8, 1, UPCAST)
    place = b.add(b.mul(i, 8), u)
    value = b.load(b.at(p(1, 32), place), b.const(0.0), b.lt(i, 3))
    order = expanded(b.sink(b.end(b.store(b.at(p(0, 32), place), value, b.lt(i, 3)), i, u), name="k"), 32, 32)
    assert all(x.src[2].shape == () for x in order if x.op in (Op.LOAD, Op.STORE))


def test_local_memory_and_order_keep_their_edges() -> None:
    i, u, v = b.range_(4, 0), b.range_(8, 1, UPCAST), b.range_(8, 2, UPCAST)
    local = b.buffer(8, F32, addrspace=AddrSpace.LOCAL, unique=1)
    filled = b.end(b.store(b.at(b.after(local, i), u), b.load(b.at(p(1, 32), b.add(b.mul(i, 8), u)))), u)
    value = b.load(b.at(b.after(local, filled), v))
    order = expanded(b.sink(b.end(b.store(b.at(p(0, 32), b.add(b.mul(i, 8), v)), value), i, v), name="k"), 32, 32)
    stores = [x for x in order if x.op is Op.STORE]
    after = [x for x in order if x.op is Op.AFTER and stores[0] in x.src]
    assert len(stores) == 2 and len(after) == 1 and [x.op for x in order if x.op is Op.END] == [Op.END]


def test_every_end_closes_one_loop() -> None:
    root = scheduled(c.gemm(p(0, 8, 16), p(1, 16, 32)), split(0, 2, LOOP), split(1, 16, UPCAST), split(2, 4, REDUCE))
    assert any(len(u.src) > 2 for u in nodes(root, Op.END))
    assert all(len(u.src) == 2 for u in nodes(expand(root), Op.END))


def loops_outermost_first(body: UOp) -> list[int]:
    """The axis ids of the Ends around a kernel's one Store, from the outermost to the innermost."""
    (effect,), ids = expand(UOp(Op.LINEAR, (b.call(body),))).src[0].src[0].src, []
    while effect.op is Op.END:
        ids.append(effect.ranges[0].arg.axis_id)
        effect = effect.body
    return ids


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("outer", [0, 1])
def test_loops_of_one_end_nest_by_their_ids_however_they_are_listed(outer: int, flipped: bool) -> None:
    """R109: the last iteration to store an element decides what stays, so the order of LOOPs can be seen."""
    i, j = b.range_(4, outer), b.range_(4, 1 - outer)
    store = b.store(b.at(p(0, 7), b.add(i, j)), b.cast(b.add(b.mul(i, 10), j), F32))
    assert loops_outermost_first(b.sink(b.end(store, *((j, i) if flipped else (i, j))), name="k")) == [0, 1]


@pytest.mark.parametrize("outer", [0, 1])
def test_a_loop_stands_inside_of_those_that_its_bound_depends_on(outer: int) -> None:
    i = b.range_(4, outer)
    j = b.range_(b.add(i, 1), 1 - outer)
    store = b.store(b.at(p(0, 16), b.add(b.mul(i, 4), j)), b.const(1.0))
    assert loops_outermost_first(b.sink(b.end(store, j, i), name="k")) == [outer, 1 - outer]


@pytest.mark.parametrize("bound", [b.variable("n", -1, 9, 1), 0, -3], ids=["variable", "zero", "negative"])
def test_a_vector_loop_without_a_positive_constant_extent_runs_in_order(bound: UOp | int) -> None:
    r = b.range_(bound, 0, AxisType.UPCAST)
    body = b.sink(b.end(b.store(b.at(p(0, 9), r), b.const(1.0)), r), name="k")
    (left,) = nodes(expand(UOp(Op.LINEAR, (b.call(body),))), Op.RANGE)
    assert left.arg.type is AxisType.LOOP and left.bound is r.bound


def test_a_bound_that_depends_on_a_lane_is_refused() -> None:
    u = b.range_(4, 0, UPCAST)
    r = b.range_(b.add(u, 1), 1)
    body = b.sink(b.end(b.store(b.at(p(0, 16), b.add(b.mul(u, 4), r)), b.const(1.0)), u, r), name="k")
    with pytest.raises(CompileError, match="its bound depends on a vector axis"):
        expand(UOp(Op.LINEAR, (b.call(body),)))


def test_an_elementwise_op_takes_a_scalar_beside_its_lanes_as_it_is() -> None:
    """R162: what lanes do not change, a constant or a computed value, is not expanded."""
    i = b.range_(4, 0, UPCAST)
    scalar = b.add(b.load(b.at(p(1, 2), 1)), 2.0)
    value = b.mul(b.add(b.load(b.at(p(2, 4), i)), 1.0), scalar)
    order = expanded(b.sink(b.end(b.store(b.at(p(0, 4), i), value), i), name="k"), 4, 2, 4)
    assert not [u for u in order if u.op in (Op.EXPAND, Op.RESHAPE)]
    assert [(u.op, u.shape, [s.shape for s in u.src]) for u in order if u.shape == (4,) and u.op in (Op.ADD, Op.MUL)] == [
        (Op.ADD, (4,), [(4,), ()]),
        (Op.MUL, (4,), [(4,), ()]),
    ]
