"""Sets of values, one per element (R30): what the allowed-set evaluation carries where the plain interpreter carries an array.

A value is an array when every element has one allowed result, else a `Loose`. A float `Loose` holds `tri`, three rows (lo, best,
hi) in the dtype itself: the interval of keys from lo to hi, with `flags` for members outside it and, where `disc`, the at most
eight members listed in `pts` instead. A row of three NaNs is the NaN class alone. Integers and bools have only `pts`, whose first
row is the best value. Every component has the element shape last, so that movement applies to each alike.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uops.interp.allowed.layout import Array, Layout, keys, same_bits, unkeys

NAN, PINF, NINF, PZERO, NZERO, ANY = 1, 2, 4, 8, 16, 32
#: At most this many points (R30).
POINTS = 8


class Loose:
    """Allowed values of which at least one element has more than one."""

    __slots__ = ("disc", "flags", "layout", "pts", "tri")

    def __init__(
        self, layout: Layout, tri: Array | None, flags: Array | None = None, pts: Array | None = None, disc: Array | None = None
    ) -> None:
        self.layout = layout
        self.tri = tri
        self.flags = flags
        self.pts = pts
        self.disc = disc

    @property
    def best(self) -> Array:
        """The reference value, always a member."""
        return np.asarray(self.rows[1] if self.tri is not None else self.points[0])

    @property
    def rows(self) -> Array:
        assert self.tri is not None
        return self.tri

    @property
    def points(self) -> Array:
        assert self.pts is not None
        return self.pts

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.tri if self.tri is not None else self.points).shape[1:]

    def exact(self) -> Array:
        """Where the set is one value."""
        if self.tri is None:
            one = np.asarray(same_bits(self.layout, self.points, self.points[0]).all(0))
            return one if self.flags is None else one & (self.flags == 0)
        one = same_bits(self.layout, self.tri[0], self.tri[2])
        if self.flags is None:
            return one
        return np.asarray(one & ((self.flags == 0) | ((self.flags == NAN) & np.isnan(self.tri[0]))))

    def any(self) -> Array | None:
        """Where every value is allowed; None for nowhere."""
        return None if self.flags is None else np.asarray((self.flags & ANY) != 0)

    def map(self, move: Callable[[Array, int], Array]) -> Loose:
        """Apply a movement `move(component, leading axes)` to each component."""
        tri, flags, pts, disc = self.tri, self.flags, self.pts, self.disc
        return Loose(
            self.layout,
            None if tri is None else move(tri, 1),
            None if flags is None else move(flags, 0),
            None if pts is None else move(pts, 1),
            None if disc is None else move(disc, 0),
        )


Value = Array | Loose


def best_of(v: Value) -> Array:
    return v.best if isinstance(v, Loose) else v


def shape_of(v: Value) -> tuple[int, ...]:
    return v.shape


def as_loose(f: Layout, v: Value) -> Loose:
    """The same sets, spelt out."""
    if isinstance(v, Loose):
        return v
    if f.is_float:
        return Loose(f, np.broadcast_to(v, (3, *v.shape)))
    return Loose(f, None, None, np.broadcast_to(v, (1, *v.shape)))


def settle(v: Loose) -> Value:
    """A bare array when every element has one value."""
    if v.flags is not None and not v.flags.any():
        v.flags = None
    return v.best if v.exact().all() else v


def spread(v: Value, shape: tuple[int, ...]) -> Value:
    """Broadcast to `shape`, right-aligned."""
    if v.shape == shape:
        return v
    if not isinstance(v, Loose):
        return np.broadcast_to(v, shape)

    def move(x: Array, lead: int) -> Array:
        x = x.reshape(x.shape[:lead] + (1,) * (len(shape) - x.ndim + lead) + x.shape[lead:])
        return np.broadcast_to(x, x.shape[:lead] + shape)

    return v.map(move)


def pick(f: Layout, v: Value, shape: tuple[int, ...], where: Array) -> Loose:
    """The elements of `v`, broadcast to `shape`, at the flat positions `where`, as a 1-D Loose."""

    def move(x: Array, lead: int) -> Array:
        flat: Array = x.reshape((*x.shape[:lead], -1))
        return flat[..., where]

    s = spread(v, shape)
    return s.map(move) if isinstance(s, Loose) else as_loose(f, s.reshape(-1)[where])


def patch(into: Loose, where: Array, part: Loose) -> None:
    """Overwrite the elements at flat positions `where` by the 1-D `part`; `into` owns its components."""
    shape = into.shape
    for name in ("tri", "flags", "pts", "disc"):
        component = getattr(into, name)
        if component is not None and not component.flags.c_contiguous:  # else reshape would give a copy to write to
            setattr(into, name, np.ascontiguousarray(component))
    if part.tri is not None:
        _rows(into.rows)[:, where] = part.tri
    if into.flags is None and part.flags is not None:
        into.flags = np.zeros(shape, np.uint8)
    if into.flags is not None:
        into.flags.reshape(-1)[where] = 0 if part.flags is None else part.flags
    if part.pts is not None:
        k = part.pts.shape[0]
        if into.pts is None:
            into.pts = np.broadcast_to(into.best, (k, *shape)).copy()
        elif into.pts.shape[0] < k:
            into.pts = np.concatenate([into.pts, np.broadcast_to(into.pts[:1], (k - into.pts.shape[0], *shape))])
        if part.pts.dtype == object:  # index values beyond 64 bits
            into.pts = into.pts.astype(object)
        flat = _rows(into.pts)
        flat[:k, where] = part.pts
        flat[k:, where] = part.pts[0]
    if into.tri is not None and (part.disc is not None or into.disc is not None):
        if into.disc is None:
            into.disc = np.zeros(shape, np.bool_)
        into.disc.reshape(-1)[where] = False if part.disc is None else part.disc


def _rows(x: Array) -> Array:
    return x.reshape(x.shape[0], -1)


def owned(v: Loose) -> Loose:
    """A copy whose components may be overwritten."""
    return v.map(lambda x, lead: np.array(x, order="C"))


def hull_of_points(f: Layout, pts: Array) -> tuple[Array, Array, Array | None]:
    """lo and hi of float points over axis 0, and the NaN flag where some but not all are NaN."""
    nan = np.isnan(pts)
    k = keys(f, pts)
    if not nan.any():
        return unkeys(f, k.min(0)), unkeys(f, k.max(0)), None
    info = np.iinfo(f.ints)
    lo = unkeys(f, np.where(nan, info.max, k).min(0))
    hi = unkeys(f, np.where(nan, info.min, k).max(0))
    every = nan.all(0)
    empty = np.array(np.nan).astype(f.np)
    flag = np.where(nan.any(0) & ~every, NAN, 0).astype(np.uint8)
    return np.where(every, empty, lo), np.where(every, empty, hi), flag


def from_points(f: Layout, pts: Array, anything: Array | None = None) -> Loose:
    """Sets listed by row, the best first; too many rows make a hull of floats, and integers *any*, where they differ."""
    every, many = pts, None
    if pts.shape[0] > POINTS:
        pts, many = fewer(f, pts)
    flags = None if anything is None else np.where(anything, ANY, 0).astype(np.uint8)
    if not f.is_float:
        if many is not None:
            flags = np.where(many, ANY, 0 if flags is None else flags).astype(np.uint8)
        return Loose(f, None, flags, pts[:POINTS])
    lo, hi, nan = hull_of_points(f, every)
    if nan is not None:
        flags = nan if flags is None else flags | nan
    disc = np.ones(pts.shape[1:], np.bool_) if many is None else ~many
    if flags is not None:
        disc &= (flags & ANY) == 0
    return Loose(f, np.stack([lo, pts[0], hi]), flags, pts[:POINTS], disc)


def fewer(f: Layout, pts: Array) -> tuple[Array, Array | None]:
    """The distinct points first, the best kept in row 0, and where more than POINTS are distinct."""
    k = keys(f, pts) if f.is_float else pts
    if f.is_float:
        k = np.where(np.isnan(pts), np.iinfo(f.ints).max, k)
    order = np.argsort(k, axis=0, kind="stable")
    k = np.take_along_axis(k, order, 0)
    fresh = np.ones(k.shape, np.bool_)
    fresh[1:] = k[1:] != k[:-1]
    count = fresh.sum(0)
    front = np.argsort(~fresh, axis=0, kind="stable")
    ranked = np.take_along_axis(np.take_along_axis(pts, order, 0), front, 0)
    width = int(count.max(initial=1))
    rest = np.arange(width).reshape(-1, *(1,) * (pts.ndim - 1)) < count
    ranked = np.where(rest, ranked[:width], pts[0])
    at = np.argmax(same_bits(f, ranked, pts[0]), axis=0)[None]
    first = ranked[:1].copy()
    np.put_along_axis(ranked, at, first, 0)
    ranked[0] = pts[0]
    many = count > POINTS
    return ranked[:POINTS], many if many.any() else None


def anything(f: Layout, best: Array, where: Array | None = None) -> Loose:
    """*any*, everywhere or at `where`; `best` elsewhere."""
    flags = np.full(best.shape, ANY, np.uint8) if where is None else np.where(where, ANY, 0).astype(np.uint8)
    if not f.is_float:
        return Loose(f, None, flags, best[None])
    return Loose(f, np.stack([best, best, best]), flags)


def negated(v: Value) -> Value:
    """Neg of a float set: the sign of every member flips."""
    if not isinstance(v, Loose):
        return np.asarray(-v)
    flags = v.flags
    if flags is not None:
        rest = flags & (NAN | ANY)
        flags = rest | (flags & (PINF | PZERO)) << 1 | (flags & (NINF | NZERO)) >> 1
    return Loose(v.layout, -v.rows[::-1], flags, None if v.pts is None else -v.pts, v.disc)
