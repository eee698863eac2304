"""What is read in a loop is not read where the loop runs no iteration, although the place may be known outside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.compiler.ir.zero_trip import _lower_bound_of_affine_sum, gate_loads_of_zero_trip_loops, infer_valid_element_count_by_param
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.expand import expand
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import close_output_loops_into_sink, create_initial_schedule
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import Split
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

N = b.variable("n", 0, 1)
M = b.variable("m", 0, 2)


def _repeated(x: UOp, times: int) -> UOp:
    """Each element of a vector of n elements that often."""
    n = x.shape[0]
    return b.reshape(b.expand(b.reshape(x, (n, 1)), (n, times)), (b.mul(n, times),))


def _x(*shape: Any) -> UOp:
    return b.param(0, shape, dt.float32)


def _gates(launch: UOp) -> list[UOp]:
    return [u.src[2] for u in nodes_with_op(launch, Op.LOAD) if len(u.src) == 3]


def _agrees(graph: UOp, launch: UOp, dialect: Dialect) -> None:
    """For each n the launch leaves what the program gives; a place that is not there would be a Trap."""
    verify(launch, dialect)
    output = launch.src[-1].src[1]
    (variable,) = [u.arg for u in nodes_with_op(graph, Op.PARAM) if u.arg.name]
    for n in range(variable.bounds[1] + 1):
        shape = [k if isinstance(k, int) else n for k in nodes_with_op(graph, Op.PARAM)[-1].shape]
        given = {variable.name: n, "p0": np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)}
        (want,) = run(graph, given).values
        found = run(launch, given).buffers.get(f"b{output.arg.unique}", np.empty(0))  # which is written where there is anything
        assert found[: want.size].tolist() == want.reshape(-1).tolist()


@pytest.mark.parametrize(
    "graph", [b.sqrt(_repeated(_x(N), 3)), b.reduce(_repeated(_x(N), 3), Op.ADD, (0,))], ids=["loop", "reduce"]
)
def test_a_place_that_depends_on_no_loop_is_gated_by_those_that_may_not_run(graph: UOp) -> None:
    launch = rangeify(callify(graph))
    assert len(_gates(launch)) == 1
    _agrees(graph, launch, Dialect.KERNEL)


def _buffered(x: UOp) -> UOp:
    """The value through a Buffer of 2 elements, of which it fills those that it has."""
    buffer = b.buffer(2, dt.float32, unique=7)
    written = b.after(buffer, b.store(b.shrink(buffer, (0,), x.shape), x))
    return b.shrink(written, (0,), x.shape)


@pytest.mark.parametrize("kept", [b.contiguous, _buffered], ids=["of the compiler", "of the program"])
@pytest.mark.parametrize("end", [b.sqrt, lambda x: b.reduce(x, Op.ADD, (0,))], ids=["loop", "reduce"])
def test_memory_that_a_value_fills_in_part_is_read_where_a_loop_runs(kept: Callable[[UOp], UOp], end: Callable[[UOp], UOp]) -> None:
    """There is an element in memory of the greatest extent, but where n is 0 nobody wrote it (R61)."""
    graph = end(_repeated(kept(_x(N)), 3))
    launch = rangeify(callify(graph))
    assert len(_gates(launch.src[-1].src[0])) == 1
    _agrees(graph, launch, Dialect.KERNEL)


def test_a_lane_that_reads_memory_filled_in_part_is_gated() -> None:
    """As below, but the memory has an element of the first lane, whatever m is."""
    x = b.reshape(_repeated(b.contiguous(_x(M)), 2), (2, M))
    graph = b.reduce(x, Op.ADD, (0, 1))
    launch = rangeify(callify(graph))
    assert not _gates(launch)
    s = create_initial_schedule(launch.src[1].src[0])
    assert s is not None
    made = close_output_loops_into_sink(apply(s, Split(0, 2, AxisType.UNROLL)))
    scheduled = launch.replace(src=(launch.src[0], launch.src[1].replace(src=(made, *launch.src[1].src[1:]))))
    assert len(_gates(scheduled)) == 1
    _agrees(graph, scheduled, Dialect.SCHEDULED)
    _agrees(graph, expand(scheduled), Dialect.EXPANDED)


def test_what_is_there_before_is_there_in_lanes() -> None:
    """Of a row that is added to each of n rows: rangeify knows that the input is whole, and schedules see that rangeify knew."""
    row = b.reshape(b.param(1, (8,), dt.float32), (1, 8))
    launch = rangeify(callify(b.add(_x(N, 8), b.expand(row, (N, 8)))))
    s = create_initial_schedule(launch.src[0].src[0])
    assert s is not None
    assert not _gates(launch)
    assert not _gates(close_output_loops_into_sink(apply(s, Split(1, 4, AxisType.UPCAST))))


@pytest.mark.parametrize("kind", [AxisType.UPCAST, AxisType.UNROLL])
def test_a_lane_in_which_the_loop_is_gone_from_a_place_gates_it(kind: AxisType) -> None:
    """(lane * n + r) // 2 is 0 in the first lane, where r < n <= 2."""
    x = b.reshape(_repeated(_x(M), 2), (2, M))
    graph = b.reduce(x, Op.ADD, (0, 1)) if kind is AxisType.UNROLL else b.sqrt(b.permute(x, (1, 0)))
    launch = rangeify(callify(graph))
    assert not _gates(launch)
    s = create_initial_schedule(launch.src[0].src[0])
    assert s is not None
    made = close_output_loops_into_sink(apply(s, Split(0 if kind is AxisType.UNROLL else 1, 2, kind)))
    scheduled = launch.replace(src=(launch.src[0].replace(src=(made, *launch.src[0].src[1:])),))
    assert len(_gates(scheduled)) == 1
    _agrees(graph, scheduled, Dialect.SCHEDULED)
    _agrees(graph, expand(scheduled), Dialect.EXPANDED)


