"""Memory of the vectorised machine: addresses with axes, the copies that a run works on, and the judgement of its accesses.

A `Ref` names elements of a memory, one per iteration of the axes around it and per element of its own shape. While the positions
are affine they stay a formula (`Strided`) and an access is a view of the data, without a gather; else they are an array
(`Scattered`).

A `Memory` never changes the Space that it stands for: the first write copies the data. Memory with a copy per iteration of some
axes is one long array, and `lane` the position at which an iteration's part begins. Every access is in bounds and every element
read was written, or GiveUp; `judge` does what the plan's checks ask (`plan`) when the run is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.interp.kernel.lane_machine.memory import OUTSIDE, Space
from uops.interp.kernel.vector_machine.affine import Affine, combined, scaled
from uops.interp.kernel.vector_machine.limits import GiveUp, within
from uops.interp.kernel.vector_machine.plan import Check, MemoryPlan
from uops.interp.tensor.storage import Array
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(eq=False, slots=True)
class Strided:
    """Position of element e of the own shape: offset + sum of strides * e."""

    home: UOp
    offset: Affine
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def bounds(self) -> tuple[int, int]:
        lo, hi = self.offset.lo, self.offset.hi
        for s, n in zip(self.strides, self.shape):
            lo, hi = (lo, hi + s * (n - 1)) if s > 0 else (lo + s * (n - 1), hi)
        return lo, hi

    def scattered(self, extents: Sequence[int]) -> Scattered:
        """The same positions as an array, with all axes there are."""
        at = self.offset.values(extents)
        if self.shape:
            at = at.reshape(at.shape + (1,) * (len(extents) - at.ndim if at.ndim else 0) + (1,) * len(self.shape))
            for k, (s, n) in enumerate(zip(self.strides, self.shape)):
                at = at + (np.arange(n, dtype=np.int64) * s).reshape((-1, *(1,) * (len(self.shape) - k - 1)))
        elif at.ndim:
            at = at.reshape(at.shape + (1,) * (len(extents) - at.ndim))
        return Scattered(self.home, at, self.shape)


@dataclass(eq=False, slots=True)
class Scattered:
    """`at`: the axes around it where it was made, or none where it is the same everywhere, then the own shape. Outside of the
    memory: negative."""

    home: UOp
    at: Array
    shape: tuple[int, ...]


Ref = Strided | Scattered


def full(a: Array, own: int, depth: int) -> Array:
    """`a`, whose own shape has `own` axes, with all `depth` axes of loops before them."""
    lead = a.ndim - own
    return a if lead == depth else a.reshape(a.shape[:lead] + (1,) * (depth - lead) + a.shape[lead:])


def whole(home: UOp, shape: tuple[int, ...]) -> Strided:
    """Every element of a memory, in order."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 1, 0, -1):
        strides[k - 1] = strides[k] * shape[k]
    return Strided(home, Affine(0, (), ()), shape, tuple(strides))


def element(ref: Strided, indices: Sequence[Any], extents: Sequence[int]) -> Strided | None:
    """The elements that affine indices name, None where one is not affine or may leave its axis."""
    offset = ref.offset
    for i, n, stride in zip(indices, ref.shape, ref.strides):
        if i.__class__ is not Affine or i.lo < 0 or i.hi >= n:
            return None
        offset = combined(offset, i if stride == 1 else scaled(i, stride, extents), 1, extents)
    k = len(indices)
    return Strided(ref.home, offset, ref.shape[k:], ref.strides[k:])


def outside(at: Array, bad: Array) -> Array:
    return np.where(bad, OUTSIDE, at)


