"""Loops that run in order: which ones, and that everything else stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

import uops
from uops.compiler.passes.sequential_axes import make_unparallelizable_axes_sequential
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op


def p(slot: int, n: int, d: DType = dt.int32) -> UOp:
    return b.param(slot, (n,), d)


def add_one(target: UOp, to: UOp | int) -> UOp:
    return UOp(Op.ATOMICADD, (b.at(target, to), b.const(1, target.dtype)))


def types(body: UOp) -> list[AxisType]:
    return [u.arg.type for u in nodes_with_op(make_unparallelizable_axes_sequential(body), Op.RANGE)]


def test_a_kernel_whose_loops_all_have_forms_is_the_same_node() -> None:
    i, u = b.range_(4, 0, AxisType.GLOBAL), b.range_(4, 1, AxisType.UPCAST)
    body = b.sink(b.end(b.store(b.at(p(0, 16), b.add(b.mul(i, 4), u)), b.const(1)), u, i), name="k")
    assert make_unparallelizable_axes_sequential(body) is body
    adds = b.sink(b.end(add_one(p(0, 4), i), i), name="k")
    assert make_unparallelizable_axes_sequential(adds) is adds


@pytest.mark.parametrize("bound", [0, -2, b.variable("n", 0, 4, 1)], ids=["zero", "negative", "variable"])
def test_a_vector_loop_needs_a_positive_constant_bound(bound: int | UOp) -> None:
    u = b.range_(bound, 0, AxisType.UPCAST)
    assert types(b.sink(b.end(b.store(b.at(p(0, 4), u), b.const(1)), u), name="k")) == [AxisType.LOOP]
    r = b.range_(bound, 0, AxisType.UNROLL)
    total = UOp(Op.REDUCE, (b.load(b.at(p(1, 4), r)), r), ReduceArg(Op.ADD, ()))
    assert types(b.sink(b.store(b.at(p(0, 1), 0), total), name="k")) == [AxisType.REDUCE]


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
    sequential = make_unparallelizable_axes_sequential(body)
    assert bool(nodes_with_op(sequential, Op.ATOMICADD)) == (not d.is_float)


def test_a_small_sum_reads_in_every_iteration_and_waits_for_the_one_before() -> None:
    i, memory = b.range_(3, 0), p(0, 2, dt.bfloat16)
    body = b.sink(b.end(b.group(add_one(memory, 0), add_one(memory, 1)), i), name="k")
    new = make_unparallelizable_axes_sequential(body)
    first, second = nodes_with_op(new, Op.STORE)
    for store in (first, second):
        assert any(u.buffer is store.buffer for u in nodes_with_op(store.value, Op.LOAD))
        assert i in store.buffer.src[0].dependencies
    assert first in second.buffer.src[0].dependencies


def test_small_sums_of_one_memory_in_different_loops_are_refused() -> None:
    i, memory = b.range_(3, 0), p(0, 2, dt.bfloat16)
    body = b.sink(b.end(add_one(memory, 0), i), add_one(memory, 1), name="k")
    with pytest.raises(CompileError, match=r"several sums of bfloat16 to one memory stand in different loops"):
        make_unparallelizable_axes_sequential(body)


def test_three_small_sums_of_one_memory_take_turns():
    p, r = b.param(0, (1,), dt.float16), b.range_(4, 0)
    addends = [b.add(b.cast(r, dt.float16), k) for k in range(3)]
    sums = b.group(*[UOp(Op.ATOMICADD, (b.at(p, 0), x)) for x in addends])
    body = make_unparallelizable_axes_sequential(b.sink(b.end(sums, r), name="k"))
    stores = nodes_with_op(body, Op.STORE)
    waits = {s: [d for d in s.buffer.operand.dependencies if d.op is Op.STORE] for s in stores}
    assert sorted(len(w) for w in waits.values()) == [0, 1, 1]
    assert len({w for ws in waits.values() for w in ws}) == 2
    x = {"p0": np.zeros(1, np.float16)}
    assert uops.compile(b.sink(b.end(sums, r), name="k"), "llvm")(x).buffers["p0"].tolist() == [30.0]
