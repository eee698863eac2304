"""The failures that the rulings define, and the graphs that have no meaning, on the second document's ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uops
from uops.fuzz.generate.bestiary.maker import node
from uops.interp.bestiary import run
from uops.spec.bestiary.build import at, define_var, load, store
from uops.spec.bestiary.legalize import legalize
from uops.spec.errors import SpecError, Trap, Unsound
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

i32 = dt.int32
LOCAL = AxisType.LOCAL


def param(slot: int, size: int, d: DType = i32) -> UOp:
    return node(Op.B_PARAM, arg=A.BParamArg(slot, size, d))


def loop(bound: int | UOp, k: int = 0, kind: AxisType = AxisType.LOOP) -> UOp:
    return node(Op.B_RANGE, bound if isinstance(bound, UOp) else b.index(bound), arg=A.RangeArg(k, kind))


def special(name: str, bound: int) -> UOp:
    return node(Op.SPECIAL, b.index(bound), arg=A.SpecialArg(name))


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


P0, P1 = param(0, 3), param(1, 3)
IN = {"p0": ints(1, 2, 3), "p1": ints(4, 5, 6)}
FALSE = b.const(False)


def test_r45_an_ungated_access_out_of_bounds() -> None:
    r = loop(4)
    for graph in (store(at(P0, r), b.const(1), r), load(at(P0, b.index(3))), load(at(P0, b.index(-1)))):
        with pytest.raises(Trap, match="R45"):
            run(graph, IN)


def test_r104_a_gate_protects_the_access_and_a_missing_alt_is_0() -> None:
    outside = at(P0, b.index(9), gate=FALSE)
    assert run(load(outside), IN).values[0] == 0
    assert run(load(outside, b.const(7)), IN).values[0] == 7
    assert run(store(outside, b.const(7)), IN).buffers["p0"].tolist() == [1, 2, 3]


def test_r61_reading_what_was_never_written() -> None:
    memories = [
        node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 2, i32)),
        node(Op.DEFINE_REG, arg=A.DefineArg(0, 2, i32)),
        node(Op.B_BUFFER, node(Op.LUNIQUE, arg=A.UniqueArg(0)), node(Op.DEVICE, arg=A.DeviceArg("CPU")), arg=A.BBufferArg(2, i32)),
    ]
    for m in memories:
        half = b.after(m, store(at(m, b.index(0)), b.const(1)))
        assert run(load(at(half, b.index(0))), {}).values[0] == 1
        with pytest.raises(Trap, match="R61"):
            run(load(at(half, b.index(1))), {})


@pytest.mark.parametrize("kind", [AxisType.GLOBAL, AxisType.THREAD])
def test_r61_local_memory_belongs_to_one_workgroup(kind: AxisType) -> None:
    g, again = loop(2, 0, kind), loop(2, 1)
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 2, i32))
    filled = b.after(shared, store(at(shared, g), b.const(1), g))
    with pytest.raises(Trap, match="R61"):
        run(store(at(P0, again), load(at(filled, again)), again), IN)


def test_r61_a_register_belongs_to_one_lane() -> None:
    lane, again = loop(2, 0, LOCAL), loop(2, 1, LOCAL)
    own = node(Op.DEFINE_REG, arg=A.DefineArg(0, 2, i32))
    filled = b.after(own, store(at(own, lane), b.const(1), lane))
    with pytest.raises(Trap, match="R61"):
        run(store(at(P0, again), load(at(filled, again)), again), IN)


@pytest.mark.parametrize("kind", [k for k in AxisType if k not in (AxisType.LOOP, AxisType.REDUCE)])
def test_r55_unordered_iterations_race(kind: AxisType) -> None:
    r = loop(2, 0, kind)
    with pytest.raises(Trap, match="R55"):
        run(store(at(P0, b.index(0)), b.cast(r, i32), r), IN)


def test_r57_ordered_iterations_do_not_race() -> None:
    for kind in (AxisType.LOOP, AxisType.REDUCE):
        r = loop(2, 0, kind)
        assert run(store(at(P0, b.index(0)), b.cast(r, i32), r), IN).buffers["p0"].tolist() == [1, 2, 3]


def test_r55_unordered_effects_race_and_ordered_ones_do_not() -> None:
    first, second = store(at(P0, b.index(0)), b.const(7)), at(P0, b.index(0))
    with pytest.raises(Trap, match="R55"):
        run(b.sink(first, store(second, b.const(8))), IN)
    ordered = store(at(b.after(P0, first), b.index(0)), b.const(8))
    assert run(b.sink(first, ordered), IN).buffers["p0"].tolist() == [8, 2, 3]
    assert run(node(Op.LINEAR, first, store(second, b.const(8))), IN).buffers["p0"].tolist() == [8, 2, 3]


def test_r55_lanes_of_a_launch_race() -> None:
    lane = special("lidx0", 2)
    with pytest.raises(Trap, match="R55"):
        run(store(at(P0, b.index(0)), b.cast(lane, i32)), IN)
    with pytest.raises(Trap, match="R55"):  # every lane runs the graph, also what does not name it
        run(b.sink(store(at(P0, b.index(0)), b.const(1)), store(at(P1, lane), b.const(1))), IN)


def test_r55_without_a_barrier_lanes_race_on_local_memory() -> None:
    lane = loop(3, 0, LOCAL)
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 3, i32))
    put = store(at(shared, lane), load(at(P0, lane)))
    other = b.sub(b.index(2), lane)

    def graph(ready: UOp) -> UOp:
        return store(at(P1, lane), load(at(ready, other)), lane)

    assert run(graph(node(Op.B_BARRIER, shared, put)), IN).buffers["p1"].tolist() == [3, 2, 1]
    for schedule in (None, 1, 2):
        with pytest.raises(Trap, match=r"R55|R61"):
            run(graph(b.after(shared, put)), IN, schedule=schedule)


def _rounds(bound: UOp, lane: UOp) -> UOp:
    """A barrier in a loop of so many rounds."""
    k = loop(bound, 5)
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 3, i32))
    ready = node(Op.B_BARRIER, b.after(shared, k), store(at(b.after(shared, k), lane), b.const(1)))
    return store(at(P0, lane), load(at(b.after(shared, b.end(ready, k)), lane)), *(() if lane.op is Op.SPECIAL else (lane,)))


@pytest.mark.parametrize("lane", [loop(3, 0, LOCAL), special("lidx0", 3)], ids=["loop", "launch"])
def test_r60_a_barrier_that_some_lanes_do_not_reach(lane: UOp) -> None:
    for schedule in (None, 1, 2):
        assert run(_rounds(b.index(2), lane), IN, schedule=schedule).buffers["p0"].tolist() == [1, 1, 1]
        with pytest.raises(Trap, match="R60"):
            run(_rounds(b.add(lane, b.index(1)), lane), IN, schedule=schedule)


def test_r122_a_pointer_inside_of_an_element() -> None:
    offset = node(Op.DEFINE_VAR, arg=A.DefineVarArg("offset", 0, 20))
    graph = load(node(Op.POINTER_INDEX, P0, offset))
    assert run(graph, IN | {"offset": 8}).values[0] == 3
    for wrong in (2, 12, 20):
        with pytest.raises(Trap, match="R45"):
            run(graph, IN | {"offset": wrong})


@pytest.mark.parametrize("d", [dt.uint8, dt.uint16, dt.uint64, dt.int8])
def test_r122_a_pointer_inside_of_an_element_of_large_memory(d: DType) -> None:
    wide, offset = param(0, 1 << 16, dt.int16), param(1, 1, d)
    graph = load(node(Op.POINTER_INDEX, wide, load(at(offset, b.index(0)))))
    memory = np.arange(1 << 16).astype(np.int16)
    for form, execute in ((graph, run), (legalize(graph), uops.run)):
        assert execute(form, {"p0": memory, "p1": np.array([6], d.name)}).values[0] == 3
        with pytest.raises(Trap, match="R45"):
            execute(form, {"p0": memory, "p1": np.array([7], d.name)})


def test_r48_a_variable_outside_of_its_bounds() -> None:
    n = node(Op.DEFINE_VAR, arg=A.DefineVarArg("n", 1, 3))
    assert run(n, {"n": 3}).values[0] == 3
    for wrong in (0, 4):
        with pytest.raises(Trap, match="R48"):
            run(n, {"n": wrong})
    with pytest.raises(SpecError, match="missing"):
        run(n, {})


def test_r51_a_store_that_names_an_element_twice() -> None:
    twice = node(Op.VCONST, arg=A.VConstArg((A.ConstArg(1, dt.index),) * 2, dt.index))
    with pytest.raises(Trap, match="R51"):
        run(store(at(P0, twice), node(Op.VECTORIZE, b.const(1), b.const(2))), IN)
    both = node(Op.PTRCAT, at(P0, b.index(1)), at(P0, b.index(1)))
    with pytest.raises(Trap, match="R55"):
        run(store(both, node(Op.VECTORIZE, b.const(1), b.const(2))), IN)


def test_r24_a_byte_that_is_no_bool() -> None:
    byte = np.array([0, 1], np.uint8)
    with pytest.raises(Trap, match="R24"):
        run(param(0, 2, dt.bool_), {"p0": (byte * 2).view(np.bool_)})


def test_r58_a_range_that_nothing_closes() -> None:
    for graph in (loop(3), load(at(P0, loop(3))), b.sink(store(at(P0, loop(3)), b.const(1)))):
        with pytest.raises(SpecError, match="R58"):
            run(graph, IN)


def test_r60_workgroups_inside_of_lanes() -> None:
    g, lane = loop(3, 0, AxisType.GLOBAL), loop(1, 1, LOCAL)
    inner = b.end(store(at(P0, b.add(g, lane)), b.const(1)), g)
    with pytest.raises(SpecError, match="R60"):
        run(b.end(inner, lane), IN)


def test_r63_a_call_writes_what_it_declares() -> None:
    d = node(Op.DEVICE, arg=A.DeviceArg("CPU"))
    out, x = (node(Op.B_BUFFER, node(Op.UNIQUE, arg=A.UniqueArg(k)), d, arg=A.BBufferArg(3, i32)) for k in (1, 2))
    body = b.sink(store(at(P0), P1))
    inputs = {"b1": IN["p0"], "b2": IN["p1"]}
    assert run(b.call(body, out, x, written=(0,)), inputs).buffers["b1"].tolist() == [4, 5, 6]
    with pytest.raises(SpecError, match="R63"):
        run(b.call(body, out, x, written=(1,)), inputs)


def test_r64_r86_arguments_fit_their_params() -> None:
    with pytest.raises(SpecError, match="R64"):
        run(b.get(b.function(b.tuple_(param(0, 4)), P0), 0), IN)
    with pytest.raises(SpecError, match="R64"):
        run(b.get(b.function(b.tuple_(param(1, 3)), P0), 0), IN)
    with pytest.raises(SpecError, match="R86"):
        run(b.call(b.sink(store(at(param(0, 4)), b.const(1))), P0), IN)


def test_r123_a_value_that_differs_between_lanes_is_no_result() -> None:
    lane = special("lidx0", 2)
    with pytest.raises(SpecError, match="R123"):
        run(lane, {})
    assert run(b.mul(lane, b.index(0)), {}).values[0] == 0


def test_r120_unnamed_memory_is_in_no_result() -> None:
    r = loop(3)
    held = node(Op.BUFFERIZE, b.cast(r, i32), r, arg=A.BufferizeArg("CPU", A.AddrSpace.GLOBAL))
    result = run(node(Op.PRECAST, held), {"b0": ints(9, 9, 9)})
    assert result.values[0].tolist() == [0, 1, 2]
    assert not result.buffers


def test_opaque_code_without_a_registered_meaning() -> None:
    for graph in (
        node(Op.CUSTOM, arg=A.CustomArg("nobody()", i32)),
        node(Op.CUSTOMI, arg=A.CustomArg("nobody()", i32)),
        b.call(node(Op.CUSTOM_FUNCTION, arg=A.NameArg("nobody")), P0),
    ):
        with pytest.raises(Trap, match="Opaque"):
            run(graph, IN)


def test_core_forms_do_not_belong_to_the_dialect() -> None:
    with pytest.raises(SpecError, match="PARAM is not in the BESTIARY dialect"):
        run(node(Op.PRECAST, b.param(0, (3,), i32)), IN)


def test_a_derived_property_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    u = node(Op.MIN, P0, b.const(11))
    object.__setattr__(u, "_min_max", (5, 6))
    try:
        with pytest.raises(Unsound, match="min_max"):
            run(u, IN)
        assert run(u, IN, check=False).values[0].tolist() == [1, 2, 3]
    finally:
        object.__setattr__(u, "_min_max", (-(1 << 31), 11))


def test_r45_r52_r104_a_bitcast_of_a_row_out_of_bounds_is_touched_only_where_its_gate_is_true() -> None:
    i, memory = b.cast(define_var("i", 0, 9), dt.index), param(0, 12, dt.uint8)
    row = b.bitcast(at(b.reshape(memory, (3, 4)), i), dt.uint32)
    inputs = {"p0": np.arange(12, dtype=np.uint8), "i": np.int64(5)}
    gated = at(row, b.index(0), gate=node(Op.CMPLT, i, b.index(3)))
    assert run(load(gated, b.const(7, dt.uint32)), inputs).values[0] == 7
    assert run(store(gated, b.const(7, dt.uint32)), inputs).buffers["p0"].tolist() == [*range(12)]
    with pytest.raises(Trap, match="R45"):
        run(load(at(row, b.index(0))), inputs)
