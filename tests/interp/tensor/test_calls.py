"""Function, GetTuple and Call (R63, R64)."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from uops.interp import find_executed_ops, run
from uops.interp.tensor.machine import TensorMachine
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg, NameArg, SinkArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def P(slot, n=3, d=dt.int32):
    return B.param(slot, (n,), d)


X = {"p0": np.array([1, 2, 3], np.int32), "p1": np.array([10, 20, 30], np.int32)}


def value(root, **inputs):
    return run(root, inputs).values[0].tolist()


def test_r64_a_function_is_its_substituted_body():
    body = B.tuple_(B.sub(P(0), P(1)), B.neg(P(1)))
    f = B.function(body, P(1), P(0))
    assert value(B.get(f, 0), **X) == [9, 18, 27]
    assert value(B.get(f, 1), **X) == [-1, -2, -3]
    assert [v.tolist() for v in run(f, X).values] == [[9, 18, 27], [-1, -2, -3]]
    again = B.function(body, B.get(f, 0), B.get(f, 1))  # the same body in another scope
    assert value(B.get(again, 0), **X) == [10, 20, 30]
    assert value(B.add(B.get(again, 0), B.get(f, 0)), **X) == [19, 38, 57]


def test_r64_nested_bodies_own_their_params():
    inner = B.function(B.tuple_(B.sub(P(0), P(1))), B.mul(P(1), 2), P(0))
    outer = B.function(B.tuple_(B.add(B.get(inner, 0), P(0))), P(0), P(1))
    assert value(B.get(outer, 0), **X) == [20, 40, 60]  # (2 p1 - p0) + p0
    deep = P(0)
    for _ in range(3000):
        deep = B.get(B.function(B.tuple_(B.add(P(0), 1)), deep), 0)
    assert value(deep, **X) == [3001, 3002, 3003]
    nest = B.add(P(0), 1)
    for _ in range(2000):
        nest = B.get(B.function(B.tuple_(nest), B.add(P(0), 1)), 0)
    assert value(nest, **X) == [2002, 2003, 2004]


def test_a_node_that_waits_for_many_bodies_is_met_a_bounded_number_of_times(monkeypatch):
    """Each body waited for may cost a second look at a node, never another one at every node above it."""
    met = Counter()
    give = TensorMachine._evaluate_node_recursively_or_wait

    def counted(self, scope, cells, waiting, u, room):
        met[scope, u] += 1
        return give(self, scope, cells, waiting, u, room)

    monkeypatch.setattr(TensorMachine, "_evaluate_node_recursively_or_wait", counted)
    total = P(0)
    for k in range(200):  # deeper than one recursion, with a body at every level
        total = B.add(total, B.get(B.function(B.tuple_(B.add(P(0), k)), P(0)), 0))
    assert value(total, **X) == [200 * 1 + 19900 + 1, 200 * 2 + 19900 + 2, 200 * 3 + 19900 + 3]
    wide = B.tuple_(*[B.get(B.function(B.tuple_(B.add(P(0), k)), P(0)), 0) for k in range(300)])
    assert [v[0] for v in run(wide, X).values] == [1 + k for k in range(300)]
    assert max(met.values()) <= 4, met.most_common(3)


def test_r64_unused_elements_and_arguments_are_not_evaluated():
    n = B.variable("n", 0, 99)
    bad = B.reshape(B.at(B.neg(P(1)), n), (1,))
    f = B.function(B.tuple_(P(0), B.at(B.neg(P(0)), n), P(1, 1)), P(0), bad)
    inputs = {**X, "n": 77}
    assert value(B.get(f, 0), **inputs) == [1, 2, 3]
    assert Op.NEG not in find_executed_ops(B.get(f, 0), inputs)
    with pytest.raises(Trap, match="R45"):
        run(B.get(f, 1), inputs)


def test_r64_arguments_have_their_params_dtype_and_shape():
    for body, argument, claim, message in (
        (B.neg(P(0)), B.cast(P(0), dt.int64), "FUNCTION.C6", r"dtype int64.*R64"),
        (B.neg(P(0)), B.shrink(P(0), (0,), (2,)), "FUNCTION.C6", r"shape \(2,\).*R64"),
        (B.neg(P(1)), P(0), "FUNCTION.C5", "Param 1 has no argument"),
    ):
        root = B.get(B.function(B.tuple_(body), argument), 0)
        with pytest.raises(SpecError) as broken:
            run(root, X)
        assert broken.value.claim == claim
        with pytest.raises(SpecError, match=message):
            run(root, X, check=False)


def test_r48_a_variable_bound_by_an_argument():
    n = B.variable("n", 1, 3, slot=0)
    body = B.tuple_(B.expand(B.reshape(B.const(7), (1,)), (n,)))
    k = B.variable("k", 0, 9)
    for good in (1, 3):
        assert value(B.get(B.function(body, k), 0), k=good) == [7] * good
    with pytest.raises(Trap, match="R48"):
        run(B.get(B.function(body, k), 0), {"k": 4})
    free = B.variable("m", 0, 5)  # without a slot it is the environment's, in any scope
    assert value(B.get(B.function(B.tuple_(B.add(B.cast(free, dt.int32), P(0))), P(0)), 0), **X, m=5) == [6, 7, 8]


@pytest.mark.parametrize("d", dt.INTS, ids=str)
def test_r48_a_variable_has_its_own_dtype(d: dt.DType):
    """Its arithmetic is that dtype's, modulo 2^bits."""
    u = B.variable("u", d.min, d.max, dtype=d)
    for v in (d.max, np.array(d.max, np.int64 if d.max < 1 << 63 else np.uint64)):
        assert value(u, u=v) == d.max
        assert value(B.add(u, u), u=v) == (-2 if d.min else d.max - 1)
        assert value(B.cast(B.add(u, u), dt.index), u=v) == (-2 if d.min else d.max - 1)


