"""Programs with Calls of kernels written by hand, in every form that a kernel may have, with inputs for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ParamArg, ReduceArg, SpecialArg
from uops.spec.ir.axes import AxisType as T
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

F32, I32 = dt.float32, dt.int32


class Program(NamedTuple):
    """A TENSOR graph, and its inputs by key."""

    graph: UOp
    inputs: dict[str, Any]


def param(slot: int, *shape: int | UOp, dtype: DType = F32) -> UOp:
    return b.param(slot, shape, dtype)


def size(slot: int, most: int = 16) -> UOp:
    """A scalar Param of a kernel, which may be an extent."""
    return UOp(Op.PARAM, (b.SCALAR,), ParamArg(slot, dt.index, name="n", bounds=(0, most)))


def load(memory: UOp, *positions: UOp | int) -> UOp:
    return b.load(b.at(memory, *positions))


def special(n: int, name: str) -> UOp:
    return UOp(Op.SPECIAL, (b.index(n),), SpecialArg(name))


def loop(n: int | UOp, axis_id: int = 0, axis_type: T = T.LOOP) -> UOp:
    return b.range_(n, axis_id, axis_type)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def elementwise(value: UOp, n: int = 8, out: UOp | None = None) -> UOp:
    """A kernel that stores `value`, of the loop `loop(n)`, to its first Param."""
    i = loop(n)
    return b.sink(b.end(b.store(b.at(param(0, n) if out is None else out, i), value), i), name="kernel")


def prefix_sum() -> Program:
    p, i = param(0, 8), loop(7)
    store = b.store(b.at(p, b.add(i, 1)), b.add(load(p, i), load(p, b.add(i, 1))))
    memory = b.buffer(8, F32, unique=1)
    return Program(b.after(memory, b.call(b.sink(b.end(store, i), name="prefix"), memory)), {"b1": floats(8)})


def transpose() -> Program:
    o, x, i, j = param(0, 4, 6), param(1, 6, 4), loop(4), loop(6, 1)
    body = b.sink(b.end(b.store(b.at(o, i, j), b.at(x, j, i)), i, j), name="transpose")  # a reference as a value (R51)
    out = b.buffer(24, F32, unique=1)
    result = b.reshape(b.after(out, b.call(body, out, param(0, 6, 4), written=(0,))), (4, 6))
    return Program(result, {"p0": floats(6, 4)})


def column_of_a_matrix_as_argument() -> Program:
    o, x, i = param(0, 4), param(1, 4), loop(4)
    body = b.sink(b.end(b.store(b.at(o, i), b.add(load(o, i), load(x, i))), i), name="add")
    out, a = b.buffer(12, F32, unique=1), param(0, 4, 4)
    column = b.reshape(b.shrink(b.permute(a, (1, 0)), (1, 0), (1, 4)), (4,))
    call = b.call(body, b.shrink(out, (4,), (4,)), column, written=(0,))
    return Program(b.mul(b.after(out, call), 2.0), {"p0": floats(4, 4), "b1": np.ones(12, np.float32)})


def part_that_a_list_writes() -> Program:
    o, x, i = param(0, 4), param(1, 4), loop(4)
    source, target = b.at(x, i), b.at(o, i)
    value = b.load(source)
    store = b.store(target, value)
    body = UOp(Op.LINEAR, (o, x, i, source, value, target, store, b.end(store, i)))
    out = b.buffer(12, F32, unique=1)
    call = b.call(body, b.flip(b.shrink(out, (4,), (4,)), (True,)), b.mul(param(0, 4), 2.0), written=(0,))
    return Program(b.after(out, call), {"p0": floats(4), "b1": np.ones(12, np.float32)})


def scalar_argument(argument: UOp, **inputs: int) -> Program:
    i = loop(size(1))
    body = b.sink(b.end(b.store(b.at(param(0, 16), i), b.cast(i, F32)), i), name="iota")
    out = b.buffer(16, F32, unique=1)
    return Program(b.after(out, b.call(body, out, argument)), {**inputs, "b1": -np.ones(16, np.float32)})


def symbolic_memory() -> Program:
    n = size(2)
    o, x, i = param(0, 16), param(1, n), loop(n)
    body = b.sink(b.end(b.store(b.at(o, i), b.mul(load(x, i), 3.0)), i), name="triple")
    out, m = b.buffer(16, F32, unique=1), b.variable("m", 1, 16)
    call = b.call(body, out, b.add(b.shrink(param(0, 16), (0,), (m,)), 1.0), m, written=(0,))
    return Program(b.after(out, call), {"m": 5, "p0": floats(16), "b1": -np.ones(16, np.float32)})


def symbolic_parameter() -> Program:
    n, m = size(2), b.variable("m", 1, 16)
    o, x, i = param(0, 16), param(1, n), loop(n)
    body = b.sink(b.end(b.store(b.at(o, i), b.mul(load(x, i), 3.0)), i), name="triple")
    out = b.buffer(16, F32, unique=1)
    return Program(b.after(out, b.call(body, out, param(0, m), m, written=(0,))), {"m": 5, "p0": floats(5), "b1": floats(16)})


def equal_sums_without_a_sink() -> Program:
    """Two sums at positions that fold to the same one: each adds, also if the body's root is an End."""
    o, x, i = param(0, 1), param(1, 4), loop(4)
    adds = [UOp(Op.ATOMICADD, (b.at(o, b.mul(b.mod(i, n), 0)), b.const(1.0))) for n in (2, 3)]
    body = b.end(b.group(*adds, UOp(Op.ATOMICADD, (b.at(o, 0), load(x, i)))), i)
    out = b.buffer(1, F32, unique=1)
    return Program(b.after(out, b.call(body, out, param(0, 4), written=(0,))), {"p0": floats(4), "b1": floats(1)})


