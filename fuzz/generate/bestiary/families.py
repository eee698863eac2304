"""The generator of small well-typed graphs of the second document, one family per op, and the law that these graphs test.

A family makes a graph around its op from a `ChoiceSource`. As in `uops.fuzz.generate.graphs`, it draws shapes first and rejects
nothing. The law is that a graph means what its legal form means (R100 to R124, the rulings of `legalize`);
`describe_legalize_disagreement` runs both.

Never generated: a Trap, and float sums and products whose order could show (floats hold small integers).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.fuzz.generate.bestiary.maker import (
    DTYPES,
    NUMBERS,
    SERIAL,
    BestiaryMaker,
    count_iterations,
    node,
    row_major_index,
)
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import FuzzCase
from uops.interp import bestiary
from uops.interp.evaluation import run
from uops.spec.bestiary.build import at, device, load, store
from uops.spec.bestiary.legalize import legalize
from uops.spec.choices import ChoiceSource
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.wmma import descriptors_named

Array = npt.NDArray[Any]

#: Ops of reductions.
REDUCES = (Op.ADD, Op.MUL, Op.MAX, Op.MIN)
#: Two devices.
PAIR = ("D0", "D1")
#: Devices of a COPY.
DEVICES: list[A.Device] = ["CPU", "GPU", PAIR]
#: Devices that an ALLREDUCE leaves its result on.
TARGETS: list[A.Device] = ["CPU", "D1", PAIR, ("X", "Y", "Z")]
#: Factors of a float product whose order cannot show: elements are at most 8, and a float32 holds all integers up to 8**8.
MAX_FACTORS = 8


def draw_reduction(m: BestiaryMaker, d: DType, count: int) -> Op:
    """Draw the op of a reduction of `count` elements, whose order cannot show."""
    op = m.draw.choice(REDUCES)
    return Op.ADD if op is Op.MUL and d.is_float and count > MAX_FACTORS else op


# ------------------------------------------------------------------------------------------------------------------- tensors


def make_reduce_axis(m: BestiaryMaker) -> UOp:
    """Make a REDUCE_AXIS of any axes."""
    d, shape = m.draw_dtype(), m.draw_shape(3)
    t = m.make_tensor_in_memory(d, shape)
    axes = tuple(k for k in range(len(shape)) if m.draw.chance(50))
    return node(Op.REDUCE_AXIS, t, arg=A.ReduceArg(draw_reduction(m, d, math.prod(shape)), axes))


def make_pad(m: BestiaryMaker) -> UOp:
    """Make a B_PAD by up to two elements on each side of an axis."""
    t = m.make_tensor_in_memory(m.draw_dtype(), m.draw_shape())
    sides = [tuple(m.draw.integer(0, 2) for _ in t.shape) for _ in range(2)]
    return node(Op.B_PAD, t, arg=A.BPadArg(*sides))


def make_shrink(m: BestiaryMaker) -> UOp:
    """Make a B_SHRINK to any part, empty ones included."""
    t = m.make_tensor_in_memory(m.draw_dtype(), m.draw_shape())
    begins = tuple(m.draw.integer(0, n) for n in t.shape)
    return node(Op.B_SHRINK, t, arg=A.BShrinkArg(begins, tuple(m.draw.integer(lo, n) for lo, n in zip(begins, t.shape))))


def make_copy_to_devices(m: BestiaryMaker) -> UOp:
    """Make a COPY to one or two devices."""
    devices: A.Device = m.draw.choice(DEVICES)
    t = m.make_tensor_in_memory(m.draw_dtype(), (2 * m.draw_extent(), *m.draw_shape()))
    return node(Op.COPY, t, device(devices))


def make_precast(m: BestiaryMaker) -> UOp:
    """Cast a PRECAST."""
    return b.cast(node(Op.PRECAST, m.make_tensor_in_memory(m.draw_dtype(), m.draw_shape())), m.draw_dtype())


def make_minimum(m: BestiaryMaker) -> UOp:
    """Make a MIN of two tensors."""
    d, shape = m.draw_dtype(), m.draw_shape()
    return node(Op.MIN, m.make_tensor_in_memory(d, shape), m.make_tensor_in_memory(d, shape))


def make_movement_with_expand(m: BestiaryMaker) -> UOp:
    """Chain a permutation, flip or reshape with an Expand."""
    rows, columns = m.draw_extent(), m.draw_extent()
    t = m.make_tensor_in_memory(m.draw_dtype(), (rows, columns))
    t = m.draw.choice((b.permute(t, (1, 0)), b.flip(t, (m.draw.chance(50), True)), b.reshape(t, (columns, rows)), t))
    return b.expand(b.reshape(t, (1, *t.shape)), (m.draw_extent(), *t.shape))


def make_bitcast(m: BestiaryMaker) -> UOp:
    """Make a BITCAST between integers and floats, to other item sizes too."""
    t = m.make_tensor_in_memory(m.draw.choice((dt.int32, dt.float32)), (m.draw_extent(), 2))
    return b.bitcast(t, m.draw.choice((dt.uint8, dt.int16, dt.uint32, dt.int64)))


def make_where_of_mulacc_through_markers(m: BestiaryMaker) -> UOp:
    """Make a Where of a MULACC and a difference, through markers."""
    d, shape = m.draw_dtype((dt.int32, dt.float32, dt.int64)), m.draw_shape()
    x, y = (b.contiguous(m.make_tensor_in_memory(d, shape)), b.detach(m.make_tensor_in_memory(d, shape)))
    return b.where(b.lt(x, y), b.mulacc(x, y, x), node(Op.CONTIGUOUS_BACKWARD, b.sub(x, y)))


def make_negated_param(m: BestiaryMaker) -> UOp:
    """Negate a B_PARAM."""
    return b.neg(m.make_param_with_data(m.draw_dtype(NUMBERS), m.draw_extent()))


def make_filled_lunique_buffer_beside_buffer(m: BestiaryMaker) -> UOp:
    """Make a local B_BUFFER (LUNIQUE) that is filled before it is read, beside a B_BUFFER of the program."""
    d, n = m.draw_dtype(), m.draw_extent()
    local = node(Op.B_BUFFER, node(Op.LUNIQUE, arg=A.UniqueArg(0)), device("CPU"), arg=A.BBufferArg(n, d))
    return b.tuple_(b.after(local, store(at(local), m.make_buffer(d, n))), m.make_buffer(d, n))


def make_buffer_view(m: BestiaryMaker) -> UOp:
    """Make a BUFFER_VIEW of any part of memory."""
    n = m.draw_extent(6)
    offset = m.draw.integer(0, n)
    view = node(Op.BUFFER_VIEW, m.make_memory(m.draw_dtype(), n), arg=A.BufferViewArg(m.draw.integer(0, n - offset), offset))
    return node(Op.PRECAST, view)


def make_reduce_axis_of_variable_extent(m: BestiaryMaker) -> UOp:
    """Make a reduction over an extent that is a DEFINE_VAR, which a BIND or an input gives a value."""
    lo, hi = m.draw.integer(1, 2), m.draw.integer(3, 5)
    n, value = node(Op.DEFINE_VAR, arg=A.DefineVarArg("batch", lo, hi)), m.draw.integer(lo, hi)
    row = m.make_tensor_in_memory(dt.int32, (1, 3))
    total = node(Op.REDUCE_AXIS, b.expand(row, (n, 3)), arg=A.ReduceArg(Op.ADD, (0,)))
    if m.draw.chance(50):
        return b.tuple_(node(Op.BIND, n, b.index(value)), total)
    m.inputs["batch"] = value
    return total


def make_function_of_two_values_one_or_both_read(m: BestiaryMaker) -> UOp:
    """Make a Function of two values that uses its Params more than once, and read one or both values."""
    d, n = m.draw_dtype(NUMBERS), m.draw_extent()
    x, y = (node(Op.B_PARAM, arg=A.BParamArg(k, n, d)) for k in range(2))
    body = b.tuple_(b.add(x, y), b.reshape(node(Op.MIN, x, y), (1, n)))
    f = b.function(body, m.make_memory(d, n), b.neg(m.make_memory(d, n)))
    return b.tuple_(b.get(f, 0), b.get(f, 1)) if m.draw.chance(50) else b.get(f, m.draw.integer(0, 1))


def make_call_and_read_what_it_writes(m: BestiaryMaker) -> UOp:
    """Make a Call that writes its first argument, and read this argument after it."""
    d, n = m.draw_dtype(NUMBERS), m.draw_extent()
    out, x = (node(Op.B_PARAM, arg=A.BParamArg(k, n, d)) for k in range(2))
    body = b.sink(store(at(out), b.neg(x)))
    target, source = m.make_buffer(d, n), m.make_buffer(d, n)
    return b.after(target, b.call(body, target, source, written=m.draw.choice(((0,), None))))


# ------------------------------------------------------------------------------------------------------------------- devices


def make_mstack(m: BestiaryMaker) -> UOp:
    """Make an MSTACK of tensors on two devices."""
    d, shape = m.draw_dtype(), m.draw_shape()
    return node(Op.PRECAST, node(Op.MSTACK, *(m.make_tensor_in_memory(d, shape, name) for name in PAIR)))


def _make_two_device_tensor(m: BestiaryMaker) -> UOp:
    """Make a tensor that is split over two devices, sometimes transposed."""
    t = m.make_tensor_in_memory(m.draw_dtype(), (2 * m.draw_extent(2), *m.draw_shape()), PAIR)
    return b.permute(t, tuple(reversed(range(len(t.shape))))) if m.draw.chance(50) else t


def make_mselect(m: BestiaryMaker) -> UOp:
    """Make an MSELECT of one device's part."""
    return node(Op.MSELECT, _make_two_device_tensor(m), arg=A.MSelectArg(m.draw.integer(0, 1)))


