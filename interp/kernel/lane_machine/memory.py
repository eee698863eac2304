"""The memories of a kernel: what is in them, which elements were ever written, which were touched, and how views address them.

A `Space` is one memory as a flat array of elements: an argument of the kernel, or the LOCAL memory of one workgroup, or the REG
memory of one lane (R61). An `Address` names elements of a memory by the positions of their first bytes, so that every movement op
on a reference is that op on positions (R51), and Slice and Bitcast may change the item size (R46).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.interp.ops.movement import MOVES, out_of_bounds, outer, slice_bytes
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Position of an element that an Index puts outside of its memory; stays negative under the moves that follow.
OUTSIDE = -(1 << 62)


@dataclass(eq=False, slots=True)
class Space:
    """`data` has one axis. `ready` marks the elements that hold a value, None means all of them (R61).

    `read` and `written` mark the elements that a run touched, for whoever orders the run with others. `lost` says why an element
    holds no value any more, or nothing. `data` and `ready` are written in place; while the memory is `borrowed` they are others'
    too, and a run that writes replaces them.
    """

    name: str
    data: Array
    ready: Array | None
    read: Array
    written: Array
    lost: Callable[[int], str] | None = None
    borrowed: bool = False

    def own(self) -> None:
        """From here on the arrays may be written to."""
        if self.borrowed:
            self.borrowed = False
            self.data = self.data.copy()
            self.ready = None if self.ready is None else self.ready.copy()


def space(name: str, data: Array, ready: Array | None = None) -> Space:
    """A memory with this content; the arrays become the memory's own."""
    return Space(name, data, ready, np.zeros(data.size, bool), np.zeros(data.size, bool))


@dataclass(eq=False, slots=True)
class Window:
    """Elements of a memory that others see too: byte positions in `space`, in the shape of the reference."""

    space: Space
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

    def positions(self) -> Array:
        if self.at is None:
            return (np.arange(math.prod(self.shape), dtype=np.int64) * self.itemsize).reshape(self.shape)
        return np.asarray(self.at, np.int64)

    def moved(self, at: Array, itemsize: int | None = None) -> Address:
        """Other positions in the same memory."""
        at = np.asarray(at)
        position = at.item() if not at.ndim else at
        return Address(self.home, position, at.shape, self.itemsize if itemsize is None else itemsize, self.outside)


def _move(u: UOp, a: Address, more: Sequence[Array]) -> Address:
    return a.moved(MOVES[u.op](u, a.positions(), more))


def _index(u: UOp, a: Address, more: Sequence[Array]) -> Address:
    if a.at is None and len(more) == 1 == len(a.shape) and not more[0].ndim:
        i = int(more[0])
        if 0 <= i < a.shape[0]:
            return Address(a.home, i * a.itemsize, (), a.itemsize)
        return Address(a.home, OUTSIDE, (), a.itemsize, (i, a.shape[0]))
    bad = [out_of_bounds(i, n) for i, n in zip(more, a.shape)]
    if not any(b.any() for b in bad):
        return a.moved(a.positions()[outer(more)])
    found = _gated(a, more, bad)
    axis = next(k for k, b in enumerate(bad) if b.any())
    found.outside = (int(np.asarray(more[axis])[bad[axis]].ravel()[0]), a.shape[axis])
    return found


def _gated(a: Address, more: Sequence[Array], bad: Sequence[Array]) -> Address:
    """Only a gate keeps what is out of bounds from being accessed."""
    outside = np.zeros((), bool)
    for b in outer([b.astype(np.int64) for b in bad]):
        outside = outside | (np.asarray(b) != 0)
    rest = a.shape[len(more) :]
    if 0 in a.shape[: len(more)]:
        return a.moved(np.full((*outside.shape, *rest), OUTSIDE))
    taken = a.positions()[outer([np.where(b, 0, i) for b, i in zip(bad, more)])]
    return a.moved(np.where(outside.reshape(outside.shape + (1,) * len(rest)), OUTSIDE, taken))


def _bytes(u: UOp, a: Address, more: Sequence[Array]) -> Address | None:
    """Slice and Bitcast: elements split, or join where their bytes are adjacent; None where they are not."""
    old, new = a.itemsize, u.arg.dtype.itemsize
    at = a.positions()
    if u.op is Op.SLICE:
        first, last = slice_bytes(u, int(more[0]), old, at.size * old)
        at = at[first // old : -(-last // old)]
    if new < old:
        at = (at[..., None] + new * np.arange(old // new)).reshape((*at.shape[:-1], at.shape[-1] * (old // new)))
    elif new > old:
        ratio = new // old
        groups = at[..., : at.shape[-1] // ratio * ratio].reshape((*at.shape[:-1], -1, ratio)) if at.size else at[..., None]
        if not (groups == groups[..., :1] + old * np.arange(groups.shape[-1])).all():
            return None
        at = at[..., ::ratio]
    return a.moved(at[: u.arg.size] if u.op is Op.SLICE else at, new)


#: What keeps a reference a reference (R51), beside After.
VIEWS: dict[Op, Callable[[UOp, Address, Sequence[Array]], Address | None]] = {
    **dict.fromkeys((Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.SHRINK), _move),
    Op.INDEX: _index,
    Op.SLICE: _bytes,
    Op.BITCAST: _bytes,
}
