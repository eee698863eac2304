"""Sets of values, one per element (R30: points, an interval with flags, or *any*): the results of the allowed-set evaluation.

A value is an array if every element has one allowed result, else a `SetArray`.

A `SetArray` of floats has `interval`, three rows (lo, best, hi) in the dtype itself: the members are the keys from lo to hi, and
those that `flags` name beside them. Where `is_listed`, the members are instead the at most eight in `listed_points`. A row of
three NaNs is the NaN class alone. Integers and bools have only `listed_points`, whose first row is the best value. Every
component has the element shape last, so that movement applies to each alike.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uops.interp.allowed.layout import Array, DTypeLayout, from_order_keys, same_bits_or_both_nan, to_order_keys

#: Flags: members beside the interval; ANY allows every value.
NAN, PINF, NINF, PZERO, NZERO, ANY = 1, 2, 4, 8, 16, 32
#: The greatest number of listed points per element (R30).
POINTS = 8


class SetArray:
    """Sets of allowed values, one per element, of which at least one has several members."""

    __slots__ = ("flags", "interval", "is_listed", "layout", "listed_points")

    def __init__(
        self,
        layout: DTypeLayout,
        interval: Array | None,
        flags: Array | None = None,
        listed_points: Array | None = None,
        is_listed: Array | None = None,
    ) -> None:
        self.layout = layout
        self.interval = interval
        self.flags = flags
        self.listed_points = listed_points
        self.is_listed = is_listed

    @property
    def best(self) -> Array:
        """The reference values, always members."""
        return np.asarray(self.rows[1] if self.interval is not None else self.points[0])

    @property
    def rows(self) -> Array:
        """The rows (lo, best, hi) of a float set."""
        assert self.interval is not None
        return self.interval

    @property
    def points(self) -> Array:
        """The rows of listed points, the best first."""
        assert self.listed_points is not None
        return self.listed_points

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the elements."""
        return (self.interval if self.interval is not None else self.points).shape[1:]

    def exact_mask(self) -> Array:
        """Return where the set has one member."""
        if self.interval is None:
            single = np.asarray(same_bits_or_both_nan(self.layout, self.points, self.points[0]).all(0))
            return single if self.flags is None else single & (self.flags == 0)
        single = same_bits_or_both_nan(self.layout, self.interval[0], self.interval[2])
        if self.flags is None:
            return single
        return np.asarray(single & ((self.flags == 0) | ((self.flags == NAN) & np.isnan(self.interval[0]))))

    def anything_mask(self) -> Array | None:
        """Return where every value is allowed; None if no set has flags."""
        return None if self.flags is None else np.asarray((self.flags & ANY) != 0)

    def map_components(self, move_component: Callable[[Array, int], Array]) -> SetArray:
        """Return the sets with `move_component(component, number of leading axes)` applied to each component."""
        interval, flags, listed_points, is_listed = self.interval, self.flags, self.listed_points, self.is_listed
        return SetArray(
            self.layout,
            None if interval is None else move_component(interval, 1),
            None if flags is None else move_component(flags, 0),
            None if listed_points is None else move_component(listed_points, 1),
            None if is_listed is None else move_component(is_listed, 0),
        )


ArrayOrSets = Array | SetArray


def best_of(v: ArrayOrSets) -> Array:
    """Return the best value of every element."""
    return v.best if isinstance(v, SetArray) else v


def as_set_array(f: DTypeLayout, v: ArrayOrSets) -> SetArray:
    """Return the same sets as a SetArray."""
    if isinstance(v, SetArray):
        return v
    if f.is_float:
        return SetArray(f, np.broadcast_to(v, (3, *v.shape)))
    return SetArray(f, None, None, np.broadcast_to(v, (1, *v.shape)))


def collapse_if_exact(v: SetArray) -> ArrayOrSets:
    """Return the plain array if every element has one value, else `v`; flags that name nothing are dropped from `v`."""
    if v.flags is not None and not v.flags.any():
        v.flags = None
    return v.best if v.exact_mask().all() else v


