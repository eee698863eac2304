"""References, storages and the order of accesses (R51 to R55, R59, R61).

A Buffer, a bound Param and an injective view of them is a reference: a storage, and two moves per step of the path to it, one
that looks at the data through the view and one that moves the byte positions of its elements. A use of a reference as a value is an
implicit Load *of that node*: it happens once, after everything the reference depends on and before everything that uses it; so
`after(b, store(b, b + 1)) + b` adds the new value to the old one, while a Store that nothing orders with that Load is a race.

Accesses are numbered. `Machine.mask_of` gives the accesses that happen before a node; an access that overlaps an earlier one which
is not among them, one of the two being a write, is a race. Storages hold immutable arrays: a Store replaces the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uops.interp.ops.movement import MOVES, Move, out_of_bounds, outer, slice_bytes, within
from uops.interp.tensor.storage import NUMPY, Array, check_bool
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Byte position of an element that an Index puts outside its buffer; stays negative under the moves that follow.
OUTSIDE = -(1 << 62)

_RESHAPE = Op.RESHAPE


class Storage:
    """The memory of one Buffer or free Param. `ready` has an unsigned integer per element whose bytes are 1 where they were
    written; None means everywhere."""

    __slots__ = ("data", "key", "read_bits", "reads", "ready", "version", "write_bits", "writes")

    def __init__(self, key: str, data: Array, ready: Array | None) -> None:
        self.key = key
        self.data = data
        self.ready = ready
        self.version = 0
        self.reads: list[Ref | Access] = []
        self.writes: list[Access] = []
        self.read_bits = 0
        self.write_bits = 0


class Ref:
    """A reference made by `node` in `scope`. `look` and `place` lead from the parent's elements to its own (None: the same); `more`
    is what they take beside them."""

    __slots__ = (
        "bit",
        "look",
        "more",
        "node",
        "once",
        "parent",
        "place",
        "places",
        "plain",
        "risky",
        "scope",
        "seen",
        "storage",
        "value",
        "version",
        "whole",
    )

    def __init__(
        self,
        storage: Storage,
        scope: Any,
        node: UOp,
        parent: Ref | None = None,
        look: Move | None = None,
        place: Move | None = None,
        more: Sequence[Array] = (),
    ) -> None:
        self.storage = storage
        self.scope = scope
        self.node = node
        self.parent = parent
        self.look = look
        self.place = place
        self.more = more
        same = place is None
        self.risky: bool  # an Index on the path is out of bounds
        self.whole: bool  # every element, in the storage's order
        self.once: bool  # no element of the storage twice, for certain
        self.plain: bool  # its own dtype, and looking mostly gives a NumPy view
        if parent is None:
            self.risky = False
            self.whole = self.once = self.plain = same
        else:
            self.risky = parent.risky
            self.whole = same and parent.whole
            self.once = same and parent.once
            self.plain = same and parent.plain
        self.value: Array | None = None  # what the implicit Load gave
        self.bit: int | None = None  # the number of that access
        self.seen: Array | None = None
        self.version = -1
        self.places: Array | None = None

    def span(self) -> Array:
        """Which bytes of the storage its implicit Load touches."""
        return span(self, None)


class Access:
    """A Store, or a Load with a gate, by `node`: it touches the elements of `ref` that are `live`, None meaning all."""

    __slots__ = ("bit", "live", "node", "ref", "touches")

    def __init__(self, bit: int, node: UOp, ref: Ref, live: Array | None) -> None:
        self.bit = bit
        self.node = node
        self.ref = ref
        self.live = live
        self.touches: Array | None = None

    def span(self) -> Array:
        """Which bytes of the storage are touched."""
        if self.touches is None:
            self.touches = span(self.ref, self.live)
        return self.touches


def span(ref: Ref, live: Array | None) -> Array:
    found = np.zeros(ref.storage.data.nbytes, bool)
    found[touched(ref, live)] = True
    return found


# Views


def _moved_view(u: UOp, parent: Ref, more: Sequence[Array], scope: Any) -> Ref:
    move = MOVES[u.op]
    ref = Ref(parent.storage, scope, u, parent, move, move, more)
    ref.whole = parent.whole and u.op is _RESHAPE
    ref.once, ref.plain = parent.once, parent.plain
    return ref


def _index_view(u: UOp, parent: Ref, more: Sequence[Array], scope: Any) -> Ref:
    """An address: elements out of bounds trap only when they are accessed (R45)."""
    shape = shape_of(parent)
    for axis, i in enumerate(more):
        if not within(i, shape[axis]):
            return _gated_view(u, parent, more, [out_of_bounds(i, shape[axis]) for axis, i in enumerate(more)], scope)
    at = (*outer(more), ...)  # the ellipsis keeps an element an array
    move: Move = lambda u, x, more: x[at]  # noqa: E731 - as a view and as positions
    ref = Ref(parent.storage, scope, u, parent, move, move)
    if not any(i.ndim for i in more):
        ref.once, ref.plain = parent.once, parent.plain
    return ref


def _gated_view(u: UOp, parent: Ref, more: Sequence[Array], bad: list[Array], scope: Any) -> Ref:
    """An Index with elements out of bounds, which only a gate may keep from being accessed."""
    safe = outer([np.where(b, 0, i) for b, i in zip(bad, more)])
    outside = np.zeros((), bool)
    for b in outer([b.astype(np.int64) for b in bad]):
        outside = outside | (b != 0)

    def place(u: UOp, x: Array, more: Sequence[Array]) -> Array:
        if 0 in x.shape[: len(more)]:
            return np.full((*outside.shape, *x.shape[len(more) :]), OUTSIDE)
        taken = np.asarray(x[safe])
        return np.where(outside.reshape(outside.shape + (1,) * (taken.ndim - outside.ndim)), OUTSIDE, taken)

    ref = Ref(parent.storage, scope, u, parent, None, place, more)
    ref.risky = True
    return ref


def _bytes_view(u: UOp, parent: Ref, more: Sequence[Array], scope: Any) -> Ref | None:
    """Slice and Bitcast: positions are in bytes, so elements split; they join only where their bytes are adjacent (R46)."""
    old, new = parent.node.dtype.itemsize, u.arg.dtype.itemsize
    take = slice(None)
    if u.op is Op.SLICE:
        first, last = slice_bytes(u, int(more[0]), old, math.prod(shape_of(parent)) * old)
        take = slice(first // old, -(-last // old))
    if new > old and not _adjacent(places_of(parent)[..., take], new // old, old):
        return None

    def place(u: UOp, x: Array, more: Sequence[Array]) -> Array:
        if old == new and not x.ndim:  # a Bitcast of a ()
            return x
        x = x[..., take]
        if new < old:
            x = (x[..., None] + new * np.arange(old // new)).reshape((*x.shape[:-1], x.shape[-1] * (old // new)))
        elif new > old:
            x = x[..., :: new // old]
        return x[: u.arg.size] if u.op is Op.SLICE else x

    return Ref(parent.storage, scope, u, parent, MOVES[u.op], place, more)


def _adjacent(places: Array, ratio: int, size: int) -> bool:
    whole = places[..., : places.shape[-1] // ratio * ratio]
    groups = whole.reshape((*whole.shape[:-1], whole.shape[-1] // ratio, ratio))
    return bool((groups == groups[..., :1] + size * np.arange(ratio)).all())


#: What keeps a reference a reference (R51), beside After: (node, parent, evaluated operands, scope) -> the reference that a
#: movement op makes of its parent; None where the result is no injective view.
VIEWS: dict[Op, Callable[[UOp, Ref, Sequence[Array], Any], Ref | None]] = {
    **dict.fromkeys((Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.SHRINK), _moved_view),
    Op.INDEX: _index_view,
    Op.SLICE: _bytes_view,
    Op.BITCAST: _bytes_view,
}


def alias(parent: Ref, scope: Any, node: UOp) -> Ref:
    """The same elements under another node: After, or a Param of a Call."""
    return Ref(parent.storage, scope, node, parent)


def shape_of(ref: Ref) -> tuple[int, ...]:
    return places_of(ref).shape if ref.risky or any(type(n) is not int for n in ref.node.shape) else ref.node.shape


# Through a path


def look(ref: Ref) -> Array:
    """The elements of `ref` in its storage's present data."""
    storage, parent = ref.storage, ref.parent
    x = storage.data
    if parent is None:
        return x
    if parent.parent is None:  # the commonest
        return x if ref.look is None else ref.look(ref.node, x, ref.more)
    version = storage.version
    steps: list[Ref] = []
    while ref.parent is not None and ref.version != version:
        steps.append(ref)
        ref = ref.parent
    if ref.parent is not None:
        assert ref.seen is not None
        x = ref.seen
    for r in reversed(steps):
        if r.look is not None:
            x = r.look(r.node, x, r.more)
        r.seen, r.version = x, version
    return x