@dataclass(eq=False, slots=True)
class Event:
    """One access that a check may ask about: by `site`, to the positions of `span` or `at`, where `mask` holds if it is not None.

    `when`: the iteration of each loop that runs in order, and the number of barriers passed. `extents`: those of the axes around.
    """

    site: UOp
    span: Span | None
    at: Array | None
    mask: Array | None
    when: tuple[dict[UOp, int], int]
    extents: tuple[int, ...]

    def owned(self, axes: Sequence[int]) -> tuple[Array, Array]:
        """The positions touched, and for each the number of its iteration of `axes`."""
        at = self.at if self.span is None else self.span.positions()
        assert at is not None
        rank = at.ndim - len(self.extents)
        number: Array = np.zeros((1,) * (len(self.extents) + rank), np.int64)
        for axis in axes:
            counter = np.arange(self.extents[axis], dtype=np.int64)
            number = number * self.extents[axis] + counter.reshape((-1, *(1,) * (len(self.extents) - axis - 1 + rank)))
        shape = np.broadcast_shapes(at.shape, number.shape, () if self.mask is None else self.mask.shape)
        within(math.prod(shape))
        at, number = np.broadcast_to(at, shape), np.broadcast_to(number, shape)
        if self.mask is None:
            return at.ravel(), number.ravel()
        live = np.broadcast_to(self.mask, shape)
        return at[live], number[live]


class Memory:
    """A memory in a run: `size` elements for each of the copies that `plan.axes` ask for. `read` and `written` mark elements of a
    Space; True is all of them, False none."""

    __slots__ = ("data", "lane", "name", "owned", "plan", "read", "ready", "size", "written")

    def __init__(self, plan: MemoryPlan, name: str, size: int, data: Array, ready: Array | None, lane: Affine | None) -> None:
        self.plan = plan
        self.name = name
        self.size = size
        self.data = data
        self.ready = ready
        self.lane = lane
        self.owned = False  # whether `data` and `ready` are this run's own
        self.read: Array | bool = False
        self.written: Array | bool = False

    @staticmethod
    def of_space(plan: MemoryPlan, space: Space, dtype: np.dtype[Any]) -> Memory:
        data = space.data
        if data.dtype is not dtype and data.dtype != dtype:  # a small float and the integer of its bits
            if data.itemsize != dtype.itemsize:
                raise GiveUp("a memory of another item size than its Param")
            data = data.view(dtype)
        if dtype.kind == "b" and data.size and int(data.view(np.uint8).max()) > 1:
            raise GiveUp("a bool byte other than 0 and 1")
        if data.ndim != 1 or not data.flags.c_contiguous:
            raise GiveUp("a memory that is not flat")
        return Memory(plan, space.name, data.size, data, space.ready, None)

    @staticmethod
    def fresh(plan: MemoryPlan, dtype: np.dtype[Any], size: int, extents: Sequence[int]) -> Memory:
        """Uninitialised memory, a copy for every iteration of the plan's axes."""
        copies = math.prod(extents[axis] for axis in plan.axes)
        within(copies * size)
        data, ready = np.zeros(copies * size, dtype), np.zeros(copies * size, bool)
        found = Memory(plan, plan.space.value, size, data, ready, lanes(plan, size, extents))
        found.owned = True
        return found

    def own(self) -> None:
        """From here on `data` and `ready` may be written to."""
        if not self.owned:
            self.owned = True
            self.data = self.data.copy()
            self.ready = None if self.ready is None else self.ready.copy()

    def _marked(self, marks: Array | bool) -> Array | None:
        """Marks that can be set, None where they all are, or where nobody asks for them."""
        if marks is True or self.plan.space is not AddrSpace.GLOBAL:
            return None
        return np.zeros(self.data.size, bool) if marks is False else marks

    # Strided accesses

    def load_span(self, s: Span) -> Array:
        if self.ready is not None and not (self.ready if s.covers else s.view(self.ready)).all():
            raise GiveUp(f"{self.name} is read before it is written")
        if s.covers:
            self.read = True
        elif (marks := self._marked(self.read)) is not None:
            s.view(marks)[...] = True
            self.read = marks
        found = s.view(self.data)
        return found.copy() if self.plan.written else found

    def store_span(self, s: Span, value: Array) -> None:
        if s.covers:
            self.ready, self.written = None, True
            if s.plain and value.size > 1 and value.shape == s.shape and value.flags.owndata and value.flags.c_contiguous:
                # It was computed in this run: constants have one element, values that were given are views. Nobody writes to it.
                self.data, self.owned = value.reshape(-1), False
                return
            if not self.owned:
                self.data, self.owned = np.empty_like(self.data), True
            s.view(self.data)[...] = value
            return
        self.own()
        s.view(self.data)[...] = value
        if self.ready is not None:
            s.view(self.ready)[...] = True
        if (marks := self._marked(self.written)) is not None:
            s.view(marks)[...] = True
            self.written = marks

    # Scattered accesses

    def places(self, ref: Scattered, mask: Array | None, extents: Sequence[int]) -> tuple[Array, Array | None]:
        """Positions in `data`, 0 where the mask does not hold; GiveUp where one is out of bounds and the mask holds."""
        at = full(ref.at, len(ref.shape), len(extents))
        if mask is None:
            if at.size and (int(at.min()) < 0 or int(at.max()) >= self.size):
                raise GiveUp(f"{self.name} is accessed out of bounds")
        else:
            bad = (at < 0) | (at >= self.size)
            if (bad & mask).any() or not self.size:
                raise GiveUp(f"{self.name} is accessed out of bounds")
            at = np.where(mask, at, 0)
        if self.lane is not None:
            lane = self.lane.values(extents)
            at = at + lane.reshape(lane.shape + (1,) * (len(extents) - lane.ndim + len(ref.shape)))
        within(at.size)
        return at, mask

    def load_places(self, at: Array, mask: Array | None) -> Array:
        touched = at if mask is None else at[np.broadcast_to(mask, at.shape)]
        if self.ready is not None and not self.ready[touched].all():
            raise GiveUp(f"{self.name} is read before it is written")
        self._mark(touched, reads=True)
        return np.asarray(self.data[at])

    def store_places(self, at: Array, mask: Array | None, value: Array, extents: Sequence[int]) -> None:
        """GiveUp where two iterations or two elements of one iteration have the same position."""
        shape = np.broadcast_shapes(at.shape, () if mask is None else mask.shape)
        if any(n > 1 for n in extents) and shape[: len(extents)] != tuple(extents):
            raise GiveUp("iterations that write to the same element")
        at = np.broadcast_to(at, shape)
        value = np.broadcast_to(value, shape)
        if mask is not None:
            live = np.broadcast_to(mask, shape)
            at, value = at[live], value[live]
        if not distinct(at, self.data.size):
            raise GiveUp("two writes to one element")
        self.own()
        self.data[at] = value
        if self.ready is not None:
            self.ready[at] = True
        self._mark(at, writes=True)

    def add_places(self, at: Array, mask: Array | None, value: Array, extents: Sequence[int]) -> None:
        """Machine integers: addition wraps in any order (R05, R56)."""
        shape = np.broadcast_shapes(at.shape, () if mask is None else mask.shape, tuple(extents) + (1,) * (at.ndim - len(extents)))
        within(int(np.prod(shape)))
        at, value = np.broadcast_to(at, shape), np.broadcast_to(value, shape)
        if mask is not None:
            live = np.broadcast_to(mask, shape)
            at, value = at[live], value[live]
        if self.ready is not None and not self.ready[at].all():
            raise GiveUp(f"{self.name} is added to before it is written")
        self.own()
        np.add.at(self.data, at, value)
        self._mark(at, reads=True, writes=True)

    def _mark(self, at: Array, *, reads: bool = False, writes: bool = False) -> None:
        if reads and (marks := self._marked(self.read)) is not None:
            marks[at] = True
            self.read = marks
        if writes and (marks := self._marked(self.written)) is not None:
            marks[at] = True
            self.written = marks


