"""What each op of the second document means, on values worked out by hand; every op of the dialect is executed by one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from uops.fuzz.generate.bestiary.maker import node
from uops.fuzz.reduce.corpus import load_file_test as load_file
from uops.interp import evaluate
from uops.interp import run as run_launch
from uops.interp.bestiary import run
from uops.interp.opaque import register, use_meanings
from uops.spec.bestiary.build import at, load, store
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, COMPARE, MARKERS, SHIFT, TERNARY, UNARY, Op
from uops.spec.verify.dialects import BESTIARY_OPS, Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import verify

f32, i32, u8 = dt.float32, dt.int32, dt.uint8
PAIR = ("D0", "D1")
FILES = sorted((Path(__file__).parents[2] / "examples" / "bestiary").glob("*.uops"))


class Given(NamedTuple):
    """A graph, its inputs, and what must come out: values in order, memories by key."""

    graph: UOp
    inputs: dict[str, Any]
    values: tuple[Any, ...] = ()
    memories: dict[str, Any] = {}  # noqa: RUF012 - never written to


def param(slot: int, size: int, d: DType = i32) -> UOp:
    return node(Op.B_PARAM, arg=A.BParamArg(slot, size, d))


def device(name: A.Device) -> UOp:
    return node(Op.DEVICE, arg=A.DeviceArg(name))


def buffer(n: int, size: int, d: DType = i32, where: A.Device = "CPU", *, op: Op = Op.UNIQUE) -> UOp:
    return node(Op.B_BUFFER, node(op, arg=A.UniqueArg(n)), device(where), arg=A.BBufferArg(size, d))


def loop(bound: int | UOp, k: int = 0, kind: AxisType = AxisType.LOOP, *deps: UOp) -> UOp:
    return node(Op.B_RANGE, bound if isinstance(bound, UOp) else b.index(bound), *deps, arg=A.RangeArg(k, kind))


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def vector(*values: int) -> UOp:
    return node(Op.VECTORIZE, *(b.const(v) for v in values))


def special(name: str, bound: int) -> UOp:
    return node(Op.SPECIAL, b.index(bound), arg=A.SpecialArg(name))


X = np.arange(6, dtype=np.int32).reshape(2, 3)
P0 = param(0, 6)
T = b.reshape(P0, (2, 3))
IN = {"p0": X.reshape(-1)}
SHARDED = b.reshape(buffer(1, 3, where=PAIR), (2, 3))
SHARDS = {"b1": X.reshape(-1)}
ZERO, ONE = b.index(0), b.index(1)


def _bind() -> Given:
    n = node(Op.DEFINE_VAR, arg=A.DefineVarArg("n", 1, 8))
    sized = node(Op.REDUCE_AXIS, b.expand(b.reshape(param(0, 1), (1,)), (n,)), arg=A.ReduceArg(Op.ADD, (0,)))
    return Given(b.tuple_(node(Op.BIND, n, b.index(5)), sized), {"p0": ints(3)}, (5, [15]))


def _lunique() -> Given:
    own = buffer(1, 2, op=Op.LUNIQUE)
    return Given(b.neg(b.after(own, store(at(own), vector(4, 5)))), {}, ([-4, -5],))


def _pointers() -> Given:
    """Lanes 1, [2, 0], and one that a gate keeps out of bounds."""
    m = param(0, 4)
    two = node(Op.VCONST, arg=A.VConstArg((A.ConstArg(2, dt.index), A.ConstArg(0, dt.index)), dt.index))
    gate = node(Op.B_INDEX, m, b.index(7), b.const(False), arg=A.BIndexArg(True))
    address = node(Op.PTRCAT, at(m, ONE), at(m, two), gate)
    return Given(load(address, vector(1, 2, 3, 9)), {"p0": ints(10, 11, 12, 13)}, ([11, 12, 10, 9],))


def _stored_pointers() -> Given:
    m = param(0, 4)
    address = node(Op.PTRCAT, at(m, b.index(3)), at(m, b.index(0)))
    return Given(store(address, vector(7, 8)), {"p0": ints(0, 0, 0, 0)}, (), {"p0": [8, 0, 0, 7]})


def _gated_load_without_alt() -> Given:
    r, m = loop(3), param(0, 2)
    inside = at(m, r, gate=b.lt(r, b.index(2)))
    return Given(node(Op.B_REDUCE, load(inside), r, arg=A.ReduceArg(Op.ADD)), {"p0": ints(4, 5)}, (9,))


def _local_memory() -> Given:
    """Two workgroups of three lanes turn their part around."""
    g, lane = special("gidx0", 2), special("lidx0", 3)
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 3, i32))
    place = b.add(b.mul(g, b.index(3)), lane)
    ready = node(Op.B_BARRIER, shared, store(at(shared, lane), load(at(param(0, 6), place))))
    out = store(at(param(1, 6), place), load(at(ready, b.sub(b.index(2), lane))))
    return Given(out, {"p0": X.reshape(-1), "p1": np.zeros(6, np.int32)}, (), {"p1": [2, 1, 0, 5, 4, 3]})


def _local_loops() -> Given:
    """The same, with loops that make workgroups and lanes."""
    g, lane = loop(2, 0, AxisType.GLOBAL), loop(3, 1, AxisType.LOCAL)
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 3, i32))
    place = b.add(b.mul(g, b.index(3)), lane)
    ready = node(Op.B_BARRIER, shared, store(at(shared, lane), load(at(param(0, 6), place))))
    out = store(at(param(1, 6), place), load(at(ready, b.sub(b.index(2), lane))), g, lane)
    return Given(out, {"p0": X.reshape(-1), "p1": np.zeros(6, np.int32)}, (), {"p1": [2, 1, 0, 5, 4, 3]})


def _barriers_in_a_loop() -> Given:
    """Three rounds of handing on: every lane ends with its own value; two barriers keep the rounds apart."""
    lane, k = loop(3, 1, AxisType.LOCAL), loop(3, 0, AxisType.LOOP)
    shared, own = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 3, i32)), node(Op.DEFINE_REG, arg=A.DefineArg(0, 1, i32))
    begun = store(at(b.after(own, lane), ZERO), load(at(param(0, 3), lane)))
    held = at(b.after(own, begun, k), ZERO)
    ready = node(Op.B_BARRIER, b.after(shared, k), store(at(b.after(shared, k), lane), load(held)))
    taken = store(held, load(at(ready, b.mod(b.add(lane, ONE), b.index(3)))))
    done = b.end(node(Op.B_BARRIER, b.group(taken)), k)
    out = store(at(param(1, 3), lane), load(at(b.after(own, done), ZERO)), lane)
    return Given(out, {"p0": ints(5, 6, 7), "p1": ints(0, 0, 0)}, (), {"p1": [5, 6, 7]})


def _register() -> Given:
    """Prefix sums, in order."""
    r, acc = loop(4, 0, AxisType.REDUCE), node(Op.DEFINE_REG, arg=A.DefineArg(0, 1, i32))
    begun = store(at(acc, ZERO), b.const(0))
    inside = b.after(acc, begun, r)
    step = store(at(inside, ZERO), b.add(load(at(inside, ZERO)), load(at(param(0, 4), r))))
    out = store(at(param(1, 4), r), load(at(b.after(inside, step), ZERO)))
    return Given(b.end(b.group(out), r), {"p0": ints(1, 2, 3, 4), "p1": ints(0, 0, 0, 0)}, (), {"p1": [1, 3, 6, 10]})


def _call() -> Given:
    body = b.sink(store(at(param(0, 3)), b.neg(param(1, 3))))
    out = buffer(1, 3)
    call = b.call(body, out, buffer(2, 3), written=(0,))
    return Given(b.after(out, call), {"b2": ints(1, 2, 3)}, ([-1, -2, -3],), {"b1": [-1, -2, -3]})


def _call_in_loops() -> Given:
    """R121: a Call runs once for each value of a Range among its arguments, in order; nothing else closes it."""
    acc = param(0, 1)
    body = b.sink(store(at(acc), b.mul(acc, b.const(2))))
    return Given(b.call(body, buffer(1, 1), loop(5)), {"b1": ints(1)}, (), {"b1": [32]})


def _call_of_a_slice_per_iteration() -> Given:
    r = loop(2)
    body = b.sink(store(at(param(0, 3)), b.neg(param(0, 3))))
    row = at(b.reshape(buffer(1, 6), (2, 3)), r)
    return Given(b.end(b.call(body, row), r), {"b1": X.reshape(-1)}, (), {"b1": [0, -1, -2, -3, -4, -5]})


def _function() -> Given:
    x, y = param(0, 3), param(1, 3)
    f = b.function(b.tuple_(b.add(x, y), b.sub(x, y)), buffer(1, 3), b.neg(buffer(1, 3)))
    return Given(b.tuple_(b.get(f, 1), b.get(f, 0)), {"b1": ints(1, 2, 3)}, ([2, 4, 6], [0, 0, 0]))


def _kernel_function() -> Given:
    """A Call of a Function over formal parameters."""
    r = loop(3)
    body = node(Op.FUNCTION, b.sink(store(at(param(0, 3), r), b.cast(r, i32), r)), param(0, 3))
    return Given(b.call(body, buffer(1, 3)), {}, (), {"b1": [0, 1, 2]})


def _program(stages: int) -> Given:
    """The Linear adds 1 where the Sink stores 7: it is the more lowered stage."""
    out, r = buffer(1, 2), loop(2)
    listed = node(Op.LINEAR, r, at(out, r), step := store(at(out, r), b.add(load(at(out, r)), b.const(1))), b.end(step, r))
    later = (listed, node(Op.SOURCE, arg=A.SourceArg("")), node(Op.PROGRAM_BINARY, arg=A.BinaryArg(b"")))
    root = node(Op.B_PROGRAM, b.sink(store(at(out), vector(7, 7))), device("CPU"), *later[:stages])
    return Given(root, {"b1": ints(1, 2)}, (), {"b1": [2, 3] if stages else [7, 7]})


def _linear_if() -> Given:
    """R124: the If executes its Store, also where that is listed."""
    out, r = buffer(1, 3), loop(3)
    put = store(at(out, r), b.const(1))
    block = node(Op.B_IF, b.lt(r, b.index(2)), put)
    listed = node(Op.LINEAR, r, at(out, r), block.src[0], put, block, node(Op.ENDIF, block), b.end(block, r))
    return Given(listed, {"b1": ints(0, 0, 0)}, (), {"b1": [1, 1, 0]})


def _linear_loop_invariant() -> Given:
    """In a list a Load stands where it stands: in each iteration it finds what the one before left."""
    out, r = buffer(1, 1), loop(4)
    here = at(out, ZERO)
    step = store(here, b.mul(load(here), b.const(3)))
    listed = node(Op.LINEAR, r, here, step.src[1].src[0], step.src[1], step, b.end(step, r))
    return Given(listed, {"b1": ints(1)}, (), {"b1": [81]})


def _nested_if() -> Given:
    r, m = loop(6), param(0, 6)
    inner = node(Op.B_IF, b.lt(ONE, r), store(at(m, r), b.const(1)))
    return Given(b.end(node(Op.B_IF, b.lt(r, b.index(4)), inner), r), {"p0": np.zeros(6, np.int32)}, (), {"p0": [0, 0, 1, 1, 0, 0]})


def _if_around_loops() -> Given:
    """A gate that names a Range which the body closes."""
    r, m = loop(3), param(0, 3)
    return Given(node(Op.B_IF, b.ne(r, ONE), store(at(m, r), b.const(1), r)), {"p0": ints(0, 0, 0)}, (), {"p0": [1, 0, 1]})


def _nest_by_priority() -> Given:
    """R109: of Ranges closed together LOOP is outside of REDUCE, whichever is named first: the last write is (1, 2)."""
    outer, inner = loop(2, 5, AxisType.LOOP), loop(3, 0, AxisType.REDUCE)
    last = store(at(param(0, 1), ZERO), b.add(b.mul(b.cast(outer, i32), b.const(10)), b.cast(inner, i32)), inner, outer)
    return Given(last, {"p0": ints(0)}, (), {"p0": [12]})


def _triangle() -> Given:
    i = loop(3)
    j = loop(b.add(i, ONE), 1, AxisType.REDUCE, i)
    total = node(Op.B_REDUCE, load(at(param(0, 3), j)), j, arg=A.ReduceArg(Op.MUL))
    return Given(store(at(param(1, 3), i), total, i), {"p0": ints(2, 3, 4), "p1": ints(0, 0, 0)}, (), {"p1": [2, 6, 24]})


def _reduce_of_vectors() -> Given:
    r = loop(2)
    both = node(Op.VECTORIZE, b.cast(r, i32), b.const(10))
    return Given(node(Op.B_REDUCE, both, r, arg=A.ReduceArg(Op.ADD)), {}, (21,))


def _no_iterations(op: Op, d: DType, identity: Any) -> Given:
    return Given(node(Op.B_REDUCE, b.const(1, d), loop(0), arg=A.ReduceArg(op)), {}, (identity,))


def _unroll_two_axes() -> Given:
    """R111: row-major, the first axis outermost."""
    i, j = loop(2, 0, AxisType.UNROLL), loop(3, 1, AxisType.UNROLL)
    return Given(node(Op.UNROLL, b.add(b.mul(i, b.index(10)), j), arg=A.LanesArg(((1, 3), (0, 2)))), {}, ([0, 10, 1, 11, 2, 12],))


def _unroll_keeps_closed_ranges() -> Given:
    """A Range of the axis that a Reduce below has closed is no lane."""
    r = loop(3, 0, AxisType.REDUCE)
    total = node(Op.B_REDUCE, b.cast(r, i32), r, arg=A.ReduceArg(Op.ADD))
    return Given(node(Op.UNROLL, total, arg=A.LanesArg(((0, 2),))), {}, ([3, 3],))


def _unroll_in_a_loop() -> Given:
    i, j = loop(2, 0), loop(3, 1, AxisType.UPCAST)
    lanes = node(Op.UNROLL, load(at(b.reshape(P0, (2, 3)), i, j)), arg=A.LanesArg(((1, 3),)))
    out = b.reshape(param(1, 6), (2, 3))
    return Given(store(at(out, i), b.neg(lanes), i), {**IN, "p1": ints(*[0] * 6)}, (), {"p1": [0, -1, -2, -3, -4, -5]})


def _contract_order() -> Given:
    lanes = node(Op.UNROLL, vector(0, 1, 2, 3, 4, 5), arg=A.LanesArg(((0, 2), (1, 3))))
    return Given(node(Op.CONTRACT, b.neg(lanes), arg=A.LanesArg(((1, 3), (0, 2)))), {}, ([0, -3, -1, -4, -2, -5],))


def _custom() -> Given:
    register(Op.CUSTOM, "test_add({0}, {1})", np.add)
    return Given(node(Op.CUSTOM, b.const(2), b.const(3), arg=A.CustomArg("test_add({0}, {1})", i32)), {}, (5,))


def _customi() -> Given:
    register(Op.CUSTOMI, "test_neg({0})", np.negative)
    return Given(node(Op.CUSTOMI, b.const(2), arg=A.CustomArg("test_neg({0})", i32)), {}, (-2,))


def _custom_statement() -> Given:
    register(Op.CUSTOM, "test_swap({0})", lambda place: place.store(place.load()[::-1]))
    return Given(node(Op.CUSTOM, buffer(1, 2), arg=A.CustomArg("test_swap({0})", dt.void)), {"b1": ints(1, 2)}, (), {"b1": [2, 1]})


def _custom_function() -> Given:
    register(Op.CUSTOM_FUNCTION, "test_reverse", lambda out, x: x[::-1])
    body = node(Op.CUSTOM_FUNCTION, arg=A.NameArg("test_reverse"))
    call = b.call(body, buffer(1, 3), buffer(2, 3), written=(0,))
    return Given(call, {"b1": ints(0, 0, 0), "b2": ints(1, 2, 3)}, (), {"b1": [3, 2, 1]})


def _read_after_custom_function() -> Given:
    call, inputs, _, _ = _custom_function()
    return Given(node(Op.PRECAST, b.after(call.arguments[0], call)), inputs, ([3, 2, 1],), {"b1": [3, 2, 1]})


def _bufferize_local() -> Given:
    r, again = loop(3, 0, AxisType.LOCAL), loop(3, 1)
    held = node(Op.BUFFERIZE, b.cast(r, i32), r, arg=A.BufferizeArg(None, A.AddrSpace.LOCAL))
    return Given(
        store(at(param(0, 3), again), load(at(held, b.sub(b.index(2), again))), again), {"p0": ints(9, 9, 9)}, (), {"p0": [2, 1, 0]}
    )


# fmt: off
GIVEN: dict[str, Callable[[], Given]] = {
    "BIND": _bind, "LUNIQUE": _lunique, "PTRCAT": _pointers, "PTRCAT stored": _stored_pointers,
    "gate without alt": _gated_load_without_alt,
    "DEFINE_LOCAL": _local_memory, "DEFINE_LOCAL in loops": _local_loops, "BARRIER": _barriers_in_a_loop, "DEFINE_REG": _register,
    "CALL": _call, "CALL in loops": _call_in_loops, "CALL of a slice": _call_of_a_slice_per_iteration,
    "FUNCTION": _function, "FUNCTION called": _kernel_function,
    **{f"PROGRAM with {k} stages": lambda k=k: _program(k) for k in range(4)},
    "LINEAR with IF": _linear_if, "LINEAR invariant": _linear_loop_invariant,
    "IF in IF": _nested_if, "IF around loops": _if_around_loops,
    "nest": _nest_by_priority, "triangle": _triangle, "REDUCE lanes": _reduce_of_vectors,
    "REDUCE of nothing, Add": lambda: _no_iterations(Op.ADD, f32, 0),
    "REDUCE of nothing, Mul": lambda: _no_iterations(Op.MUL, f32, 1),
    "REDUCE of nothing, Max": lambda: _no_iterations(Op.MAX, i32, -(1 << 31)),
    "REDUCE of nothing, Min": lambda: _no_iterations(Op.MIN, f32, np.inf),
    "UNROLL": _unroll_two_axes, "UNROLL of a Reduce": _unroll_keeps_closed_ranges, "UNROLL in a loop": _unroll_in_a_loop,
    "CONTRACT": _contract_order,
    "CONTRACT repeats": lambda: Given(node(Op.CONTRACT, b.const(2), arg=A.LanesArg(((0, 3),))), {}, ([2, 2, 2],)),
    "CUSTOM": _custom, "CUSTOMI": _customi, "CUSTOM statement": _custom_statement, "CUSTOM_FUNCTION": _custom_function,
    "CUSTOM_FUNCTION under After": _read_after_custom_function,
    "BUFFERIZE LOCAL": _bufferize_local,
    "POINTER_INDEX": lambda: Given(load(node(Op.POINTER_INDEX, P0, b.index(12))), IN, (3,)),
    "B_PAD": lambda: Given(node(Op.B_PAD, T, arg=A.BPadArg((1, 0), (0, 1))), IN, ([[0, 0, 0, 0], [0, 1, 2, 0], [3, 4, 5, 0]],)),
    "B_SHRINK": lambda: Given(node(Op.B_SHRINK, T, arg=A.BShrinkArg((1, 0), (2, 2))), IN, ([[3, 4]],)),
    "B_SHRINK of a target": lambda: Given(
        store(at(node(Op.B_SHRINK, P0, arg=A.BShrinkArg((4,), (6,)))), vector(7, 8)), IN, (), {"p0": [0, 1, 2, 3, 7, 8]}
    ),
    "BUFFER_VIEW": lambda: Given(node(Op.PRECAST, node(Op.BUFFER_VIEW, P0, arg=A.BufferViewArg(2, 3))), IN, ([3, 4],)),
    "COPY": lambda: Given(node(Op.COPY, T, device(PAIR)), IN, (X,)),
    "MIN": lambda: Given(node(Op.MIN, P0, b.expand(b.reshape(b.const(3), (1,)), (6,))), IN, ([0, 1, 2, 3, 3, 3],)),
    "REDUCE_AXIS Min": lambda: Given(node(Op.REDUCE_AXIS, T, arg=A.ReduceArg(Op.MIN, (1,))), IN, ([[0], [3]],)),
    "MSTACK": lambda: Given(node(Op.MSTACK, *(buffer(k, 2, where=d) for k, d in enumerate(PAIR))),
                            {"b0": ints(1, 2), "b1": ints(3, 4)}, ([1, 2, 3, 4],)),
    "MSELECT": lambda: Given(node(Op.MSELECT, SHARDED, arg=A.MSelectArg(1)), SHARDS, ([[3, 4, 5]],)),
    "MULTI": lambda: Given(node(Op.MULTI, SHARDED, arg=A.MultiArg(0)), SHARDS, (X,)),
    "ALLREDUCE": lambda: Given(node(Op.ALLREDUCE, SHARDED, device("CPU"), arg=A.ReduceArg(Op.ADD)), SHARDS, ([[3, 5, 7]],)),
    "PERMUTE": lambda: Given(b.permute(T, (1, 0)), IN, (X.T,)),
    "FLIP of a target": lambda: Given(store(at(b.flip(P0, (True,))), P0), IN, (), {"p0": [5, 4, 3, 2, 1, 0]}),
    "EXPAND": lambda: Given(b.expand(b.reshape(P0, (1, 6)), (2, 6)), IN, ([X.reshape(-1)] * 2,)),
    "BITCAST": lambda: Given(b.bitcast(T, u8), IN, (X.view(np.uint8),)),
    "BITCAST of a target": lambda: Given(
        store(at(b.bitcast(param(0, 1), u8), ONE), b.const(1, u8)), {"p0": ints(0)}, (), {"p0": [256]}
    ),
    "store under a false gate": lambda: Given(
        store(at(P0, ZERO, gate=b.const(False)), b.const(9)), IN, (), {"p0": [0, 1, 2, 3, 4, 5]}
    ),
    "GROUP": lambda: Given(b.group(store(at(P0, ZERO), b.const(9)), b.const(4)), IN, (4,), {"p0": [9, 1, 2, 3, 4, 5]}),
    "PROGRAM_BINARY": lambda: Given(node(Op.PROGRAM_BINARY, arg=A.BinaryArg(b"ab")), {}, ([97, 98],)),
    "AFTER": lambda: Given(b.after(P0, store(at(P0, ZERO), b.const(9))), IN, ([9, 1, 2, 3, 4, 5],), {"p0": [9, 1, 2, 3, 4, 5]}),
    **{f"{op.name}": lambda op=op: Given(node(op, T), IN, (X,)) for op in sorted(MARKERS, key=lambda op: op.value)},
    "PRECAST": lambda: Given(b.cast(node(Op.PRECAST, T), f32), IN, (X,)),
}
# fmt: on


@pytest.mark.parametrize("schedule", [None, 3])
@pytest.mark.parametrize("name", GIVEN)
def test_value(name: str, schedule: int | None) -> None:
    g = GIVEN[name]()
    verify(g.graph, Dialect.BESTIARY)
    result = run(g.graph, g.inputs, schedule=schedule)
    assert len(result.values) == len(g.values)
    for got, wanted in zip(result.values, g.values, strict=True):
        assert np.array_equal(got, wanted)
    assert result.buffers.keys() == g.memories.keys()
    for key, wanted in g.memories.items():
        assert np.array_equal(result.buffers[key], wanted), key


def test_evaluate_gives_the_values_of_nodes_outside_of_loops() -> None:
    doubled = node(Op.MIN, b.add(T, T), T)
    values = evaluate(node(Op.B_PAD, doubled, arg=A.BPadArg((0, 0), (0, 1))), IN)
    assert np.array_equal(values[doubled], X) and np.array_equal(values[doubled.src[0]], 2 * X)
    r, lane = loop(3), special("lidx0", 2)
    squared, doubled_bound = b.mul(r, r), b.add(lane.src[0], lane.src[0])
    in_loop = node(Op.END, store(at(P0, r), b.cast(squared, i32)), r)
    values = evaluate(b.group(in_loop, b.cast(doubled_bound, i32)), IN)
    assert squared not in values and values[doubled_bound] == 4
    in_lanes = store(at(P0, lane), b.cast(b.add(lane, doubled_bound), i32))
    values = evaluate(in_lanes, IN)
    assert lane not in values and values[doubled_bound] == 4


#: Of each elementwise op: a dtype it is defined on, and its result on 7 and 2 (and 3).
# fmt: off
ELEMENTWISE: dict[Op, tuple[DType, Any]] = {
    Op.RECIP: (f32, 1 / np.float32(7)), Op.TRUNC: (f32, 7), Op.NEG: (i32, -7), Op.NOT: (dt.bool_, False), Op.EXP2: (f32, 128),
    Op.LOG2: (f32, np.float32(np.log2(7))), Op.SIN: (f32, np.float32(np.sin(7))), Op.SQRT: (f32, np.sqrt(np.float32(7))),
    Op.ADD: (i32, 9), Op.MUL: (i32, 14), Op.MAX: (i32, 7), Op.MOD: (i32, 1), Op.IDIV: (i32, 3), Op.SUB: (i32, 5),
    Op.DIV: (f32, 3.5), Op.POW: (f32, 49), Op.MIN: (i32, 2), Op.XOR: (i32, 5), Op.OR: (i32, 7), Op.AND: (i32, 2), Op.SHR: (i32, 1),
    Op.SHL: (i32, 28),
    Op.CMPLT: (i32, False), Op.CMPNE: (i32, True), Op.CMPGT: (i32, True), Op.CMPGE: (i32, True), Op.CMPLE: (i32, False),
    Op.CMPEQ: (i32, False), Op.WHERE: (i32, 2), Op.MULACC: (i32, 17), Op.CAST: (i32, 7),
    Op.THREEFRY: (dt.uint64, None),  # its vectors are tested where it is written
}
# fmt: on


def elementwise(op: Op) -> Given:
    d, wanted = ELEMENTWISE[op]
    operands = [b.const(v, d) for v in (7, 2, 3)][: 1 if op in UNARY | {Op.CAST} else 3 if op in TERNARY else 2]
    if op is Op.WHERE:
        operands = [b.const(True), *operands[1:]]
    return Given(node(op, *operands, arg=A.CastArg(f32) if op is Op.CAST else None), {}, () if wanted is None else (wanted,))


def test_the_table_of_elementwise_ops_is_whole() -> None:
    assert set(ELEMENTWISE) == ALU
    assert COMPARE | SHIFT < set(ELEMENTWISE)


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda o: o.name)
def test_elementwise_value(op: Op) -> None:
    g = elementwise(op)
    (got,) = run(g.graph, {}).values
    assert not g.values or got == g.values[0]
    assert got.dtype == (np.bool_ if op in COMPARE | {Op.NOT} else np.dtype(g.graph.dtype.name))


def executed() -> Iterator[Op]:
    """The ops of all graphs of this module and of the document's files, as a run meets them."""
    given = [make() for make in GIVEN.values()] + [elementwise(op) for op in ELEMENTWISE]
    files = [load_file(p) for p in FILES if p.stem not in ("wmma", "define_var_outside")]
    for graph, inputs in [*((g.graph, g.inputs) for g in given), *((t.graph, t.inputs) for t in files)]:
        found: list[Op] = []
        run(graph, inputs, trace=lambda u, v, found=found: found.append(u.op))  # type: ignore[misc]
        yield from found


