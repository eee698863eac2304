"""Sums that an output loop selects become scatters, in order or by lanes, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uops.backends import registry
from uops.backends.conformance.stage_judge import Judge
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.optimize.heuristics.scatter import build_scatter_body
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.optimize.schedule.schedule import create_initial_schedule
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import MachineModel, Thresholds
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

#: Small sums pay for workgroups and vectors, so that a test can run them lane by lane.
FEW_PAY = Thresholds(scatter_vectors=2, workgroup_scatter=8)
SCALAR = MachineModel(thresholds=FEW_PAY)
VECTORS = MachineModel(vector_bytes=16, masks=True, thresholds=FEW_PAY)
GROUPS = MachineModel(workgroup=8, local_memory=1 << 15, thresholds=FEW_PAY)
INDICES = np.array([3, 11, 0, 3, -1, 12, 5, 11, 3, 7], np.int32)
#: Numbers whose sums are exact in every order, one of which no output gets.
ADDENDS = np.array([1, 2, 4, 8, np.nan, np.inf, 16, 32, 64, 128])


def sum_selected(
    value: Callable[[UOp, UOp], UOp], d: DType = dt.float32, *, outputs: int = 12, op: Op = Op.ADD, columns: tuple[int, ...] = ()
) -> UOp:
    """Sum values over the addends that an index selects; `value` takes the grid of outputs and the indices."""
    return b.reshape(b.reduce(select(value, outputs, columns), op, (1,)), (outputs, *columns))


def select(value: Callable[[UOp, UOp], UOp], outputs: int = 12, columns: tuple[int, ...] = ()) -> UOp:
    """The values of each output, addend and column."""
    n = len(INDICES)
    ones = (1,) * len(columns)
    index = b.expand(b.reshape(b.param(0, (n,), dt.int32), (1, n, *ones)), (outputs, n, *columns))
    k = b.expand(b.reshape(compositions.arange(outputs, dt.int32), (outputs, 1, *ones)), (outputs, n, *columns))
    return value(k, index)


def addends(d: DType = dt.float32, outputs: int = 12, columns: tuple[int, ...] = ()) -> UOp:
    n = len(INDICES)
    return b.expand(b.reshape(b.param(1, (n, *columns), d), (1, n, *columns)), (outputs, n, *columns))


def choose(condition: UOp, d: DType = dt.float32, **shape: object) -> UOp:
    return b.where(condition, addends(d, **shape), b.const(0, d))  # type: ignore[arg-type]


def inputs(d: DType = dt.float32, columns: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    values = ADDENDS if d.is_float else np.nan_to_num(ADDENDS, posinf=3)
    rows = np.stack([values] * int(np.prod(columns)), -1).reshape(len(INDICES), *columns) if columns else values
    return {"p0": INDICES, "p1": rows.astype(d.name), "p2": np.arange(12, dtype=d.name)}


EQUAL: dict[str, UOp] = {
    "scatter_add": compositions.scatter_add(
        b.param(2, (12,), dt.float32), b.param(0, (len(INDICES),), dt.int32), b.param(1, (len(INDICES),), dt.float32)
    ),
    "sum alone": sum_selected(lambda k, i: choose(b.eq(i, k))),
    "other side": sum_selected(lambda k, i: choose(b.eq(k, i))),
    "backwards": sum_selected(lambda k, i: choose(b.eq(b.sub(11, k), i))),
    "moved": sum_selected(lambda k, i: choose(b.eq(b.add(k, 3), i))),
    "not unequal": sum_selected(lambda k, i: b.where(b.ne(i, k), b.const(0, dt.float32), addends())),
    "another condition": sum_selected(lambda k, i: choose(b.and_(b.eq(i, k), b.gt(addends(), 3.0)))),
    "a count": sum_selected(lambda k, i: b.cast(b.eq(i, k), dt.int32)),
    "columns": sum_selected(lambda k, i: choose(b.eq(i, k), columns=(6,)), columns=(6,)),
    "columns of vectors": sum_selected(lambda k, i: choose(b.eq(i, k), columns=(3, 4)), columns=(3, 4)),
    "rows of addends": b.reshape(
        b.reduce(select(lambda k, i: choose(b.eq(i, k), columns=(3,)), columns=(3,)), Op.ADD, (1, 2)), (12,)
    ),
    "transposed": b.permute(sum_selected(lambda k, i: choose(b.eq(i, k), columns=(6,)), columns=(6,)), (1, 0)),
    "computed from": b.add(b.mul(sum_selected(lambda k, i: choose(b.eq(i, k))), 2.0), b.param(2, (12,), dt.float32)),
}
DTYPES = (dt.float32, dt.float64, dt.int32, dt.uint64, dt.int64)


def lower(graph: UOp, machine: MachineModel) -> UOp:
    launch = optimize(rangeify(callify(graph)), machine)
    verify(launch, Dialect.SCHEDULED)
    return launch


def is_scatter(launch: UOp) -> bool:
    """True if no kernel has a Reduce left."""
    return not any(u.op is Op.REDUCE for u in toposort(launch))


def assert_computes(graph: UOp, launch: UOp, given: dict[str, np.ndarray]) -> None:
    judge = Judge(graph, given, extra_orders=2)
    outputs = judge.interpret_stage_and_check_orders(launch)
    assert judge.find_disallowed_or_changed_value("optimize", graph, judge.reference_outputs(), outputs) is None


@pytest.mark.parametrize("machine", [SCALAR, VECTORS, GROUPS], ids=["plain", "vectors", "groups"])
@pytest.mark.parametrize("name", EQUAL)
def test_a_selected_sum_becomes_a_scatter(name: str, machine: MachineModel) -> None:
    columns = {"columns": (6,), "columns of vectors": (3, 4), "transposed": (6,), "rows of addends": (3,)}.get(name, ())
    launch = lower(EQUAL[name], machine)
    assert is_scatter(launch)
    assert_computes(EQUAL[name], launch, inputs(columns=columns))


@pytest.mark.parametrize("machine", [SCALAR, GROUPS], ids=["plain", "groups"])
@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_dtypes_that_are_summed_in_themselves(d: DType, machine: MachineModel) -> None:
    graph = sum_selected(lambda k, i: choose(b.eq(i, k), d))
    launch = lower(graph, machine)
    assert is_scatter(launch)
    assert_computes(graph, launch, inputs(d))


@pytest.mark.parametrize("machine", [SCALAR, GROUPS], ids=["plain", "groups"])
def test_an_index_of_64_bits_that_is_out_of_range_has_a_width(machine: MachineModel) -> None:
    """Times the columns, it would be beyond int64 (R08)."""
    n = len(INDICES)
    index = b.expand(b.reshape(b.param(0, (n,), dt.int64), (1, n, 1)), (12, n, 6))
    k = b.expand(b.reshape(compositions.arange(12, dt.int64), (12, 1, 1)), (12, n, 6))
    graph = b.reshape(b.reduce(choose(b.eq(index, k), columns=(6,)), Op.ADD, (1,)), (12, 6))
    launch = lower(graph, machine)
    assert is_scatter(launch)
    far = np.array([3, 1 << 62, -(1 << 63), 3, (1 << 63) - 1, 12, 5, 11, -1, 7])
    assert_computes(graph, launch, inputs(columns=(6,)) | {"p0": far})
    assert registry.create_backend("c").run(graph, {"p0": far, "p1": inputs(columns=(6,))["p1"]}).values[0].shape == (12, 6)


def test_lanes_add_atomically_between_barriers() -> None:
    (call,) = lower(EQUAL["computed from"], GROUPS).src
    assert len(nodes_with_op(call.body, Op.ATOMICADD)) == 1 and len(nodes_with_op(call.body, Op.BARRIER)) == 2
    assert {r.arg.type for r in nodes_with_op(call.body, Op.RANGE)} == {AxisType.LOCAL, AxisType.LOOP}


def test_columns_are_workgroups_and_lanes_of_vectors() -> None:
    (call,) = lower(EQUAL["columns"], GROUPS).src
    assert [r.bound.arg.value for r in nodes_with_op(call.body, Op.RANGE) if r.arg.type is AxisType.GLOBAL] == [6]
    (call,) = lower(EQUAL["columns of vectors"], VECTORS).src
    assert {r.bound.arg.value for r in nodes_with_op(call.body, Op.RANGE) if r.arg.type is AxisType.UPCAST} == {4}


#: Kernels that are no scatter, on any machine.
OTHERS: dict[str, UOp] = {
    "a product": sum_selected(lambda k, i: b.where(b.eq(i, k), addends(), b.const(1, dt.float32)), op=Op.MUL),
    "the greatest": sum_selected(lambda k, i: b.where(b.eq(i, k), addends(), b.const(-np.inf, dt.float32)), op=Op.MAX),
    "several outputs": sum_selected(lambda k, i: choose(b.lt(i, k))),
    "twice the index": sum_selected(lambda k, i: choose(b.eq(b.mul(k, 2), i))),
    "values of the output": sum_selected(lambda k, i: b.where(b.eq(i, k), b.cast(b.add(k, i), dt.float32), b.const(0, dt.float32))),
    "another condition on the output": sum_selected(lambda k, i: choose(b.and_(b.eq(i, k), b.lt(b.mul(k, i), 30)))),
    "few outputs": sum_selected(lambda k, i: choose(b.eq(i, k), outputs=1), outputs=1),
    "small floats": sum_selected(lambda k, i: choose(b.eq(i, k), dt.float16), dt.float16),
    "bools": sum_selected(lambda k, i: choose(b.eq(i, k), dt.bool_), dt.bool_),
    "two sums": b.add(sum_selected(lambda k, i: choose(b.eq(i, k))), sum_selected(lambda k, i: choose(b.lt(i, k)))),
    "else than zero": sum_selected(lambda k, i: b.where(b.eq(i, k), addends(), b.const(1, dt.float32))),
}


@pytest.mark.parametrize("machine", [SCALAR, GROUPS], ids=["plain", "groups"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_stay(name: str, machine: MachineModel) -> None:
    for call in rangeify(callify(OTHERS[name])).src:
        start = create_initial_schedule(call.body)
        assert start is not None and build_scatter_body(start, machine) is None


STORED = {
    "under a gate": lambda memory, total: b.store(memory, total, b.param(3, (12,), dt.bool_)),
    "where data say": lambda memory, total: b.store(b.at(memory, b.mod(b.param(3, (12,), dt.int32), 12)), total),
}


@pytest.mark.parametrize("name", STORED)
def test_a_sum_that_is_not_stored_once_everywhere_stays(name: str) -> None:
    """What keeps its contents, or is stored twice, is no memory for sums."""
    graph = b.sink(STORED[name](b.buffer(12, dt.float32, unique=1), EQUAL["sum alone"]))
    launch = lower(graph, SCALAR)
    where = np.arange(12) % 5
    given = {"p3": where > 1 if name == "under a gate" else where.astype(np.int32), "b1": np.arange(12, dtype=np.float32)}
    assert not is_scatter(launch)
    assert_computes(graph, launch, inputs() | given)


@pytest.mark.parametrize("machine", [SCALAR, GROUPS], ids=["plain", "groups"])
def test_a_sum_that_is_added_to_memory_in_place_stays(machine: MachineModel) -> None:
    """The memory would be cleared before it is read."""
    memory = b.buffer(12, dt.float32, unique=1)
    graph = b.sink(b.store(memory, b.add(memory, EQUAL["sum alone"])))
    launch = lower(graph, machine)
    assert not is_scatter(launch)
    assert_computes(graph, launch, inputs() | {"b1": np.arange(12, dtype=np.float32)})


def test_sums_of_less_than_32_bits_are_no_work_for_lanes() -> None:
    graph = sum_selected(lambda k, i: choose(b.eq(i, k), dt.int16), dt.int16)
    assert is_scatter(lower(graph, SCALAR)) and not is_scatter(lower(graph, GROUPS))
    assert_computes(graph, lower(graph, SCALAR), inputs(dt.int16))
