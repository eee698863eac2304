"""References, storages and the order of accesses (R51 to R55, R59, R61).

A reference is a Buffer, a bound Param or an injective view of them. It is a storage and a path of steps. Each step has two
moves: one takes the data through the view, the other moves the byte positions of the elements. Using a reference as a value is
an implicit Load *of that node*. It happens once, after everything the reference depends on and before everything that uses it.
So `after(b, store(b, b + 1)) + b` adds the new value to the old one, while a Store that nothing orders with that Load is a
race.

Accesses are numbered. `TensorMachine.accesses_before_end_of` gives the accesses that happen before a node. An access that overlaps
an earlier one which is not among them, one of the two being a write, is a race. Storages hold immutable arrays: a Store
replaces the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uops.interp.ops.movement import (
    MOVES,
    Move,
    are_all_within_bounds,
    check_slice_and_return_byte_range,
    make_outer_index,
    out_of_bounds_mask,
)
from uops.interp.tensor.scope import TensorScope
from uops.interp.tensor.storage import NUMPY, Array, check_bool
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Byte position of an element that an Index puts outside its buffer. It stays negative under later moves.
OUTSIDE = -(1 << 62)

_RESHAPE = Op.RESHAPE


class TensorStorage:
    """The memory of one Buffer or free Param.

    `ready` has an unsigned integer per element whose bytes are 1 where they were written; None means everywhere.
    """

    __slots__ = ("data", "key", "read_bits", "reads", "ready", "version", "write_bits", "writes")

    def __init__(self, key: str, data: Array, ready: Array | None) -> None:
        self.key = key
        self.data = data
        self.ready = ready
        self.version = 0
        self.reads: list[StorageRef | StorageAccess] = []
        self.writes: list[StorageAccess] = []
        self.read_bits = 0
        self.write_bits = 0


class StorageRef:
    """A reference made by `node` in `scope`.

    `move_data` and `move_positions` lead from the parent's elements to its own (None: the same); `operands` are their last
    argument.
    """

    __slots__ = (
        "bit",
        "cached_data",
        "cached_positions",
        "covers_storage",
        "is_injective",
        "is_plain_view",
        "may_be_out_of_bounds",
        "move_data",
        "move_positions",
        "node",
        "operands",
        "parent",
        "scope",
        "storage",
        "value",
        "version",
    )

    def __init__(
        self,
        storage: TensorStorage,
        scope: TensorScope,
        node: UOp,
        parent: StorageRef | None = None,
        move_data: Move | None = None,
        move_positions: Move | None = None,
        operands: Sequence[Array] = (),
    ) -> None:
        self.storage = storage
        self.scope = scope
        self.node = node
        self.parent = parent
        self.move_data = move_data
        self.move_positions = move_positions
        self.operands = operands
        same = move_positions is None
        self.may_be_out_of_bounds: bool  # an Index on the path is out of bounds
        self.covers_storage: bool  # it is every element of the storage, in order
        self.is_injective: bool  # certainly no element of the storage occurs twice
        self.is_plain_view: bool  # the dtype is the storage's, and the data is mostly a NumPy view of it
        if parent is None:
            self.may_be_out_of_bounds = False
            self.covers_storage = self.is_injective = self.is_plain_view = same
        else:
            self.may_be_out_of_bounds = parent.may_be_out_of_bounds
            self.covers_storage = same and parent.covers_storage
            self.is_injective = same and parent.is_injective
            self.is_plain_view = same and parent.is_plain_view
        self.value: Array | None = None  # the result of the implicit Load
        self.bit: int | None = None  # the number of that access
        self.cached_data: Array | None = None  # the elements in `version` of the storage's data
        self.version = -1
        self.cached_positions: Array | None = None

    def touched_byte_mask(self) -> Array:
        """Return a mask of the bytes of the storage that the implicit Load touches."""
        return touched_byte_mask(self, None)


class StorageAccess:
    """A Store, or a Load with a gate, by `node`: it touches the elements of `ref` that are `live`, None meaning all."""

    __slots__ = ("bit", "cached_bytes", "live", "node", "ref")

    def __init__(self, bit: int, node: UOp, ref: StorageRef, active_mask: Array | None) -> None:
        self.bit = bit
        self.node = node
        self.ref = ref
        self.live = active_mask
        self.cached_bytes: Array | None = None

    def touched_byte_mask(self) -> Array:
        """Return a mask of the bytes of the storage that the access touches."""
        if self.cached_bytes is None:
            self.cached_bytes = touched_byte_mask(self.ref, self.live)
        return self.cached_bytes


def touched_byte_mask(ref: StorageRef, active_mask: Array | None) -> Array:
    """Return a mask of the bytes of the storage that the active elements of `ref` have."""
    mask = np.zeros(ref.storage.data.nbytes, bool)
    mask[touched_byte_positions_or_trap_outside(ref, active_mask)] = True
    return mask


# Views


def _movement_view(u: UOp, parent: StorageRef, operands: Sequence[Array], scope: TensorScope) -> StorageRef:
    """Return the view of a Permute, Flip, Reshape or Shrink."""
    move = MOVES[u.op]
    ref = StorageRef(parent.storage, scope, u, parent, move, move, operands)
    ref.covers_storage = parent.covers_storage and u.op is _RESHAPE
    ref.is_injective, ref.is_plain_view = parent.is_injective, parent.is_plain_view
    return ref


def _index_view_deferring_bounds_trap(u: UOp, parent: StorageRef, operands: Sequence[Array], scope: TensorScope) -> StorageRef:
    """Return the view of an Index; elements out of bounds trap only when they are accessed (R45)."""
    shape = shape_of(parent)
    for axis, i in enumerate(operands):
        if not are_all_within_bounds(i, shape[axis]):
            return _index_view_with_outside_marked(
                u, parent, operands, [out_of_bounds_mask(i, shape[axis]) for axis, i in enumerate(operands)], scope
            )
    at = (*make_outer_index(operands), ...)  # with the ellipsis a single element stays an array
    move: Move = lambda u, x, more: x[at]  # noqa: E731 - one function for data and for positions
    ref = StorageRef(parent.storage, scope, u, parent, move, move)
    if not any(i.ndim for i in operands):
        ref.is_injective, ref.is_plain_view = parent.is_injective, parent.is_plain_view
    return ref


def _index_view_with_outside_marked(
    u: UOp, parent: StorageRef, operands: Sequence[Array], is_outside_per_operand: list[Array], scope: TensorScope
) -> StorageRef:
    """Return the view of an Index with elements out of bounds, which only a gate may keep from being accessed."""
    safe = make_outer_index([np.where(b, 0, i) for b, i in zip(is_outside_per_operand, operands)])
    outside = np.zeros((), bool)
    for b in make_outer_index([b.astype(np.int64) for b in is_outside_per_operand]):
        outside = outside | (b != 0)

    def move_positions(u: UOp, x: Array, indices: Sequence[Array]) -> Array:
        if 0 in x.shape[: len(indices)]:
            return np.full((*outside.shape, *x.shape[len(indices) :]), OUTSIDE)
        taken = np.asarray(x[safe])
        return np.where(outside.reshape(outside.shape + (1,) * (taken.ndim - outside.ndim)), OUTSIDE, taken)

    ref = StorageRef(parent.storage, scope, u, parent, None, move_positions, operands)
    ref.may_be_out_of_bounds = True
    return ref


def _slice_or_bitcast_view(u: UOp, parent: StorageRef, operands: Sequence[Array], scope: TensorScope) -> StorageRef | None:
    """Return the view of a Slice or Bitcast.

    Positions are in bytes, so elements split. They join only where their bytes are adjacent (R46); otherwise the result is
    None.
    """
    old, new = parent.node.dtype.itemsize, u.arg.dtype.itemsize
    take = slice(None)
    if u.op is Op.SLICE:
        first, last = check_slice_and_return_byte_range(u, int(operands[0]), old, math.prod(shape_of(parent)) * old)
        take = slice(first // old, -(-last // old))
    if new > old and not _are_groups_adjacent_in_memory(byte_positions_of(parent)[..., take], new // old, old):
        return None

    def move_positions(u: UOp, x: Array, more: Sequence[Array]) -> Array:
        if old == new and not x.ndim:  # a Bitcast of shape ()
            return x
        x = x[..., take]
        if new < old:
            x = (x[..., None] + new * np.arange(old // new)).reshape((*x.shape[:-1], x.shape[-1] * (old // new)))
        elif new > old:
            x = x[..., :: new // old]
        return x[: u.arg.size] if u.op is Op.SLICE else x

    return StorageRef(parent.storage, scope, u, parent, MOVES[u.op], move_positions, operands)


def _are_groups_adjacent_in_memory(byte_positions: Array, group_size: int, itemsize: int) -> bool:
    """Return True if every `group_size` elements of `itemsize` bytes along the last axis are adjacent in memory, or all outside."""
    whole_elements = byte_positions[..., : byte_positions.shape[-1] // group_size * group_size]
    groups = whole_elements.reshape((*whole_elements.shape[:-1], whole_elements.shape[-1] // group_size, group_size))
    are_adjacent = (groups == groups[..., :1] + itemsize * np.arange(group_size)).all(-1)
    return bool((are_adjacent | (groups < 0).all(-1)).all())


#: The ops, beside After, of which a reference stays a reference (R51): op -> function of the node, the parent, the evaluated
#: operands and the scope. It returns the new reference, or None where the result is no injective view.
VIEWS: dict[Op, Callable[[UOp, StorageRef, Sequence[Array], TensorScope], StorageRef | None]] = {
    **dict.fromkeys((Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.SHRINK), _movement_view),
    Op.INDEX: _index_view_deferring_bounds_trap,
    Op.SLICE: _slice_or_bitcast_view,
    Op.BITCAST: _slice_or_bitcast_view,
}


def alias(parent: StorageRef, scope: TensorScope, node: UOp) -> StorageRef:
    """Return the same elements under another node: an After, or a Param of a Call."""
    return StorageRef(parent.storage, scope, node, parent)


def reshape_view(parent: StorageRef, scope: TensorScope, node: UOp, shape: tuple[int, ...]) -> StorageRef:
    """Return the same elements in another shape, as a Param of a Call has them (R86)."""
    move: Move = lambda u, x, more: x.reshape(shape)  # noqa: E731 - one function for data and for positions
    ref = StorageRef(parent.storage, scope, node, parent, move, move)
    ref.covers_storage, ref.is_injective, ref.is_plain_view = parent.covers_storage, parent.is_injective, parent.is_plain_view
    return ref


def shape_of(ref: StorageRef) -> tuple[int, ...]:
    """Return the shape of the elements of `ref`."""
    return (
        byte_positions_of(ref).shape
        if ref.may_be_out_of_bounds or any(type(n) is not int for n in ref.node.shape)
        else ref.node.shape
    )


# Through a path


def view_current_data(ref: StorageRef) -> Array:
    """Return the elements of `ref` in its storage's present data."""
    storage, parent = ref.storage, ref.parent
    x = storage.data
    if parent is None:
        return x
    if parent.parent is None:  # the commonest case
        return x if ref.move_data is None else ref.move_data(ref.node, x, ref.operands)
    version = storage.version
    steps: list[StorageRef] = []
    while ref.parent is not None and ref.version != version:
        steps.append(ref)
        ref = ref.parent
    if ref.parent is not None:
        assert ref.cached_data is not None
        x = ref.cached_data
    for r in reversed(steps):
        if r.move_data is not None:
            x = r.move_data(r.node, x, r.operands)
        r.cached_data, r.version = x, version
    return x


