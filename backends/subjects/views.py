"""Movement of values, and memory as values that Stores replace.

A Reference is memory seen through steps. To load it, the steps are applied to the contents. To store to it, they are applied to the
positions of the elements, and one scatter makes the new contents. Positions count words of the narrowest dtype on the path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uops.backends.subjects.host import Array, NumpyMovement, Sizes
from uops.backends.subjects.library import Library
from uops.spec.errors import Trap, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Value = Any
#: The movement ops of arrays of the host.
HOST = NumpyMovement()
#: What has the movement ops of arrays of one kind.
Movement = Library | NumpyMovement


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A movement op with its operands: shape operands as tuples of ints, or the positions of an Index."""

    node: UOp
    operands: tuple[Any, ...] = ()

    @property
    def is_dynamic(self) -> bool:
        """True if a position is computed from data."""
        return self.node.op is Op.INDEX and any(not isinstance(p, np.ndarray) for p in self.operands)

    def apply(self, ops: Movement, x: Any, *, may_be_outside: bool = False) -> Any:
        """Move the elements of `x`. With `may_be_outside`, positions out of bounds read element 0, or zero if there is none."""
        u, operands = self.node, self.operands
        if u.op is Op.PERMUTE:
            return ops.permute(x, u.arg.order)
        if u.op is Op.FLIP:
            return ops.flip(x, [k for k, f in enumerate(u.arg.flags) if f])
        if u.op is Op.RESHAPE:
            return ops.reshape(x, *operands)
        if u.op is Op.EXPAND:
            return ops.expand(x, *operands)
        if u.op is Op.PAD:
            return ops.pad(x, [(o, n - o - k) for o, n, k in zip(*operands, x.shape)])
        if u.op is Op.SHRINK:
            offsets, extents = operands
            return ops.shrink(x, offsets, [o + n for o, n in zip(offsets, extents)])
        return _take_outer_product_of_positions(ops, x, operands, may_be_outside)


def _take_outer_product_of_positions(ops: Movement, x: Any, positions: Sequence[Any], may_be_outside: bool) -> Any:
    """Index outer (R45), from the last axis on, so that the axes before it keep their numbers."""
    for axis, p in reversed(list(enumerate(positions))):
        extent = x.shape[axis]
        if may_be_outside and not extent:  # all are outside
            x = ops.pad(x, [(0, int(k == axis)) for k in range(len(x.shape))])
        if isinstance(p, np.ndarray):
            is_inside = (p >= 0) & (p < extent)
            if not may_be_outside and not is_inside.all():
                raise Trap(f"Index is out of bounds for axis {axis} of {tuple(x.shape)} (R45)")
            p = np.where(is_inside, p, 0).astype(np.int64)
        elif may_be_outside:
            assert isinstance(ops, Library)  # of a dynamic Index
            p = ops.replace_outside_positions_by_zero(p, extent)
        x = ops.take(x, p, axis)
    return x