def make_multi(m: BestiaryMaker) -> UOp:
    """Make a MULTI along the axis that is split over devices."""
    t = _make_two_device_tensor(m)
    return node(Op.MULTI, t, arg=A.MultiArg(t.axis or 0))


def make_allreduce(m: BestiaryMaker) -> UOp:
    """Make an ALLREDUCE to one or several devices."""
    target: A.Device = m.draw.choice(TARGETS)
    return node(Op.ALLREDUCE, _make_two_device_tensor(m), device(target), arg=A.ReduceArg(m.draw.choice(REDUCES)))


# ------------------------------------------------------------------------------------------------------------------- vectors


def make_vectorize(m: BestiaryMaker) -> UOp:
    """Make a VECTORIZE of elements of memory."""
    return m.make_vector(m.draw_dtype(), m.draw_extent())


def make_gep(m: BestiaryMaker) -> UOp:
    """Make a GEP that picks any lanes of a vector, repetitions included."""
    n = m.draw_extent()
    lanes = tuple(m.draw.integer(0, n - 1) for _ in range(m.draw_extent()))
    return node(Op.GEP, m.make_vector(m.draw_dtype(), n), arg=A.GepArg(lanes))


def make_vconst(m: BestiaryMaker) -> UOp:
    """Make a VCONST."""
    d = m.draw_dtype((*DTYPES, dt.index))
    values = tuple(A.ConstArg(b.convert_constant(m.draw.integer(0, 3), d), d) for _ in range(m.draw_extent()))
    return node(Op.VCONST, arg=A.VConstArg(values, d))


