"""Accesses of kernels written by hand run in their loops, however their positions simplify."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.backends.registry import create_backend
from uops.compiler import Config, compile
from uops.compiler.ir.iterations import make_accesses_depend_on_loops_and_retype_unrolled_ranges
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg, SinkArg, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op

I32 = dt.int32
FRESH = Config(verify=True, reuse=False)


def p(slot: int, n: int) -> UOp:
    return b.param(slot, (n,), I32)


def kernel(*effects: UOp) -> UOp:
    return UOp(Op.SINK, effects, SinkArg("k", scheduled=True))


def agree(body: UOp, *arguments: UOp, inputs: dict[str, Any]) -> Any:
    """The first argument after a Call in the interpreter, and on both CPU targets."""
    graph = b.after(arguments[0], b.call(body, *arguments, written=(0,)))
    expected = run(graph, inputs).values[0]
    for name, options in (("c", {}), ("llvm", {"tier": "fast"})):
        got = compile(graph, create_backend(name, **options).target, FRESH)(inputs).values[0]
        np.testing.assert_array_equal(got, expected, name)
    return expected.tolist()


def doubled(r: UOp) -> UOp:
    """Double one element per iteration, at a position that is 0 in each."""
    element = b.at(p(0, 1), b.mod(r, 1))
    return b.end(b.store(element, b.add(b.load(element), b.load(element))), r)


X = b.buffer(1, I32, unique=1)


@pytest.mark.parametrize(("bound", "expected"), [(-1, 3), (0, 3), (1, 6), (3, 24)])
def test_an_element_is_updated_once_per_iteration(bound: int, expected: int) -> None:
    assert agree(kernel(doubled(b.range_(bound, 0))), X, inputs={"b1": np.array([3], np.int32)}) == [expected]


@pytest.mark.parametrize("n", [-2, 0, 2])
def test_a_store_in_a_loop_of_n_iterations_runs_n_times(n: int) -> None:
    r = b.range_(b.variable("n", -2, 4, slot=1), 0)
    body = kernel(b.end(b.store(b.at(p(0, 1), b.mod(r, 1)), b.const(9, I32)), r))
    assert agree(body, X, b.variable("n", -2, 4), inputs={"b1": np.array([3], np.int32), "n": n}) == [9 if n > 0 else 3]


@pytest.mark.parametrize("kind", [AxisType.UPCAST, AxisType.LOOP, AxisType.GLOBAL, AxisType.LOCAL, AxisType.WARP])
def test_every_iteration_adds_atomically(kind: AxisType) -> None:
    r = b.range_(4, 0, kind)
    add = UOp(Op.ATOMICADD, (b.at(p(0, 1), b.mod(r, 1)), b.const(2, I32)))
    assert agree(kernel(b.end(add, r)), X, inputs={"b1": np.array([1], np.int32)}) == [9]


def test_every_lane_of_every_workgroup_adds_atomically() -> None:
    lane, group = (UOp(Op.SPECIAL, (b.index(n),), SpecialArg(name)) for name, n in (("lidx0", 2), ("gidx0", 3)))
    add = UOp(Op.ATOMICADD, (b.at(p(0, 1), b.mod(b.add(lane, group), 1)), b.const(2, I32)))
    assert agree(kernel(add), X, inputs={"b1": np.array([1], np.int32)}) == [13]


@pytest.mark.parametrize("kind", [AxisType.UPCAST, AxisType.UNROLL])
@pytest.mark.parametrize("extent", [-1, 0, 2])
def test_a_vector_axis_of_any_extent_is_compiled(kind: AxisType, extent: int) -> None:
    r, i = b.range_(extent, 1, kind), b.range_(2, 0)
    total = UOp(Op.REDUCE, (b.load(b.at(p(1, 4), b.add(i, r))), r), ReduceArg(Op.ADD))
    body = kernel(b.end(b.store(b.at(p(0, 2), i), total), i))
    inputs = {"b1": np.zeros(2, np.int32), "p0": np.arange(4, dtype=np.int32)}
    assert agree(body, b.buffer(2, I32, unique=1), p(0, 4), inputs=inputs) == ([1, 3] if extent == 2 else [0, 0])


def test_the_bound_of_a_loop_may_be_a_vector_axis() -> None:
    i = b.range_(3, 0, AxisType.UPCAST)
    j = b.range_(i, 1, AxisType.REDUCE)
    total = UOp(Op.REDUCE, (b.load(b.at(p(1, 4), j)), j), ReduceArg(Op.ADD))
    inputs = {"b1": np.zeros(3, np.int32), "p0": np.arange(1, 5, dtype=np.int32)}
    body = kernel(b.end(b.store(b.at(p(0, 3), i), total), i))
    assert agree(body, b.buffer(3, I32, unique=1), p(0, 4), inputs=inputs) == [0, 1, 3]


def test_memory_that_is_only_read_may_be_read_outside_of_loops_that_run() -> None:
    r = b.range_(3, 0)
    read = b.load(b.at(p(1, 1), 0))
    bound = make_accesses_depend_on_loops_and_retype_unrolled_ranges(kernel(b.end(b.store(b.at(p(0, 3), r), read), r)))
    assert read in toposort(bound)


def test_a_load_of_a_loop_that_may_not_run_comes_after_the_loop():
    out, p, r = b.param(0, (4,), dt.int32), b.param(1, (4,), dt.int32), b.range_(b.variable("n", 0, 3, slot=2), 0)
    always_three = b.add(b.mod(r, 1), 3)
    body = b.sink(b.end(b.store(b.at(out, r), b.load(b.at(p, always_three))), r), name="k")
    (load,) = nodes_with_op(make_accesses_depend_on_loops_and_retype_unrolled_ranges(body), Op.LOAD)
    assert load.buffer.op is Op.AFTER and load.buffer.dependencies == (r,)