def broadcast_value(v: ArrayOrSets, shape: tuple[int, ...]) -> ArrayOrSets:
    """Return a value broadcast to `shape`, right-aligned."""
    if v.shape == shape:
        return v
    if not isinstance(v, SetArray):
        return np.broadcast_to(v, shape)

    def move(x: Array, lead: int) -> Array:
        x = x.reshape(x.shape[:lead] + (1,) * (len(shape) - x.ndim + lead) + x.shape[lead:])
        return np.broadcast_to(x, x.shape[:lead] + shape)

    return v.map_components(move)


def broadcast_and_take_flat_elements(
    f: DTypeLayout, v: ArrayOrSets, broadcast_shape: tuple[int, ...], flat_positions: Array
) -> SetArray:
    """Return the elements at flat positions of `v`, broadcast to `broadcast_shape`, as a 1-D SetArray."""

    def move(x: Array, lead: int) -> Array:
        flat: Array = x.reshape((*x.shape[:lead], -1))
        return flat[..., flat_positions]

    s = broadcast_value(v, broadcast_shape)
    return s.map_components(move) if isinstance(s, SetArray) else as_set_array(f, s.reshape(-1)[flat_positions])


def scatter_elements_into(into: SetArray, flat_positions: Array, part: SetArray) -> None:
    """Overwrite the elements at flat positions by the 1-D `part`, in place; `into` owns its components."""
    shape = into.shape
    for name in ("interval", "flags", "listed_points", "is_listed"):
        component = getattr(into, name)
        if component is not None and not component.flags.c_contiguous:  # else reshape would give a copy to write to
            setattr(into, name, np.ascontiguousarray(component))
    if part.interval is not None:
        _flatten_rows(into.rows)[:, flat_positions] = part.interval
    if into.flags is None and part.flags is not None:
        into.flags = np.zeros(shape, np.uint8)
    if into.flags is not None:
        into.flags.reshape(-1)[flat_positions] = 0 if part.flags is None else part.flags
    if part.listed_points is not None:
        k = part.listed_points.shape[0]
        if into.listed_points is None:
            into.listed_points = np.broadcast_to(into.best, (k, *shape)).copy()
        elif into.listed_points.shape[0] < k:
            into.listed_points = pad_points_with_first(into.listed_points, k)
        if part.listed_points.dtype == object:  # index values beyond 64 bits
            into.listed_points = into.listed_points.astype(object)
        flat = _flatten_rows(into.listed_points)
        flat[:k, flat_positions] = part.listed_points
        flat[k:, flat_positions] = part.listed_points[0]
    if into.interval is not None and (part.is_listed is not None or into.is_listed is not None):
        if into.is_listed is None:
            into.is_listed = np.zeros(shape, np.bool_)
        into.is_listed.reshape(-1)[flat_positions] = False if part.is_listed is None else part.is_listed


def _flatten_rows(x: Array) -> Array:
    return x.reshape(x.shape[0], -1)


def pad_points_with_first(points: Array, count: int) -> Array:
    """Return rows of points with the first row repeated at the end, `count` rows in all."""
    if len(points) == count:
        return points
    return np.concatenate([points, np.broadcast_to(points[:1], (count - len(points), *points.shape[1:]))])


def writable_copy(v: SetArray) -> SetArray:
    """Return a copy whose components may be overwritten."""
    return v.map_components(lambda x, lead: np.array(x, order="C"))


def hull_and_flag_of_nan_beside_it(f: DTypeLayout, points: Array) -> tuple[Array, Array, Array | None]:
    """Return lo and hi of float points over axis 0, and the NaN flag where some but not all are NaN."""
    nan = np.isnan(points)
    keys = to_order_keys(f, points)
    if not nan.any():
        return from_order_keys(f, keys.min(0)), from_order_keys(f, keys.max(0)), None
    info = np.iinfo(f.ints)
    lo = from_order_keys(f, np.where(nan, info.max, keys).min(0))
    hi = from_order_keys(f, np.where(nan, info.min, keys).max(0))
    all_nan = nan.all(0)
    empty = np.array(np.nan).astype(f.np)
    flag = np.where(nan.any(0) & ~all_nan, NAN, 0).astype(np.uint8)
    return np.where(all_nan, empty, lo), np.where(all_nan, empty, hi), flag


