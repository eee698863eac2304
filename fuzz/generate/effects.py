"""Producers of values that pass through a called body, a written buffer or several devices.

Each `make_...` function is the `make` of a producer (`uops.fuzz.generate.maker.Producer`). The roots of graphs that only store
are made of the same parts.
"""

from __future__ import annotations

import math

from uops.backends.testing.values import draw_array
from uops.fuzz.generate.maker import GraphMaker, Shape
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def make_function_result(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a Function with a closed body over its own Params, applied to fresh arguments."""
    outer_made, outer_inside = m.values_by_type, m.body_params
    m.values_by_type, m.body_params = {}, []
    results = [m.make_value(d, shape, budget // 2)]
    if m.draw.chance(30):
        results.append(m.make_value(m.draw.choice(m.dtypes), m.draw_shape(16), 2))
    params, m.values_by_type, m.body_params = m.body_params, outer_made, outer_inside
    shares = m.split_budget(budget - budget // 2, max(1, len(params)))
    arguments = [m.make_value(p.dtype, p.shape, n) for p, n in zip(params, shares, strict=False)]
    return b.get(b.function(b.tuple_(*results), *arguments), 0)


def make_load_of_value_maybe_gated(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a Load, sometimes a gated one."""
    if not m.draw.chance(40):
        return b.load(m.make_value(d, shape, budget))
    gate = m.make_value(dt.bool_, () if m.draw.chance(30) else shape, budget // 3)
    return b.load(m.make_value(d, shape, budget // 3), m.make_value(d, shape, budget // 3), gate)


def make_buffer_with_data(m: GraphMaker, d: DType, size: int) -> UOp:
    """Make a Buffer with data."""
    buffer = b.buffer(size, d, unique=1000 + m.take_slot())
    m.inputs[f"b{buffer.arg.unique}"] = draw_array(m.draw, d, (size,))
    return buffer


def make_store_and_read(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Store a value into a Buffer, or into a part of it, and read the Buffer afterwards. Sometimes the value reads the
    Buffer first.
    """
    size = math.prod(shape)
    buffer = make_buffer_with_data(m, d, size)
    view = b.reshape(buffer, shape)
    if size and m.draw.chance(30):
        start = m.draw.integer(0, size - 1)
        stored = b.after(buffer, b.store(b.shrink(buffer, [start], [size - start]), m.make_value(d, (size - start,), budget)))
        return b.reshape(stored, shape)
    value = m.make_value(d, shape, budget)
    if d is not dt.bool_ and m.draw.chance(40):
        value = UOp(Op.ADD, (b.flip(view, [True] * len(shape)), value))
    gate = (m.make_value(dt.bool_, shape, 1),) if m.draw.chance(20) else ()
    return b.reshape(b.after(buffer, b.store(view, value, *gate)), shape)


def make_call_and_read_its_output(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a Call whose body fills its first argument from the others, and read this argument after the Call (R63: a Call
    declares what it writes).
    """
    size = math.prod(shape)
    target = make_buffer_with_data(m, d, size)
    outer_made, outer_inside = m.values_by_type, m.body_params
    m.values_by_type, m.body_params = {}, []
    out = m.make_param_with_data_or_of_body(d, (size,))
    value = m.make_value(d, (size,), budget // 2)
    if d is not dt.bool_ and m.draw.chance(30):
        value = UOp(Op.ADD, (b.flip(out, [True]), value))
    effect = b.store(out, value)
    body = m.draw.choice((b.sink(effect), b.group(effect), effect))
    params, m.values_by_type, m.body_params = m.body_params, outer_made, outer_inside
    shares = m.split_budget(budget - budget // 2, max(1, len(params) - 1))
    arguments = [m.make_value(p.dtype, p.shape, n) for p, n in zip(params[1:], shares, strict=False)]
    written = None if m.draw.chance(20) else (0,)
    return b.reshape(b.after(target, b.call(body, target, *arguments, written=written)), shape)


def make_group_of_disjoint_stores_and_read(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Fill two disjoint parts of a Buffer by a Group of two Stores, which need no order, and read the Buffer afterwards."""
    size = math.prod(shape)
    middle = m.draw.integer(0, size)
    buffer = make_buffer_with_data(m, d, size)
    shares = m.split_budget(budget, 2)
    parts = ((0, middle, shares[0]), (middle, size - middle, shares[1]))
    stores = [b.store(b.shrink(buffer, [start], [n]), m.make_value(d, (n,), share)) for start, n, share in parts]
    return b.reshape(b.after(buffer, b.group(*stores)), shape)


def make_expand_of_unit_axes_undone_by_replicated(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a Replicated of equal copies (R47: it takes one of them)."""
    axes = [k for k, n in enumerate(shape) if n == 1 and m.draw.chance(70)] or [shape.index(1)]
    source = list(shape)
    room = m.max_elements // max(1, math.prod(shape))
    for k in axes:
        source[k] = m.draw_extent(max(1, room))
        room //= source[k]
    return b.replicated(b.expand(m.make_value(d, shape, budget), source), *axes)


def make_copy_to_devices_and_back(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Copy a whole value to each of several devices, as collectives do it, and one of the copies back."""
    size = math.prod(shape)
    n = m.draw.integer(2, min(4, m.max_elements // size))
    row = b.reshape(m.make_value(d, shape, budget), (1, size))
    copies = b.copy(b.expand(row, (n, size)), tuple(f"D{k}" for k in range(n)))
    on_devices = b.replicated(copies, 0)
    if d is not dt.bool_ and m.draw.chance(60):
        on_devices = UOp(Op.ADD, (on_devices, on_devices))
    return b.reshape(b.copy(on_devices, "CPU"), shape)


def make_store_root(m: GraphMaker, values: list[UOp]) -> UOp:
    """Make a root that stores its values in Buffers, or the first one in two: a Sink or a Group."""
    values = values[:1] * 2 if m.draw.chance(25) else values
    stores = [b.store(make_buffer_with_data(m, v.dtype, math.prod(v.shape)), b.reshape(v, (math.prod(v.shape),))) for v in values]
    return b.sink(*stores) if m.draw.chance(50) else b.group(*stores)


def make_scatter_gather_over_devices(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Scatter a value over devices, compute there, and gather it again."""
    n = m.draw.choice([k for k in (2, 3, 4) if shape[0] % k == 0])
    devices = tuple(f"D{k}" for k in range(n))
    on_devices = b.copy(m.make_value(d, shape, budget), devices)
    if d is not dt.bool_ and m.draw.chance(60):
        on_devices = UOp(Op.ADD, (on_devices, on_devices))
    return b.copy(on_devices, "CPU")
