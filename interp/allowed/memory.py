"""Sets in memory: what a Store of sets leaves in a storage, and what a Load finds there."""

from __future__ import annotations

import numpy as np

from uops.interp.allowed.elementwise.branch import bitcast
from uops.interp.allowed.layout import LAYOUT, Array
from uops.interp.allowed.value import Loose, Value, anything, as_loose, owned, patch
from uops.interp.tensor.memory import Ref, Storage, places_of
from uops.spec.ir import dtypes as dt

BY_NUMPY = {f.np: f for f in LAYOUT.values() if f.dtype is not dt.index}


class Patchwork:
    """The sets in one storage: `held` has them where `open`, elsewhere the storage's own data is exact. `loose` says of each byte
    whether it is one of a set, where an element was written in parts; None before that."""

    def __init__(self, storage: Storage) -> None:
        self.layout = BY_NUMPY[storage.data.dtype]
        n = storage.data.size
        self.held = owned(as_loose(self.layout, np.zeros(n, self.layout.np)))
        self.open = np.zeros(n, np.bool_)
        self.loose: Array | None = None

    def copy(self) -> Patchwork:
        """An independent copy: a Load may still ask for what was here before the next Store."""
        twin = object.__new__(Patchwork)
        twin.layout, twin.held, twin.open = self.layout, owned(self.held), self.open.copy()
        twin.loose = None if self.loose is None else self.loose.copy()
        return twin

    def whole(self, data: Array) -> Loose:
        """The sets of the storage's elements, `data` its contents."""
        out = owned(as_loose(self.layout, data))
        where = np.flatnonzero(self.open)
        patch(out, where, self.held.map(lambda x, lead: x[..., where]))
        return out

    def _elements(self, ref: Ref) -> Array:
        """Index of the storage's element that holds the first byte of each element of `ref`."""
        return places_of(ref) // self.layout.np.itemsize

    def read(self, ref: Ref, best: Array) -> Loose | None:
        """The sets of the elements of `ref`, or None where all are exact."""
        f, r = self.layout, LAYOUT[ref.node.dtype]
        if r.np.itemsize != f.np.itemsize:
            lost = self._overlap(ref)
            return anything(r, best, lost) if lost.any() else None
        at = self._elements(ref)
        is_open = self.open[at]
        if not is_open.any():
            return None
        where = np.flatnonzero(is_open)
        part = self.held.map(lambda x, lead: x[..., at.reshape(-1)[where]])
        out = owned(as_loose(r, best))
        patch(out, where, part if r is f else bitcast(f, r, part))
        return out

    def has_free_nan(self, ref: Ref, best: Array) -> bool:
        """Whether an element of `ref`, which are floats, is a NaN with a set: its bits are free (R20)."""
        found = self.read(ref, best)
        if found is None or LAYOUT[ref.node.dtype].np.itemsize != self.layout.np.itemsize:
            return found is not None
        return bool((np.isnan(found.best) & self.open[self._elements(ref)]).any())

    def _overlap(self, ref: Ref) -> Array:
        """The elements of `ref` with a byte of a set."""
        return np.asarray(self._by_byte()[_bytes(ref, places_of(ref))].any(-1))

    def _by_byte(self) -> Array:
        return np.repeat(self.open, self.layout.np.itemsize) if self.loose is None else self.loose

    def write(self, ref: Ref, value: Value, live: Value | None) -> None:
        """Record a Store. Where it is not known whether an element is written, anything may be there."""
        f, r = self.layout, LAYOUT[ref.node.dtype]
        places = places_of(ref)
        sure = np.ones(places.shape, np.bool_)
        unsure = np.zeros(places.shape, np.bool_)
        if live is not None:
            if isinstance(live, Loose):
                unsure = np.broadcast_to(~live.exact(), places.shape)
                sure = np.broadcast_to(live.best, places.shape) & ~unsure
            else:
                sure = np.broadcast_to(live, places.shape)
        if not ref.once:
            sure, unsure = _last_writes(places, sure, unsure)
        if r.np.itemsize != f.np.itemsize:
            self._smear(ref, value, sure, unsure)
            return
        at = self._elements(ref).reshape(-1)
        where = np.flatnonzero(sure)
        self._mark(at[where], False)
        if isinstance(value, Loose):
            part = value.map(lambda x, lead: x.reshape(*x.shape[:lead], -1)[..., where])
            part = part if r is f else bitcast(r, f, part)
            varied = np.flatnonzero(_varies(part))
            patch(self.held, at[where[varied]], part.map(lambda x, lead: x[..., varied]))
            self._mark(at[where[varied]], True)
        lost = at[np.flatnonzero(unsure)]
        self._mark(lost, True)
        self._forget(lost)

    def _mark(self, at: Array, is_open: bool) -> None:
        """Whole elements as such that have a set, or have none."""
        self.open[at] = is_open
        if self.loose is not None:
            self.loose.reshape(len(self.open), -1)[at] = is_open

    def _forget(self, at: Array) -> None:
        """The sets of open elements are *any*."""
        if at.size:
            patch(self.held, at, anything(self.layout, np.zeros(at.size, self.layout.np)))

    def forget_all(self) -> None:
        """Anything may be anywhere."""
        self._mark(np.arange(self.open.size), True)
        self._forget(np.arange(self.open.size))

    def _smear(self, ref: Ref, value: Value, sure: Array, unsure: Array) -> None:
        """A Store through another item size: an element with any byte of a set in it may be anything."""
        own, places = self.layout.np.itemsize, places_of(ref)
        spread = unsure | (sure & _varies(value) if isinstance(value, Loose) else False)
        known, lost = (_bytes(ref, places[which]).reshape(-1) for which in (sure & ~spread, spread))
        self.loose = self._by_byte()
        self.loose[known], self.loose[lost] = False, True
        at = np.unique(np.concatenate([known, lost]) // own)
        self.open[at] = self.loose.reshape(-1, own)[at].any(1)
        self._forget(at[self.open[at]])


def _last_writes(places: Array, sure: Array, unsure: Array) -> tuple[Array, Array]:
    """`sure` and `unsure` without what a later element of the same Store writes over for certain (R164)."""
    _, element = np.unique(places, return_inverse=True)
    element, order = element.reshape(-1), np.arange(places.size)
    last = np.full(places.size, -1)
    writes = np.flatnonzero(sure)
    last[element[writes]] = writes
    stays = (order >= last[element]).reshape(places.shape)
    return sure & stays, unsure & stays


def _bytes(ref: Ref, places: Array) -> Array:
    """The positions of all bytes of elements of `ref`, which begin at `places`."""
    return np.asarray(places[..., None] + np.arange(ref.node.dtype.itemsize))


def _varies(v: Loose) -> Array:
    """Where a set has more than one bit pattern: NaN is a class of many (R20)."""
    return np.asarray(~v.exact() | (np.isnan(v.best) if v.layout.is_float else False))