def test_every_op_of_the_dialect_is_executed() -> None:
    """Wmma needs a descriptor: the document's example executes it, and `test_bestiary_lanes`."""
    assert BESTIARY_OPS - set(executed()) == {Op.WMMA}


def test_every_graph_with_an_op_of_the_second_document_is_of_it() -> None:
    graphs = [make().graph for make in GIVEN.values()]
    assert all(
        infer_tensor_kernel_or_bestiary_dialect(g) is Dialect.BESTIARY
        for g in graphs
        if any(u.op.name.startswith("B_") for u in toposort(g))
    )


def test_r125_a_special_that_only_an_argument_of_a_call_uses_is_a_dimension_of_the_launch() -> None:
    lane = special("lidx0", 4)
    body = b.sink(store(at(param(0, 1), b.index(0)), b.const(5)))
    call = b.call(body, b.reshape(at(param(0, 4), lane), (1,)))
    assert run(b.sink(call), {"p0": ints(0, 0, 0, 0)}).buffers["p0"].tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize("name", ["²", "1²", "lidx²"])
def test_r125_a_digit_that_is_no_decimal_is_part_of_the_name_of_a_special(name: str) -> None:
    graph = b.sink(store(at(param(0, 4), special(name, 4)), b.const(5)))
    assert run(graph, {"p0": ints(0, 0, 0, 0)}).buffers["p0"].tolist() == [5, 5, 5, 5]


