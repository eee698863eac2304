"""The generator of small well-typed graphs of the second document, one family per op, and the law they are for.

A family makes a graph around its op from a `Draw`, as `uops.fuzz.generate.graphs` does for tensor graphs: shapes first, nothing
rejected, by either driver. The law is that a graph means what its legal form means (R100 to R124): `disagreement` runs both.
Never generated: a Trap, and an order of float additions that could show (floats hold small integers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.backends.testing.values import Draw
from uops.fuzz.generate.bestiary_maker import DTYPES, NUMBERS, SERIAL, Maker, at, device_node, extent, flat, load, node, store
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import Case
from uops.interp import bestiary
from uops.interp.run import run
from uops.spec.bestiary.legalize import legalize
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.wmma import named

REDUCES = (Op.ADD, Op.MUL, Op.MAX, Op.MIN)
PAIR = ("D0", "D1")
DEVICES: list[A.Device] = ["CPU", "GPU", PAIR]
TARGETS: list[A.Device] = ["CPU", "D1", PAIR, ("X", "Y", "Z")]


# ------------------------------------------------------------------------------------------------------------------- tensors


def reduce_axis(m: Maker) -> UOp:
    t = m.tensor(m.dtype(), m.shape(3))
    axes = tuple(k for k in range(len(t.shape)) if m.draw.chance(50))
    return node(Op.REDUCE_AXIS, t, arg=A.ReduceArg(m.draw.choice(REDUCES), axes))


def pad(m: Maker) -> UOp:
    t = m.tensor(m.dtype(), m.shape())
    sides = [tuple(m.draw.integer(0, 2) for _ in t.shape) for _ in range(2)]
    return node(Op.B_PAD, t, arg=A.BPadArg(*sides))


def shrink(m: Maker) -> UOp:
    t = m.tensor(m.dtype(), m.shape())
    begins = tuple(m.draw.integer(0, n) for n in t.shape)
    return node(Op.B_SHRINK, t, arg=A.BShrinkArg(begins, tuple(m.draw.integer(lo, n) for lo, n in zip(begins, t.shape))))


def copy(m: Maker) -> UOp:
    devices: A.Device = m.draw.choice(DEVICES)
    t = m.tensor(m.dtype(), (2 * m.extent(), *m.shape()))
    return node(Op.COPY, t, device_node(devices))


def precast(m: Maker) -> UOp:
    return b.cast(node(Op.PRECAST, m.tensor(m.dtype(), m.shape())), m.dtype())


def minimum(m: Maker) -> UOp:
    d, shape = m.dtype(), m.shape()
    return node(Op.MIN, m.tensor(d, shape), m.tensor(d, shape))


def movement(m: Maker) -> UOp:
    x, y = m.extent(), m.extent()
    t = m.tensor(m.dtype(), (x, y))
    t = m.draw.choice((b.permute(t, (1, 0)), b.flip(t, (m.draw.chance(50), True)), b.reshape(t, (y, x)), t))
    return b.expand(b.reshape(t, (1, *t.shape)), (m.extent(), *t.shape))


def bitcast(m: Maker) -> UOp:
    t = m.tensor(m.draw.choice((dt.int32, dt.float32)), (m.extent(), 2))
    return b.bitcast(t, m.draw.choice((dt.uint8, dt.int16, dt.uint32, dt.int64)))


def elementwise(m: Maker) -> UOp:
    d, shape = m.dtype((dt.int32, dt.float32, dt.int64)), m.shape()
    x, y = (b.contiguous(m.tensor(d, shape)), b.detach(m.tensor(d, shape)))
    return b.where(b.lt(x, y), b.mulacc(x, y, x), node(Op.CONTIGUOUS_BACKWARD, b.sub(x, y)))


def param(m: Maker) -> UOp:
    return b.neg(m.param(m.dtype(NUMBERS), m.extent()))


def buffer(m: Maker) -> UOp:
    """A Buffer of the program, and a local one that is written first."""
    d, n = m.dtype(), m.extent()
    scoped = node(Op.B_BUFFER, node(Op.LUNIQUE, arg=A.UniqueArg(0)), device_node("CPU"), arg=A.BBufferArg(n, d))
    return b.tuple_(b.after(scoped, store(at(scoped), m.buffer(d, n))), m.buffer(d, n))


def buffer_view(m: Maker) -> UOp:
    n = m.extent(6)
    offset = m.draw.integer(0, n)
    view = node(Op.BUFFER_VIEW, m.memory(m.dtype(), n), arg=A.BufferViewArg(m.draw.integer(0, n - offset), offset))
    return node(Op.PRECAST, view)


def variable(m: Maker) -> UOp:
    """A size known at run time, bound or not."""
    lo, hi = m.draw.integer(1, 2), m.draw.integer(3, 5)
    n, value = node(Op.DEFINE_VAR, arg=A.DefineVarArg("batch", lo, hi)), m.draw.integer(lo, hi)
    row = m.tensor(dt.int32, (1, 3))
    sized = node(Op.REDUCE_AXIS, b.expand(row, (n, 3)), arg=A.ReduceArg(Op.ADD, (0,)))
    if m.draw.chance(50):
        return b.tuple_(node(Op.BIND, n, b.index(value)), sized)
    m.inputs["batch"] = value
    return sized


def function(m: Maker) -> UOp:
    """A Function that is asked for some of its elements; its Params are used more than once."""
    d, n = m.dtype(NUMBERS), m.extent()
    x, y = (node(Op.B_PARAM, arg=A.BParamArg(k, n, d)) for k in range(2))
    body = b.tuple_(b.add(x, y), b.reshape(node(Op.MIN, x, y), (1, n)))
    f = b.function(body, m.memory(d, n), b.neg(m.memory(d, n)))
    return b.tuple_(b.get(f, 0), b.get(f, 1)) if m.draw.chance(50) else b.get(f, m.draw.integer(0, 1))


def call(m: Maker) -> UOp:
    """A Call that writes an argument, read after it."""
    d, n = m.dtype(NUMBERS), m.extent()
    out, x = (node(Op.B_PARAM, arg=A.BParamArg(k, n, d)) for k in range(2))
    body = b.sink(store(at(out), b.neg(x)))
    target, source = m.buffer(d, n), m.buffer(d, n)
    return b.after(target, b.call(body, target, source, written=m.draw.choice(((0,), None))))


# ------------------------------------------------------------------------------------------------------------------- devices


def mstack(m: Maker) -> UOp:
    d, shape = m.dtype(), m.shape()
    return node(Op.PRECAST, node(Op.MSTACK, *(m.tensor(d, shape, name) for name in PAIR)))


def _on_pair(m: Maker) -> UOp:
    t = m.tensor(m.dtype(), (2 * m.extent(2), *m.shape()), PAIR)
    return b.permute(t, tuple(reversed(range(len(t.shape))))) if m.draw.chance(50) else t


def mselect(m: Maker) -> UOp:
    return node(Op.MSELECT, _on_pair(m), arg=A.MSelectArg(m.draw.integer(0, 1)))


def multi(m: Maker) -> UOp:
    t = _on_pair(m)
    return node(Op.MULTI, t, arg=A.MultiArg(t.axis or 0))


def allreduce(m: Maker) -> UOp:
    target: A.Device = m.draw.choice(TARGETS)
    return node(Op.ALLREDUCE, _on_pair(m), device_node(target), arg=A.ReduceArg(m.draw.choice(REDUCES)))


# ------------------------------------------------------------------------------------------------------------------- vectors


def vectorize(m: Maker) -> UOp:
    return m.vector(m.dtype(), m.extent())


def gep(m: Maker) -> UOp:
    n = m.extent()
    picked = tuple(m.draw.integer(0, n - 1) for _ in range(m.extent()))
    return node(Op.GEP, m.vector(m.dtype(), n), arg=A.GepArg(picked))


def vconst(m: Maker) -> UOp:
    d = m.dtype((*DTYPES, dt.index))
    values = tuple(A.ConstArg(b.convert(m.draw.integer(0, 3), d), d) for _ in range(m.extent()))
    return node(Op.VCONST, arg=A.VConstArg(values, d))


def cat(m: Maker) -> UOp:
    d = m.dtype()
    return node(Op.CAT, *(m.vector(d, m.extent()) if m.draw.chance(70) else m.element(d) for _ in range(m.extent(3))))


def unroll(m: Maker) -> UOp:
    """An expression over ranges, once per lane; the ranges that are no axes stay loops of a Store."""
    d, n, k = m.dtype(NUMBERS), m.extent(3), m.extent(3)
    i, j = m.range(n), m.range(k)
    axes = ((i.arg.axis_id, n), (j.arg.axis_id, k))
    if m.draw.chance(50):
        return node(Op.UNROLL, m.scalar(d, i, j), arg=A.LanesArg(axes if m.draw.chance(50) else axes[::-1]))
    lanes = node(Op.UNROLL, m.scalar(d, i, j), arg=A.LanesArg(axes[:1]))
    where = b.reshape(m.memory(d, n * k), (k, n))
    return m.kernel(store(at(where, j), lanes, j))


def contract(m: Maker) -> UOp:
    d, n, k = m.dtype(NUMBERS), m.extent(3), m.extent(3)
    i, j = m.range(n), m.range(k)
    axes = ((i.arg.axis_id, n), (j.arg.axis_id, k))
    kind = m.draw.integer(0, 2)
    if kind == 0:
        return node(Op.CONTRACT, m.element(d), arg=A.LanesArg(axes))
    lanes = node(Op.UNROLL, m.scalar(d, i, j) if kind == 1 else m.vector(d, n * k), arg=A.LanesArg(axes))
    return node(Op.CONTRACT, b.neg(lanes), arg=A.LanesArg(axes[::-1] if m.draw.chance(60) else axes))


def ptrcat(m: Maker) -> UOp:
    """Loads and Stores through several addresses, some of them gated."""
    d, n = m.dtype(), 4
    x, y = m.memory(d, n), m.memory(d, n)
    vector = node(Op.VCONST, arg=A.VConstArg(tuple(A.ConstArg(k, dt.index) for k in (3, 0)), dt.index))
    gate = b.const(m.draw.chance(50), dt.bool_)
    parts = [at(x, b.index(1)), at(x, vector), at(y, b.index(9), gate=b.const(False, dt.bool_)), at(y, b.index(2), gate=gate)]
    address = node(Op.PTRCAT, *parts) if m.draw.chance(50) else node(Op.PTRCAT, parts[0], node(Op.PTRCAT, *parts[1:]))
    if m.draw.chance(50):
        return load(address, *((m.vector(d, 5),) if m.draw.chance(50) else ()))
    return m.kernel(store(address, m.vector(d, 5)))


# --------------------------------------------------------------------------------------------------------------------- loops


def end(m: Maker) -> UOp:
    """Stores in loops, closed by Ends or by the Stores."""
    d = m.dtype()
    ranges = sorted((m.range() for _ in range(m.extent(3))), key=lambda r: -r.arg.type.priority)
    target = at(m.memory(d, extent(*ranges)), flat(*ranges))
    value = m.scalar(d, *ranges)
    kept = m.draw.integer(0, len(ranges))
    effect = store(target, value, *ranges[:kept])
    return m.kernel(b.end(effect, *ranges[kept:]) if kept < len(ranges) else effect)


def triangle(m: Maker) -> UOp:
    """An inner loop whose bound is the outer's value."""
    d, n = m.dtype(NUMBERS), m.extent()
    i = m.range(n, (AxisType.LOOP, AxisType.UPCAST))
    j = m.range(b.add(i, b.index(1)), (AxisType.REDUCE, AxisType.UNROLL), *((i,) if m.draw.chance(50) else ()))
    total = node(Op.B_REDUCE, load(at(m.memory(d, n), j)), j, arg=A.ReduceArg(m.draw.choice(REDUCES)))
    return m.kernel(store(at(m.memory(d, n), i), total, i))