def byte_positions_of(ref: StorageRef) -> Array:
    """Return the byte position of every element of `ref`."""
    steps: list[StorageRef] = []
    while ref.parent is not None and ref.cached_positions is None:
        steps.append(ref)
        ref = ref.parent
    if ref.cached_positions is None:
        data = ref.storage.data
        ref.cached_positions = (np.arange(data.size, dtype=np.int64) * data.dtype.itemsize).reshape(data.shape)
    x = ref.cached_positions
    for r in reversed(steps):
        if r.move_positions is not None:
            x = r.move_positions(r.node, x, r.operands)
        r.cached_positions = x
    return x


def touched_byte_positions_or_trap_outside(ref: StorageRef, active_mask: Array | None) -> Array:
    """Return the byte positions of the elements that an access touches, of shape (elements, bytes each).

    Raises Trap if one is out of bounds (R45).
    """
    positions = byte_positions_of(ref)
    if active_mask is not None:
        positions = positions[np.broadcast_to(active_mask, positions.shape)]
    positions = positions.reshape(-1, 1)
    if positions.size and np.minimum.reduce(positions, None) < 0:
        raise Trap(f"{describe(ref.node)} of {ref.storage.key} accesses an index out of bounds (R45)")
    return positions + np.arange(ref.node.dtype.itemsize)


