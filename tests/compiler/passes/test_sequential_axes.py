"""Loops that run in order: which ones, and that everything else stays as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_judge import judge

import uops
from uops.backends.arrays import STORAGE
from uops.compiler.passes.sequential_axes import (
    lower_small_float_atomics_in_sequential_list,
    serialize_axes_and_atomics_that_targets_lack,
)
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse


def p(slot: int, n: int, d: DType = dt.int32) -> UOp:
    return b.param(slot, (n,), d)


def add_one(target: UOp, to: UOp | int) -> UOp:
    return UOp(Op.ATOMICADD, (b.at(target, to), b.const(1, target.dtype)))


def types(body: UOp) -> list[AxisType]:
    return [u.arg.type for u in nodes_with_op(serialize_axes_and_atomics_that_targets_lack(body), Op.RANGE)]


def test_a_kernel_whose_loops_all_have_forms_is_the_same_node() -> None:
    i, u = b.range_(4, 0, AxisType.GLOBAL), b.range_(4, 1, AxisType.UPCAST)
    body = b.sink(b.end(b.store(b.at(p(0, 16), b.add(b.mul(i, 4), u)), b.const(1)), u, i), name="k")
    assert serialize_axes_and_atomics_that_targets_lack(body) is body
    adds = b.sink(b.end(add_one(p(0, 4), i), i), name="k")
    assert serialize_axes_and_atomics_that_targets_lack(adds) is adds


@pytest.mark.parametrize(("is_beside", "kind"), [(True, AxisType.GLOBAL), (False, AxisType.LOOP)])
def test_lanes_run_in_order_if_their_memory_is_written_outside_of_them_but_not_beside_them(is_beside: bool, kind: AxisType) -> None:
    """Loops side by side, of which one reads what the other writes, stay."""
    i, j = b.range_(8, 0, AxisType.GLOBAL), b.range_(8, 1, AxisType.GLOBAL)
    written, copy = p(0, 8), p(1, 8)
    first = b.end(b.store(b.at(written, i), b.const(7)), i) if is_beside else b.store(b.at(written, 0), b.const(7))
    second = b.end(b.store(b.at(copy, j), b.load(b.at(b.after(written, first), b.sub(7, j)))), j)
    body = b.sink(second, name="k")
    body = body.replace(arg=replace(body.arg, scheduled=True))
    assert set(types(body)) == {kind}
    memory = [b.buffer(8, dt.int32, unique=k) for k in (0, 1)]
    launch = UOp(Op.LINEAR, (b.call(body, *memory, written=(0, 1)),))
    judge(launch, {"b0": np.arange(8, dtype=np.int32), "b1": np.zeros(8, np.int32)})


@pytest.mark.parametrize("is_upcast_beside_a_sum", [False, True])
@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
def test_loops_that_run_in_order_nest_as_before(ids: tuple[int, int], is_upcast_beside_a_sum: bool) -> None:
    """In each round a lane reads what its neighbour wrote in the round before. One End closes both loops."""
    rounds = b.range_(3, ids[0], AxisType.LOOP)
    lane = b.range_(4, ids[1], AxisType.UPCAST if is_upcast_beside_a_sum else AxisType.LOCAL)
    memory = p(0, 16)
    here = b.after(memory, rounds, lane)
    seen = b.load(b.at(here, b.add(b.mul(rounds, 4), b.mod(b.add(lane, 1), 4))))
    done = b.end(b.store(b.at(here, b.add(b.mul(b.add(rounds, 1), 4), lane)), b.add(seen, 1)), rounds, lane)
    other = add_one(p(1, 1), 0) if is_upcast_beside_a_sum else b.store(b.at(b.after(memory, done), 0), b.const(0))
    counter = {"p1": np.zeros(1, np.int32)} if is_upcast_beside_a_sum else {}
    judge(b.sink(done, other, name="k"), {"p0": np.arange(16, dtype=np.int32), **counter})


@pytest.mark.parametrize("bound", [0, -2, b.variable("n", 0, 4, 1)], ids=["zero", "negative", "variable"])
def test_a_vector_loop_needs_a_positive_constant_bound(bound: int | UOp) -> None:
    u = b.range_(bound, 0, AxisType.UPCAST)
    assert types(b.sink(b.end(b.store(b.at(p(0, 4), u), b.const(1)), u), name="k")) == [AxisType.LOOP]
    r = b.range_(bound, 0, AxisType.UNROLL)
    total = UOp(Op.REDUCE, (b.load(b.at(p(1, 4), r)), r), ReduceArg(Op.ADD, ()))
    assert types(b.sink(b.store(b.at(p(0, 1), 0), total), name="k")) == [AxisType.REDUCE]


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        ((16, 16, 16), (AxisType.UPCAST, AxisType.UPCAST, AxisType.UNROLL)),
        ((16, 16, 17), (AxisType.UPCAST, AxisType.UPCAST, AxisType.REDUCE)),
        ((70, 60, 2), (AxisType.LOOP, AxisType.UPCAST, AxisType.UNROLL)),
    ],
    ids=["4096 copies", "unrolled first", "no more than needed"],
)
def test_vector_loops_of_over_4096_copies_run_in_order(extents: tuple[int, int, int], expected: tuple[AxisType, ...]) -> None:
    m, n, k = extents
    i, j, r = b.range_(m, 0, AxisType.UPCAST), b.range_(n, 1, AxisType.UPCAST), b.range_(k, 2, AxisType.UNROLL)
    product = b.mul(b.load(b.at(p(1, m * k), b.add(b.mul(i, k), r))), b.load(b.at(p(2, k * n), b.add(b.mul(r, n), j))))
    total = UOp(Op.REDUCE, (product, r), ReduceArg(Op.ADD, ()))
    body = b.sink(b.end(b.store(b.at(p(0, m * n), b.add(b.mul(i, n), j)), total), i, j), name="k")
    new = serialize_axes_and_atomics_that_targets_lack(body)
    assert {u.arg.axis_id: u.arg.type for u in nodes_with_op(new, Op.RANGE)} == dict(enumerate(expected))
    memory = [b.buffer(size, dt.int32, unique=k) for k, size in enumerate((m * n, m * k, k * n))]
    given = {f"b{at}": np.arange(size, dtype=np.int32) % 19 - 9 for at, size in enumerate((m * n, m * k, k * n))}
    judge(UOp(Op.LINEAR, (b.call(body, *memory, written=(0,)),)), given)


def test_an_add_happens_once_per_iteration_of_a_loop_that_it_does_not_use() -> None:
    u = b.range_(4, 0, AxisType.UPCAST)
    assert types(b.sink(b.end(add_one(p(0, 1), 0), u), name="k")) == [AxisType.LOOP]
    i = b.range_(4, 0, AxisType.GLOBAL)
    assert types(b.sink(b.end(b.group(add_one(p(0, 1, dt.int8), 0)), i), name="k")) == [AxisType.LOOP]


@pytest.mark.parametrize("d", [dt.int8, dt.uint16, dt.float16, dt.bfloat16], ids=str)
def test_loops_around_a_narrow_sum_run_in_order(d: DType) -> None:
    i, j = b.range_(2, 0, AxisType.GLOBAL), b.range_(3, 1, AxisType.LOCAL)
    body = b.sink(b.end(b.end(add_one(p(0, 2, d), i), j), i), name="k")
    assert types(body) == [AxisType.LOOP, AxisType.LOOP]
    sequential = serialize_axes_and_atomics_that_targets_lack(body)
    assert bool(nodes_with_op(sequential, Op.ATOMICADD)) == (not d.is_float)


def test_a_small_sum_reads_in_every_iteration_and_waits_for_the_one_before() -> None:
    i, memory = b.range_(3, 0), p(0, 2, dt.bfloat16)
    body = b.sink(b.end(b.group(add_one(memory, 0), add_one(memory, 1)), i), name="k")
    new = serialize_axes_and_atomics_that_targets_lack(body)
    first, second = nodes_with_op(new, Op.STORE)
    for store in (first, second):
        assert any(u.buffer is store.buffer for u in nodes_with_op(store.value, Op.LOAD))
        assert i in store.buffer.src[0].dependencies
    assert first in second.buffer.src[0].dependencies


def test_small_sums_of_one_memory_in_different_loops_are_refused() -> None:
    i, memory = b.range_(3, 0), p(0, 2, dt.bfloat16)
    body = b.sink(b.end(add_one(memory, 0), i), add_one(memory, 1), name="k")
    with pytest.raises(CompileError, match=r"several sums of bfloat16 to one memory stand in different loops"):
        serialize_axes_and_atomics_that_targets_lack(body)


def test_three_small_sums_of_one_memory_take_turns():
    p, r = b.param(0, (1,), dt.float16), b.range_(4, 0)
    addends = [b.add(b.cast(r, dt.float16), k) for k in range(3)]
    sums = b.group(*[UOp(Op.ATOMICADD, (b.at(p, 0), x)) for x in addends])
    body = serialize_axes_and_atomics_that_targets_lack(b.sink(b.end(sums, r), name="k"))
    stores = nodes_with_op(body, Op.STORE)
    waits = {s: [d for d in s.buffer.operand.dependencies if d.op is Op.STORE] for s in stores}
    assert sorted(len(w) for w in waits.values()) == [0, 1, 1]
    assert len({w for ws in waits.values() for w in ws}) == 2
    x = {"p0": np.zeros(1, np.float16)}
    assert uops.compile(b.sink(b.end(sums, r), name="k"), "llvm")(x).buffers["p0"].tolist() == [30.0]


#: Each iteration adds its number, and one more in the first two, to one element that it has read before.
LISTED = """
%0 = param (8), slot=0 : f16
%1 = range 8, axis_id=0, type={kind}
%2 = const 0 : index
%3 = index %0, %2
%4 = load %3
%5 = cast %1 : f16
%6 = atomicadd %3, %5
%7 = const 2 : index
%8 = cmplt %1, %7
%9 = if %8
%10 = const 1 : f16
%11 = atomicadd %3, %10
%12 = endif %9
%13 = param (8), slot=1 : f16
%14 = index %13, %1
%15 = store %14, %4
%16 = end %15, %1
%17 = linear %0, %13, %1, %3, %4, %5, %6, %8, %9, %11, %12, %14, %15, %16
%18 = buffer size=8, device="CPU", addrspace=global, unique=1 : f16
%19 = buffer size=8, device="CPU", addrspace=global, unique=2 : f16
%20 = call %17, %18, %19, written=[0, 1]
%21 = linear %20
"""


def test_small_sums_of_a_list_are_stored_in_its_order() -> None:
    graph = parse(LISTED.format(kind="loop"))
    given = {"b1": np.array([5] + 7 * [9], np.float16), "b2": np.zeros(8, np.float16)}
    found = judge(graph, given)
    assert found["b1"].tolist() == [5 + 28 + 2] + 7 * [9]
    assert found["b2"].tolist() == [5, 6, 8, 10, 13, 17, 22, 28]


@pytest.mark.parametrize("positions", ["(1, 1, 3)", "(1, 2, 3)"])
@pytest.mark.parametrize("d", ["f16", "bf16", "f32", "i32", "u8"])
def test_a_vector_that_names_an_element_twice_adds_twice(d: str, positions: str) -> None:
    graph = parse(f"""
%0 = param (4), slot=0 : {d}
%1 = index %0, {positions}
%2 = const 1 : {d}
%3 = const 2 : {d}
%4 = stack %2, %3, %2
%5 = atomicadd %1, %4
%6 = linear %0, %1, %2, %3, %4, %5
%7 = buffer size=4, device="CPU", addrspace=global, unique=1 : {d}
%8 = call %6, %7, written=[0]
%9 = linear %8
""")
    given = {"b1": np.array([5, 1, 7, 9], STORAGE[graph.src[0].arguments[0].dtype])}
    assert judge(graph, given)["b1"].tolist() == ([5, 4, 7, 10] if positions == "(1, 1, 3)" else [5, 2, 9, 10])


def test_small_sums_of_a_list_that_threads_share_are_refused() -> None:
    list_of_threads = parse(LISTED.format(kind="thread")).src[0].body
    assert lower_small_float_atomics_in_sequential_list(list_of_threads) is list_of_threads