def reduce(m: Maker) -> UOp:
    """A reduction over ranges, and the lanes of a vector."""
    d, by = m.dtype(NUMBERS), m.draw.choice(REDUCES)
    i, *inner = [m.range(types=(AxisType.REDUCE, AxisType.UNROLL, AxisType.LOOP)) for _ in range(m.draw.integer(1, 3))]
    value = m.scalar(d, i, *inner)
    if m.draw.chance(30):
        value = node(Op.VECTORIZE, value, m.scalar(d, i, *inner))
    return node(Op.B_REDUCE, value, i, *inner, arg=A.ReduceArg(by))


def bufferize(m: Maker) -> UOp:
    """A reduction for all values of some ranges, in memory, read again."""
    d = m.dtype(NUMBERS)
    space = m.draw.choice((A.AddrSpace.GLOBAL, A.AddrSpace.LOCAL))
    types = SERIAL if space is A.AddrSpace.GLOBAL else (AxisType.LOOP, AxisType.UPCAST, AxisType.LOCAL)
    outer = [m.range(types=types) for _ in range(m.draw.integer(1, 2))]
    inner = m.range(types=(AxisType.REDUCE,))
    value = node(Op.B_REDUCE, m.scalar(d, *outer, inner), inner, arg=A.ReduceArg(m.draw.choice(REDUCES)))
    held = node(Op.BUFFERIZE, value, *outer, arg=A.BufferizeArg(None if space is A.AddrSpace.LOCAL else "CPU", space))
    if space is A.AddrSpace.GLOBAL and m.draw.chance(50):
        return b.neg(held)
    again = [m.range(r.src[0].arg.value, (AxisType.LOOP,)) for r in outer]
    return m.kernel(store(at(m.memory(d, extent(*again)), flat(*again)), load(at(held, *again)), *again))


