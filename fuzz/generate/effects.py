"""Producers of values that pass through something: a body that is called, a buffer that is written, several devices.

Each `make_...` is what `uops.fuzz.generate.producers.Producer` calls `make`; the roots of graphs that only store are made of the
same parts.
"""

from __future__ import annotations

import math

from uops.backends.testing.values import array
from uops.fuzz.generate.maker import Maker
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Shape = tuple[int, ...]


def make_function(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """A closed body over its own Params, applied to fresh arguments."""
    outer_made, outer_inside = m.made, m.inside
    m.made, m.inside = {}, []
    results = [m.value(d, shape, budget // 2)]
    if m.draw.chance(30):
        results.append(m.value(m.draw.choice(m.dtypes), m.shape(16), 2))
    params, m.made, m.inside = m.inside, outer_made, outer_inside
    shares = m.split(budget - budget // 2, max(1, len(params)))
    arguments = [m.value(p.dtype, p.shape, n) for p, n in zip(params, shares, strict=False)]
    return b.get(b.function(b.tuple_(*results), *arguments), 0)


def make_load(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """A copy, sometimes gated."""
    if not m.draw.chance(40):
        return b.load(m.value(d, shape, budget))
    gate = m.value(dt.bool_, () if m.draw.chance(30) else shape, budget // 3)
    return b.load(m.value(d, shape, budget // 3), m.value(d, shape, budget // 3), gate)


def buffer(m: Maker, d: DType, size: int) -> UOp:
    buf = b.buffer(size, d, unique=1000 + m.slot())
    m.inputs[f"b{buf.arg.unique}"] = array(m.draw, d, (size,))
    return buf


def make_assign(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """Write a value, or a part of it, into a buffer and read the buffer after it; sometimes the value reads the buffer first."""
    size = math.prod(shape)
    buf = buffer(m, d, size)
    view = b.reshape(buf, shape)
    if size and m.draw.chance(30):
        kept = m.draw.integer(0, size - 1)
        done = b.after(buf, b.store(b.shrink(buf, [kept], [size - kept]), m.value(d, (size - kept,), budget)))
        return b.reshape(done, shape)
    value = m.value(d, shape, budget)
    if d is not dt.bool_ and m.draw.chance(40):
        value = UOp(Op.ADD, (b.flip(view, [True] * len(shape)), value))
    gate = (m.value(dt.bool_, shape, 1),) if m.draw.chance(20) else ()
    return b.reshape(b.after(buf, b.store(view, value, *gate)), shape)


def make_call(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """A body that fills its first argument from the others; what it wrote is read after the Call (R63)."""
    size = math.prod(shape)
    target = buffer(m, d, size)
    outer_made, outer_inside = m.made, m.inside
    m.made, m.inside = {}, []
    out = m.param(d, (size,))
    value = m.value(d, (size,), budget // 2)
    if d is not dt.bool_ and m.draw.chance(30):
        value = UOp(Op.ADD, (b.flip(out, [True]), value))
    effect = b.store(out, value)
    body = m.draw.choice((b.sink(effect), b.group(effect), effect))
    params, m.made, m.inside = m.inside, outer_made, outer_inside
    shares = m.split(budget - budget // 2, max(1, len(params) - 1))
    arguments = [m.value(p.dtype, p.shape, n) for p, n in zip(params[1:], shares, strict=False)]
    written = None if m.draw.chance(20) else (0,)
    return b.reshape(b.after(target, b.call(body, target, *arguments, written=written)), shape)


def make_group(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """Two Stores as one effect: the parts of a buffer that they fill are disjoint, so that no order is needed."""
    size = math.prod(shape)
    cut = m.draw.integer(0, size)
    buf = buffer(m, d, size)
    shares = m.split(budget, 2)
    parts = ((0, cut, shares[0]), (cut, size - cut, shares[1]))
    stores = [b.store(b.shrink(buf, [at], [n]), m.value(d, (n,), share)) for at, n, share in parts]
    return b.reshape(b.after(buf, b.group(*stores)), shape)


def make_replicated(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """Copies that are equal, as one of them (R47)."""
    axes = [k for k, n in enumerate(shape) if n == 1 and m.draw.chance(70)] or [shape.index(1)]
    source = list(shape)
    room = m.max_elements // max(1, math.prod(shape))
    for k in axes:
        source[k] = m.extent(max(1, room))
        room //= source[k]
    return b.replicated(b.expand(m.value(d, shape, budget), source), *axes)


def make_everywhere(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """The whole of a value on each of several devices, as the collectives do it, and back on one."""
    size = math.prod(shape)
    n = m.draw.integer(2, min(4, m.max_elements // size))
    row = b.reshape(m.value(d, shape, budget), (1, size))
    copies = b.copy(b.expand(row, (n, size)), tuple(f"D{k}" for k in range(n)))
    there = b.replicated(copies, 0)
    if d is not dt.bool_ and m.draw.chance(60):
        there = UOp(Op.ADD, (there, there))
    return b.reshape(b.copy(there, "CPU"), shape)


def sink_root(m: Maker, values: list[UOp]) -> UOp:
    """The root of a graph that gives its values in Buffers, one of them sometimes in two: a Sink or a Group of Stores."""
    values = values[:1] * 2 if m.draw.chance(25) else values
    stores = [b.store(buffer(m, v.dtype, math.prod(v.shape)), b.reshape(v, (math.prod(v.shape),))) for v in values]
    return b.sink(*stores) if m.draw.chance(50) else b.group(*stores)


def make_shards(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """Scatter over devices, compute there, gather again."""
    n = m.draw.choice([k for k in (2, 3, 4) if shape[0] % k == 0])
    devices = tuple(f"D{k}" for k in range(n))
    there = b.copy(m.value(d, shape, budget), devices)
    if d is not dt.bool_ and m.draw.chance(60):
        there = UOp(Op.ADD, (there, there))
    return b.copy(there, "CPU")