@dataclass(eq=False, slots=True)
class Span:
    """Elements start + sum of strides * e, for each e of the shape; all of them are in bounds. `once`: certainly no two iterations
    or elements have the same position. `covers`: they are all that the memory has; `plain`: in its order."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    once: bool
    covers: bool
    plain: bool

    def view(self, a: Array) -> Array:
        if self.plain:
            return a.reshape(self.shape)
        size = a.itemsize
        buffer = a if a.dtype.isbuiltin == 1 else a.view(f"u{size}")
        found: Array = np.ndarray(self.shape, buffer.dtype, buffer, self.start * size, [s * size for s in self.strides])
        return found if buffer is a else found.view(a.dtype)

    def positions(self) -> Array:
        found: Array = np.array(self.start, np.int64).reshape((1,) * len(self.shape))
        for k, (s, n) in enumerate(zip(self.strides, self.shape)):
            if n > 1:
                found = found + (np.arange(n, dtype=np.int64) * s).reshape((-1, *(1,) * (len(self.shape) - k - 1)))
        return found


def spanned(ref: Strided, size: int, lane: Affine | None, extents: Sequence[int]) -> Span:
    """What an access to all of `ref` touches in a memory of `size` elements; GiveUp where it is out of bounds."""
    lo, hi = ref.bounds()
    if lo < 0 or hi >= size or 0 in ref.shape:
        raise GiveUp("an access that is out of bounds, or to nothing")
    offset = ref.offset if lane is None else combined(ref.offset, lane, 1, extents)
    coefficients = offset.coefficients
    missing = len(extents) - len(coefficients)
    shape = (*[n if c else 1 for c, n in zip(coefficients, extents)], *(1,) * missing, *ref.shape)
    strides = (*coefficients, *(0,) * missing, *ref.strides)
    once = _is_once(strides, (*extents, *ref.shape))
    covers = lane is None and math.prod(shape) == size and (once or _is_once(strides, shape))
    plain = covers and all(s == math.prod(shape[k + 1 :]) for k, (s, n) in enumerate(zip(strides, shape)) if n > 1)
    return Span(offset.base, shape, strides, once, covers, plain)


def _is_once(strides: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether each stride steps over all that the smaller ones reach."""
    reach = 0
    for s, n in sorted([(abs(s), n) for s, n in zip(strides, sizes) if n > 1]):
        if s <= reach:
            return False
        reach += s * (n - 1)
    return True


