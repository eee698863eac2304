"""Access to one memory: bounds, elements never written, races, bool bytes (R24, R45, R55, R56, R61).

Every access is judged where it happens, element by element. The state of an element is small: its last write, and the reads and
atomic adds since then. An access that is unordered with one of those, one of the two a write, is a race. An access that a later
one of its kind follows need not be kept, as what comes after the later one comes after both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.kernel.lane_machine.memory import Space
from uops.interp.kernel.structure.order import Order, Stamp
from uops.interp.ops.rounding import NARROW
from uops.interp.tensor.storage import NUMPY, Array
from uops.spec.errors import Trap
from uops.spec.ir.dtypes import DType

_BOOL = np.dtype(np.bool_)


class Touch:
    """What was done to one element since its last write, and that write."""

    __slots__ = ("adds", "reads", "write")

    def __init__(self) -> None:
        self.write: Stamp | None = None
        self.reads: list[Stamp] = []
        self.adds: list[Stamp] = []


class Memory:
    """A `Space` in a run. `grain`: the bytes that one entry of its books stands for. `changes`: whether anything writes it."""

    def __init__(self, space: Space, order: Order, grain: int, changes: bool) -> None:
        self.space = space
        self.order = order
        self.grain = min(grain, space.data.itemsize)
        self.unit = space.data.itemsize // self.grain  # entries per element
        self.bytes: Array = space.data.view(np.uint8)
        self.views: dict[Any, Array] = {space.data.dtype: space.data}
        self.ready = None if space.ready is None else np.repeat(space.ready, self.unit) if self.unit > 1 else space.ready
        self.touches: dict[int, Touch] | None = {} if changes else None
        self.sums: dict[int, list[float]] = {}  # float sums in progress, by position
        self.kinds: dict[int, DType] = {}

    def close(self) -> None:
        """Leave everything in the Space."""
        self._settle()
        if self.ready is not None and self.unit > 1 and self.space.ready is not None:
            self.space.ready[:] = self.ready.reshape(-1, self.unit).all(axis=1)

    # One element

    def load(self, at: int, kind: np.dtype[Any], stamp: Stamp) -> Array:
        if self.sums:
            self._settle()
        size = kind.itemsize
        first, last = at // self.grain, (at + size) // self.grain
        if self.ready is not None and not self.ready[first:last].all():
            raise self._unwritten(stamp, "reads", first, last)
        if self.touches is not None:
            for k in range(first, last):
                self._read(k, stamp)
        self._mark(self.space.read, at, size)
        if kind is _BOOL and self.bytes[at] > 1:
            raise self._fault(stamp, f"reads {self.space.name}, which has a bool byte other than 0 and 1 (R24)")
        return self._view(kind)[at // size, ...].copy()

    def store(self, at: int, value: Array, stamp: Stamp) -> None:
        if self.sums:
            self._settle()
        size = value.dtype.itemsize
        first, last = at // self.grain, (at + size) // self.grain
        for k in range(first, last):
            self._write(k, stamp)
        self._wrote(at, size, first, last)
        self._view(value.dtype)[at // size] = value

    def add(self, at: int, value: Array, d: DType, add: Callable[[Array, Array], Any], stamp: Stamp) -> None:
        """As if at once, in any order (R56): float sums are exact until somebody looks."""
        kind = value.dtype
        size = kind.itemsize
        first, last = at // self.grain, (at + size) // self.grain
        if self.ready is not None and not self.ready[first:last].all():
            raise self._unwritten(stamp, "adds to", first, last)
        for k in range(first, last):
            self._add(k, stamp)
        self._wrote(at, size, first, last)
        self._mark(self.space.read, at, size)
        view, k = self._view(kind), at // size
        if d.is_float:
            self.sums.setdefault(at, [float(view[k])]).append(float(value))
            self.kinds[at] = d
        else:
            view[k] = add(view[k, ...], value)

    def _wrote(self, at: int, size: int, first: int, last: int) -> None:
        if self.ready is not None:
            self.ready[first:last] = True
        self._mark(self.space.written, at, size)

    def _settle(self) -> None:
        for at, terms in self.sums.items():
            d = self.kinds[at]
            view = self._view(NUMPY[d])
            view[at // view.itemsize] = NARROW[d](np.asarray(_total(terms), np.float64))
        self.sums.clear()

    def _view(self, kind: np.dtype[Any]) -> Array:
        found = self.views.get(kind)
        if found is None:
            whole = self.bytes[: self.bytes.size // kind.itemsize * kind.itemsize]
            found = self.views[kind] = whole.view(kind)
        return found

    def _mark(self, marks: Array, at: int, size: int) -> None:
        own = self.space.data.itemsize
        if size <= own:
            marks[at // own] = True
        else:
            marks[at // own : (at + size) // own] = True

    # Races

    def _touch(self, k: int) -> Touch:
        assert self.touches is not None
        found = self.touches.get(k)
        if found is None:
            found = self.touches[k] = Touch()
        return found

    def _read(self, k: int, stamp: Stamp) -> None:
        t, before = self._touch(k), self.order.before
        if t.write is not None and not before(t.write, stamp):
            raise self._race(k, t.write, stamp)
        for a in t.adds:
            if not before(a, stamp):
                raise self._race(k, a, stamp)
        _follow(t.reads, stamp, before)

    def _add(self, k: int, stamp: Stamp) -> None:
        t, before = self._touch(k), self.order.before
        if t.write is not None and not before(t.write, stamp):
            raise self._race(k, t.write, stamp)
        for r in t.reads:
            if not before(r, stamp):
                raise self._race(k, r, stamp)
        _follow(t.adds, stamp, before)

    def _write(self, k: int, stamp: Stamp) -> None:
        t, before = self._touch(k), self.order.before
        if t.write is not None and not before(t.write, stamp):
            raise self._race(k, t.write, stamp)
        for others in (t.reads, t.adds):
            for a in others:
                if a != stamp and not before(a, stamp):  # an opaque instruction may read and then write
                    raise self._race(k, a, stamp)
            others.clear()
        t.write = stamp

    def _race(self, k: int, a: Stamp, b: Stamp) -> Trap:
        where = f"element {self._element(k)} of {self.space.name}"
        if a == b:
            return Placed(f"{self.order.describe(a)} writes {where} twice (R51, R55)")
        return Placed(f"race on {where}: {self.order.describe(a)} and {self.order.describe(b)} are unordered (R55)")

    def _unwritten(self, stamp: Stamp, verb: str, first: int, last: int) -> Trap:
        assert self.ready is not None
        k = self._element(first + int(np.argmin(self.ready[first:last])))
        why = self.space.lost(k) if self.space.lost is not None else ""
        return self._fault(stamp, f"{verb} element {k} of {self.space.name}, which {why or 'was never written (R61)'}")

    def _element(self, k: int) -> int:
        return k // self.unit

    def _fault(self, stamp: Stamp, what: str) -> Trap:
        return Placed(f"{self.order.describe(stamp)} {what}")


def _follow(earlier: list[Stamp], stamp: Stamp, before: Callable[[Stamp, Stamp], bool]) -> None:
    if earlier and (earlier[-1] is stamp or before(earlier[-1], stamp)):
        earlier[-1] = stamp
    else:
        earlier.append(stamp)


def _total(terms: list[float]) -> float:
    """The exact sum, rounded once; IEEE's answer where a term is no finite number (R32)."""
    try:
        return math.fsum(terms)
    except (OverflowError, ValueError):
        return float(np.sum(np.array(terms)))


class Placed(Trap):
    """A Trap that names its place in the kernel."""