def gated(m: Maker) -> UOp:
    """Accesses that a gate keeps inside of memory."""
    d, n = m.dtype(), m.extent()
    i = m.range(n + 2)
    gate = b.lt(i, b.index(n))
    alt = (b.const(1, d),) if m.draw.chance(50) else ()
    value = load(at(m.memory(d, n), i, gate=gate), *alt)
    if m.draw.chance(50):
        return m.kernel(store(at(m.memory(d, n + 2), i), value, i))
    return m.kernel(store(at(m.memory(d, n), i, gate=gate), value, i))


def pointer_index(m: Maker) -> UOp:
    d, n = m.dtype(), m.extent()
    i = m.range(n)
    offset = b.mul(i, b.index(d.itemsize)) if m.draw.chance(50) else b.shl(i, b.index(d.itemsize.bit_length() - 1))
    address = node(Op.POINTER_INDEX, m.memory(d, n), offset)
    return m.kernel(store(at(m.memory(d, n), i), load(address), i))


def if_(m: Maker) -> UOp:
    """Two Stores under a condition on a loop, of which one may have a gate of its own."""
    d, n = m.dtype(), m.extent()
    i = m.range(n)
    condition = b.lt(i, b.index(m.draw.integer(0, n)))
    own = b.ne(i, b.index(0)) if m.draw.chance(50) else None
    stores = [store(at(m.memory(d, n), i, gate=g), m.scalar(d, i)) for g in (own, None)]
    block = node(Op.B_IF, condition, *stores) if m.draw.chance(70) else node(Op.B_IF, condition, b.group(*stores))
    return m.kernel(b.end(node(Op.ENDIF, block) if m.draw.chance(50) else block, i))