def make_cat_of_vectors_and_scalars(m: BestiaryMaker) -> UOp:
    """Make a CAT of vectors and scalars."""
    d = m.draw_dtype()
    return node(
        Op.CAT, *(m.make_vector(d, m.draw_extent()) if m.draw.chance(70) else m.make_element(d) for _ in range(m.draw_extent(3)))
    )


def make_unroll_of_one_or_both_of_two_ranges(m: BestiaryMaker) -> UOp:
    """Make an UNROLL of an expression over two ranges. Both ranges become lanes, or one stays the loop of a Store."""
    d, n, k = m.draw_dtype(NUMBERS), m.draw_extent(3), m.draw_extent(3)
    i, j = m.make_range(n), m.make_range(k)
    axes = ((i.arg.axis_id, n), (j.arg.axis_id, k))
    if m.draw.chance(50):
        return node(Op.UNROLL, m.make_scalar_over_ranges(d, i, j), arg=A.LanesArg(axes if m.draw.chance(50) else axes[::-1]))
    lanes = node(Op.UNROLL, m.make_scalar_over_ranges(d, i, j), arg=A.LanesArg(axes[:1]))
    target = b.reshape(m.make_memory(d, n * k), (k, n))
    return m.maybe_wrap_in_sink_or_call(store(at(target, j), lanes, j))