def workgroups(barrier: bool, ranges: bool = False) -> Program:
    o, x = param(0, 32), param(1, 32)
    g = loop(4, 0, T.GLOBAL) if ranges else special(4, "gidx0")
    lane = loop(8, 1, T.LOCAL) if ranges else special(8, "lidx0")
    k = b.add(b.mul(g, 8), lane)
    tile = b.buffer(8, F32, addrspace=AddrSpace.LOCAL, unique=1)
    filled = b.after(tile, UOp(Op.BARRIER, (b.store(b.at(tile, lane), load(x, k)),)))
    value = load(filled, b.sub(7, lane)) if barrier else b.mul(load(x, k), 3.0)
    store = b.store(b.at(o, k), value)
    body = b.sink(b.end(b.end(store, lane), g) if ranges else store, name="lanes")
    out = b.buffer(32, F32, unique=1)
    return Program(b.after(out, b.call(body, out, param(0, 32), written=(0,))), {"p0": floats(32)})


def histogram() -> Program:
    o, x, i = param(0, 4, dtype=I32), param(1, 32, dtype=I32), loop(32, 0, T.GLOBAL)
    body = b.sink(b.end(UOp(Op.ATOMICADD, (b.at(o, b.mod(i, 4)), load(x, i))), i), name="histogram")
    out = b.buffer(4, I32, unique=1)
    inputs = {"p0": np.arange(32, dtype=np.int32), "b1": np.zeros(4, np.int32)}
    return Program(b.after(out, b.call(body, out, param(0, 32, dtype=I32), written=(0,))), inputs)


def if_in_a_list() -> Program:
    o, x, i = param(0, 8), param(1, 8), loop(8)
    source, target = b.at(x, i), b.at(o, i)
    value = b.load(source)
    condition = b.lt(value, b.const(3.0, F32))
    block = UOp(Op.IF, (condition,))
    store = b.store(target, value)
    listed = (o, x, i, source, value, condition, block, target, store, UOp(Op.ENDIF, (block,)), b.end(store, i))
    out = b.buffer(8, F32, unique=1)
    inputs = {"p0": floats(8), "b1": -np.ones(8, np.float32)}
    return Program(b.after(out, b.call(UOp(Op.LINEAR, listed), out, param(0, 8), written=(0,))), inputs)