def apply_views(ref: StorageRef, storage_array: Array) -> Array:
    """Return the elements of `ref` in another array of its storage's shape."""
    steps: list[StorageRef] = []
    while ref.parent is not None:
        steps.append(ref)
        ref = ref.parent
    for r in reversed(steps):
        if r.move_data is not None:
            storage_array = r.move_data(r.node, storage_array, r.operands)
    return storage_array


def flat_bytes(data: Array) -> Array:
    """Return the bytes of an array as one axis."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def load_elements_zeroing_inactive(ref: StorageRef, active_mask: Array | None = None) -> Array:
    """Return the elements of `ref`; those that are not active are not touched and read as 0.

    Raises Trap for an element out of bounds (R45) or never written (R61).
    """
    storage = ref.storage
    if storage.ready is None and not ref.may_be_out_of_bounds and active_mask is None:
        return storage.data if ref.parent is None else view_current_data(ref)
    if storage.ready is not None and ref.is_plain_view and active_mask is None:
        if np.count_nonzero(apply_views(ref, storage.ready) != fully_written_mark(storage.ready.dtype)):
            raise _unwritten_trap(ref)
        return view_current_data(ref)
    at = touched_byte_positions_or_trap_outside(ref, active_mask)
    if storage.ready is not None and not flat_bytes(storage.ready)[at].all():
        raise _unwritten_trap(ref)
    target = NUMPY[ref.node.dtype]
    shape = byte_positions_of(ref).shape
    if active_mask is None:
        out = flat_bytes(storage.data)[at].view(target).reshape(shape)
    else:
        out = np.zeros(shape, target)
        out[np.broadcast_to(active_mask, shape)] = flat_bytes(storage.data)[at].view(target).ravel()
    if ref.node.dtype is dt.bool_:
        check_bool(out, describe(ref.node))
    return out


def reject_undeclared_write(scope: TensorScope, target: StorageRef) -> None:
    """Raise SpecError if a Call around `scope` that declares what it writes does not declare this write (R63)."""
    enclosing: TensorScope | None = scope
    while enclosing is not None:
        call = enclosing.call
        declared = call.arg.written if call is not None and call.arg is not None else None
        if declared is not None:
            ref: StorageRef | None = target
            while ref is not None and not (ref.scope is enclosing and ref.node.op is Op.PARAM):
                ref = ref.parent
            if ref is not None and ref.node.arg.slot not in declared:
                raise SpecError(f"the Call writes argument {ref.node.arg.slot}, but declares {declared} (R63)")
        enclosing = enclosing.outer


def _unwritten_trap(ref: StorageRef) -> Trap:
    return Trap(f"{describe(ref.node)} reads elements of {ref.storage.key} that were never written (R61)")


def store_elements_by_replacing_data(ref: StorageRef, value: Array, active_mask: Array | None) -> None:
    """Replace the storage's data by a copy with `value` in the active elements of `ref`."""
    storage = ref.storage
    storage.version += 1
    if ref.covers_storage and active_mask is None:
        storage.data, storage.ready = value.reshape(storage.data.shape), None
        return
    data = storage.data.copy(order="C")
    ready = None if storage.ready is None else storage.ready.copy()
    if not (ref.is_plain_view and active_mask is None and _try_write_through_view(ref, data, value, ready)):
        _write_at_byte_positions(ref, data, value, active_mask, ready)
    storage.data = data
    storage.ready = None if ready is None or np.count_nonzero(ready.view(np.uint8)) == ready.nbytes else ready


