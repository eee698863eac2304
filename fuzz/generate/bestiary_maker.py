"""The state and the leaves of a bestiary graph in the making: memory with contents, ranges, scalars under open ranges, vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uops.backends.testing.values import Array, Draw, array
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

DTYPES = (dt.float32, dt.int32, dt.uint8, dt.int64, dt.float16, dt.bool_, dt.bfloat16, dt.float64, dt.fp8e5m2)
NUMBERS = (dt.float32, dt.int32, dt.uint8, dt.int64, dt.float16, dt.float64)
#: Types of the loops of one lane.
SERIAL = (AxisType.LOOP, AxisType.UPCAST, AxisType.REDUCE, AxisType.UNROLL, AxisType.GLOBAL, AxisType.LOCAL, AxisType.THREAD)


def node(op: Op, *src: UOp, arg: Any = None) -> UOp:
    return UOp(op, src, arg)


def at(memory: UOp, *indices: UOp, gate: UOp | None = None) -> UOp:
    return node(Op.B_INDEX, memory, *indices, *(() if gate is None else (gate,)), arg=A.BIndexArg(gate is not None))


def load(address: UOp, *alt: UOp) -> UOp:
    return node(Op.B_LOAD, _base(address), address, *alt)


def store(address: UOp, value: UOp, *ranges: UOp) -> UOp:
    return node(Op.B_STORE, address, value, *ranges)


def _base(address: UOp) -> UOp:
    while address.op in (Op.B_INDEX, Op.POINTER_INDEX, Op.PTRCAT):
        address = address.src[0]
    return address


@dataclass
class Maker:
    """The state of one graph's making: inputs, and the numbers given so far."""

    draw: Draw
    inputs: dict[str, Array | int] = field(default_factory=dict)
    slots: int = 0
    axes: int = 0
    ids: int = 0

    def dtype(self, among: tuple[DType, ...] = DTYPES) -> DType:
        return self.draw.choice(among)

    def number(self) -> int:
        self.ids += 1
        return self.ids

    def extent(self, most: int = 4) -> int:
        return self.draw.integer(1, most)

    def param(self, d: DType, size: int) -> UOp:
        """A Param with contents."""
        self.slots += 1
        slot = self.slots - 1
        self.inputs[f"p{slot}"] = array(self.draw, d, (size,), "small")
        device = (node(Op.DEVICE, arg=A.DeviceArg("CPU")),) if self.draw.chance(30) else ()
        return node(Op.B_PARAM, *device, arg=A.BParamArg(slot, size, d))

    def buffer(self, d: DType, size: int, device: A.Device = "CPU", contents: bool = True) -> UOp:
        """A Buffer of the whole program."""
        n = self.number()
        devices = len(device) if isinstance(device, tuple) else 1
        if contents:
            self.inputs[f"b{n}"] = array(self.draw, d, (size * devices,), "small")
        return node(Op.B_BUFFER, node(Op.UNIQUE, arg=A.UniqueArg(n)), device_node(device), arg=A.BBufferArg(size, d))

    def memory(self, d: DType, size: int) -> UOp:
        return self.param(d, size) if self.draw.chance(50) else self.buffer(d, size)

    def tensor(self, d: DType, shape: Sequence[int], device: A.Device = "CPU") -> UOp:
        """A value of this shape in memory."""
        size = int(np.prod(shape, dtype=np.int64))
        if isinstance(device, tuple):
            return b.reshape(self.buffer(d, size // len(device), device), shape)
        return b.reshape(self.memory(d, size) if device == "CPU" else self.buffer(d, size, device), shape)

    def shape(self, rank: int = 2) -> tuple[int, ...]:
        return tuple(self.extent() for _ in range(self.draw.integer(1, rank)))

    def range(self, bound: int | UOp | None = None, types: tuple[AxisType, ...] = SERIAL, *deps: UOp) -> UOp:
        self.axes += 1
        end = bound if isinstance(bound, UOp) else b.index(self.extent() if bound is None else bound)
        return node(Op.B_RANGE, end, *deps, arg=A.RangeArg(self.axes - 1, self.draw.choice(types), self.draw.chance(70)))

    def scalar(self, d: DType, *ranges: UOp) -> UOp:
        """An expression of dtype `d` over open ranges: an element of memory, a constant, or a bit of arithmetic on them."""
        if not ranges or self.draw.chance(15):
            return b.const(self.draw.integer(0, 3), d)
        size = extent(*ranges)
        x = load(at(self.memory(d, size), flat(*ranges)))
        if self.draw.chance(30) and d is not dt.bool_:
            x = node(Op.ADD, x, b.cast(self.draw.choice(ranges), d))
        return node(Op.MIN, x, b.const(2, d)) if self.draw.chance(20) else x

    def vector(self, d: DType, n: int) -> UOp:
        return node(Op.VECTORIZE, *(self.element(d) for _ in range(n)))

    def element(self, d: DType) -> UOp:
        return load(at(self.memory(d, 2), b.index(self.draw.integer(0, 1))))

    def kernel(self, effect: UOp) -> UOp:
        """An effect as a program: alone, in a Sink, or called with its memory as arguments."""
        if self.draw.chance(40):
            return effect
        sink = b.sink(effect)
        return sink if self.draw.chance(50) else self.called(sink)

    def called(self, body: UOp) -> UOp:
        """The body as a Call, with Buffers for its Params."""
        found = sorted((p for p in toposort(body) if p.op is Op.B_PARAM), key=lambda p: int(p.arg.slot))
        if any(u.op is Op.B_BUFFER for u in toposort(body)):
            return body
        arguments = []
        for p in found:
            contents = self.inputs.pop(f"p{p.arg.slot}")
            m = self.buffer(p.arg.dtype, p.arg.size, contents=False)
            self.inputs[f"b{self.ids}"] = contents
            arguments.append(m)
        return b.call(body, *arguments)


def device_node(device: A.Device) -> UOp:
    return node(Op.DEVICE, arg=A.DeviceArg(device))


def extent(*ranges: UOp) -> int:
    return int(np.prod([r.src[0].arg.value for r in ranges], dtype=np.int64))


def flat(*ranges: UOp) -> UOp:
    """The row-major position of the ranges' values."""
    found = ranges[0]
    for r in ranges[1:]:
        found = b.add(b.mul(found, b.index(r.src[0].arg.value)), r)
    return found