def make_unroll_of_reduce_over_unrolled_range(m: BestiaryMaker) -> UOp:
    """Make an UNROLL of a B_REDUCE whose body uses the unrolled range; sometimes the reduced range depends on it too."""
    d, n = m.draw_dtype(NUMBERS), m.draw_extent(3)
    i = m.make_range(n)
    bound = b.add(i, b.index(1)) if m.draw.chance(30) else None
    types = (AxisType.REDUCE, AxisType.UNROLL, AxisType.LOOP)
    j = m.make_range(bound, types, *((i,) if m.draw.chance(30) else ()))
    k = m.make_range(axis_type_choices=types)
    term = b.mul(load(at(m.make_memory(d, 4), j)), m.make_scalar_over_ranges(d, i, k))
    total = node(Op.B_REDUCE, term, j, k, arg=A.ReduceArg(m.draw.choice((Op.ADD, Op.MAX, Op.MIN))))
    return node(Op.UNROLL, total, arg=A.LanesArg(((i.arg.axis_id, n),)))


def make_contract_of_unroll_or_scalar(m: BestiaryMaker) -> UOp:
    """Make a CONTRACT of an UNROLL with the axes in either order, or of a scalar."""
    d, n, k = m.draw_dtype(NUMBERS), m.draw_extent(3), m.draw_extent(3)
    i, j = m.make_range(n), m.make_range(k)
    axes = ((i.arg.axis_id, n), (j.arg.axis_id, k))
    kind = m.draw.integer(0, 2)
    if kind == 0:
        return node(Op.CONTRACT, m.make_element(d), arg=A.LanesArg(axes))
    lanes = node(Op.UNROLL, m.make_scalar_over_ranges(d, i, j) if kind == 1 else m.make_vector(d, n * k), arg=A.LanesArg(axes))
    return node(Op.CONTRACT, b.neg(lanes), arg=A.LanesArg(axes[::-1] if m.draw.chance(60) else axes))


def make_load_or_store_by_partly_gated_ptrcat(m: BestiaryMaker) -> UOp:
    """Make a B_LOAD or B_STORE through a PTRCAT of several addresses, some of them gated; those of a B_STORE in two memories."""
    d, n, loads = m.draw_dtype(), 4, m.draw.chance(50)
    x = m.make_memory(d, n)
    y = x if loads else m.make_memory(d, n)
    vector = node(Op.VCONST, arg=A.VConstArg(tuple(A.ConstArg(k, dt.index) for k in (3, 0)), dt.index))
    gate = b.const(m.draw.chance(50), dt.bool_)
    addresses = [at(x, b.index(1)), at(x, vector), at(y, b.index(9), gate=b.const(False, dt.bool_)), at(y, b.index(2), gate=gate)]
    address = node(Op.PTRCAT, *addresses) if m.draw.chance(50) else node(Op.PTRCAT, addresses[0], node(Op.PTRCAT, *addresses[1:]))
    if loads:
        return load(address, *((m.make_vector(d, 5),) if m.draw.chance(50) else ()))
    return m.maybe_wrap_in_sink_or_call(store(address, m.make_vector(d, 5)))


# --------------------------------------------------------------------------------------------------------------------- loops


def make_store_closing_some_ranges_and_end_rest(m: BestiaryMaker) -> UOp:
    """Make a B_STORE in a loop nest whose ranges are closed partly by the B_STORE and partly by an END."""
    d = m.draw_dtype()
    ranges = sorted((m.make_range() for _ in range(m.draw_extent(3))), key=lambda r: -r.arg.type.priority)
    target = at(m.make_memory(d, count_iterations(*ranges)), row_major_index(*ranges))
    value = m.make_scalar_over_ranges(d, *ranges)
    split = m.draw.integer(0, len(ranges))
    effect = store(target, value, *ranges[:split])
    return m.maybe_wrap_in_sink_or_call(b.end(effect, *ranges[split:]) if split < len(ranges) else effect)


