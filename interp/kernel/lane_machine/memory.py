"""The memories of a kernel: their contents, the marks of written and touched elements, and how views address them.

A `FlatMemory` is one memory as a flat array of elements: an argument of the kernel, the LOCAL memory of one workgroup, or the
REG memory of one lane (R61). An `Address` names elements of a memory by the positions of their first bytes. So every movement
op on a reference is that op on positions (R51), and Slice and Bitcast may change the item size (R46).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.interp.ops.movement import MOVES, check_slice_and_return_byte_range, make_outer_index, out_of_bounds_mask
from uops.interp.tensor.memory import OUTSIDE
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(eq=False, slots=True)
class FlatMemory:
    """A memory as a flat array.

    `data` has one axis. `ready` marks the elements that hold a value, None meaning all of them (R61). `read_mask` and
    `written_mask` mark the elements that a run touched, to order the run with others. `explain_missing` says why an element
    holds no value any more, or nothing. `data` and `ready` are written in place. While the memory is `borrowed` others share
    them, and a run that writes replaces them.
    """

    name: str
    data: Array
    ready: Array | None
    read_mask: Array
    written_mask: Array
    explain_missing: Callable[[int], str] | None = None
    borrowed: bool = False

    def copy_if_borrowed(self) -> None:
        """Copy the arrays if others share them, so that they may be written."""
        if self.borrowed:
            self.borrowed = False
            self.data = self.data.copy()
            self.ready = None if self.ready is None else self.ready.copy()


def make_flat_memory(name: str, data: Array, ready: Array | None = None) -> FlatMemory:
    """Return a memory with these contents, which owns the arrays."""
    return FlatMemory(name, data, ready, np.zeros(data.size, bool), np.zeros(data.size, bool))


@dataclass(eq=False, slots=True)
class MemoryWindow:
    """Elements of a memory that other operands share: byte positions in `memory`, in the shape of the reference."""

    memory: FlatMemory
    at: Array


class Address:
    """Elements of `itemsize` bytes in `home`: a memory, or the LOCAL or REG Buffer whose memory depends on the lane.

    `at` is the position of a () address, or the positions of several; None is every element in order. `outside` is an index that
    left its axis, with the extent of the axis: it is a fault only where the address is accessed (R45).
    """

    __slots__ = ("at", "home", "itemsize", "outside", "shape")

    def __init__(
        self, home: Any, at: int | Array | None, shape: tuple[int, ...], itemsize: int, outside: tuple[int, int] | None = None
    ) -> None:
        self.home = home
        self.at = at
        self.shape = shape
        self.itemsize = itemsize
        self.outside = outside

    def byte_positions(self) -> Array:
        """Return the byte position of every element."""
        if self.at is None:
            return (np.arange(math.prod(self.shape), dtype=np.int64) * self.itemsize).reshape(self.shape)
        return np.asarray(self.at, np.int64)

    def with_positions(self, byte_positions: Array, itemsize: int | None = None) -> Address:
        """Return an address of other positions in the same memory."""
        byte_positions = np.asarray(byte_positions)
        position = byte_positions.item() if not byte_positions.ndim else byte_positions
        return Address(self.home, position, byte_positions.shape, self.itemsize if itemsize is None else itemsize, self.outside)


def _move_address(u: UOp, a: Address, operands: Sequence[Array]) -> Address:
    """Return the view of a Permute, Flip, Reshape or Shrink."""
    return a.with_positions(MOVES[u.op](u, a.byte_positions(), operands))


def _index_address_deferring_bounds_trap(u: UOp, a: Address, operands: Sequence[Array]) -> Address:
    """Return the view of an Index; out of bounds is a fault only where it is accessed (R45)."""
    if a.at is None and len(operands) == 1 == len(a.shape) and not operands[0].ndim:
        i = int(operands[0])
        if 0 <= i < a.shape[0]:
            return Address(a.home, i * a.itemsize, (), a.itemsize)
        return Address(a.home, OUTSIDE, (), a.itemsize, (i, a.shape[0]))
    masks = [out_of_bounds_mask(i, n) for i, n in zip(operands, a.shape)]
    if not any(b.any() for b in masks):
        return a.with_positions(a.byte_positions()[make_outer_index(operands)])
    address = _index_address_with_outside_marked(a, operands, masks)
    axis = next(k for k, b in enumerate(masks) if b.any())
    address.outside = (int(np.asarray(operands[axis])[masks[axis]].ravel()[0]), a.shape[axis])
    return address


def _index_address_with_outside_marked(a: Address, indices: Sequence[Array], is_outside_per_index: Sequence[Array]) -> Address:
    """Return the view of an Index with elements out of bounds, which only a gate may keep from being accessed."""
    outside = np.zeros((), bool)
    for b in make_outer_index([b.astype(np.int64) for b in is_outside_per_index]):
        outside = outside | (np.asarray(b) != 0)
    rest = a.shape[len(indices) :]
    if 0 in a.shape[: len(indices)]:
        return a.with_positions(np.full((*outside.shape, *rest), OUTSIDE))
    taken = a.byte_positions()[make_outer_index([np.where(b, 0, i) for b, i in zip(is_outside_per_index, indices)])]
    return a.with_positions(np.where(outside.reshape(outside.shape + (1,) * len(rest)), OUTSIDE, taken))


def _slice_or_bitcast_address(u: UOp, a: Address, operands: Sequence[Array]) -> Address | None:
    """Return the view of a Slice or Bitcast.

    Elements split, or join where their bytes are adjacent or all outside; the result is None where they are neither.
    """
    old, new = a.itemsize, u.arg.dtype.itemsize
    at = a.byte_positions()
    if u.op is Op.SLICE:
        first, last = check_slice_and_return_byte_range(u, int(operands[0]), old, at.size * old)
        at = at[first // old : -(-last // old)]
    if new < old:
        at = (at[..., None] + new * np.arange(old // new)).reshape((*at.shape[:-1], at.shape[-1] * (old // new)))
    elif new > old:
        ratio = new // old
        groups = at[..., : at.shape[-1] // ratio * ratio].reshape((*at.shape[:-1], -1, ratio)) if at.size else at[..., None]
        are_adjacent = (groups == groups[..., :1] + old * np.arange(groups.shape[-1])).all(-1)
        if not (are_adjacent | (groups < 0).all(-1)).all():
            return None
        at = at[..., ::ratio]
    return a.with_positions(at[: u.arg.size] if u.op is Op.SLICE else at, new)


#: The ops, beside After, of which a reference stays a reference (R51): op -> function of the node, its address and its operands.
VIEWS: dict[Op, Callable[[UOp, Address, Sequence[Array]], Address | None]] = {
    **dict.fromkeys((Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.SHRINK), _move_address),
    Op.INDEX: _index_address_deferring_bounds_trap,
    Op.SLICE: _slice_or_bitcast_address,
    Op.BITCAST: _slice_or_bitcast_address,
}