def row_sums() -> Program:
    o, x, i, j = param(0, 4), param(1, 4, 6), loop(4), loop(6, 1, T.REDUCE)
    total = UOp(Op.REDUCE, (load(x, i, j), j), ReduceArg(Op.ADD, ()))
    body = b.sink(b.end(b.store(b.at(o, i), b.neg(total)), i), name="rows")
    out = b.buffer(4, F32, unique=1)
    return Program(b.after(out, b.call(body, out, param(0, 4, 6), written=(0,))), {"p0": floats(4, 6)})


def float8() -> Program:
    d, i = dt.fp8e4m3, loop(8)
    body = elementwise(b.mul(load(param(1, 8, dtype=d), i), b.const(2.0, d)), out=param(0, 8, dtype=d))
    out = b.buffer(8, d, unique=1)
    inputs = {"p0": np.arange(8).astype(ml_dtypes.float8_e4m3fn)}
    return Program(b.after(out, b.call(body, out, param(0, 8, dtype=d), written=(0,))), inputs)


def vector_axis() -> Program:
    i, j = loop(8), loop(4, 1, T.UPCAST)
    k = b.add(b.mul(i, 4), j)
    store = b.store(b.at(param(0, 32), k), b.mul(load(param(1, 32), k), 3.0))
    out = b.buffer(32, F32, unique=1)
    call = b.call(b.sink(b.end(b.end(store, j), i), name="vector"), out, param(0, 32), written=(0,))
    return Program(b.after(out, call), {"p0": floats(32)})


def on_memory(store: UOp, *loops: UOp, arguments: tuple[UOp, ...], n: int, inputs: dict[str, Any]) -> Program:
    """A Call of a kernel of one Store, whose first argument is a Buffer of `n` elements that hold -1."""
    out = b.buffer(n, store.value.dtype, unique=1)
    call = b.call(b.sink(b.end(store, *loops), name="kernel"), out, *arguments, written=(0,))
    return Program(b.after(out, call), {**inputs, "b1": -np.ones(n, np.float32)})


def views_below_accesses() -> Program:
    """Every view that may stand between memory and an access: of what is read and of what is written."""
    i, j = loop(3), loop(4, 1)
    read = b.flip(b.permute(b.reshape(param(1, 24), (4, 6)), (1, 0)), (True, False))  # (6, 4)
    read = b.shrink(read, (2, 0), (3, 4))
    written = b.slice_(b.reshape(b.permute(param(0, 6, 4), (0, 1)), (24,)), 6, 12)
    store = b.store(b.at(written, b.add(b.mul(i, 4), j)), load(read, i, j))
    return on_memory(store, i, j, arguments=(param(0, 24),), n=24, inputs={"p0": floats(24)})


def index_in_two_steps() -> Program:
    i, j = loop(3), loop(4, 1)
    store = b.store(b.at(b.at(param(0, 3, 4), i), j), load(b.at(param(1, 2, 3, 4), 1), i, j))
    return on_memory(store, i, j, arguments=(param(0, 2, 3, 4),), n=12, inputs={"p0": floats(2, 3, 4)})


def bitcast_view() -> Program:
    i = loop(8)
    store = b.store(b.bitcast(b.at(param(0, 8), i), I32), b.add(load(b.bitcast(param(1, 8), I32), i), 1))
    out = b.buffer(8, F32, unique=1)
    call = b.call(b.sink(b.end(store, i), name="bits"), out, param(0, 8), written=(0,))
    return Program(b.after(out, call), {"p0": floats(8), "b1": floats(8)})