def make_reduce_bounded_by_outer_range(m: BestiaryMaker) -> UOp:
    """Make a reduction whose loop bound is the value of the outer loop."""
    d, n = m.draw_dtype(NUMBERS), m.draw_extent()
    i = m.make_range(n, (AxisType.LOOP, AxisType.UPCAST))
    j = m.make_range(b.add(i, b.index(1)), (AxisType.REDUCE, AxisType.UNROLL), *((i,) if m.draw.chance(50) else ()))
    total = node(Op.B_REDUCE, load(at(m.make_memory(d, n), j)), j, arg=A.ReduceArg(m.draw.choice(REDUCES)))
    return m.maybe_wrap_in_sink_or_call(store(at(m.make_memory(d, n), i), total, i))


def make_reduce_over_ranges(m: BestiaryMaker) -> UOp:
    """Make a B_REDUCE of a scalar or vector over one to three ranges."""
    d = m.draw_dtype(NUMBERS)
    i, *inner = [
        m.make_range(axis_type_choices=(AxisType.REDUCE, AxisType.UNROLL, AxisType.LOOP)) for _ in range(m.draw.integer(1, 3))
    ]
    op = draw_reduction(m, d, count_iterations(i, *inner))
    value = m.make_scalar_over_ranges(d, i, *inner)
    if m.draw.chance(30):
        value = node(Op.VECTORIZE, value, m.make_scalar_over_ranges(d, i, *inner))
    return node(Op.B_REDUCE, value, i, *inner, arg=A.ReduceArg(op))


def make_bufferized_reduce(m: BestiaryMaker) -> UOp:
    """Make a BUFFERIZE of a reduction over some ranges, in GLOBAL or LOCAL memory, and read it again."""
    d = m.draw_dtype(NUMBERS)
    space = m.draw.choice((A.AddrSpace.GLOBAL, A.AddrSpace.LOCAL))
    types = SERIAL if space is A.AddrSpace.GLOBAL else (AxisType.LOOP, AxisType.UPCAST, AxisType.LOCAL)
    outer = [m.make_range(axis_type_choices=types) for _ in range(m.draw.integer(1, 2))]
    inner = m.make_range(axis_type_choices=(AxisType.REDUCE,))
    value = node(Op.B_REDUCE, m.make_scalar_over_ranges(d, *outer, inner), inner, arg=A.ReduceArg(m.draw.choice(REDUCES)))
    stored = node(Op.BUFFERIZE, value, *outer, arg=A.BufferizeArg(None if space is A.AddrSpace.LOCAL else "CPU", space))
    if space is A.AddrSpace.GLOBAL and m.draw.chance(50):
        return b.neg(stored)
    reading = [m.make_range(r.bound.arg.value, (AxisType.LOOP,)) for r in outer]
    return m.maybe_wrap_in_sink_or_call(
        store(at(m.make_memory(d, count_iterations(*reading)), row_major_index(*reading)), load(at(stored, *reading)), *reading)
    )


def make_gated_access(m: BestiaryMaker) -> UOp:
    """Make a B_LOAD or B_STORE that runs over the end of memory but for its gate."""
    d, n = m.draw_dtype(), m.draw_extent()
    i = m.make_range(n + 2)
    gate = b.lt(i, b.index(n))
    alternative = (b.const(1, d),) if m.draw.chance(50) else ()
    value = load(at(m.make_memory(d, n), i, gate=gate), *alternative)
    if m.draw.chance(50):
        return m.maybe_wrap_in_sink_or_call(store(at(m.make_memory(d, n + 2), i), value, i))
    return m.maybe_wrap_in_sink_or_call(store(at(m.make_memory(d, n), i, gate=gate), value, i))


def make_load_by_byte_offset_pointer_index(m: BestiaryMaker) -> UOp:
    """Make a B_LOAD through a POINTER_INDEX, whose offset counts bytes."""
    d, n = m.draw_dtype(), m.draw_extent()
    i = m.make_range(n)
    offset = b.mul(i, b.index(d.itemsize)) if m.draw.chance(50) else b.shl(i, b.index(d.itemsize.bit_length() - 1))
    address = node(Op.POINTER_INDEX, m.make_memory(d, n), offset)
    return m.maybe_wrap_in_sink_or_call(store(at(m.make_memory(d, n), i), load(address), i))


