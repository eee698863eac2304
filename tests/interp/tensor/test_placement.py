"""The derived device and axis of every node are asserted: a wrong rule of the specification is refuted by a run (R72 to R76)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uops.spec.ir.derive  # noqa: F401 - fills RULES
from uops.interp import run
from uops.spec.errors import Trap, Unsound
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import RULES, UOp
from uops.spec.ir.ops import Op

PAIR = ("CPU:0", "CPU:1")
X = b.param(0, (4, 6), dt.int32, PAIR, 1)
WHOLE = b.param(1, (4, 6), dt.int32, PAIR)
INPUTS = {"p0": np.arange(24, dtype=np.int32).reshape(4, 6), "p1": np.ones((4, 6), np.int32), "p3": np.ones((1, 4), np.int32)}

#: op -> a node of that op whose value is sharded, or was.
NODES: dict[Op, UOp] = {
    Op.PERMUTE: b.permute(X, (1, 0)),
    Op.RESHAPE: b.reshape(X, (2, 2, 6)),
    Op.FLIP: b.flip(X, (True, False)),
    Op.EXPAND: b.expand(b.reshape(X, (1, 4, 6)), (3, 4, 6)),
    Op.PAD: b.pad(X, (1, 0), (6, 6)),
    Op.SHRINK: b.shrink(X, (1, 0), (2, 6)),
    Op.INDEX: b.at(X, b.shape_vector((3, 0))),
    Op.STACK: b.stack(X, WHOLE),
    Op.BITCAST: b.bitcast(X, dt.int8),
    Op.REPLICATED: UOp(Op.REPLICATED, (b.copy(b.expand(b.param(3, (1, 4), dt.int32), (2, 4)), PAIR),), A.ReplicatedArg((0,))),
    Op.REDUCE: b.reduce(X, Op.ADD, (1,)),
    Op.ADD: b.add(X, WHOLE),
    Op.CAST: b.cast(X, dt.int64),
    Op.LOAD: b.load(X, to_device=PAIR),
    Op.AFTER: b.after(X, b.store(X, WHOLE)),
    Op.DETACH: b.detach(X),
}


def moved_axis(u: UOp) -> Any:
    """Return another axis than the right one."""
    _, right = u.tag
    return 1 if right in (0, None) and len(u.shape) > 1 else 0 if right != 0 else None


@pytest.mark.parametrize("op", NODES, ids=lambda op: op.name)
def test_a_planted_axis_is_refuted(monkeypatch: pytest.MonkeyPatch, op: Op) -> None:
    good = NODES[op]
    run(good, INPUTS)
    fresh = good.replace(tag=("axis", good.axis))  # a node of its own, for which nothing is derived yet
    monkeypatch.setitem(RULES["_axis"], op, moved_axis)
    with pytest.raises(Unsound, match=f"axis of {op.name}"):
        run(fresh, INPUTS)


@pytest.mark.parametrize("op", NODES, ids=lambda op: op.name)
def test_a_planted_device_is_refuted(monkeypatch: pytest.MonkeyPatch, op: Op) -> None:
    monkeypatch.setitem(RULES["_device"], op, lambda u: "GPU")
    with pytest.raises(Unsound, match=f"device of {op.name}"):
        run(NODES[op].replace(tag="device"), INPUTS)


@pytest.mark.parametrize("slot", ["_device", "_axis"])
def test_without_checks_nothing_is_asserted(monkeypatch: pytest.MonkeyPatch, slot: str) -> None:
    monkeypatch.setitem(RULES[slot], Op.ADD, lambda u: {"_device": "GPU", "_axis": 0}[slot])
    run(b.add(X, WHOLE).replace(tag=("unchecked", slot)), INPUTS, check=False)


def test_an_element_of_a_function_is_where_its_arguments_are(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b.tuple_(b.neg(b.param(0, (4, 6), dt.int32, axis=None)), b.const(1))
    function = b.function(body, b.param(5, (4, 6), dt.int32, "CPU"))
    inputs = {"p5": INPUTS["p0"]}
    for k in range(2):
        assert b.get(function, k).device == "CPU"
        run(b.get(function, k), inputs)
    monkeypatch.setitem(RULES["_device"], Op.GETTUPLE, lambda u: "GPU")
    with pytest.raises(Unsound, match="device of GETTUPLE"):
        run(b.get(function, 0).replace(tag="f"), inputs)


@pytest.mark.parametrize("op", [Op.LOAD, Op.INDEX, Op.ADD])
def test_a_planted_device_in_a_kernel_is_refuted(monkeypatch: pytest.MonkeyPatch, op: Op) -> None:
    def call(axis_id: int) -> UOp:
        out, x = (b.param(k, (4,), dt.int32) for k in range(2))
        r = UOp(Op.RANGE, (b.index(4),), A.RangeArg(axis_id, A.AxisType.LOOP))
        effect = b.end(b.store(b.at(out, r), b.add(b.load(b.at(x, r)), b.const(1))), r)
        return b.call(UOp(Op.SINK, (effect,), A.SinkArg("k")), *(b.buffer(4, dt.int32, unique=k) for k in (1, 2)))

    inputs = {"b1": np.zeros(4, np.int32), "b2": np.arange(4, dtype=np.int32)}
    assert run(call(0), inputs).buffers["b1"].tolist() == [1, 2, 3, 4]
    monkeypatch.setitem(RULES["_device"], op, lambda u: "GPU")
    fresh = call(100 + op.value)  # nodes of its own, for which nothing is derived yet
    with pytest.raises(Unsound, match=f"device of {op.name}"):
        run(fresh, inputs)


def test_a_reduce_of_what_a_pad_added_is_where_the_rest_is() -> None:
    """Elements that a Pad adds are everyone's, so they do not hide the owner of the others."""
    assert b.reduce(NODES[Op.PAD], Op.ADD, (0,)).axis == 1
    assert run(b.reduce(NODES[Op.PAD], Op.ADD, (0,)), INPUTS).values[0].tolist() == [[36, 40, 44, 48, 52, 56]]


