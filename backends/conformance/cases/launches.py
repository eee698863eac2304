"""Builders of launches: kernels with their arguments and memory, and the cases that ask for what a launch leaves in memory.

A launch is a Linear of Calls of kernels. It has no values, so the segments of its case are the Buffers that it writes. Results of
these cases are exact: values are moved, or are sums of small integers. The judge compares them bit by bit with the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.common import (
    Array,
    Inputs,
    collect_buffers_void_root_writes,
    key_of_buffer,
    make_ordinary_then_random_data,
)
from uops.backends.conformance.model import ConformanceCase, Segment
from uops.backends.contract import KERNEL_SURFACE
from uops.spec.ir import build as b
from uops.spec.ir.args import AddrSpace, CallArg, ParamArg, SinkArg, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType, DTypeKind, index
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import ROWS


@dataclass
class KernelBuilder:
    """One kernel under construction: the memory that it takes as arguments, its own memory, its loops, and the launch's inputs."""

    inputs: Inputs
    arguments: list[UOp] = field(default_factory=list)
    params: list[UOp] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    axes: int = 0

    def add_source(self, d: DType, size: int, values: Array | None = None) -> UOp:
        """Add a Buffer with contents, and return the Param that stands for it."""
        unique = 1 + sum(k.startswith("b") for k in self.inputs)
        contents = make_ordinary_then_random_data(d, (size,), "launch", unique)
        self.inputs[f"b{unique}"] = contents if values is None else values
        return self.add_argument(self.make_buffer(size, d, unique))

    def add_target(self, d: DType, size: int) -> UOp:
        """Add a Buffer that the kernel writes, and return its Param. It has contents, so not all of it need be written."""
        param = self.add_source(d, size)
        self.written.append(len(self.params) - 1)
        return param

    def add_argument(self, memory: UOp) -> UOp:
        """Add memory of the launch, and return the Param that stands for it."""
        self.arguments.append(memory)
        self.params.append(self.make_param(len(self.params), memory))
        return self.params[-1]

    def make_buffer(self, size: int, d: DType, unique: int) -> UOp:
        """Make a Buffer of the launch."""
        return b.buffer(size, d, unique=unique)

    def make_param(self, slot: int, memory: UOp) -> UOp:
        """Make the Param that stands for memory of the launch."""
        return b.param(slot, memory.shape, memory.dtype)

    def add_variable(self, name: str, lo: int, hi: int, value: int, d: DType = index) -> UOp:
        """Add a variable with its value and inclusive bounds, and return the Param that stands for it."""
        self.inputs[name] = value
        self.arguments.append(b.variable(name, lo, hi, dtype=d))
        arg = ParamArg(len(self.params), d, name=name, bounds=(b.index(lo).const, b.index(hi).const))
        self.params.append(UOp(Op.PARAM, (b.SCALAR,), arg))
        return self.params[-1]

    def make_range(self, bound: int | UOp, kind: AxisType = AxisType.LOOP) -> UOp:
        """Make a Range of a new axis."""
        self.axes += 1
        return b.range_(bound, self.axes - 1, kind)

    def call(self, *effects: UOp, name: str = "k") -> UOp:
        """Return the Call of the kernel that has these effects."""
        return self.call_body(UOp(Op.SINK, effects, SinkArg(name)))

    def call_body(self, body: UOp) -> UOp:
        """Return the Call of a body on the arguments."""
        return UOp(Op.CALL, (body, *self.arguments), CallArg(written=tuple(self.written)))


_Builder = TypeVar("_Builder", bound=KernelBuilder)


def build_single_kernel(
    builder: type[_Builder], build: Callable[[DType, _Builder], tuple[UOp, ...]]
) -> Callable[[DType, Inputs], UOp]:
    """Return the builder of a launch of one kernel, whose effects `build` makes with a builder of the given class."""

    def make(d: DType, inputs: Inputs) -> UOp:
        k = builder(inputs)
        return make_launch(k.call(*build(d, k)))

    return make


def make_launch(*calls: UOp) -> UOp:
    """Return a launch of Calls, in the order of execution."""
    return UOp(Op.LINEAR, calls)


def local_memory(size: int, d: DType, unique: int = 1) -> UOp:
    """Return a Buffer in LOCAL memory."""
    return b.buffer(size, d, addrspace=AddrSpace.LOCAL, unique=unique)


def register_memory(size: int, d: DType, unique: int = 1) -> UOp:
    """Return a Buffer in REG memory."""
    return b.buffer(size, d, addrspace=AddrSpace.REG, unique=unique)


def special(name: str, bound: int | UOp) -> UOp:
    """Return a Special; its name says what it numbers (R125)."""
    return UOp(Op.SPECIAL, (bound if isinstance(bound, UOp) else b.index(bound),), SpecialArg(name))


def barrier(*deps: UOp) -> UOp:
    """Return a Barrier."""
    return UOp(Op.BARRIER, deps)


def copy_element(target: UOp, to: UOp, source: UOp, at: UOp) -> UOp:
    """Return the Store of one element of `source` into `target`."""
    return b.store(b.at(target, to), b.load(b.at(source, at)))


def small_numbers(d: DType, n: int) -> Array:
    """Return 0, 1 and 2 in a mixed order: every dtype holds them, and any sum of four of them, exactly."""
    values = np.arange(n) * 5 % 3 * (np.arange(n) % 7 != 3)
    converted: Array = values.astype(STORAGE[d])
    return converted


def make_groups_of_ones_and_twos(d: DType, count: int, size: int) -> Array:
    """Return groups of ones and twos, or of False and True: the first all of the greater, the second all of the lesser.

    Maxima and minima are exact in every dtype, and so are sums and products of groups of up to 5. They are not all the same.
    """
    rows = [[1] * size, [0] * size, *([(k + g) % 2 for k in range(size)] for g in range(count - 2))]
    values = np.array(rows[:count]) + (d.kind is not DTypeKind.BOOL)
    converted: Array = values.astype(STORAGE[d])
    return converted


def list_instructions(*roots: UOp) -> UOp:
    """Return the list of instructions of some nodes: each after what it uses, in the order of the roots."""
    nodes = dict.fromkeys(u for root in roots for u in toposort(root))
    return UOp(Op.LINEAR, tuple(nodes))


def make_launch_case(op: Op, d: DType, edge: str, graph: UOp, inputs: Inputs) -> ConformanceCase:
    """Return a case of `op`'s row on the surface `kernel`: the Buffers that `graph` writes test the cell `edge`."""
    memory = dict.fromkeys(m for call in _calls_of(graph) for m in _written_memory(call))
    memory |= dict.fromkeys(collect_buffers_void_root_writes(graph) if graph.op is Op.SINK else ())
    segments = tuple(Segment(edge, key_of_buffer(m), 0, m.arg.size) for m in memory)
    return ConformanceCase(ROWS[op].id, d, edge, graph, inputs, segments, KERNEL_SURFACE)


def _calls_of(graph: UOp) -> Sequence[UOp]:
    return graph.src if graph.op is Op.LINEAR else [u for u in toposort(graph) if u.op is Op.CALL]


def _written_memory(call: UOp) -> list[UOp]:
    return [call.src[1 + k] for k in call.arg.written]