def make_stores_under_b_if(m: BestiaryMaker) -> UOp:
    """Make two B_STOREs under a B_IF on a loop counter; one of them may have a gate too."""
    d, n = m.draw_dtype(), m.draw_extent()
    i = m.make_range(n)
    condition = b.lt(i, b.index(m.draw.integer(0, n)))
    gate = b.ne(i, b.index(0)) if m.draw.chance(50) else None
    stores = [store(at(m.make_memory(d, n), i, gate=store_gate), m.make_scalar_over_ranges(d, i)) for store_gate in (gate, None)]
    block = node(Op.B_IF, condition, *stores) if m.draw.chance(70) else node(Op.B_IF, condition, b.group(*stores))
    return m.maybe_wrap_in_sink_or_call(b.end(node(Op.ENDIF, block) if m.draw.chance(50) else block, i))


def make_sum_in_define_reg(m: BestiaryMaker) -> UOp:
    """Accumulate a sum in a DEFINE_REG: initialize it, add to it in a loop, and store it behind the loop."""
    d, n = m.draw_dtype(NUMBERS), m.draw_extent()
    i, r = m.make_range(axis_type_choices=(AxisType.GLOBAL, AxisType.LOCAL, AxisType.LOOP)), m.make_range(n, (AxisType.REDUCE,))
    accumulator = node(Op.DEFINE_REG, arg=A.DefineArg(0, 1, d))
    zero = b.index(0)
    initialized = store(at(b.after(accumulator, i), zero), b.const(0, d))
    in_loop = b.after(accumulator, initialized, r)
    step = store(at(in_loop, zero), b.add(load(at(in_loop, zero)), m.make_scalar_over_ranges(d, i, r)))
    total = load(at(b.after(accumulator, b.end(step, r)), zero))
    return m.maybe_wrap_in_sink_or_call(store(at(m.make_memory(d, count_iterations(i)), i), total, i))


def make_lane_exchange_by_ranges(m: BestiaryMaker) -> UOp:
    """Exchange values between lanes through LOCAL memory and a barrier, once per iteration of an outer GLOBAL loop."""
    d, n = m.draw_dtype(NUMBERS), m.draw_extent()
    g, lane = m.make_range(axis_type_choices=(AxisType.GLOBAL,)), m.make_range(n, (AxisType.LOCAL, AxisType.WARP))
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, n, d))
    stored = store(at(shared, lane), m.make_scalar_over_ranges(d, g, lane))
    ready = node(Op.B_BARRIER, shared, stored)
    other = b.sub(b.index(n - 1), lane)
    return m.maybe_wrap_in_sink_or_call(
        store(at(m.make_memory(d, count_iterations(g, lane)), row_major_index(g, lane)), load(at(ready, other)), g, lane)
    )


def make_lane_exchange_by_special(m: BestiaryMaker) -> UOp:
    """Exchange values between lanes through LOCAL memory and a barrier, where SPECIAL nodes number groups and lanes."""
    d, n, groups = m.draw_dtype(NUMBERS), m.draw_extent(), m.draw_extent()
    g, lane = (node(Op.SPECIAL, b.index(k), arg=A.SpecialArg(name)) for k, name in ((groups, "gidx0"), (n, "lidx0")))
    position = b.add(b.mul(g, b.index(n)), lane)
    source, target = m.make_memory(d, n * groups), m.make_memory(d, n * groups)
    shared = node(Op.DEFINE_LOCAL, arg=A.DefineArg(0, n, d))
    ready = node(Op.B_BARRIER, shared, store(at(shared, lane), load(at(source, position))))
    return m.maybe_wrap_in_sink_or_call(store(at(target, position), load(at(ready, b.sub(b.index(n - 1), lane)))))