def _try_write_through_view(ref: StorageRef, data: Array, value: Array, ready: Array | None) -> bool:
    """Write through the view and return True, if `data` has one; a Reshape of a strided view is a copy."""
    target = apply_views(ref, data)
    if not np.may_share_memory(target, data):
        return False
    target[...] = value
    if ready is not None:
        apply_views(ref, ready)[...] = fully_written_mark(ready.dtype)
    return True


def fully_written_mark(d: np.dtype[Any]) -> int:
    """Return the mark in `ready` of an element all of whose bytes were written."""
    return int.from_bytes(b"\1" * d.itemsize)


def _write_at_byte_positions(ref: StorageRef, data: Array, value: Array, active_mask: Array | None, ready: Array | None) -> None:
    """Write the live elements of `value` byte by byte."""
    at = touched_byte_positions_or_trap_outside(ref, active_mask)
    if active_mask is not None:
        value = value[np.broadcast_to(active_mask, value.shape)]
    if at.size:
        raw = np.ascontiguousarray(value).reshape(-1, 1).view(np.uint8)
        data.reshape(-1).view(np.uint8)[at] = raw
    if ready is not None:
        ready.reshape(-1).view(np.uint8)[at] = 1


# Order


def check_race_and_record_read(
    storage: TensorStorage, access_number: int, access: StorageRef | StorageAccess, accesses_before: int
) -> None:
    """Log read number `access_number`. Raises Trap if it races with a write (R55).

    `accesses_before` is the set of accesses that happen before it.
    """
    if storage.write_bits & ~accesses_before:
        _check_no_race(storage, access, storage.writes, storage.write_bits & ~accesses_before)
    storage.reads.append(access)
    storage.read_bits |= 1 << access_number