def test_a_tuple_of_one_device_owns_the_whole() -> None:
    alone = b.param(0, (4, 6), dt.int32, PAIR[:1], 0)
    assert run(b.reduce(alone, Op.MAX, (0,)), INPUTS).values[0].tolist() == [[18, 19, 20, 21, 22, 23]]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_sharded_value_without_elements_is_cast_to_wider_words(axis: int) -> None:
    x = b.param(0, (0, 4), dt.uint8, ("CPU:0", "CPU:1"), axis)
    assert run(b.bitcast(x, dt.uint16), {"p0": np.zeros((0, 4), np.uint8)}).values[0].shape == (0, 2)


def test_a_position_out_of_bounds_that_is_gated_off_has_no_owner_to_ask() -> None:
    sharded, i = b.param(0, (4, 6), dt.int32, ("CPU:0", "CPU:1"), 1), b.variable("i", 0, 9)
    row = b.expand(b.reshape(b.const(7, dt.int32), (1,)), (6,))
    gate, inputs = b.lt(i, 4), {"p0": np.arange(24, dtype=np.int32).reshape(4, 6)}
    load, store = b.load(b.at(sharded, i), row, gate), b.after(sharded, b.store(b.at(sharded, i), row, gate))
    assert run(load, {**inputs, "i": 7}).values[0].tolist() == [7] * 6
    assert run(load, {**inputs, "i": 2}).values[0].tolist() == [*range(12, 18)]
    assert run(store, {**inputs, "i": 7}).values[0].tolist() == inputs["p0"].tolist()
    with pytest.raises(Trap, match="R45"):
        run(b.load(b.at(sharded, i)), {**inputs, "i": 7})


def test_an_argument_that_no_body_uses_has_its_derived_placement() -> None:
    """The first argument of a Function, which is the result of another one, is never evaluated."""
    x, y = (b.buffer(2, dt.float32, unique=unique) for unique in (1001, 1002))
    p0, p1 = (b.param(k, x.shape, dt.float32) for k in range(2))
    inner = b.get(b.function(b.tuple_(b.neg(p0)), x), 0)
    graph = b.get(b.function(b.tuple_(b.mul(p1, 2.0)), inner, y), 0)
    values = np.arange(x.shape[0], dtype=np.float32)
    found = run(graph, {"b1001": values, "b1002": values}).values[0]
    assert found.tolist() == (2 * values).tolist()