def test_r46_a_load_of_bitcast_memory_has_the_dtype_of_its_index() -> None:
    wide = at(b.bitcast(param(0, 4, u8), dt.uint32), b.index(0))
    assert load(wide).dtype is dt.uint32
    assert run(load(wide), {"p0": np.arange(4, dtype=np.uint8)}).values[0] == 0x03020100


@pytest.mark.parametrize("written", [(0, 1), (1, 0)])
def test_r63_the_results_of_a_custom_function_go_to_the_written_arguments_in_the_order_of_the_arguments(
    written: tuple[int, ...],
) -> None:
    """The interpreter of launches has the same order."""
    body = node(Op.CUSTOM_FUNCTION, arg=A.NameArg("one_and_two"))
    inputs = {"p0": ints(0, 0), "p1": ints(0, 0)}
    with use_meanings({(Op.CUSTOM_FUNCTION, "one_and_two"): lambda a, c: (ints(1, 1), ints(2, 2))}):
        for evaluate_graph, (p0, p1) in (
            (run, (param(0, 2), param(1, 2))),
            (run_launch, (b.param(0, (2,), i32), b.param(1, (2,), i32))),
        ):
            buffers = evaluate_graph(b.sink(node(Op.CALL, body, p0, p1, arg=A.CallArg(written=written))), inputs).buffers
            assert {k: v.tolist() for k, v in buffers.items()} == {"p0": [1, 1], "p1": [2, 2]}