def test_r64_gettuple_of_a_tuple():
    assert value(B.get(B.tuple_(P(0), B.at(B.neg(P(1)), 99)), 0), **X) == [1, 2, 3]


def test_r51_a_reference_passes_through_a_function():
    b = B.buffer(3, dt.int32, unique=1)
    flipped = B.get(B.function(B.tuple_(B.flip(P(0), (True,))), b), 0)
    assert value(flipped, b1=np.array([1, 2, 3], np.int32)) == [3, 2, 1]
    with pytest.raises(SpecError) as broken:  # to store to it asks for a view by name
        run(B.after(b, B.store(flipped, P(0))), X)
    assert broken.value.claim == "STORE.C2"
    inside = B.get(B.function(B.tuple_(B.assign(P(0), B.add(P(0), P(1)))), b, P(0)), 0)
    assert value(B.add(inside, 1), **X, b1=np.array([5, 5, 5], np.int32)) == [7, 8, 9]
    with pytest.raises(Trap, match="R55"):
        run(B.sink(B.store(b, P(0)), inside), {**X, "b1": np.zeros(3, np.int32)})


def kernel():
    """Param 0 := Param 1 + Param 2."""
    return B.sink(B.store(P(0), B.add(P(1), P(2))))


def test_r63_call_writes_its_arguments_and_results_come_through_after():
    b = B.buffer(3, dt.int32, unique=1)
    call = B.call(kernel(), b, P(0), P(1))
    got = run(B.after(b, call), X)
    assert got.values[0].tolist() == [11, 22, 33]
    assert got.buffers["b1"].tolist() == [11, 22, 33]
    assert run(call, X).values == ()
    twice = B.call(kernel(), B.after(b, call), B.after(b, call), P(0))
    assert value(B.after(b, twice), **X) == [12, 24, 36]