def register(m: Maker) -> UOp:
    """A sum in a register: initialised, added to in order, read at last."""
    d, n = m.dtype(NUMBERS), m.extent()
    i, r = m.range(types=(AxisType.GLOBAL, AxisType.LOCAL, AxisType.LOOP)), m.range(n, (AxisType.REDUCE,))
    acc = node(Op.DEFINE_REG, arg=A.DefineArg(0, 1, d))
    zero = b.index(0)
    begun = store(at(b.after(acc, i), zero), b.const(0, d))
    inside = b.after(acc, begun, r)
    step = store(at(inside, zero), b.add(load(at(inside, zero)), m.scalar(d, i, r)))
    total = load(at(b.after(acc, b.end(step, r)), zero))
    return m.kernel(store(at(m.memory(d, extent(i)), i), total, i))


def local(m: Maker) -> UOp:
    """Lanes hand values to each other through local memory and a barrier; a workgroup per iteration of an outer loop."""
    d, n = m.dtype(NUMBERS), m.extent()
    g, lane = m.range(types=(AxisType.GLOBAL,)), m.range(n, (AxisType.LOCAL, AxisType.WARP))
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, n, d))
    put = store(at(shared, lane), m.scalar(d, g, lane))
    ready = node(Op.B_BARRIER, shared, put)
    other = b.sub(b.index(n - 1), lane)
    return m.kernel(store(at(m.memory(d, extent(g, lane)), flat(g, lane)), load(at(ready, other)), g, lane))


