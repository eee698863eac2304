"""Pow on sets (R18): within 2 ulp of the correctly rounded power, IEEE 754's special cases exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.allowed.elementwise.arithmetic import lifted, mark_any
from uops.interp.allowed.elementwise.discrete import anywhere
from uops.interp.allowed.elementwise.transcendental import widen
from uops.interp.allowed.layout import Array, Layout
from uops.interp.allowed.value import NAN, PINF, Loose, Value, best_of, patch, pick

Kernel = Callable[..., Array]
#: In every dtype.
ULPS = 2


def power(f: Layout, fn: Kernel, operands: Sequence[Value]) -> Value:
    """Pow of two sets."""
    a, b = operands
    if isinstance(a, Loose) or isinstance(b, Loose):
        return _of_sets(f, fn, a, b)
    y = np.asarray(fn(a, b))
    fixed = _fixed(a, b, y)
    if fixed.all():
        return y
    rows = np.stack([y, y, y])
    widen(f, rows, np.broadcast_to(fixed, rows.shape), ULPS)
    return Loose(f, _of_one_sign(rows))


def _of_sets(f: Layout, fn: Kernel, a: Value, b: Value) -> Loose:
    """On a positive base a power is monotone in each operand, so that its extremes lie at corners; else `_coarse`."""
    rank = max(len(a.shape), len(b.shape))
    ra, rb = lifted(a, rank), lifted(b, rank)
    corners = fn(
        ra[[0, 0, 2, 2, 1]] if isinstance(a, Loose) else ra,
        rb[[0, 2, 0, 2, 1]] if isinstance(b, Loose) else rb,
    )
    shape = corners.shape[1:]
    rows = np.stack([np.minimum.reduce(corners[:4], axis=0), corners[4], np.maximum.reduce(corners[:4], axis=0)])
    exact = np.broadcast_to(_is_exact(a) & _is_exact(b), shape)
    special = _fixed(np.broadcast_to(best_of(a), shape), np.broadcast_to(best_of(b), shape), rows[1])
    widen(f, rows, np.where(exact, special, ~np.isfinite(rows)), ULPS)
    out = Loose(f, _of_one_sign(rows))
    least = np.broadcast_to(ra[0] if isinstance(a, Loose) else ra, shape)
    hard = ~exact & (~(least > 0) | ~np.isfinite(rows).all(0))
    for v in (a, b):
        if isinstance(v, Loose) and v.flags is not None:
            hard = hard | np.broadcast_to(v.flags != 0, shape)
    where = np.flatnonzero(hard)
    if where.size:
        patch(out, where, _coarse(f, fn, pick(f, a, shape, where), pick(f, b, shape, where)))
    lost = anywhere((a, b), shape)
    if lost is not None:
        mark_any(out, lost)
    return out


def _is_exact(v: Value) -> Array:
    return v.exact() if isinstance(v, Loose) else np.ones((), np.bool_)


def _fixed(a: Array, b: Array, y: Array) -> Array:
    """IEEE's special cases: a zero, an infinity or a NaN in or out, and a result that is 1 by rule."""
    special = (a == 0) | (b == 0) | (a == 1) | ((a == -1) & (np.abs(y) == 1))
    return np.asarray(special | ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(y))


def _of_one_sign(rows: Array) -> Array:
    """The sign of a power is exact: a bound does not cross zero."""
    zero = np.zeros((), rows.dtype)
    low = (rows[0] < 0) & (rows[1] >= 0) & ~np.signbit(rows[1])
    high = (rows[2] > 0) & (rows[1] <= 0) & np.signbit(rows[1])
    rows[0] = np.where(low, zero, rows[0])
    rows[2] = np.where(high, -zero, rows[2])
    return rows


def _coarse(f: Layout, fn: Kernel, a: Loose, b: Loose) -> Loose:
    """Pow of |a| bounds the magnitude; sign, NaN and infinity are free unless the base is sure to be positive."""
    size, exponent = np.abs(a.rows[[0, 2]]), b.rows[[0, 2]]
    across = np.signbit(a.rows[0]) != np.signbit(a.rows[2])
    base = np.stack([size[0], size[1], np.where(across, np.zeros((), f.np), size[0])])
    p = np.asarray(fn(base[:, None], exponent[None])).reshape(6, -1)
    unknown = np.isnan(p).any(0)
    for v in (a, b):
        if v.flags is not None:
            unknown |= v.flags != 0
    top = np.array(np.inf if f.dtype.has_inf else f.max).astype(f.np)
    most = np.where(unknown, top, np.maximum.reduce(np.where(np.isnan(p), np.zeros((), f.np), p), axis=0))
    rows = np.stack([-most, np.asarray(fn(a.best, b.best)), most])
    widen(f, rows, ~np.isfinite(rows), ULPS)
    positive = ~np.signbit(a.rows[0]) & ~unknown & (a.rows[0] >= 0)
    rows[0] = np.where(positive, np.zeros((), f.np), rows[0])
    flags = np.where(positive, 0, NAN) | np.where(np.isinf(rows[2]), PINF, 0)
    return Loose(f, rows, flags.astype(np.uint8))