def test_r55_r63_two_unordered_calls_race():
    b, c = B.buffer(3, dt.int32, unique=1), B.buffer(3, dt.int32, unique=2)
    with pytest.raises(Trap, match=r"race on element 0 of b1.*R55"):
        run(B.sink(B.call(kernel(), b, P(0), P(1)), B.call(kernel(), b, P(1), P(1))), X)
    first = B.call(kernel(), b, P(0), P(1))
    with pytest.raises(Trap, match="R55"):
        run(B.sink(first, B.call(kernel(), c, b, P(1))), {**X, "b1": np.zeros(3, np.int32)})
    run(B.sink(B.call(kernel(), c, B.after(b, first), P(1))), X)
    part = B.sink(B.store(P(0, 2), P(1, 2)))
    low, high = (B.call(part, B.shrink(b, (k,), (2,)), B.shrink(P(0), (0,), (2,))) for k in (0, 1))
    with pytest.raises(Trap, match="race on element 1 of b1"):
        run(B.sink(low, high), X)


def test_r55_inside_a_call():
    b = B.buffer(3, dt.int32, unique=1)
    body = B.sink(B.store(P(0), P(1)), B.store(P(0), B.neg(P(1))))
    with pytest.raises(Trap, match="R55"):
        run(B.call(body, b, P(0)), X)
    ordered = B.sink(B.store(B.after(P(0), B.store(P(0), P(1))), B.neg(P(1))))
    assert value(B.after(b, B.call(ordered, b, P(0))), **X) == [-1, -2, -3]
    aliased = B.sink(B.store(P(0), P(1)), B.neg(P(2)))  # two Params of one buffer
    with pytest.raises(Trap, match="R55"):
        run(B.call(aliased, b, P(0), b), {**X, "b1": np.zeros(3, np.int32)})


def test_r63_declared_writes():
    b = B.buffer(3, dt.int32, unique=1)
    run(B.call(kernel(), b, P(0), P(1), written=(0,)), X)
    with pytest.raises(SpecError, match="R63"):
        run(B.call(kernel(), b, P(0), P(1), written=(1, 2)), X)


def _through_function() -> UOp:
    f = B.function(B.tuple_(B.after(P(1), B.store(P(1), P(0)))), P(0), P(1))
    return B.get(f, 0)


def _through_loop() -> UOp:
    i = B.range_(3, 0)
    return B.end(B.store(B.at(P(1), i), B.load(B.at(P(0), i))), i)


_COPY = B.sink(B.store(P(1), P(0)))
_KERNEL = UOp(Op.SINK, _COPY.src, SinkArg("k"))
_FUNCTION = UOp(Op.CUSTOM_FUNCTION, (), NameArg("sort"))


@pytest.mark.parametrize(
    "write",
    [
        _through_function(),
        _through_loop(),
        B.call(_COPY, P(0), P(1)),
        B.call(_COPY, P(0), P(1), written=(1,)),
        B.call(B.sink(B.call(_COPY, P(0), P(1))), P(0), P(1)),
        B.call(_KERNEL, P(0), P(1), written=(1,)),
        B.call(_FUNCTION, P(1), P(0), written=(0,)),
    ],
    ids=["function", "loop", "call", "declaring call", "two calls", "kernel", "custom function"],
)
def test_r63_a_call_declares_what_the_bodies_inside_it_write(write):
    """Each of these writes argument 1 of the Call."""
    for written in (None, (1,), (0, 1)):
        assert value(B.after(P(1), B.call(B.sink(write), P(0), P(1), written=written)), **X) == [1, 2, 3]
    for written in ((), (0,)):
        with pytest.raises(SpecError, match=r"the Call writes argument 1, but declares .*R63"):
            run(B.after(P(1), B.call(B.sink(write), P(0), P(1), written=written)), X)


