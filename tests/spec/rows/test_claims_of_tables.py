"""Each claim of the second document's tables, by its interpreter and by `legalize`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from bestiary_examples import V4, B, at, lanes, load, red, store
from claim_examples import c, f32, i32, n

from uops.compiler.ir.loops import sort_by_nesting
from uops.interp import run as run_core
from uops.interp.bestiary import run
from uops.interp.bestiary.plan import ScopePlan
from uops.interp.bestiary.values import find_axes_of_vector_lanes
from uops.interp.kernel.structure.blocks import closed_ranges_outermost_first
from uops.spec.bestiary.legalize import legalize
from uops.spec.bestiary.lower import find_axes_of_unroll_whose_lanes_reach
from uops.spec.bestiary.tables import AXIS_NAMES, EXPANDABLE, EXPANDABLE_BY_NAME
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import CALL_LIKE, Op
from uops.spec.ir.scope import ranges_closed_by
from uops.spec.optops import Axis, sort_axes
from uops.spec.rows.rows import NAMED_ROWS

# The tables as the document prints them.
PRIORITIES = {
    "Placeholder": -3, "Loop": -1, "Global": 0, "Thread": 0, "Warp": 1,
    "Local": 2, "GroupReduce": 2, "Upcast": 3, "Reduce": 4, "Unroll": 5,
}  # fmt: skip
RANGE_STARTS = {"BUFFERIZE": 1, "REDUCE": 1, "STORE": 2, "WMMA": 3, "END": 1, "CALL": 1, "FUNCTION": 1}
EXPANDABLE_NAMES = [
    "Unary", "Binary", "Ternary", "Cast", "BitCast", "Gep", "Vectorize", "Load", "Store", "Index", "PointerIndex",
    "Reduce", "End", "After", "Bufferize", "Wmma",
]  # fmt: skip
REDUCE_NAMES = {"Add": Op.ADD, "Mul": Op.MUL, "Max": Op.MAX, "Min": Op.MIN}


def both_runs(graph: UOp, inputs: dict[str, Any]) -> Iterator[Any]:
    """The result of the graph, and that of its legal form."""
    yield run(graph, inputs)
    yield run_core(legalize(graph), inputs)


def loop(axis_id: int, type: AxisType = AxisType.LOOP, bound: int = 4) -> UOp:
    return n(Op.B_RANGE, b.index(bound), arg=A.RangeArg(axis_id, type))


# ---------------------------------------------------------------------------------------------------------------- priorities


def _nests_by_priority(name: str) -> None:
    """A loop of the type stands outside of those that have a greater priority, although its id is greater."""
    kind = AXIS_NAMES[name]
    for other, priority in PRIORITIES.items():
        if other == name:
            continue
        outside = PRIORITIES[name] < priority
        pair = [1, 0] if outside else [0, 1]
        assert [a.id for a in sort_axes([Axis(1, kind, 2), Axis(0, AXIS_NAMES[other], 2)])] == pair
        ranges = b.range_(2, 1, kind), b.range_(2, 0, AXIS_NAMES[other])
        assert [r.arg.axis_id for r in closed_ranges_outermost_first(b.end(b.sink(), *ranges))] == pair
        assert [r.arg.axis_id for r in sort_by_nesting(ranges)] == pair


# -------------------------------------------------------------------------------------------------------------- range-ending

R0, R1 = loop(0), loop(1)


def as_float(r: UOp) -> UOp:
    return b.cast(r, f32)


def _count(memory: UOp) -> UOp:
    here = at(memory, b.index(0))
    return store(here, b.add(load(memory, here), c(1.0)))


#: Name -> a graph with the operation, and what it leaves in `b1` or gives as its value.
ENDED: dict[str, tuple[UOp, Any]] = {
    "BUFFERIZE": (n(Op.BUFFERIZE, as_float(R0), R0, arg=A.BufferizeArg("CPU", A.AddrSpace.GLOBAL)), [0, 1, 2, 3]),
    "REDUCE": (red(Op.B_REDUCE, as_float(R0), R0), 6),
    "STORE": (store(at(B, R0), as_float(R0), R0), [0, 1, 2, 3]),
    "END": (n(Op.END, store(at(B, R0), as_float(R0)), R0), [0, 1, 2, 3]),
}


def _ends_ranges(name: str) -> None:
    """The sources from the printed position on are closed, those before it are not."""
    first = RANGE_STARTS[name]
    op = next(op for op in Op if op.name in (f"B_{name}", name) and op not in (Op.STORE, Op.REDUCE))
    u = UOp(op, (*[R0] * first, R1))
    assert ranges_closed_by(u) == (R1,)
    if name not in ENDED:
        return
    graph, expected = ENDED[name]
    assert ScopePlan(graph, {}).loops_of(graph) == frozenset()
    for result in both_runs(graph, {"b1": np.full(4, -1, np.float32)}):
        assert (result.values or (result.buffers["b1"],))[0].tolist() == expected


def _call_runs_once_per_value(name: str) -> None:
    p = n(Op.B_PARAM, arg=A.BParamArg(0, 4, f32))
    graph = n(Op.CALL, b.sink(_count(p)), B, R0)
    assert ScopePlan(graph, {}).loops_of(graph) == frozenset()
    assert run(graph, {"b1": np.zeros(4, np.float32)}).buffers["b1"].tolist() == [4, 0, 0, 0]
    assert legalize(graph).ranges == (b.range_(4, 0),)


def _function_keeps_ranges_open(name: str) -> None:
    p = n(Op.B_PARAM, arg=A.BParamArg(0, 1, f32))
    value = b.get(n(Op.FUNCTION, b.tuple_(b.neg(p)), n(Op.VECTORIZE, as_float(R0)), R0), 0)
    assert ScopePlan(value, {}).loops_of(value) == {R0}
    assert float(run(red(Op.B_REDUCE, value, R0), {}).values[0]) == -6


# ---------------------------------------------------------------------------------------------------------------- expandable

AXES = ((0, 2), (1, 2))
UNROLLED = lanes(Op.UNROLL, V4, *AXES)


def _spreads_lanes(name: str) -> None:
    assert EXPANDABLE_BY_NAME[name] <= EXPANDABLE
    for op in EXPANDABLE_BY_NAME[name]:
        u = UOp(op, (UNROLLED, c(1.0)))
        assert find_axes_of_vector_lanes(u) == find_axes_of_unroll_whose_lanes_reach(u) == AXES, op


def test_other_operations_do_not_spread_lanes() -> None:
    for op in set(Op) - EXPANDABLE - {Op.UNROLL}:
        u = UOp(op, (UNROLLED, c(1.0)))
        assert find_axes_of_vector_lanes(u) is None and find_axes_of_unroll_whose_lanes_reach(u) is None, op


def test_a_contract_above_an_expandable_operation_orders_its_lanes() -> None:
    for u in (b.neg(UNROLLED), b.add(UNROLLED, UNROLLED), b.bitcast(b.cast(UNROLLED, i32), dt.uint32)):
        straight, turned = (lanes(Op.CONTRACT, u, *axes) for axes in (AXES, AXES[::-1]))
        for s, t in zip(both_runs(straight, {}), both_runs(turned, {})):
            assert t.values[0].tolist() == s.values[0].reshape(2, 2).T.reshape(-1).tolist()


# ---------------------------------------------------------------------------------------------------------------- reductions

#: Name -> the identity in float32 and in int32.
IDENTITIES: dict[str, tuple[float, int]] = {
    "Add": (0, 0),
    "Mul": (1, 1),
    "Max": (-np.inf, -(1 << 31)),
    "Min": (np.inf, (1 << 31) - 1),
}


def _gives_its_identity(name: str) -> None:
    for d, expected in zip((f32, i32), IDENTITIES[name]):
        empty = n(Op.B_SHRINK, n(Op.VECTORIZE, b.const(7, d)), arg=A.BShrinkArg((1,), (1,)))
        for result in both_runs(red(Op.REDUCE_AXIS, empty, by=REDUCE_NAMES[name], axes=(0,)), {}):
            assert result.values[0].tolist() == [expected], (name, d)


# ------------------------------------------------------------------------------------------------------------------ registry

_TABLES: dict[str, list[tuple[Callable[[str], None], str]]] = {
    "Priority": [(_nests_by_priority, name) for name in PRIORITIES],
    "RangeEnding": [
        ({Op.CALL.name: _call_runs_once_per_value, Op.FUNCTION.name: _function_keeps_ranges_open}.get(name, _ends_ranges), name)
        for name in RANGE_STARTS
    ],
    "Expandable": [(_spreads_lanes, name) for name in EXPANDABLE_NAMES],
    "ReduceOp": [(_gives_its_identity, name) for name in REDUCE_NAMES],
}
HOLDS = {
    claim.id: (check, name, claim.text)
    for table, checks in _TABLES.items()
    for claim, (check, name) in zip(NAMED_ROWS[f"Table/{table}"].claims, checks, strict=True)
}


def test_every_claim_of_a_table_has_a_test() -> None:
    rows = [row for row in NAMED_ROWS.values() if row.family == "Table"]
    assert set(HOLDS) == {claim.id for row in rows for claim in row.claims}


@pytest.mark.parametrize("id", HOLDS)
def test_claim_holds(id: str) -> None:
    check, name, text = HOLDS[id]
    assert name in text.replace(",", "").split()
    check(name)


def test_calls_are_the_only_range_ending_operations_that_a_ruling_words_otherwise() -> None:
    claims = NAMED_ROWS["Table/RangeEnding"].claims
    assert {c.text.split()[0].rstrip(",") for c in claims if c.ruling == "R121"} == {op.name for op in CALL_LIKE}


@pytest.mark.parametrize("kind", AxisType)
def test_a_placeholder_becomes_a_loop_and_other_types_stay(kind: AxisType) -> None:
    """R170."""
    r = loop(0, kind)
    graph = store(at(B, r), as_float(r), r)
    (made,) = (u for u in toposort(legalize(graph)) if u.op is Op.RANGE)
    assert made.arg.type is (AxisType.LOOP if kind is AxisType.PLACEHOLDER else kind)
    for result in both_runs(graph, {"b1": np.zeros(4, np.float32)}):
        assert result.buffers["b1"].tolist() == [0, 1, 2, 3]