@pytest.mark.parametrize(
    "graph",
    [
        b.add(_x(N, 4), 1.0),
        b.reduce(_x(N, 4), Op.ADD, (0,)),
        b.reduce(b.expand(b.reshape(_x(4), (1, 4)), (N, 4)), Op.ADD, (0,)),
        b.reduce(b.expand(b.reshape(b.contiguous(_x(4)), (1, 4)), (N, 4)), Op.ADD, (0,)),
        b.reduce(b.expand(b.reshape(_x(M, 4), (1, M, 4)), (b.variable("k", 0, 3), M, 4)), Op.ADD, (0,)),
        b.reduce(b.expand(b.reshape(b.flip(_x(M), (True,)), (1, M)), (b.variable("k", 0, 3), M)), Op.ADD, (0,)),
        b.reduce(_repeated(_x(b.variable("k", 1, 2)), 3), Op.ADD, (0,)),
    ],
    ids=["of the loop", "of both loops", "of a known size", "kept whole", "of its own loops", "backwards", "a loop that runs"],
)
def test_places_that_are_there_have_no_gate(graph: UOp) -> None:
    assert not _gates(rangeify(callify(graph)))


def test_a_reduction_of_no_elements_is_its_identity() -> None:
    for op, want in ((Op.ADD, 0), (Op.MUL, 1), (Op.MAX, -np.inf)):
        launch = rangeify(callify(b.reduce(_x(3, 0), op, (1,))))
        assert not nodes_with_op(launch, Op.REDUCE) and not nodes_with_op(launch, Op.LOAD)
        assert run(launch, {}).buffers["b1"].tolist() == [want] * 3


SIMPLIFY = Rewriter(INDEXING)


def _reduce(value, n):
    r = b.range_(n, 0)
    return UOp(Op.REDUCE, (value, r), ReduceArg(Op.ADD)), r


def _body(value, n):
    total, _ = _reduce(value, n)
    return b.sink(b.store(b.at(b.param(0, (1,), dt.int32), 0), total), name="k")


def test_a_gated_load_of_a_loop_that_may_not_run_keeps_its_gate():
    n, p = b.variable("n", 0, 3, slot=2), b.param(1, (4,), dt.int32)
    gate = b.lt(b.variable("m", 0, 9, slot=3), 4)
    load = b.load(b.at(p, 3), b.const(5, dt.int32), gate)
    (gated,) = nodes_with_op(gate_loads_of_zero_trip_loops(_body(load, n), SIMPLIFY, {}), Op.LOAD)
    assert gated.gate.op is Op.AND and gate in toposort(gated.gate)


def test_an_element_that_is_read_under_a_gate_need_not_be_valid():
    n, p = b.variable("n", 0, 3, slot=2), b.param(1, (4,), dt.int32)
    gate = b.lt(b.variable("m", 0, 9, slot=3), 4)
    assert infer_valid_element_count_by_param(_body(b.load(b.at(p, 3)), n)) == {p: 4}
    assert infer_valid_element_count_by_param(_body(b.load(b.at(p, 3), b.const(5, dt.int32), gate), n)) == {}


def test_the_least_value_of_a_difference_is_of_the_greatest_subtrahend():
    assert _lower_bound_of_affine_sum(b.sub(7, b.variable("n", 1, 5))) == 2


def test_a_load_before_the_first_element_is_gated():
    n, m, p = b.variable("n", 0, 3, slot=2), b.variable("m", 0, 3, slot=3), b.param(1, (9,), dt.int32)
    body = _body(b.load(b.at(p, b.sub(m, 1))), n)
    (load,) = nodes_with_op(gate_loads_of_zero_trip_loops(body, SIMPLIFY, {p: 9}), Op.LOAD)
    assert load.gate is not None
    body = _body(b.load(b.at(p, m)), n)
    (load,) = nodes_with_op(gate_loads_of_zero_trip_loops(body, SIMPLIFY, {p: 9}), Op.LOAD)
    assert load.gate is None
