"""The generator of programs that read memory of more than 2^31 elements.

Takes: choices, and what the backend supports. Gives: a graph, and its inputs. The memory is sparse (`allocate_sparse_zeros`): only
the elements that the program reads have been written, so a case costs as little as a small one. Offsets are constants, variables
whose bounds are as large as the memory, or data. Code that computes positions in 32 bits reads zeros, or leaves the memory.

A view is built twice: as nodes, and as a NumPy view of the memory, through which its elements are drawn. NumPy must not copy
here, so the memory is reshaped before all other movement ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.testing.sparse import allocate_sparse_zeros
from uops.backends.testing.values import Array, draw_array
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.draw import draw_permutation
from uops.fuzz.generate.graphs import FuzzCase
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Dtypes of the memory.
_DTYPES = (dt.uint8, dt.int8, dt.uint8, dt.int16, dt.float16, dt.int32, dt.float32)
#: Dtypes of positions that are data.
_POSITIONS = (dt.int64, dt.uint32, dt.int64, dt.uint64, dt.int32)
#: Factors of the number of elements, before the last one, which makes it large enough.
_FACTORS = (1, 2, 3, 7, 64, 1000, 4096, 65536, 65537, 1 << 20)
#: Numbers of elements that the memory exceeds.
_LARGE = (1 << 31, 1 << 31, 1 << 32, 3 << 31)
#: Number of elements that the memory exceeds if the backend would copy it.
_SMALL = 1000
#: Maximum extents of an axis that is read, and maximum number of elements of a value.
_EXTENTS = (1, 2, 3, 5, 8, 17, 33)
_MAX_ELEMENTS = 200


@dataclass(frozen=True, slots=True)
class _SparseView:
    """A view of the memory: its node, and its elements as NumPy sees them."""

    node: UOp
    data: Array


class _SparseProgramMaker:
    """A program under construction. `extents` are those of the memory, whose product exceeds `least`."""

    def __init__(self, draw: ChoiceSource, dtypes: tuple[DType, ...], least: int) -> None:
        self.draw, self.dtype = draw, draw.choice(dtypes)
        factors = [draw.choice(_FACTORS) for _ in range(draw.integer(0, 3))]
        while 16 * math.prod(factors) > least:
            factors.pop()
        factors.insert(draw.integer(0, len(factors)), least // math.prod(factors) + draw.integer(1, 9))
        self.extents = tuple(factors)
        self.size = math.prod(factors)
        self.memory = allocate_sparse_zeros(self.size, STORAGE[self.dtype])
        self.param = b.param(0, (self.size,) if draw.chance(50) else self.extents, self.dtype)
        self.inputs: dict[str, Array | int] = {"p0": self.memory.reshape(self.param.shape)}

    def draw_start(self, extent: int, count: int) -> int:
        """Draw where `count` of `extent` elements begin: at an end of them, anywhere, or around 2^31 or 2^32."""
        last = extent - count
        near = [min(last, max(0, edge - self.draw.integer(0, count))) for edge in (1 << 31, 1 << 32) if edge < extent]
        return self.draw.choice([0, last, last, self.draw.integer(0, last), *near])

    def make_start_node(self, start: int, last: int) -> UOp | int:
        """Return a start from 0 to `last` as a number, as a variable, or as a sum with a variable."""
        form = self.draw.choice(("number", "number", "variable", "sum"))
        if form == "number":
            return start
        name = f"v{len(self.inputs)}"
        constant = 0 if form == "variable" else self.draw.integer(0, start)
        self.inputs[name] = start - constant
        variable = b.variable(name, 0, last - constant)
        return variable if form == "variable" else b.add(variable, constant)

    def make_view(self) -> _SparseView:
        """Make a view of at most `_MAX_ELEMENTS` elements, and draw these."""
        view = _SparseView(b.reshape(self.param, self.extents), self.memory.reshape(self.extents))
        for _ in range(self.draw.integer(0, 2)):
            view = self._permute(view) if self.draw.chance(50) else self._flip(view)
        view = self._shrink(view)
        if self.draw.chance(30):
            view = self._flip(self._permute(view))
        view.data[...] = draw_array(self.draw, self.dtype, view.data.shape, "small")
        return view

    def _permute(self, view: _SparseView) -> _SparseView:
        order = draw_permutation(self.draw, view.data.ndim)
        return _SparseView(b.permute(view.node, order), view.data.transpose(order))

    def _flip(self, view: _SparseView) -> _SparseView:
        flags = [self.draw.chance(50) for _ in view.data.shape]
        return _SparseView(b.flip(view.node, flags), np.flip(view.data, tuple(k for k, flag in enumerate(flags) if flag)))

    def _shrink(self, view: _SparseView) -> _SparseView:
        """Shrink every axis to a few elements."""
        counts: list[int] = []
        for extent in view.data.shape:
            room = min(extent, _MAX_ELEMENTS // math.prod(counts))
            counts.append(self.draw.choice([n for n in _EXTENTS if n <= room]))
        starts = [self.draw_start(extent, n) for extent, n in zip(view.data.shape, counts, strict=True)]
        nodes = [self.make_start_node(k, extent - n) for k, extent, n in zip(starts, view.data.shape, counts, strict=True)]
        data = view.data[tuple(slice(k, k + n) for k, n in zip(starts, counts, strict=True))]
        return _SparseView(b.shrink(view.node, nodes, counts), data)

    def make_gathered_value(self) -> UOp:
        """Make the elements at positions that are data."""
        count, d = self.draw.choice(_EXTENTS), self.draw.choice(_POSITIONS)
        extent = min(self.size, int(d.max) + 1)
        positions = np.array([self.draw_start(extent, 1) for _ in range(count)], STORAGE[d])
        self.memory[positions.astype(np.int64)] = draw_array(self.draw, self.dtype, (count,), "small")
        name = f"p{len(self.inputs)}"
        self.inputs[name] = positions
        return b.at(b.reshape(self.param, (self.size,)), b.param(len(self.inputs) - 1, (count,), d))

    def make_value(self) -> UOp:
        """Make a view or a gathered value, sometimes computed with."""
        value = self.make_gathered_value() if self.draw.chance(25) else self.make_view().node
        steps: tuple[Callable[[UOp], UOp], ...] = (self._double, self._negate, self._reduce, self._pad, self._compare_with_flipped)
        return self.draw.choice(steps)(value) if self.draw.chance(70) else value

    def _double(self, x: UOp) -> UOp:
        return b.add(x, x)

    def _negate(self, x: UOp) -> UOp:
        return b.neg(x)

    def _reduce(self, x: UOp) -> UOp:
        axes = [k for k in range(len(x.shape)) if self.draw.chance(60)] or [0]
        return b.reduce(x, self.draw.choice((Op.ADD, Op.MAX)), axes)

    def _pad(self, x: UOp) -> UOp:
        return b.pad_by(x, *((self.draw.integer(0, 2), self.draw.integer(0, 2)) for _ in x.shape))

    def _compare_with_flipped(self, x: UOp) -> UOp:
        other = b.flip(x, [True] * len(x.shape))
        return b.where(b.lt(x, other), x, b.mul(other, other))


def generate_program_on_sparse_memory(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a Tuple of one to three values that are read from one memory.

    The memory is small if the backend copies its inputs.
    """
    least = draw.choice(_LARGE) if declared.reads_inputs_in_place else _SMALL
    maker = _SparseProgramMaker(draw, declared.filter_dtypes(_DTYPES), least)
    values = [maker.make_value() for _ in range(draw.integer(1, 3))]
    return FuzzCase(b.tuple_(*values) if len(values) > 1 else values[0], maker.inputs)