@dataclass(frozen=True, slots=True, eq=False)
class BitcastOrSlice:
    """A Bitcast, or a Slice from element `start` on of `size` elements of the new dtype."""

    source: DType
    target: DType
    start: int = 0
    size: int | None = None

    def apply(self, library: Library, x: Value) -> Value:
        """Reinterpret the elements of a value, or take a part of them."""
        old, new = self.source.itemsize, self.target.itemsize
        if self.size is not None and self.size * new % old == 0:
            x = library.shrink(x, (self.start,), (self.start + self.size * new // old,))
            return x if self.target is self.source else library.bitcast(x, self.source, self.target)
        x = library.bitcast(x, self.source, self.target)
        if self.size is None:
            return x
        first = self.start * old // new
        return library.shrink(x, (first,), (first + self.size,))

    def map_source_to_target_positions_in_words(self, positions: Array, word_bytes: int) -> Array:
        """Return the positions of the elements of the new dtype, in words."""
        old, new = self.source.itemsize, self.target.itemsize
        x = positions if self.size is None else positions[self.start :]
        if new < old:
            x = (x[..., None] + np.arange(0, old // word_bytes, new // word_bytes)).reshape(
                (*x.shape[:-1], x.shape[-1] * (old // new))
            )
        elif new > old:
            x = x[..., :: new // old]
        return x if self.size is None else x[: self.size]


Step = Move | BitcastOrSlice


@dataclass(slots=True, eq=False)
class Memory:
    """A Buffer or free Param, with its present contents in the shape of that node."""

    node: UOp
    contents: Value
    is_written: bool = False


@dataclass(slots=True, eq=False)
class Reference:
    """Memory seen through steps. `loaded` is the value of its implicit Load, which happens once (R51)."""

    memory: Memory
    steps: tuple[Step, ...] = ()
    dtype: DType = field(default=dt.void)
    loaded: Value = None

    def view(self, step: Step | None, dtype: DType) -> Reference:
        """Return the same memory seen through one more step, or under another name."""
        return Reference(self.memory, self.steps if step is None else (*self.steps, step), dtype)


def load_reference(library: Library, ref: Reference, *, is_gated: bool = False) -> Value:
    """Return the present elements of a reference; the gated ones may be out of bounds."""
    x = ref.memory.contents
    for step in ref.steps:
        x = step.apply(library, x, may_be_outside=is_gated) if isinstance(step, Move) else step.apply(library, x)
    return x


def store_reference(library: Library, ref: Reference, value: Value, gate: Value | None) -> None:
    """Replace the elements of a reference, where the gate is open. Raises Trap for a position outside of the memory.

    Raises Unsupported for a gated Store at positions outside of the memory, or computed from data.
    """
    if gate is not None and any(isinstance(s, Move) and s.is_dynamic for s in ref.steps):
        raise Unsupported("a gated Store at positions that are computed from data", library.name)
    ref.memory.is_written = True
    narrowest = [ref.memory.node.dtype, *(s.target for s in ref.steps if isinstance(s, BitcastOrSlice))]
    word = min(narrowest, key=lambda d: d.itemsize)
    try:
        positions = _compute_first_word_positions(library, ref, tuple(ref.memory.contents.shape), word.itemsize)
    except Trap as e:
        if gate is None:
            raise
        raise Unsupported("a gated Store at positions outside of its memory", library.name) from e  # a closed gate allows them
    size = math.prod(value.shape)
    if not size:
        return
    if not isinstance(positions, np.ndarray):
        _replace_elements(library, ref, word, library.reshape(positions, (size,)), library.reshape(value, (size,)))
        return
    for turn in _split_into_turns(positions.ravel()):
        new = value if gate is None else library.select(gate, value, load_reference(library, ref))
        values = library.reshape(new, (size,))
        values = values if turn.size == size else library.take(values, turn, 0)
        _replace_elements(library, ref, word, positions.ravel()[turn], values)


def _split_into_turns(positions: Array) -> list[Array]:
    """Split elements into parts of different positions, so that part k has the k-th element of each position (R164)."""
    order = np.argsort(positions, kind="stable")
    ascending = positions[order]
    repetition = np.empty_like(order)
    repetition[order] = np.arange(order.size) - np.searchsorted(ascending, ascending)
    return [np.flatnonzero(repetition == k) for k in range(repetition.max() + 1)]


def _replace_elements(library: Library, ref: Reference, word: DType, positions: Any, values: Value) -> None:
    """Replace the elements of a reference whose first words, of dtype `word`, are at these positions of the memory."""
    memory, root = ref.memory, ref.memory.node.dtype
    shape = tuple(memory.contents.shape)
    flat = library.reshape(memory.contents, (math.prod(shape),))
    if word.itemsize != root.itemsize:
        flat = library.bitcast(flat, root, word)
    if ref.dtype is not word:
        values = library.bitcast(values, ref.dtype, word)
    whole = False
    if isinstance(positions, np.ndarray):
        positions = (positions.reshape(-1, 1) + np.arange(ref.dtype.itemsize // word.itemsize)).ravel()
        whole = positions.size == flat.shape[0] and bool((positions == np.arange(positions.size)).all())
    flat = values if whole else library.scatter(flat, positions, values)
    if word is not root:
        flat = library.bitcast(flat, word, root)
    memory.contents = library.reshape(flat, shape)


def _compute_first_word_positions(library: Library, ref: Reference, memory_shape: Sizes, word_bytes: int) -> Any:
    """Return the position of the first word of each element: an array of the host, or of the library if an Index is dynamic."""
    positions: Any = (np.arange(math.prod(memory_shape), dtype=np.int64) * (ref.memory.node.dtype.itemsize // word_bytes)).reshape(
        memory_shape
    )
    ops: Movement = HOST
    if any(isinstance(s, Move) and s.is_dynamic for s in ref.steps):
        ops, positions = library, library.import_array(positions, dt.int64)
    for step in ref.steps:
        if isinstance(step, Move):
            positions = step.apply(ops, positions)
        elif ops is HOST:
            positions = step.map_source_to_target_positions_in_words(positions, word_bytes)
        else:
            raise Unsupported("a Store through a Bitcast at positions that are computed from data", library.name)
    return positions