def check_race_and_record_write(storage: TensorStorage, access: StorageAccess, accesses_before: int) -> None:
    """Log a write. Raises Trap if it races with a read or another write (R55).

    Of the values of one element the last stays (R164: elements that one Store names twice).
    """
    if (storage.read_bits | storage.write_bits) & ~accesses_before:
        _check_no_race(storage, access, storage.writes, storage.write_bits & ~accesses_before)
        _check_no_race(storage, access, storage.reads, storage.read_bits & ~accesses_before)
    storage.writes.append(access)
    storage.write_bits |= 1 << access.bit


def _check_no_race(
    storage: TensorStorage,
    access: StorageRef | StorageAccess,
    logged: Sequence[StorageRef | StorageAccess],
    unordered_accesses: int,
) -> None:
    """Raise Trap if `access` shares bytes with an unordered access among `logged`."""
    for other in logged:
        if other.bit is not None and unordered_accesses >> other.bit & 1:
            both = access.touched_byte_mask() & other.touched_byte_mask()
            if both.any():
                element = int(np.argmax(both)) // storage.data.dtype.itemsize
                pair = f"{describe(other.node)} and {describe(access.node)}"
                raise Trap(f"race on element {element} of {storage.key}: {pair} are unordered (R55)")


def describe(u: UOp) -> str:
    """Return a node's op and arg for a message."""
    return f"{u.op.name}(arg={u.arg!r})" if u.arg is not None else f"{u.op.name} of {', '.join(s.op.name for s in u.src)}"
