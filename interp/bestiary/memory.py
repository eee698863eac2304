"""Memories and references: the bytes, which of them were written, and who touched them (R45, R51, R55, R61).

A reference is a memory and the byte position of each of its elements; a view moves the positions. An access is one *event*: a
bit of the sets of events that happen before a node (`frame.BestiaryCell.before`). Two accesses that share bytes, one of them a
write, must be ordered, else the access is a Trap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from uops.interp.ops.movement import MOVES, make_outer_index, out_of_bounds_mask
from uops.interp.tensor.memory import OUTSIDE, describe
from uops.interp.tensor.storage import NUMPY, Array, check_bool
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(eq=False, slots=True)
class BestiaryMemory:
    """A memory as bytes.

    `data` is written in place. `ready` marks the bytes that hold a value, None meaning all. `key` names the memory in a Result.
    `writes` and `reads` hold, per byte, the events that still matter: a write that is ordered after all others replaces them.
    """

    name: str
    data: Array
    ready: Array | None
    dtype: DType
    shape: tuple[int, ...]
    key: str | None = None
    written: bool = False
    writes: dict[int, int] = field(default_factory=dict)
    reads: dict[int, int] = field(default_factory=dict)

    def contents(self) -> Array:
        """Return all elements; those never written are 0."""
        return self.data.view(NUMPY[self.dtype]).reshape(self.shape)


def allocate_memory(name: str, dtype: DType, shape: tuple[int, ...], key: str | None = None) -> BestiaryMemory:
    """Return uninitialised memory."""
    size = math.prod(shape) * dtype.itemsize
    return BestiaryMemory(name, np.zeros(size, np.uint8), np.zeros(size, bool), dtype, shape, key)


def memory_from_contents(name: str, dtype: DType, contents: Array, key: str | None = None) -> BestiaryMemory:
    """Return memory with a copy of these contents."""
    data = np.array(contents, order="C").reshape(-1).view(np.uint8)
    return BestiaryMemory(name, data, None, dtype, contents.shape, key)


@dataclass(frozen=True, eq=False, slots=True)
class PrivateMemory:
    """Memory that every workgroup, or with `of_lane` every lane, has for itself (R61); an access decides which one is meant."""

    node: UOp
    name: str
    dtype: DType
    shape: tuple[int, ...]
    of_lane: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class BestiaryRef:
    """A reference: the byte positions of elements of a memory.

    Where `gate` is false an element may not be touched (R104). `slots` names the Call arguments through which the reference
    came, as (scope, slot).
    """

    memory: BestiaryMemory | PrivateMemory
    positions: Array
    dtype: DType
    gate: Array | None = None
    slots: tuple[tuple[Any, int], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the elements."""
        shape: tuple[int, ...] = self.positions.shape
        return shape

    def with_positions(self, positions: Array, dtype: DType | None = None) -> BestiaryRef:
        """Return a reference to other positions in the same memory."""
        return replace(self, positions=positions, dtype=dtype or self.dtype)