def special(m: Maker) -> UOp:
    """The same, over the lanes of a launch."""
    d, n, groups = m.dtype(NUMBERS), m.extent(), m.extent()
    g, lane = (node(Op.SPECIAL, b.index(k), arg=A.SpecialArg(name)) for k, name in ((groups, "gidx0"), (n, "lidx0")))
    place = b.add(b.mul(g, b.index(n)), lane)
    source, target = m.memory(d, n * groups), m.memory(d, n * groups)
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, n, d))
    ready = node(Op.B_BARRIER, shared, store(at(shared, lane), load(at(source, place))))
    return m.kernel(store(at(target, place), load(at(ready, b.sub(b.index(n - 1), lane)))))


def linear(m: Maker) -> UOp:
    """The instructions of a loop, in order; perhaps as a stage of a Program."""
    d, n = m.dtype(NUMBERS), m.extent()
    i = m.range(n, (AxisType.LOOP,))
    x, y = m.param(d, n), m.param(d, n)
    value = load(at(x, i))
    put = store(at(y, i), b.neg(value))
    again = store(at(x, i), load(at(b.after(y, put), i)))
    listed = node(Op.LINEAR, i, at(x, i), value, b.neg(value), at(y, i), put, *_late(again), again, b.end(again, i))
    if m.draw.chance(50):
        return listed
    return node(Op.B_PROGRAM, b.sink(b.end(again, i)), device_node("CPU"), *((listed,) if m.draw.chance(50) else ()))


def linear_if(m: Maker) -> UOp:
    """A list with a condition, whose Store is perhaps listed too (R124)."""
    d, n = m.dtype(NUMBERS), m.extent()
    i = m.range(n, (AxisType.LOOP,))
    x, y = m.param(d, n), m.param(d, n)
    condition, value = b.lt(i, b.index(m.draw.integer(0, n))), load(at(x, i))
    put = store(at(y, i), value)
    block = node(Op.B_IF, condition, put)
    body = (put,) if m.draw.chance(50) else ()
    done = node(Op.ENDIF, block)
    return node(Op.LINEAR, i, at(x, i), value, at(y, i), condition, *body, block, done, b.end(done, i))


def _late(effect: UOp) -> list[UOp]:
    """What the second Store needs, in order."""
    value = effect.src[1]
    return [value.src[0], value.src[1], value]


