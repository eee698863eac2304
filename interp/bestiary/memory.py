"""Memories and references: which bytes hold what, which were written, and who touched them (R45, R51, R55, R61).

A reference is a memory and the byte position of each of its elements; a view moves the positions. An access is one *event*: a bit
of the sets of events that happen before a node (`frame.Cell.before`). Two accesses that share bytes, one of them a write, must be
ordered, else the access is a Trap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from uops.interp.ops.movement import MOVES, out_of_bounds, outer
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import NUMPY, Array, check_bool
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Position of an element that an index puts outside of its memory; stays negative under the moves that follow.
OUTSIDE = -(1 << 62)


@dataclass(eq=False, slots=True)
class Memory:
    """`data` are bytes, written in place; `ready` marks those that hold a value, None means all. `key` names it in a Result.

    `writes` and `reads` hold per byte the events that matter still: a write that is ordered after all others replaces them.
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
        """All elements; those never written are 0."""
        return self.data.view(NUMPY[self.dtype]).reshape(self.shape)


def fresh(name: str, dtype: DType, shape: tuple[int, ...], key: str | None = None) -> Memory:
    """Memory that nothing was written to."""
    size = math.prod(shape) * dtype.itemsize
    return Memory(name, np.zeros(size, np.uint8), np.zeros(size, bool), dtype, shape, key)


def filled(name: str, dtype: DType, contents: Array, key: str | None = None) -> Memory:
    """Memory with a copy of these contents."""
    data = np.array(contents, order="C").reshape(-1).view(np.uint8)
    return Memory(name, data, None, dtype, contents.shape, key)