@dataclass(frozen=True, eq=False, slots=True)
class PointerVector:
    """Several addresses, accessed in this order (R117)."""

    parts: tuple[BestiaryRef, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the vector of all elements."""
        return (sum(math.prod(r.shape) for r in self.parts),)


def whole_memory_ref(memory: BestiaryMemory | PrivateMemory) -> BestiaryRef:
    """Return a reference to all elements."""
    positions = np.arange(math.prod(memory.shape), dtype=np.int64) * memory.dtype.itemsize
    return BestiaryRef(memory, positions.reshape(memory.shape), memory.dtype)


# --------------------------------------------------------------------------------------------------------------------- views


def move_ref_if_view(u: UOp, ref: BestiaryRef, operands: Sequence[Array]) -> BestiaryRef | None:
    """Return the reference that a movement op makes of one, None where its result is no injective view (R51)."""
    if u.op is Op.EXPAND:
        return None
    if u.op is Op.BITCAST:
        return _bitcast_ref_if_bytes_adjacent(ref, u.arg.dtype)
    return ref.with_positions(MOVES[u.op](u, ref.positions, operands))


def _bitcast_ref_if_bytes_adjacent(ref: BestiaryRef, target: DType) -> BestiaryRef | None:
    """Return the reference in another dtype: elements split, and join only if adjacent or all outside (R46)."""
    old, new, positions = ref.dtype.itemsize, target.itemsize, ref.positions
    if new < old:
        parts = positions[..., None] + new * np.arange(old // new)
        return ref.with_positions(parts.reshape((*positions.shape[:-1], positions.shape[-1] * (old // new))), target)
    if new > old:
        ratio = new // old
        groups = positions.reshape((*positions.shape[:-1], positions.shape[-1] // ratio, ratio))
        are_adjacent = (groups == groups[..., :1] + old * np.arange(ratio)).all(-1)
        if not (are_adjacent | (groups < 0).all(-1)).all():
            return None
        positions = groups[..., 0]
    return ref.with_positions(positions, target)


def index_ref_deferring_bounds_trap(ref: BestiaryRef, indices: Sequence[Array], gate: Array | None) -> BestiaryRef:
    """Return the elements at outer combinations of the indices (R45); one out of bounds traps only when it is accessed."""
    shape = ref.shape
    masks = [out_of_bounds_mask(i, shape[axis]) for axis, i in enumerate(indices)]
    positions = _pick_positions_at_outer_product(ref.positions, indices, masks)
    return replace(ref, positions=positions, gate=None if gate is None else np.broadcast_to(gate, positions.shape))


def _pick_positions_at_outer_product(positions: Array, indices: Sequence[Array], out_of_bounds_masks: Sequence[Array]) -> Array:
    """Return the positions at outer combinations of the indices, `OUTSIDE` where one is out of bounds."""
    rest = positions.shape[len(indices) :]
    outside = np.zeros((), bool)
    for b in make_outer_index([b.astype(np.int64) for b in out_of_bounds_masks]):
        outside = outside | (b != 0)
    if 0 in positions.shape[: len(indices)]:
        return np.full((*outside.shape, *rest), OUTSIDE)
    taken = np.asarray(positions[make_outer_index([np.where(b, 0, i) for b, i in zip(out_of_bounds_masks, indices)])])
    return np.where(outside.reshape(outside.shape + (1,) * len(rest)), OUTSIDE, taken)


def pick_element_ref_at_byte_offset(ref: BestiaryRef, offset: Array) -> BestiaryRef:
    """Return the element `offset` bytes behind the first (R103); one that begins inside of an element is out of bounds (R122)."""
    itemsize = ref.dtype.itemsize
    element = index_ref_deferring_bounds_trap(ref, [np.asarray(offset // itemsize)], None)
    return element.with_positions(np.where(offset % itemsize == 0, element.positions, OUTSIDE))


# ------------------------------------------------------------------------------------------------------------------ accesses


def load_and_check_races(
    u: UOp, memory: BestiaryMemory, ref: BestiaryRef, active_mask: Array | None, event_bit: int, happened_before: int
) -> Array:
    """Return the live elements; the others are not touched and are 0.

    Raises Trap for an element out of bounds (R45), never written (R61), or in a race (R55).
    """
    shape = ref.shape
    byte_positions = _active_byte_positions_or_trap_outside(u, memory, ref, active_mask)
    if memory.ready is not None and not memory.ready[byte_positions].all():
        raise Trap(f"{describe(u)} reads elements of {memory.name} that were never written (R61)")
    for position in byte_positions.ravel().tolist():
        if memory.writes.get(position, 0) & ~happened_before:
            raise _race_trap(u, memory, position)
        memory.reads[position] = memory.reads.get(position, 0) | event_bit
    target = NUMPY[ref.dtype]
    elements = np.ascontiguousarray(memory.data[byte_positions]).view(target)
    out = np.zeros(shape, target)
    out[np.broadcast_to(True if active_mask is None else active_mask, shape)] = elements.ravel()
    if ref.dtype is dt.bool_:
        check_bool(out, describe(u))
    return out


def store_and_check_races(
    u: UOp, memory: BestiaryMemory, ref: BestiaryRef, value: Array, active_mask: Array | None, event_bit: int, happened_before: int
) -> None:
    """Write the live elements of `value`. Raises Trap for an element out of bounds (R45), written twice, or in a race (R55)."""
    byte_positions = _active_byte_positions_or_trap_outside(u, memory, ref, active_mask)
    touched = byte_positions.ravel().tolist()
    if len(set(touched)) != len(touched):
        raise Trap(f"{describe(u)} writes an element of {memory.name} twice (R51, R55)")
    for position in touched:
        earlier = memory.writes.get(position, 0) | memory.reads.get(position, 0)
        if earlier & ~happened_before:
            raise _race_trap(u, memory, position)
        memory.writes[position] = event_bit
        memory.reads.pop(position, None)
    memory.written = True  # a Store whose gate is false lists its memory, too
    if touched:
        chosen = value[np.broadcast_to(True if active_mask is None else active_mask, value.shape)]
        memory.data[byte_positions] = np.ascontiguousarray(chosen).reshape(-1, 1).view(np.uint8)
        if memory.ready is not None:
            memory.ready[byte_positions] = True


def _active_byte_positions_or_trap_outside(u: UOp, memory: BestiaryMemory, ref: BestiaryRef, active_mask: Array | None) -> Array:
    """Return the byte positions of the live elements, of shape (elements, bytes each).

    Raises Trap if one is out of bounds (R45).
    """
    positions = ref.positions if active_mask is None else ref.positions[np.broadcast_to(active_mask, ref.positions.shape)]
    positions = positions.reshape(-1, 1)
    if positions.size and positions.min() < 0:
        raise Trap(f"{describe(u)} of {memory.name} accesses an index out of bounds (R45)")
    return positions + np.arange(ref.dtype.itemsize)


def _race_trap(u: UOp, memory: BestiaryMemory, position: int) -> Trap:
    """Return the Trap for a race at a byte position."""
    element = position // memory.dtype.itemsize
    return Trap(f"race on element {element} of {memory.name}: {describe(u)} is unordered with an earlier access (R55)")