def make_loop_as_linear_or_program(m: BestiaryMaker) -> UOp:
    """Make a LINEAR of the instructions of one loop with two B_STOREs, or a B_PROGRAM with or without that stage."""
    d, n = m.draw_dtype(NUMBERS), m.draw_extent()
    i = m.make_range(n, (AxisType.LOOP,))
    x, y = m.make_param_with_data(d, n), m.make_param_with_data(d, n)
    value = load(at(x, i))
    first = store(at(y, i), b.neg(value))
    second = store(at(x, i), load(at(b.after(y, first), i)))
    linear = node(
        Op.LINEAR, i, at(x, i), value, b.neg(value), at(y, i), first, *_operands_of_second_store(second), second, b.end(second, i)
    )
    if m.draw.chance(50):
        return linear
    return node(Op.B_PROGRAM, b.sink(b.end(second, i)), device("CPU"), *((linear,) if m.draw.chance(50) else ()))


def make_linear_with_b_if(m: BestiaryMaker) -> UOp:
    """Make a LINEAR with a B_IF whose B_STORE may be listed too (R124: an IF in a LINEAR executes its body itself)."""
    d, n = m.draw_dtype(NUMBERS), m.draw_extent()
    i = m.make_range(n, (AxisType.LOOP,))
    x, y = m.make_param_with_data(d, n), m.make_param_with_data(d, n)
    condition, value = b.lt(i, b.index(m.draw.integer(0, n))), load(at(x, i))
    stored = store(at(y, i), value)
    block = node(Op.B_IF, condition, stored)
    listed = (stored,) if m.draw.chance(50) else ()
    endif = node(Op.ENDIF, block)
    return node(Op.LINEAR, i, at(x, i), value, at(y, i), condition, *listed, block, endif, b.end(endif, i))


def _operands_of_second_store(effect: UOp) -> list[UOp]:
    """Return what a B_STORE of a B_LOAD needs, in the order of execution: buffer, index, load."""
    loaded = effect.value
    return [*loaded.src, loaded]


def make_warp_wmma(m: BestiaryMaker) -> UOp:
    """Make a WMMA over the lanes of a warp: a WARP or LOCAL range, or a SPECIAL node of a launch."""
    descriptor = descriptors_named("simdgroup_multiply_accumulate")[0]
    d, size = descriptor.dtype_in, descriptor.c.elements
    if m.draw.chance(50):
        lane = m.make_range(descriptor.threads, (AxisType.WARP, AxisType.LOCAL))
    else:
        lane = node(Op.SPECIAL, b.index(descriptor.threads), arg=A.SpecialArg("lidx0"))
    form = (descriptor.threads, size)
    operands = [load(at(b.reshape(m.make_memory(d, descriptor.threads * size), form), lane)) for _ in range(3)]
    arg = A.WmmaArg(descriptor.name, descriptor.dims, d, descriptor.dtype_out, "GPU", descriptor.threads)
    product = node(Op.WMMA, *operands, arg=arg)
    out = b.reshape(m.make_memory(descriptor.dtype_out, descriptor.threads * size), form)
    return m.maybe_wrap_in_sink_or_call(store(at(out, lane), product, *(() if lane.op is Op.SPECIAL else (lane,))))


def make_group_of_two_stores(m: BestiaryMaker) -> UOp:
    """Make a Group of two effects as the root, or in a Sink beside a value."""
    d, n = m.draw_dtype(), m.draw_extent()
    i, j = m.make_range(n), m.make_range(n)
    effects = [store(at(m.make_memory(d, n), r), m.make_scalar_over_ranges(d, r), r) for r in (i, j)]
    return b.group(*effects) if m.draw.chance(50) else b.sink(b.group(*effects), m.make_tensor_in_memory(d, (n,)))