def places_of(ref: Ref) -> Array:
    """Byte position of every element of `ref`."""
    steps: list[Ref] = []
    while ref.parent is not None and ref.places is None:
        steps.append(ref)
        ref = ref.parent
    if ref.places is None:
        data = ref.storage.data
        ref.places = (np.arange(data.size, dtype=np.int64) * data.dtype.itemsize).reshape(data.shape)
    x = ref.places
    for r in reversed(steps):
        if r.place is not None:
            x = r.place(r.node, x, r.more)
        r.places = x
    return x


def touched(ref: Ref, live: Array | None) -> Array:
    """Byte positions, (elements, bytes each), of the elements that an access touches; a Trap if one is out of bounds."""
    places = places_of(ref)
    if live is not None:
        places = places[np.broadcast_to(live, places.shape)]
    places = places.reshape(-1, 1)
    if places.size and np.minimum.reduce(places, None) < 0:
        raise Trap(f"{describe(ref.node)} of {ref.storage.key} accesses an index out of bounds (R45)")
    return places + np.arange(ref.node.dtype.itemsize)


def through(ref: Ref, x: Array) -> Array:
    """The elements of `ref` in another array of its storage's shape."""
    steps: list[Ref] = []
    while ref.parent is not None:
        steps.append(ref)
        ref = ref.parent
    for r in reversed(steps):
        if r.look is not None:
            x = r.look(r.node, x, r.more)
    return x