def wmma(m: Maker) -> UOp:
    """The lanes of a warp multiply matrices: loops of lanes, or a launch."""
    d = named("simdgroup_multiply_accumulate")[0]
    size = d.c.elements
    if m.draw.chance(50):
        lane = m.range(d.threads, (AxisType.WARP, AxisType.LOCAL))
    else:
        lane = node(Op.SPECIAL, b.index(d.threads), arg=A.SpecialArg("lidx0"))
    held = [load(at(b.reshape(m.memory(d.dtype_in, d.threads * size), (d.threads, size)), lane)) for _ in range(3)]
    product = node(Op.WMMA, *held, arg=A.WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "GPU", d.threads))
    out = b.reshape(m.memory(d.dtype_out, d.threads * size), (d.threads, size))
    return m.kernel(store(at(out, lane), product, *(() if lane.op is Op.SPECIAL else (lane,))))


def group(m: Maker) -> UOp:
    """Several effects as one root, and a value beside them."""
    d, n = m.dtype(), m.extent()
    i, j = m.range(n), m.range(n)
    effects = [store(at(m.memory(d, n), r), m.scalar(d, r), r) for r in (i, j)]
    return b.group(*effects) if m.draw.chance(50) else b.sink(b.group(*effects), m.tensor(d, (n,)))


Family = Callable[[Maker], UOp]
#: Name -> family.
FAMILIES: dict[str, Family] = {
    f.__name__: f
    for f in (
        (reduce_axis, pad, shrink, copy, precast, minimum, movement, bitcast, elementwise, param, buffer, buffer_view, variable)
        + (function, call, mstack, mselect, multi, allreduce)
        + (vectorize, gep, vconst, cat, unroll, contract, ptrcat)
        + (end, triangle, reduce, bufferize, gated, pointer_index, if_, register, local, special, linear, linear_if, wmma, group)
    )
}


def generate(draw: Draw, family: str) -> Case:
    """One case of a family; a pure function of `draw`'s choices."""
    m = Maker(draw)
    return Case(FAMILIES[family](m), m.inputs)


def case(family: str, seed: int) -> Case:
    """The fast driver's case of `seed`."""
    return generate(SeededDraw(seed), family)


# ------------------------------------------------------------------------------------------------------------------- the law


def disagreement(c: Case, schedule: int | None = None) -> str | None:
    """How the graph and its legal form differ, or None. Zeros of either sign are equal, and NaNs."""
    direct, legal = bestiary.run(c.graph, c.inputs, schedule=schedule), run(legalize(c.graph), c.inputs)
    if len(direct.values) != len(legal.values):
        return f"{len(direct.values)} values, {len(legal.values)} in the legal form"
    for k, (x, y) in enumerate(zip(direct.values, legal.values)):
        if not _same(x, y):
            return f"value {k}: {x!r}, in the legal form {y!r}"
    names = {f"b{u.arg.id}" for u in toposort(c.graph) if u.op is Op.UNIQUE} | {k for k in c.inputs if k.startswith("p")}
    for name in sorted(names & {*direct.buffers, *legal.buffers}):
        x, y = (_contents(r, name, c) for r in (direct, legal))
        if not _same(x, y):
            return f"{name}: {x!r}, in the legal form {y!r}"
    return None


def _contents(r: Result, key: str, c: Case) -> Any:
    """What is in memory after a run: as it was, where nothing was written; 0, where nothing was ever."""
    found = r.buffers.get(key, c.inputs.get(key))
    return np.zeros(0) if found is None else found


def _same(x: Any, y: Any) -> bool:
    a, other = np.asarray(x), np.asarray(y)
    if 0 in (a.size, other.size):  # memory that nobody wrote, against zeros
        return not a.any() and not other.any()
    if a.dtype != other.dtype or a.shape != other.shape:
        return False
    if a.dtype.kind in "biu":
        return bool((a == other).all())
    wide, w = a.astype(np.float64), other.astype(np.float64)
    return bool(((wide == w) | (np.isnan(wide) & np.isnan(w))).all())