def positions_from_memory() -> Program:
    """Positions that are data, of which some are out of bounds where the gate does not hold."""
    i, k = loop(8), param(2, 8, dtype=dt.int64)
    position = b.cast(load(k, i), dt.index)
    inside = b.lt(load(k, i), b.const(6, dt.int64))
    value = b.load(b.at(param(1, 6), position), b.const(-2.0, F32), inside)
    store = b.store(b.at(param(0, 8), i), value)
    inputs = {"p0": floats(6), "p1": np.array([5, 0, 1 << 40, 3, 6, 2, 100, 4])}
    return on_memory(store, i, arguments=(param(0, 6), param(1, 8, dtype=dt.int64)), n=8, inputs=inputs)


def rows_as_vectors() -> Program:
    i = loop(4)
    row = b.mul(b.at(param(1, 4, 8), i), b.at(param(2, 8)))
    store = b.store(b.at(param(0, 4, 8), i), b.flip(row, (True,)))
    return on_memory(store, i, arguments=(param(0, 4, 8), param(1, 8)), n=32, inputs={"p0": floats(4, 8), "p1": floats(8)})


def vector_of_a_stack() -> Program:
    i = loop(4)
    x = param(1, 4)
    stack = b.stack(load(x, i), b.neg(load(x, i)), b.const(7.0, F32))
    store = b.store(b.at(param(0, 4, 3), i), b.add(stack, b.at(param(2, 4, 3), i)))
    inputs = {"p0": floats(4), "p1": floats(4, 3)}
    return on_memory(store, i, arguments=(param(0, 4), param(1, 4, 3)), n=12, inputs=inputs)


def vector_used_twice() -> Program:
    """A vector that is read once, although one of its two uses stands behind a Store to the memory it was read from."""
    p = param(0, 8)
    old = b.load(b.shrink(p, (0,), (4,)))
    first = b.store(b.shrink(p, (0,), (4,)), b.flip(old, (True,)))
    second = b.store(b.shrink(b.after(p, first), (4,), (4,)), old)
    memory = b.buffer(8, F32, unique=1)
    return Program(b.after(memory, b.call(b.sink(second, name="swap"), memory)), {"b1": floats(8)})


def vector_reversed_in_place() -> Program:
    p = param(0, 2, 8)
    i = loop(2)
    row = b.at(p, i)
    memory = b.buffer(16, F32, unique=1)
    body = b.sink(b.end(b.store(row, b.flip(b.load(row), (True,))), i), name="reverse")
    return Program(b.after(memory, b.call(body, memory)), {"b1": floats(16)})


def sum_of_vectors() -> Program:
    """A Reduce over a loop that gives a vector, both elements of which are used, and one over an axis."""
    j = loop(5, 1, T.REDUCE)
    total = UOp(Op.REDUCE, (b.at(param(1, 5, 3), j), j), ReduceArg(Op.ADD, ()))
    mean = b.reshape(b.reduce(total, Op.ADD, (0,)), ())
    store = b.store(b.at(param(0, 3)), b.stack(b.at(total, 0), b.sub(b.at(total, 2), b.at(total, 1)), mean))
    return on_memory(store, arguments=(param(0, 5, 3),), n=3, inputs={"p0": floats(5, 3)})


def long_vector() -> Program:
    store = b.store(b.at(param(0, 1000)), b.add(b.at(param(1, 1000)), 1.0))
    return on_memory(store, arguments=(param(0, 1000),), n=1000, inputs={"p0": floats(1000)})


def same_reference_twice(view: bool) -> Program:
    """The kernel shifts memory that it gets as two arguments: each iteration reads what the one before wrote."""
    o, x, i = param(0, 8), param(1, 8), loop(7)
    store = b.store(b.at(o, b.add(i, 1)), b.add(load(x, i), 1.0))
    memory = b.buffer(16, F32, unique=1)
    reference = b.shrink(memory, (4,), (8,)) if view else memory
    if not view:
        o, x = param(0, 16), param(1, 16)
        store = b.store(b.at(o, b.add(i, 1)), b.add(load(x, i), 1.0))
    call = b.call(b.sink(b.end(store, i), name="shift"), reference, reference, written=(0,))
    return Program(b.after(memory, call), {"b1": floats(16) * 10})