def from_points_widening_to_hull_or_any(f: DTypeLayout, points_best_first: Array, any_mask: Array | None = None) -> SetArray:
    """Return sets listed by row, the best first.

    Elements with more than `POINTS` distinct members become a hull of floats, and *any* of integers. At `any_mask` everything is
    allowed.
    """
    all_points, too_many = points_best_first, None
    if points_best_first.shape[0] > POINTS:
        points_best_first, too_many = distinct_points_and_overflow_mask(f, points_best_first)
    flags = None if any_mask is None else np.where(any_mask, ANY, 0).astype(np.uint8)
    if not f.is_float:
        if too_many is not None:
            flags = np.where(too_many, ANY, 0 if flags is None else flags).astype(np.uint8)
        return SetArray(f, None, flags, points_best_first[:POINTS])
    lo, hi, nan = hull_and_flag_of_nan_beside_it(f, all_points)
    if nan is not None:
        flags = nan if flags is None else flags | nan
    is_listed = np.ones(points_best_first.shape[1:], np.bool_) if too_many is None else ~too_many
    if flags is not None:
        is_listed &= (flags & ANY) == 0
    return SetArray(f, np.stack([lo, points_best_first[0], hi]), flags, points_best_first[:POINTS], is_listed)


def distinct_points_and_overflow_mask(f: DTypeLayout, points_best_first: Array) -> tuple[Array, Array | None]:
    """Return the distinct points first, the best in row 0, and where more than `POINTS` are distinct (None: nowhere)."""
    keys = to_order_keys(f, points_best_first) if f.is_float else points_best_first
    if f.is_float:
        keys = np.where(np.isnan(points_best_first), np.iinfo(f.ints).max, keys)
    order = np.argsort(keys, axis=0, kind="stable")
    keys = np.take_along_axis(keys, order, 0)
    is_first = np.ones(keys.shape, np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    count = is_first.sum(0)
    front = np.argsort(~is_first, axis=0, kind="stable")
    ranked = np.take_along_axis(np.take_along_axis(points_best_first, order, 0), front, 0)
    width = int(count.max(initial=1))
    is_distinct = np.arange(width).reshape(-1, *(1,) * (points_best_first.ndim - 1)) < count
    ranked = np.where(is_distinct, ranked[:width], points_best_first[0])
    best_row = np.argmax(same_bits_or_both_nan(f, ranked, points_best_first[0]), axis=0)[None]
    np.put_along_axis(ranked, best_row, ranked[:1].copy(), 0)
    ranked[0] = points_best_first[0]
    too_many = count > POINTS
    return ranked[:POINTS], too_many if too_many.any() else None


def allow_anything(f: DTypeLayout, best: Array, where: Array | None = None) -> SetArray:
    """Return *any* everywhere or at `where`, and `best` elsewhere."""
    flags = np.full(best.shape, ANY, np.uint8) if where is None else np.where(where, ANY, 0).astype(np.uint8)
    if not f.is_float:
        return SetArray(f, None, flags, best[None])
    return SetArray(f, np.stack([best, best, best]), flags)


def negate_float_set(v: ArrayOrSets) -> ArrayOrSets:
    """Return Neg of a float set: the sign of every member flips."""
    if not isinstance(v, SetArray):
        return np.asarray(-v)
    flags = v.flags
    if flags is not None:
        rest = flags & (NAN | ANY)
        flags = rest | (flags & (PINF | PZERO)) << 1 | (flags & (NINF | NZERO)) >> 1
    return SetArray(v.layout, -v.rows[::-1], flags, None if v.listed_points is None else -v.listed_points, v.is_listed)
