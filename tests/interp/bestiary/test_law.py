"""A graph of the second document means what its legal form means: on generated graphs of every family, from either driver."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uops
from uops.fuzz.generate.bestiary.families import (
    FAMILIES,
    MAX_FACTORS,
    case,
    describe_legalize_disagreement,
    generate_family_case,
    run_case_and_describe_disagreement,
)
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.strategies import HypothesisDraw
from uops.interp.bestiary import run
from uops.interp.bestiary.actions import ACTIONS
from uops.interp.bestiary.frame import BestiaryCell
from uops.spec.bestiary.legalize import legalize
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import (
    AddrSpace,
    BIndexArg,
    BParamArg,
    BufferizeArg,
    ConstArg,
    DefineVarArg,
    DeviceArg,
    GepArg,
    LanesArg,
    MultiArg,
    RangeArg,
    ReduceArg,
    VConstArg,
    WmmaArg,
)
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.text import parse, show
from uops.spec.result import Result
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import verify

SEEDS = range(20)
BESTIARY = {op for op, row in ROWS.items() if row.family is Family.BESTIARY}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_means_what_its_legal_form_means(family: str) -> None:
    for seed in SEEDS:
        found = describe_legalize_disagreement(case(family, seed), order_seed=seed if seed % 2 else None)
        assert found is None, f"seed {seed}: {found}"


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_law_holds_for_shrinking_choices(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(sorted(FAMILIES)))
    c = generate_family_case(HypothesisDraw(data.draw), family)
    assert describe_legalize_disagreement(c, order_seed=data.draw(st.none() | st.integers(0, 3))) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_generated_graphs_are_well_formed_text(family: str) -> None:
    for seed in SEEDS:
        c = case(family, seed)
        verify(c.graph, Dialect.BESTIARY)
        assert parse(show(c.graph)) is c.graph
        again = case(family, seed)
        assert again.graph is c.graph
        assert {k: np.asarray(x).tobytes() for k, x in again.inputs.items()} == {
            k: np.asarray(x).tobytes() for k, x in c.inputs.items()
        }


def test_no_order_of_a_float_product_can_show() -> None:
    counts = []
    for seed in range(600):
        for u in toposort(case("reduce", seed).graph):
            if u.op is Op.B_REDUCE and u.arg.op is Op.MUL and u.dtype.is_float:
                counts.append(math.prod(r.src[0].arg.value for r in u.src[1:]))
    assert 2 < max(counts) <= MAX_FACTORS


def test_the_families_make_every_op_of_the_document() -> None:
    """Machine code and templates of a target have no meaning of their own to compare."""
    made = {u.op for family in FAMILIES for seed in SEEDS for u in toposort(case(family, seed).graph)}
    assert BESTIARY - made == {Op.PROGRAM_BINARY, Op.CUSTOMI}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_most_graphs_of_a_family_are_of_the_second_document(family: str) -> None:
    assert (
        sum(infer_tensor_kernel_or_bestiary_dialect(case(family, seed).graph) is Dialect.BESTIARY for seed in SEEDS)
        > len(SEEDS) // 2
    )


def _reversed(action: Callable[..., Any]) -> Callable[..., Any]:
    """The action, whose vectors come out the other way round."""
    return lambda s: np.flip(np.asarray(action(s)))


def _one_more(action: Callable[..., Any]) -> Callable[..., Any]:
    return lambda s: np.asarray(action(s)) + np.ones((), np.asarray(action(s)).dtype)


def _ungated(action: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(s: Any) -> Any:
        from dataclasses import replace

        return replace(action(s), gate=None)

    return wrong


def _unordered(action: Callable[..., Any]) -> Callable[..., Any]:
    """The value, but nothing of what happened before."""

    def wrong(s: Any) -> Any:
        return BestiaryCell(action(s), s.frame.base, s.frame)

    return wrong


MUTANTS: dict[Op, tuple[str, Callable[..., Any]]] = {
    Op.VECTORIZE: ("vectorize", _reversed),
    Op.GEP: ("gep", _reversed),
    Op.VCONST: ("vconst", _reversed),
    Op.CAT: ("cat", _reversed),
    Op.CONTRACT: ("contract", _reversed),
    Op.MSTACK: ("mstack", _reversed),
    Op.MSELECT: ("mselect", _reversed),
    Op.ALLREDUCE: ("allreduce", _reversed),
    Op.B_PAD: ("pad", _reversed),
    Op.MIN: ("minimum", _one_more),
    Op.DEFINE_VAR: ("variable", _one_more),
    Op.B_RANGE: ("end", _one_more),
    Op.B_LOAD: ("pointer_index", _one_more),
    Op.REDUCE_AXIS: ("reduce_axis", _one_more),
    Op.B_INDEX: ("gated", _ungated),
    Op.AFTER: ("register", _unordered),
}


@pytest.mark.parametrize("op", MUTANTS, ids=lambda o: o.name)
def test_the_law_notices_a_wrong_meaning(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    family, wrong = MUTANTS[op]
    monkeypatch.setitem(ACTIONS, op, wrong(ACTIONS[op]))  # type: ignore[arg-type]
    assert any(_differs(family, seed) for seed in SEEDS)


def _differs(family: str, seed: int) -> bool:
    c = case(family, seed)
    try:
        run(c.graph, c.inputs)
    except UopsError:
        return True
    return describe_legalize_disagreement(c) is not None


def _range(n, axis_id):
    return UOp(Op.B_RANGE, (b.index(n),), RangeArg(axis_id, AxisType.LOOP))


def test_a_bound_value_may_be_that_of_another_variable_R112():
    def define(name):
        return UOp(Op.DEFINE_VAR, (), DefineVarArg(name, 0, 9 if name == "m" else 20))

    n, m = define("n"), define("m")
    outer = UOp(Op.BIND, (m, b.index(3)))
    graph = b.add(UOp(Op.BIND, (n, b.add(outer, 1))), b.add(m, n))
    verify(graph, Dialect.BESTIARY)
    assert uops.run(graph, {}, dialect=Dialect.BESTIARY).values[0] == uops.run(legalize(graph), {}).values[0]
    assert not nodes_with_op(legalize(graph), Op.PARAM)


DEVICES = ("CPU:0", "CPU:1")


def test_a_value_is_sharded_along_its_last_axis_R116():
    device = UOp(Op.DEVICE, (), DeviceArg(DEVICES))
    sharded = UOp(Op.COPY, (b.reshape(UOp(Op.B_PARAM, (), BParamArg(0, 24, dt.int32)), (4, 3, 2)), device))
    everywhere = UOp(Op.ALLREDUCE, (sharded, device), ReduceArg(Op.ADD))
    graph = UOp(Op.MULTI, (everywhere,), MultiArg(2))
    verify(graph, Dialect.BESTIARY)
    x = {"p0": np.arange(24, dtype=np.int32).reshape(4, 3, 2)}
    legal = legalize(graph)
    assert legal.axis == 2 and legal.shape == graph.shape == (2, 3, 2)
    want = x["p0"][:2] + x["p0"][2:]
    assert uops.run(legal, {"p0": x["p0"].ravel()}).values[0].tolist() == want.tolist()


def test_effects_of_an_if_in_an_if_are_listed_with_both_gates():
    memory = UOp(Op.B_PARAM, (), BParamArg(0, 4, dt.int32))
    at = UOp(Op.B_INDEX, (memory, b.index(0)), BIndexArg())
    store = UOp(Op.B_STORE, (at, b.const(1, dt.int32)))
    inner = UOp(Op.B_IF, (b.const(False, dt.bool_), store))
    end = UOp(Op.ENDIF, (inner,))
    outer = UOp(Op.B_IF, (b.const(True, dt.bool_), end))
    linear = UOp(Op.LINEAR, (memory, at, store, end, outer))
    verify(linear, Dialect.BESTIARY)
    assert all(u.gate is not None for u in legalize(linear).src if u.op is Op.STORE)


def test_effects_that_many_paths_of_an_if_lead_to_are_executed_once():
    memory = UOp(Op.B_PARAM, (), BParamArg(0, 4, dt.int32))
    at = UOp(Op.B_INDEX, (memory, b.index(0)), BIndexArg())
    effect = UOp(Op.B_STORE, (at, b.const(1, dt.int32)))
    for _ in range(100):
        effect = UOp(Op.GROUP, (effect, effect))
    block = UOp(Op.B_IF, (b.const(True, dt.bool_), effect))
    linear = UOp(Op.LINEAR, (memory, at, block, UOp(Op.ENDIF, (block,))))
    verify(linear, Dialect.BESTIARY)
    x = {"p0": np.zeros(4, np.int32)}
    for result in (run(linear, x), uops.run(legalize(linear), x)):
        assert result.buffers["p0"].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(("first", "stays"), [(0, False), (-1, True), (1, True)])
def test_a_value_is_computed_again_only_where_it_is_read_inside_R179(first, stays):
    r, i = _range(4, 0), _range(4, 1)
    kept = UOp(Op.BUFFERIZE, (b.mul(b.cast(r, dt.int32), 3), r), BufferizeArg(None, AddrSpace.GLOBAL, True))
    load = UOp(Op.B_LOAD, (kept, UOp(Op.B_INDEX, (kept, b.add(i, first)), BIndexArg())))
    legal = legalize(UOp(Op.B_REDUCE, (load, i), ReduceArg(Op.ADD)))
    assert bool(nodes_with_op(legal, Op.BUFFER)) is stays


def test_the_accumulator_begins_anew_in_each_iteration_around_R178():
    from uops.spec.wmma import registry

    d = next(d for d in registry._known.values() if d.name == "tdpbssd")
    o, r = _range(3, 0), UOp(Op.B_RANGE, (b.index(2),), RangeArg(1, AxisType.REDUCE))
    ones = UOp(Op.VCONST, (), VConstArg((b.const(1, dt.int8).arg,) * d.b.elements, dt.int8))
    lhs = UOp(Op.VECTORIZE, (b.cast(o, dt.int8),) * d.a.elements)
    zero = UOp(Op.VCONST, (), VConstArg((b.const(0, dt.int32).arg,) * d.c.elements, dt.int32))
    product = UOp(Op.WMMA, (lhs, ones, zero, r), WmmaArg(d.name, d.dims, dt.int8, dt.int32, "CPU", 1))
    memory = UOp(Op.B_PARAM, (), BParamArg(0, 3, dt.int32))
    place = UOp(Op.B_INDEX, (memory, o), BIndexArg())
    graph = b.sink(UOp(Op.B_STORE, (place, b.add(UOp(Op.GEP, (product,), GepArg((0,))), 1), o)))
    verify(graph, Dialect.BESTIARY)
    x = {"p0": np.zeros(3, np.int32)}
    assert uops.run(legalize(graph), x).buffers["p0"].tolist() == uops.run(graph, x).buffers["p0"].tolist() == [1, 129, 257]


def test_lanes_do_not_propagate_through_memory() -> None:
    """R111: what a LOAD waits for is no lane of it."""
    u, v = (UOp(Op.B_RANGE, (b.index(n),), RangeArg(k, AxisType.UNROLL)) for k, n in enumerate((2, 3)))
    x, y, kept = (UOp(Op.B_PARAM, (), BParamArg(k, 6, dt.int32)) for k in range(3))
    axes = ((0, 2), (1, 3))
    place = UOp(Op.B_INDEX, (x, b.add(b.mul(u, 3), v)), BIndexArg())
    lanes = UOp(Op.UNROLL, (UOp(Op.B_LOAD, (x, place)),), LanesArg(axes))
    positions = UOp(Op.VECTORIZE, tuple(b.index(n) for n in range(6)))
    stored = UOp(Op.B_STORE, (UOp(Op.B_INDEX, (kept, positions), BIndexArg()), lanes))
    loaded = UOp(Op.B_LOAD, (kept, UOp(Op.B_INDEX, (b.after(kept, stored), positions), BIndexArg())))
    ordered = UOp(Op.CONTRACT, (loaded,), LanesArg(axes[::-1]))
    graph = UOp(Op.B_STORE, (UOp(Op.B_INDEX, (y, positions), BIndexArg()), ordered))
    given = {f"p{k}": np.arange(6, dtype=np.int32) * (k == 0) for k in range(3)}
    for form in (graph, legalize(graph)):
        assert uops.run(form, given).buffers["p1"].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_call_that_a_linear_lists_twice_runs_twice_R151() -> None:
    memory = UOp(Op.B_PARAM, (), BParamArg(0, 4, dt.int32))
    place = UOp(Op.B_INDEX, (memory, b.index(0)), BIndexArg())
    call = b.call(b.sink(UOp(Op.B_STORE, (place, b.add(UOp(Op.B_LOAD, (memory, place)), 1))), name="k"), memory)
    graph = UOp(Op.LINEAR, (call, call))
    verify(graph, Dialect.BESTIARY)
    for form in (graph, legalize(graph)):
        assert uops.run(form, {"p0": np.array([10, 20, 30, 40], np.int32)}).buffers["p0"].tolist() == [12, 20, 30, 40]


@pytest.mark.parametrize("wrong", [np.zeros(0, np.int32), np.zeros((2, 0), np.int32), np.zeros(4, np.int64), np.zeros(3, np.int32)])
def test_a_value_of_another_shape_or_dtype_is_a_disagreement(wrong: Any) -> None:
    """Only memory that was never written counts as zeros."""
    vector = UOp(Op.VCONST, (), VConstArg((ConstArg(0, dt.int32),) * 4, dt.int32))
    c = FuzzCase(vector, {})
    right = run(vector, {})
    assert right.values[0].tolist() == [0, 0, 0, 0] and run_case_and_describe_disagreement(c, right) is None
    assert run_case_and_describe_disagreement(c, Result((wrong,), {})) is not None
