"""The state of a bestiary graph under construction, and its leaves: memory with contents, ranges, scalars over open ranges,
vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uops.backends.testing.values import Array, draw_array
from uops.spec.bestiary import build as B
from uops.spec.choices import ChoiceSource
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Dtypes of memory.
DTYPES = (dt.float32, dt.int32, dt.uint8, dt.int64, dt.float16, dt.bool_, dt.bfloat16, dt.float64, dt.fp8e5m2)
#: Dtypes that arithmetic is done in.
NUMBERS = (dt.float32, dt.int32, dt.uint8, dt.int64, dt.float16, dt.float64)
#: Axis types of the loops that one lane runs.
SERIAL = (AxisType.LOOP, AxisType.UPCAST, AxisType.REDUCE, AxisType.UNROLL, AxisType.GLOBAL, AxisType.LOCAL, AxisType.THREAD)


def node(op: Op, *src: UOp, arg: Any = None) -> UOp:
    """Build a node from its op, sources and arg."""
    return UOp(op, src, arg)


@dataclass
class BestiaryMaker:
    """The state of one graph under construction: inputs, and the numbers given so far."""

    draw: ChoiceSource
    inputs: dict[str, Array | int] = field(default_factory=dict)
    slots: int = 0
    axes: int = 0
    ids: int = 0

    def draw_dtype(self, among: tuple[DType, ...] = DTYPES) -> DType:
        """Draw one of the dtypes."""
        return self.draw.choice(among)

    def take_id(self) -> int:
        """Return the next unique id, counted from 1."""
        self.ids += 1
        return self.ids

    def draw_extent(self, max_extent: int = 4) -> int:
        """Draw an extent from 1 to `max_extent`."""
        return self.draw.integer(1, max_extent)

    def make_param_with_data(self, d: DType, size: int) -> UOp:
        """Make a B_PARAM with data."""
        self.slots += 1
        slot = self.slots - 1
        self.inputs[f"p{slot}"] = draw_array(self.draw, d, (size,), "small")
        device = (node(Op.DEVICE, arg=A.DeviceArg("CPU")),) if self.draw.chance(30) else ()
        return node(Op.B_PARAM, *device, arg=A.BParamArg(slot, size, d))

    def make_buffer(self, d: DType, size: int, device: A.Device = "CPU", with_data: bool = True) -> UOp:
        """Make a B_BUFFER of the whole program, with data if `with_data`. On several devices, `size` counts the elements
        on each.
        """
        n = self.take_id()
        devices = len(device) if isinstance(device, tuple) else 1
        if with_data:
            self.inputs[f"b{n}"] = draw_array(self.draw, d, (size * devices,), "small")
        return B.buffer(size, d, n, device)

    def make_memory(self, d: DType, size: int) -> UOp:
        """Make a B_PARAM or a B_BUFFER with data."""
        return self.make_param_with_data(d, size) if self.draw.chance(50) else self.make_buffer(d, size)

    def make_tensor_in_memory(self, d: DType, shape: Sequence[int], device: A.Device = "CPU") -> UOp:
        """Make a value of this shape that lies in memory."""
        size = int(np.prod(shape, dtype=np.int64))
        if isinstance(device, tuple):
            return b.reshape(self.make_buffer(d, size // len(device), device), shape)
        return b.reshape(self.make_memory(d, size) if device == "CPU" else self.make_buffer(d, size, device), shape)

    def draw_shape(self, max_rank: int = 2) -> tuple[int, ...]:
        """Draw a shape of rank 1 to `max_rank`."""
        return tuple(self.draw_extent() for _ in range(self.draw.integer(1, max_rank)))

    def make_range(
        self, bound: int | UOp | None = None, axis_type_choices: tuple[AxisType, ...] = SERIAL, *dependencies: UOp
    ) -> UOp:
        """Make a B_RANGE of a new axis, of one of the types."""
        self.axes += 1
        end = bound if isinstance(bound, UOp) else b.index(self.draw_extent() if bound is None else bound)
        return node(
            Op.B_RANGE, end, *dependencies, arg=A.RangeArg(self.axes - 1, self.draw.choice(axis_type_choices), self.draw.chance(70))
        )

    def make_scalar_over_ranges(self, d: DType, *ranges: UOp) -> UOp:
        """Make an expression of dtype `d` over open ranges: an element of memory, a constant, or simple arithmetic on
        them.
        """
        if not ranges or self.draw.chance(15):
            return b.const(self.draw.integer(0, 3), d)
        size = count_iterations(*ranges)
        x = B.load(B.at(self.make_memory(d, size), row_major_index(*ranges)))
        if self.draw.chance(30) and d is not dt.bool_:
            x = node(Op.ADD, x, b.cast(self.draw.choice(ranges), d))
        return node(Op.MIN, x, b.const(2, d)) if self.draw.chance(20) else x

    def make_vector(self, d: DType, n: int) -> UOp:
        """Make a VECTORIZE of `n` elements of memory."""
        return node(Op.VECTORIZE, *(self.make_element(d) for _ in range(n)))

    def make_element(self, d: DType) -> UOp:
        """Make a B_LOAD of a constant position."""
        return B.load(B.at(self.make_memory(d, 2), b.index(self.draw.integer(0, 1))))

    def maybe_wrap_in_sink_or_call(self, effect: UOp) -> UOp:
        """Turn an effect into a program: leave it alone, put it in a Sink, or call it with its memory as arguments."""
        if self.draw.chance(40):
            return effect
        sink = b.sink(effect)
        return sink if self.draw.chance(50) else self.call_body_unless_it_names_buffers(sink)

    def call_body_unless_it_names_buffers(self, body: UOp) -> UOp:
        """Turn a body into a Call with Buffers for its Params; return it unchanged if it names Buffers."""
        params = sorted((p for p in toposort(body) if p.op is Op.B_PARAM), key=lambda p: int(p.arg.slot))
        if any(u.op is Op.B_BUFFER for u in toposort(body)):
            return body
        arguments = []
        for p in params:
            contents = self.inputs.pop(f"p{p.arg.slot}")
            buffer = self.make_buffer(p.arg.dtype, p.arg.size, with_data=False)
            self.inputs[f"b{self.ids}"] = contents
            arguments.append(buffer)
        return b.call(body, *arguments)


def count_iterations(*ranges: UOp) -> int:
    """Return the number of iterations of a nest of constant ranges."""
    return int(np.prod([r.bound.arg.value for r in ranges], dtype=np.int64))


def row_major_index(*ranges: UOp) -> UOp:
    """Build the row-major index of an iteration of the ranges."""
    index = ranges[0]
    for r in ranges[1:]:
        index = b.add(b.mul(index, b.index(r.bound.arg.value)), r)
    return index
