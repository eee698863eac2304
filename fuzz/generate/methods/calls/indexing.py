"""Calls of indexing, read and assigned: `t[...]`, `t[...] = v`, take, gather and one_hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.fuzz.generate.methods.calls.answers import Array, ExactAnswer, cast_array, dtype_of, expect_same_bits
from uops.fuzz.generate.methods.calls.drawing import CallDraw, MethodCall, MethodRow, Shape, call, number_array, weak_number
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, promote

#: Percentage of large Tensors: positions beyond int16 are a fault of their own.
LARGE_PERCENT = 20


def _indices(m: CallDraw, extent: int, shape: Shape) -> Array:
    """Draw indices in range, of any integer dtype that holds them, some of them negative."""
    d = m.dtype(dt.INTS)
    top = min(extent - 1, int(d.max))
    low = max(-extent, int(d.min)) if d.is_signed and m.chance(50) else 0
    size = int(np.prod(shape))
    rng = np.random.default_rng(m.integer(0, 2**31 - 1))
    values = rng.integers(low, top + 1, size)
    ends = rng.integers(0, 4, size)
    return np.where(ends == 0, top, values).astype(STORAGE[d]).reshape(shape)


def _out_of_range(m: CallDraw, indices: Array, extent: int) -> Array | None:
    """Return indices of which one is out of range, as int32 if their dtype has no such value; None if there are none to change."""
    if not indices.size:
        return None
    d = dtype_of(indices)
    values = [v for v in (extent, -extent - 1, extent + 5, int(d.min), int(d.max)) if d.min <= v <= d.max]
    values = [v for v in values if not (-extent if d.is_signed else 0) <= v < extent]
    out = indices.copy() if values else indices.astype(np.int32)
    out.reshape(-1)[m.integer(0, indices.size - 1)] = m.choice(values or [extent, -extent - 1])
    return out


def _slice(m: CallDraw, n: int) -> slice:
    """Draw a slice, also with ends out of range and steps of both signs."""
    ends = (None, None, *range(-min(n, 20) - 2, min(n, 20) + 3))
    return slice(m.choice(ends), m.choice(ends), m.choice((None, 1, 2, -1, 3, -2, 7)))


def _key(m: CallDraw, shape: Shape, arrays: bool) -> tuple[Any, ...]:
    """Draw a key: integers, slices, new axes, an Ellipsis, and integers as arrays that broadcast with each other."""
    count = m.integer(0, len(shape))
    at = m.integer(0, count) if m.chance(30) else None
    axes = [*range(count)] if at is None else [*range(at), *range(len(shape) - (count - at), len(shape))]
    common: Shape = m.choice(((3,), (1,), (2, 3), (), (0,), (5,)))
    items: list[Any] = []
    for k in axes:
        n, form = shape[k], m.choice(("slice", "slice", "integer", "array") if arrays else ("slice", "slice", "integer"))
        if form == "integer" and n:
            items.append(m.integer(-n, n - 1))
        elif form == "array" and n:
            items.append(_indices(m, n, tuple(1 if m.chance(20) else e for e in common)))
        else:
            items.append(_slice(m, n))
    if at is not None:
        items.insert(at, ...)
    if len(items) < 4 and m.chance(15):
        items.insert(m.integer(0, len(items)), None)
    return tuple(items)


def _draw_getitem(m: CallDraw) -> MethodCall:
    x = m.array(m.dtype(), m.shape(0, 4, large=LARGE_PERCENT))
    if m.is_wrong():
        return _wrong_getitem(m, x)
    key = _key(m, x.shape, arrays=True)
    return call("__getitem__", x, key[0] if len(key) == 1 and m.chance(50) else key, answer=expect_same_bits(np.asarray(x[key])))


def _wrong_getitem(m: CallDraw, x: Array) -> MethodCall:
    """Draw a key that is none: floats, bools, an index out of range, too many indices."""
    form = m.choice(("floats", "bools", "range", "many", "array", "array"))
    if form == "array" and x.ndim and x.shape[0]:
        indices = _out_of_range(m, _indices(m, x.shape[0], (3,)), x.shape[0])
        if indices is not None and 0 not in x.shape:
            return call("__getitem__", x, indices, answer=IndexError)._replace(is_raised_on_realization=True)
    if form == "floats" and x.ndim:
        return call("__getitem__", x, m.choice((1.0, np.zeros(2, np.float32))), answer=TypeError)
    if form == "bools" and x.ndim:
        return call("__getitem__", x, np.ones(x.shape[0], np.bool_), answer=TypeError)
    if form == "range" and x.ndim:
        return call("__getitem__", x, m.choice((x.shape[0], -x.shape[0] - 1)), answer=IndexError)
    return call("__getitem__", x, (0,) * (x.ndim + 1), answer=IndexError)


def _draw_setitem(m: CallDraw) -> MethodCall:
    x = m.array(m.dtype(), m.shape(1, 3, elements=100, large=3))
    d, key = dtype_of(x), _key(m, x.shape, arrays=m.chance(60))
    view = np.asarray(x[key])
    out = x.copy()
    if m.chance(30):
        value = m.number(d)
        y = weak_number(value, d)
        if promote(d, dtype_of(y)) is not d:
            return call("__setitem__", x, key, value, answer=TypeError)
        out[key] = number_array(value, d)
        return call("__setitem__", x, key, value, answer=ExactAnswer(out))
    e: DType = m.dtype() if m.chance(25) else d
    y = m.array(e, tuple(1 if m.chance(15) else n for n in view.shape[m.integer(0, view.ndim) if m.chance(30) else 0 :]))
    if promote(d, e) is not d:
        return call("__setitem__", x, key, y, answer=TypeError)
    _assign_in_order(out, key, np.broadcast_to(cast_array(y, d), view.shape))
    return call("__setitem__", x, key, y, answer=ExactAnswer(out, by_bits=e is d))


def _assign_in_order(out: Array, key: tuple[Any, ...], values: Array) -> None:
    """Assign element by element in row-major order, so that the last of several values for one element stays (R164)."""
    positions = np.arange(out.size).reshape(out.shape)[key]
    flat = out.reshape(-1)
    for p, v in zip(np.asarray(positions).reshape(-1), values.reshape(-1)):
        flat[p] = v


def _draw_take(m: CallDraw) -> MethodCall:
    x = m.array(m.dtype(), m.shape(1, 3, 1, large=LARGE_PERCENT))
    axis = None if m.chance(40) else m.axis(x.ndim)
    extent = x.size if axis is None else x.shape[axis]
    unchecked = {"unchecked": True} if m.chance(20) else {}
    if m.is_wrong():
        if m.chance(30):
            return call("take", x, m.array(dt.float32, (2,)), axis, answer=TypeError)
        indices = _out_of_range(m, _indices(m, extent, (3,)), extent)
        if indices is not None:
            return call("take", x, indices, axis, answer=IndexError)._replace(is_raised_on_realization=True)
        return call("take", x, extent, axis, answer=IndexError)
    if m.chance(15):
        k = m.integer(-extent, extent - 1)
        return call("take", x, k, axis, answer=expect_same_bits(np.asarray(np.take(x, k, axis))))
    shape = m.shape(0, 2, elements=max(1, 2000 * extent // x.size) if axis is not None and x.size > 300 else 20)
    indices = _indices(m, extent, shape)
    return call("take", x, indices, axis, answer=expect_same_bits(np.take(x, indices.astype(np.int64), axis)), **unchecked)


def _draw_gather(m: CallDraw) -> MethodCall:
    x = m.array(m.dtype(), m.shape(1, 4, 1, large=LARGE_PERCENT))
    k = m.axis(x.ndim)
    at = k % x.ndim
    shape = [min(n, m.extent(n)) if m.chance(30) else min(n, 50) for n in x.shape]
    shape[at] = m.extent(9)
    if m.chance(10):
        shape[at] = min(x.shape[at], 500)
    indices = _indices(m, x.shape[at], tuple(shape))
    if m.is_wrong():
        return _wrong_gather(m, x, k, indices)
    cut = x[tuple(slice(None) if j == at else slice(0, n) for j, n in enumerate(shape))]
    wrapped = indices.astype(np.int64)
    out = np.take_along_axis(cut, np.where(wrapped < 0, wrapped + x.shape[at], wrapped), at)
    return call("gather", x, k, indices, answer=expect_same_bits(out), **({"unchecked": True} if m.chance(10) else {}))


def _wrong_gather(m: CallDraw, x: Array, k: int, indices: Array) -> MethodCall:
    """Draw an index out of range, of floats, or of another rank, or a wrong axis."""
    form = m.choice(("range", "range", "range", "floats", "rank", "axis"))
    outside = _out_of_range(m, indices, x.shape[k])
    if form == "range" and outside is not None:
        return call("gather", x, k, outside, answer=IndexError)._replace(is_raised_on_realization=True)
    if form == "floats":
        return call("gather", x, k, indices.astype(np.float32), answer=TypeError)
    if form == "rank":
        return call("gather", x, k, indices[None], answer=ValueError)
    return call("gather", x, m.wrong_axis(x.ndim), indices, answer=IndexError)


def _draw_one_hot(m: CallDraw) -> MethodCall:
    shape, n = m.shape(0, 3, elements=60), m.integer(0, 9)
    if m.is_wrong():
        return call("one_hot", m.array(m.dtype(dt.FLOATS), shape), n, answer=TypeError)
    d = m.dtype(dt.INTS)
    x = m.array(d, shape, ("small", "small", "edge", "bits"))
    out = np.array([[v == c for c in range(n)] for v in x.reshape(-1).tolist()], np.int32).reshape(*shape, n)
    return call("one_hot", x, n, answer=ExactAnswer(out))


ROWS = (
    MethodRow("__getitem__", _draw_getitem, 5, takes_arrays=True),
    MethodRow("__setitem__", _draw_setitem, 3, takes_arrays=True),
    MethodRow("take", _draw_take, 3, takes_arrays=True),
    MethodRow("gather", _draw_gather, 8),
    MethodRow("one_hot", _draw_one_hot),
)