def lanes(plan: MemoryPlan, size: int, extents: Sequence[int]) -> Affine | None:
    """Where the part of each iteration of the plan's axes begins, None where all have one memory."""
    if not plan.axes:
        return None
    coefficients = [0] * (max(plan.axes) + 1)
    for axis in reversed(plan.axes):
        coefficients[axis] = size
        size *= extents[axis]
    return Affine(0, tuple(coefficients), extents)


def distinct(at: Array, size: int) -> bool:
    """Whether no position occurs twice."""
    if at.size < 2:
        return True
    if at.size > size:
        return False
    if size > 8 * at.size:
        return bool(np.unique(at).size == at.size)
    seen = np.zeros(size, bool)
    seen[at] = True
    return int(np.count_nonzero(seen)) == at.size


# The judgement


def judge(size: int, check: Check, events: Sequence[Event]) -> None:
    """GiveUp unless the events satisfy the check; `size` counts all copies of the memory."""
    groups: dict[tuple[int, ...], list[Event]] = {}
    for e in events:
        if e.site in check.sites:
            iterations, phase = e.when
            key = (*[iterations[r] for r in check.loops], phase if check.phased else 0)
            groups.setdefault(key, []).append(e)
    for group in groups.values():
        if check.apart:
            _judge_apart(size, check, group)
        if check.axes and not _same_places(group):
            _judge_owners(size, check, group)


def _same_places(group: Sequence[Event]) -> bool:
    """Whether each iteration has elements of its own, certainly, and the same ones in every access."""
    first = group[0].span
    return (
        first is not None
        and first.once
        and all(
            e.span is not None and (e.span.start, e.span.shape, e.span.strides) == (first.start, first.shape, first.strides)
            for e in group[1:]
        )
    )


def _judge_owners(size: int, check: Check, group: Sequence[Event]) -> None:
    """Whoever writes an element is the only one of its axes' iterations that touches it."""
    owner = np.full(size, -1, np.int64)
    accesses = [(e, *e.owned(check.axes)) for e in group]
    for e, at, number in accesses:
        if e.site.op is not Op.LOAD:
            earlier = owner[at]
            if ((earlier >= 0) & (earlier != number)).any():
                raise GiveUp("iterations that write to one element")
            owner[at] = number
            if (owner[at] != number).any():
                raise GiveUp("iterations that write to one element")
    for e, at, number in accesses:
        if e.site.op is Op.LOAD:
            writer = owner[at]
            if ((writer >= 0) & (writer != number)).any():
                raise GiveUp("an iteration that reads what another one writes")


def _judge_apart(size: int, check: Check, group: Sequence[Event]) -> None:
    """Nodes without an order touch different elements."""
    touched: dict[UOp, Array] = {}
    for e in group:
        at, _ = e.owned(())
        touched.setdefault(e.site, np.zeros(size, bool))[at] = True
    for a, b in check.apart:
        if a in touched and b in touched and (touched[a] & touched[b]).any():
            raise GiveUp("accesses without an order to one element")