@dataclass(frozen=True, eq=False, slots=True)
class Private:
    """Memory that every workgroup, or every lane, has for itself (R61): which one is meant is known at an access."""

    node: UOp
    name: str
    dtype: DType
    shape: tuple[int, ...]
    of_lane: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Ref:
    """`places` are byte positions. Where `gate` is false an element may not be touched (R104). `slots` names the Call arguments
    through which it came: (scope, slot)."""

    memory: Memory | Private
    places: Array
    dtype: DType
    gate: Array | None = None
    slots: tuple[tuple[Any, int], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.places.shape
        return shape

    def moved(self, places: Array, dtype: DType | None = None) -> Ref:
        return replace(self, places=places, dtype=dtype or self.dtype)


@dataclass(frozen=True, eq=False, slots=True)
class Pointers:
    """Several addresses, accessed in this order (R117)."""

    parts: tuple[Ref, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(math.prod(r.shape) for r in self.parts),)


def whole(memory: Memory | Private) -> Ref:
    """All elements."""
    places = np.arange(math.prod(memory.shape), dtype=np.int64) * memory.dtype.itemsize
    return Ref(memory, places.reshape(memory.shape), memory.dtype)


# --------------------------------------------------------------------------------------------------------------------- views


def view(u: UOp, ref: Ref, more: Sequence[Array]) -> Ref | None:
    """The reference that a movement op makes of one, None where its result is no injective view (R51)."""
    if u.op is Op.EXPAND:
        return None
    if u.op is Op.BITCAST:
        return _bitcast(ref, u.arg.dtype)
    return ref.moved(MOVES[u.op](u, ref.places, more))


def _bitcast(ref: Ref, target: DType) -> Ref | None:
    """Elements split; they join only where their bytes are adjacent (R46)."""
    old, new, places = ref.dtype.itemsize, target.itemsize, ref.places
    if new < old:
        parts = places[..., None] + new * np.arange(old // new)
        return ref.moved(parts.reshape((*places.shape[:-1], places.shape[-1] * (old // new))), target)
    if new > old:
        ratio = new // old
        groups = places.reshape((*places.shape[:-1], places.shape[-1] // ratio, ratio))
        if not (groups == groups[..., :1] + old * np.arange(ratio)).all():
            return None
        places = groups[..., 0]
    return ref.moved(places, target)


def indexed(ref: Ref, indices: Sequence[Array], gate: Array | None) -> Ref:
    """Elements at outer combinations of the indices (R45); one that is outside traps only when it is accessed."""
    shape = ref.shape
    bad = [out_of_bounds(i, shape[axis]) for axis, i in enumerate(indices)]
    places = _picked(ref.places, indices, bad)
    return replace(ref, places=places, gate=None if gate is None else np.broadcast_to(gate, places.shape))


def _picked(places: Array, indices: Sequence[Array], bad: Sequence[Array]) -> Array:
    rest = places.shape[len(indices) :]
    outside = np.zeros((), bool)
    for b in outer([b.astype(np.int64) for b in bad]):
        outside = outside | (b != 0)
    if 0 in places.shape[: len(indices)]:
        return np.full((*outside.shape, *rest), OUTSIDE)
    taken = np.asarray(places[outer([np.where(b, 0, i) for b, i in zip(bad, indices)])])
    return np.where(outside.reshape(outside.shape + (1,) * len(rest)), OUTSIDE, taken)


def pointed(ref: Ref, offset: Array) -> Ref:
    """The elements `offset` bytes behind the first (R103); one that begins inside of an element is out of bounds (R122)."""
    item = ref.dtype.itemsize
    number = np.asarray(offset // item)
    number = np.where(offset % item == 0, number, -1)
    return indexed(ref, [number], None)


# ------------------------------------------------------------------------------------------------------------------ accesses


def read(u: UOp, memory: Memory, ref: Ref, live: Array | None, event: int, before: int) -> Array:
    """The elements that are live; the others are not touched and are 0."""
    shape = ref.shape
    at = _bytes(u, memory, ref, live)
    if memory.ready is not None and not memory.ready[at].all():
        raise Trap(f"{describe(u)} reads elements of {memory.name} that were never written (R61)")
    for k in at.ravel().tolist():
        if memory.writes.get(k, 0) & ~before:
            raise _race(u, memory, k)
        memory.reads[k] = memory.reads.get(k, 0) | event
    target = NUMPY[ref.dtype]
    found = np.ascontiguousarray(memory.data[at]).view(target)
    out = np.zeros(shape, target)
    out[np.broadcast_to(True if live is None else live, shape)] = found.ravel()
    if ref.dtype is dt.bool_:
        check_bool(out, describe(u))
    return out


def write(u: UOp, memory: Memory, ref: Ref, value: Array, live: Array | None, event: int, before: int) -> None:
    """Store the elements of `value` that are live."""
    at = _bytes(u, memory, ref, live)
    touched = at.ravel().tolist()
    if len(set(touched)) != len(touched):
        raise Trap(f"{describe(u)} writes an element of {memory.name} twice (R51, R55)")
    for k in touched:
        others = memory.writes.get(k, 0) | memory.reads.get(k, 0)
        if others & ~before:
            raise _race(u, memory, k)
        memory.writes[k] = event
        memory.reads.pop(k, None)
    if touched:
        memory.written = True
        chosen = value[np.broadcast_to(True if live is None else live, value.shape)]
        memory.data[at] = np.ascontiguousarray(chosen).reshape(-1, 1).view(np.uint8)
        if memory.ready is not None:
            memory.ready[at] = True


def _bytes(u: UOp, memory: Memory, ref: Ref, live: Array | None) -> Array:
    """Positions (elements, bytes each) of the live elements; a Trap if one is out of bounds."""
    places = ref.places if live is None else ref.places[np.broadcast_to(live, ref.places.shape)]
    places = places.reshape(-1, 1)
    if places.size and places.min() < 0:
        raise Trap(f"{describe(u)} of {memory.name} accesses an index out of bounds (R45)")
    return places + np.arange(ref.dtype.itemsize)


def _race(u: UOp, memory: Memory, at: int) -> Trap:
    element = at // memory.dtype.itemsize
    return Trap(f"race on element {element} of {memory.name}: {describe(u)} is unordered with an earlier access (R55)")