Family = Callable[[BestiaryMaker], UOp]
#: Name of a family -> the function that makes its graphs. Draws depend on the order.
FAMILIES: dict[str, Family] = {
    "reduce_axis": make_reduce_axis,
    "pad": make_pad,
    "shrink": make_shrink,
    "copy": make_copy_to_devices,
    "precast": make_precast,
    "minimum": make_minimum,
    "movement": make_movement_with_expand,
    "bitcast": make_bitcast,
    "elementwise": make_where_of_mulacc_through_markers,
    "param": make_negated_param,
    "buffer": make_filled_lunique_buffer_beside_buffer,
    "buffer_view": make_buffer_view,
    "variable": make_reduce_axis_of_variable_extent,
    "function": make_function_of_two_values_one_or_both_read,
    "call": make_call_and_read_what_it_writes,
    "mstack": make_mstack,
    "mselect": make_mselect,
    "multi": make_multi,
    "allreduce": make_allreduce,
    "vectorize": make_vectorize,
    "gep": make_gep,
    "vconst": make_vconst,
    "cat": make_cat_of_vectors_and_scalars,
    "unroll": make_unroll_of_one_or_both_of_two_ranges,
    "contract": make_contract_of_unroll_or_scalar,
    "ptrcat": make_load_or_store_by_partly_gated_ptrcat,
    "end": make_store_closing_some_ranges_and_end_rest,
    "triangle": make_reduce_bounded_by_outer_range,
    "reduce": make_reduce_over_ranges,
    "bufferize": make_bufferized_reduce,
    "gated": make_gated_access,
    "pointer_index": make_load_by_byte_offset_pointer_index,
    "if_": make_stores_under_b_if,
    "register": make_sum_in_define_reg,
    "local": make_lane_exchange_by_ranges,
    "special": make_lane_exchange_by_special,
    "linear": make_loop_as_linear_or_program,
    "linear_if": make_linear_with_b_if,
    "wmma": make_warp_wmma,
    "group": make_group_of_two_stores,
    "unroll_reduce": make_unroll_of_reduce_over_unrolled_range,
}


def generate_family_case(draw: ChoiceSource, family: str) -> FuzzCase:
    """Generate one case of a family; a pure function of the choices of `draw`."""
    m = BestiaryMaker(draw)
    return FuzzCase(FAMILIES[family](m), m.inputs)


def case(family: str, seed: int) -> FuzzCase:
    """Generate the case of `seed` with the seeded driver."""
    return generate_family_case(SeededDraw(seed), family)


# ------------------------------------------------------------------------------------------------------------------- the law


def describe_legalize_disagreement(fuzz_case: FuzzCase, order_seed: int | None = None) -> str | None:
    """Describe how a graph and its legal form differ; return None if they agree. Zeros of either sign are equal, and so are
    NaNs.
    """
    graph, inputs = fuzz_case
    return run_case_and_describe_disagreement(fuzz_case, run(legalize(graph), inputs), order_seed)


def run_case_and_describe_disagreement(fuzz_case: FuzzCase, other: Result, order_seed: int | None = None) -> str | None:
    """Describe how a graph and another result, that of its legal form, differ; return None if they agree."""
    graph, inputs = fuzz_case
    direct = bestiary.run(graph, inputs, schedule=order_seed)
    if len(direct.values) != len(other.values):
        return f"{len(direct.values)} values, {len(other.values)} in the legal form"
    for k, (x, y) in enumerate(zip(direct.values, other.values)):
        if not _are_equal(np.asarray(x), np.asarray(y)):
            return f"value {k}: {x!r}, in the legal form {y!r}"
    names = {f"b{u.arg.id}" for u in toposort(graph) if u.op is Op.UNIQUE} | {k for k in inputs if k.startswith("p")}
    for name in sorted(names & {*direct.buffers, *other.buffers}):
        x, y = (_final_contents(r, name, fuzz_case) for r in (direct, other))
        if not _are_equal_treating_empty_as_zeros(x, y):
            return f"{name}: {x!r}, in the legal form {y!r}"
    return None


def _final_contents(result: Result, key: str, fuzz_case: FuzzCase) -> Any:
    """Return the contents of memory after a run: the input if nothing was written, an empty array if there was no input."""
    contents = result.buffers.get(key, fuzz_case.inputs.get(key))
    return np.zeros(0) if contents is None else contents


def _are_equal_treating_empty_as_zeros(left: Any, right: Any) -> bool:
    x, y = np.asarray(left), np.asarray(right)
    if 0 in (x.size, y.size):  # memory that was never written counts as zeros
        return not x.any() and not y.any()
    return _are_equal(x, y)


def _are_equal(x: Array, y: Array) -> bool:
    """Return True if dtype, shape and elements are equal; zeros of either sign are, and so are NaNs."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind in "biuO":
        return bool((x == y).all())
    x, y = x.astype(np.float64), y.astype(np.float64)
    return bool(((x == y) | (np.isnan(x) & np.isnan(y))).all())