def calls_in_turn() -> Program:
    """Values that are read before, between and after Calls that write their memory."""
    i = loop(8)
    body = elementwise(b.mul(load(param(0, 8), i), 2.0))
    memory = b.buffer(8, F32, unique=1)
    filled = b.after(memory, b.store(memory, param(0, 8)))
    before = b.add(b.load(filled), 1.0)
    once = b.after(filled, b.call(body, b.after(filled, before)))
    between = b.add(b.load(once), 0.5)
    twice = b.after(once, b.call(body, b.after(once, between)))
    return Program(b.stack(before, between, b.load(twice)), {"p0": floats(8)})


def store_after_a_call_that_reads() -> Program:
    i = loop(8)
    body = elementwise(b.mul(load(param(1, 8), i), 2.0))
    memory, out = b.buffer(8, F32, unique=1), b.buffer(8, F32, unique=2)
    call = b.call(body, out, memory, written=(0,))
    changed = b.after(memory, b.store(b.after(memory, call), b.expand(b.reshape(b.const(0.0, F32), (1,)), (8,))))
    return Program(b.add(b.after(out, call, changed), b.load(changed)), {"b1": floats(8)})


def empty_memory() -> Program:
    i, o = loop(0), param(0, 4)
    body = b.sink(b.end(b.store(b.at(o, i), load(param(1, 0), i)), i), b.store(b.at(o, 3), b.const(9.0, F32)), name="nothing")
    out = b.buffer(4, F32, unique=1)
    value = b.shrink(b.mul(param(0, 4), 2.0), (0,), (0,))
    return Program(b.after(out, b.call(body, out, value, written=(0,))), {"p0": floats(4), "b1": floats(4)})


PROGRAMS = {
    "a prefix sum in place": prefix_sum(),
    "Params of two axes": transpose(),
    "views as arguments": column_of_a_matrix_as_argument(),
    "a view that a list of instructions writes": part_that_a_list_writes(),
    "an expression of a variable as an argument": scalar_argument(b.mul(b.variable("m", 0, 7), 2), m=5),
    "a constant as an argument": scalar_argument(b.index(9)),
    "a value of symbolic size as an argument": symbolic_memory(),
    "a Param of symbolic size as an argument": symbolic_parameter(),
    "Specials": workgroups(barrier=False),
    "Specials and a Barrier": workgroups(barrier=True),
    "loops of lanes and a Barrier": workgroups(barrier=True, ranges=True),
    "AtomicAdd": histogram(),
    "AtomicAdds that become equal in a body without a Sink": equal_sums_without_a_sink(),
    "If in a list": if_in_a_list(),
    "a Reduce": row_sums(),
    "fp8": float8(),
    "an UPCAST axis": vector_axis(),
    "views below accesses": views_below_accesses(),
    "an Index of an Index": index_in_two_steps(),
    "a Bitcast below accesses": bitcast_view(),
    "positions from memory": positions_from_memory(),
    "rows as vectors": rows_as_vectors(),
    "a vector of a Stack": vector_of_a_stack(),
    "a vector used twice": vector_used_twice(),
    "a vector reversed in place": vector_reversed_in_place(),
    "Reduces that give and take vectors": sum_of_vectors(),
    "a long vector": long_vector(),
    "one memory as two arguments": same_reference_twice(view=False),
    "one view as two arguments": same_reference_twice(view=True),
    "values around Calls": calls_in_turn(),
    "a Store after a Call that reads": store_after_a_call_that_reads(),
    "memory of no elements": empty_memory(),
}