@pytest.mark.parametrize("name", [None, "k"], ids=["tensor", "kernel"])
@pytest.mark.parametrize("argument", [B.const(3), B.const(3, dt.uint8), B.param(7, (), dt.int32), B.variable("v", 0, 99)])
def test_r86_a_variable_of_a_call_takes_one_integer_of_any_dtype(name, argument):
    out, n = B.param(8, (), dt.int32), B.variable("n", 0, 9, 0)
    store = B.store(B.param(1, (), dt.int32), B.cast(B.mul(n, B.index(100)), dt.int32))  # beyond uint8
    root = B.after(out, B.call(UOp(Op.SINK, (store,), name and SinkArg(name)), argument, out))
    inputs = {"p8": np.array(4, np.int32), "p7": np.array(3, np.int32), "v": 3}
    assert value(root, **inputs) == 300
    if argument.op is Op.PARAM:
        with pytest.raises(Trap, match="R48"):
            run(root, {**inputs, "p7": np.array(10, np.int32), "v": 10})


@pytest.mark.parametrize("name", [None, "k"], ids=["tensor", "kernel"])
def test_r86_an_argument_of_a_call_has_as_many_elements_as_its_param(name):
    whole, data = B.param(3, (2, 3), dt.int32), np.arange(6, dtype=np.int32).reshape(2, 3)

    def negated(argument: UOp) -> UOp:
        n = B.param(0, (math.prod(argument.shape),), dt.int32)
        return B.after(whole, B.call(UOp(Op.SINK, (B.store(n, B.neg(n)),), name and SinkArg(name)), argument))

    assert value(negated(whole), p3=data) == [[0, -1, -2], [-3, -4, -5]]
    assert value(negated(B.shrink(whole, (0, 1), (2, 2))), p3=data) == [[0, -1, -2], [3, -4, -5]]
    copied = B.call(UOp(Op.SINK, (B.store(P(0, 6), P(1, 6)),), name and SinkArg(name)), whole, B.neg(whole))
    assert value(B.after(whole, copied), p3=data) == [[0, -1, -2], [-3, -4, -5]]
    for wrong in (B.shrink(whole, (0, 0), (2, 2)), B.bitcast(whole, dt.int16)):
        call = B.call(UOp(Op.SINK, (B.store(P(0, 6), P(0, 6)),), name and SinkArg(name)), wrong)
        with pytest.raises(SpecError, match="R86"):
            run(call, {"p3": data}, check=False)


def test_r86_a_sharded_argument_in_another_shape():
    whole = B.param(3, (4, 6), dt.int32, ("CPU:0", "CPU:1"), 0)
    flat = B.param(0, (24,), dt.int32, ("CPU:0", "CPU:1"), 0)
    data = np.arange(24, dtype=np.int32).reshape(4, 6)
    assert value(B.after(whole, B.call(B.sink(B.store(flat, B.neg(flat))), whole)), p3=data) == (-data).tolist()


def test_a_value_argument_of_a_call_is_read_only():
    b = B.buffer(3, dt.int32, unique=1)
    got = run(B.after(b, B.call(kernel(), b, B.neg(P(0)), P(1))), X)
    assert got.values[0].tolist() == [9, 18, 27]
    with pytest.raises(SpecError, match="R51"):
        run(B.call(kernel(), B.neg(P(0)), P(0), P(1)), X)
    n = B.variable("n", 0, 9)
    scalar = B.sink(B.store(P(0), B.add(P(1), B.cast(B.variable("n", 0, 9, slot=2), dt.int32))))
    assert value(B.after(b, B.call(scalar, b, P(0), n)), **X, n=4) == [5, 6, 7]


@pytest.mark.parametrize("named", [False, True])
def test_an_error_in_a_call_says_its_name_and_annotations(named):
    """A body that is a tensor graph, and one that is a kernel."""
    arg = CallArg("resize", metadata=("layer 3",)) if named else None
    place = B.at(P(0), B.index(7))
    for body in (B.sink(B.store(place, B.const(1))), B.sink(B.store(place, B.const(1)), name="k")):
        call = B.call(body, B.buffer(3, dt.int32, unique=1)).replace(arg=arg)
        with pytest.raises(Trap) as error:
            run(call, {"b1": X["p0"]})
        assert getattr(error.value, "__notes__", []) == (["in the Call resize, layer 3"] if named else [])