def flat_bytes(data: Array) -> Array:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def fetch(ref: Ref, live: Array | None = None) -> Array:
    """The elements of `ref`; those that are not `live` are not touched and read as 0."""
    storage = ref.storage
    if storage.ready is None and not ref.risky and live is None:
        return storage.data if ref.parent is None else look(ref)
    if storage.ready is not None and ref.plain and live is None:
        if np.count_nonzero(through(ref, storage.ready) != written(storage.ready.dtype)):
            raise _unwritten(ref)
        return look(ref)
    at = touched(ref, live)
    if storage.ready is not None and not flat_bytes(storage.ready)[at].all():
        raise _unwritten(ref)
    target = NUMPY[ref.node.dtype]
    shape = places_of(ref).shape
    if live is None:
        out = flat_bytes(storage.data)[at].view(target).reshape(shape)
    else:
        out = np.zeros(shape, target)
        out[np.broadcast_to(live, shape)] = flat_bytes(storage.data)[at].view(target).ravel()
    if ref.node.dtype is dt.bool_:
        check_bool(out, describe(ref.node))
    return out


def _unwritten(ref: Ref) -> Trap:
    return Trap(f"{describe(ref.node)} reads elements of {ref.storage.key} that were never written (R61)")


def write(ref: Ref, value: Array, live: Array | None) -> None:
    """Replace the storage's data by a copy with `value` in the elements of `ref` that are `live`."""
    storage = ref.storage
    storage.version += 1
    if ref.whole and live is None:
        storage.data, storage.ready = value.reshape(storage.data.shape), None
        return
    data = storage.data.copy(order="C")
    ready = None if storage.ready is None else storage.ready.copy()
    if not (ref.plain and live is None and _put(ref, data, value, ready)):
        _put_bytes(ref, data, value, live, ready)
    storage.data = data
    storage.ready = None if ready is None or np.count_nonzero(ready.view(np.uint8)) == ready.nbytes else ready


def _put(ref: Ref, data: Array, value: Array, ready: Array | None) -> bool:
    """Write through the view, if looking at `data` gives one; a Reshape of a strided view gives a copy."""
    target = through(ref, data)
    if not np.may_share_memory(target, data):
        return False
    target[...] = value
    if ready is not None:
        through(ref, ready)[...] = written(ready.dtype)
    return True


def written(d: np.dtype[Any]) -> int:
    """The mark in `ready` of an element all of whose bytes were written."""
    return int.from_bytes(b"\1" * d.itemsize)


def _put_bytes(ref: Ref, data: Array, value: Array, live: Array | None, ready: Array | None) -> None:
    """Write by byte positions."""
    at = touched(ref, live)
    if live is not None:
        value = value[np.broadcast_to(live, value.shape)]
    if at.size:
        raw = np.ascontiguousarray(value).reshape(-1, 1).view(np.uint8)
        data.reshape(-1).view(np.uint8)[at] = raw
    if ready is not None:
        ready.reshape(-1).view(np.uint8)[at] = 1


# Order


def record_read(storage: Storage, bit: int, access: Ref | Access, before: int) -> None:
    """Log read number `bit`; a Trap when it races with a write (R55). `before` is the set of accesses that happen before it."""
    if storage.write_bits & ~before:
        _no_race(storage, access, storage.writes, storage.write_bits & ~before)
    storage.reads.append(access)
    storage.read_bits |= 1 << bit


def record_write(storage: Storage, access: Access, before: int) -> None:
    """Log a write; a Trap when it races with a read or with another write (R55). Of one element's values the last stays (R164)."""
    if (storage.read_bits | storage.write_bits) & ~before:
        _no_race(storage, access, storage.writes, storage.write_bits & ~before)
        _no_race(storage, access, storage.reads, storage.read_bits & ~before)
    storage.writes.append(access)
    storage.write_bits |= 1 << access.bit


def _no_race(storage: Storage, access: Ref | Access, others: Sequence[Ref | Access], unordered: int) -> None:
    for other in others:
        if other.bit is not None and unordered >> other.bit & 1:
            both = access.span() & other.span()
            if both.any():
                element = int(np.argmax(both)) // storage.data.dtype.itemsize
                pair = f"{describe(other.node)} and {describe(access.node)}"
                raise Trap(f"race on element {element} of {storage.key}: {pair} are unordered (R55)")


def describe(u: UOp) -> str:
    """A node in a message."""
    return f"{u.op.name}(arg={u.arg!r})" if u.arg is not None else f"{u.op.name} of {', '.join(s.op.name for s in u.src)}"
