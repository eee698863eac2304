"""Elementwise ops on sets that a plain interval cannot follow: infinities, zeros, NaNs and poles inside.

Each operand is cut into seven pieces on which every op of the table is monotone or constant: -inf, the negative values, -0, +0,
the positive values, +inf, NaN. The op is evaluated on the ends of every combination of pieces at once and the results are
gathered into one interval and flags. It is exact up to the hull and slow, so that it only sees the few elements that need it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uops.interp.allowed.layout import Array, Layout, keys, unkeys
from uops.interp.allowed.value import ANY, NAN, NINF, NZERO, PINF, PZERO, Loose

Kernel = Callable[..., Array]
#: Evaluations per call, above which elements are taken in chunks.
LIMIT = 1 << 20
MOST = np.iinfo(np.int64).max


def cut(f: Layout, v: Loose) -> tuple[Array, Array]:
    """Ends (p, 2, m) of the pieces that occur in a 1-D set, and where each is present (p, m)."""
    tri, m = v.rows, v.rows.shape[1]
    flags = np.zeros(m, np.uint8) if v.flags is None else v.flags
    nan = np.isnan(tri[0])
    lo, hi = keys(f, tri[0]), keys(f, tri[2])
    top = f.key_max
    lo = np.where(nan, 1, lo).astype(np.int64)
    hi = np.where(nan, 0, hi).astype(np.int64)  # empty: nothing lies in [1, 0]
    ends = np.empty((7, 2, m), np.int64)
    present = np.empty((7, m), np.bool_)
    single = ((0, -top - 2, NINF), (2, -1, NZERO), (3, 0, PZERO), (5, top + 1, PINF))
    for row, key, flag in single:
        ends[row] = key
        present[row] = ((lo <= key) & (key <= hi)) | ((flags & flag) != 0)
    for row, least, most in ((1, -top - 1, -2), (4, 1, top)):
        ends[row, 0] = np.maximum(lo, least)
        ends[row, 1] = np.minimum(hi, most)
        present[row] = ends[row, 0] <= ends[row, 1]
        ends[row] = np.where(present[row], ends[row], least)
    values = np.empty((7, 2, m), f.np)
    values[:6] = unkeys(f, ends[:6])
    values[6] = np.nan
    present[6] = nan | ((flags & NAN) != 0)
    some = present.any(1)
    return values[some], present[some]


def corners(f: Layout, fn: Kernel, operands: list[Loose], wide: Kernel | None = None) -> Loose:
    """The set of fn over 1-D sets of one layout. `wide` is fn in float32, for a dtype without infinities."""
    m = operands[0].shape[0]
    n = len(operands)
    if m * 14**n > LIMIT and m > 1:
        half = max(1, LIMIT // 14**n)
        parts = [
            corners(f, fn, [v.map(lambda x, lead, at=at: x[..., at : at + half]) for v in operands], wide)  # type: ignore[misc]
            for at in range(0, m, half)
        ]
        return _joined(f, parts)
    best = fn(*(v.best for v in operands))
    grids, present = [], np.ones((1,) * n + (m,), np.bool_)
    for i, v in enumerate(operands):
        values, there = cut(f, v)
        p = values.shape[0]
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = p, 2
        grids.append(values.reshape(*shape, m))
        mask = [1] * n
        mask[i] = p
        present = present & there.reshape(*mask, m)
    results, over = saturated(f, fn, grids, wide)
    blocks = present.size // m
    full = np.broadcast_to(results, (*present.shape[:-1], *(2,) * n, m)).reshape(blocks, 2**n, m)
    flags = _union_of_anys(operands, m)
    if over is not None:
        over = np.broadcast_to(over, (*present.shape[:-1], *(2,) * n, m)).reshape(blocks, 2**n, m)
        flags |= np.where((over & present.reshape(blocks, 1, m)).any((0, 1)), NAN, 0).astype(np.uint8)
    return gathered(f, full, present.reshape(blocks, m), best, flags)


def saturated(f: Layout, fn: Kernel, operands: list[Array], wide: Kernel | None) -> tuple[Array, Array | None]:
    """fn, and where a dtype without infinities overflowed: there the results are its greatest values, by the sign of `wide`
    (R15)."""
    r = np.asarray(fn(*operands))
    if wide is None:
        return r, None
    over = np.isnan(r)
    for x in operands:
        over = over & ~np.isnan(x)
    if not over.any():
        return r, None
    true = np.asarray(wide(*(x.astype(np.float32) for x in operands)))
    over &= ~np.isnan(true)
    return np.where(over, np.copysign(f.max, true), r.astype(np.float32)).astype(f.np), over


def _union_of_anys(operands: list[Loose], m: int) -> Array:
    flags = np.zeros(m, np.uint8)
    for v in operands:
        if v.flags is not None:
            flags |= v.flags & ANY
    return flags


def gathered(f: Layout, results: Array, present: Array, best: Array, flags: Array) -> Loose:
    """One set per element from results (blocks, corners, m) of the present blocks; a block's corners bound what it reaches."""
    there = present[:, None]
    k = keys(f, results).astype(np.int64)
    top = f.key_max
    nan = np.isnan(results)
    flags = flags | np.where((nan & there).any((0, 1)), NAN, 0).astype(np.uint8)
    for key, flag in ((top + 1, PINF), (-top - 2, NINF), (0, PZERO), (-1, NZERO)):
        if (key != top + 1 and key != -top - 2) or f.dtype.has_inf:
            flags = flags | np.where(((k == key) & there & ~nan).any((0, 1)), flag, 0).astype(np.uint8)
    # A block that reaches an infinity or a zero and something finite passes through all between: clamp its ends into range.
    ordinary = ~nan & (k >= -top - 1) & (k <= top) & (k != 0) & (k != -1)
    solid = ordinary.any(1, keepdims=True) | (k.min(1, keepdims=True) != k.max(1, keepdims=True))
    use, inside = solid & there & ~nan, np.clip(k, -top - 1, top)
    low = np.where(use, inside, MOST).min((0, 1))
    high = np.where(use, inside, -MOST).max((0, 1))
    return compose(f, low, high, best, flags)


def _special(f: Layout) -> tuple[tuple[int, int], ...]:
    """Each flag with its value's key."""
    return ((NINF, -f.key_max - 2), (NZERO, -1), (PZERO, 0), (PINF, f.key_max + 1))


def compose(f: Layout, lo: Array, hi: Array, best: Array, flags: Array) -> Loose:
    """Canonical form: an empty interval takes a flagged value, and flags next to or inside the interval become part of it."""
    empty = lo > hi
    if empty.any():
        for flag, key in _special(f):
            use = empty & ((flags & flag) != 0)
            lo, hi = np.where(use, key, lo), np.where(use, key, hi)
            empty &= ~use
    for flag, key in (*_special(f), (NZERO, -1), (NINF, -f.key_max - 2)):
        has = (flags & flag) != 0
        lo = np.where(has & (lo == key + 1), key, lo)
        hi = np.where(has & (hi == key - 1), key, hi)
        flags = np.where(has & (lo <= key) & (key <= hi), flags & (0xFF ^ flag), flags).astype(np.uint8)
    tri = np.empty((3, *best.shape), f.np)
    tri[0] = unkeys(f, np.where(empty, 0, lo))
    tri[2] = unkeys(f, np.where(empty, 0, hi))
    tri[1] = best
    if empty.any():
        tri[:, empty] = np.nan
        flags = np.where(empty, flags & (0xFF ^ NAN), flags).astype(np.uint8)
    return Loose(f, tri, flags if flags.any() else None)


def _joined(f: Layout, parts: list[Loose]) -> Loose:
    flags = None
    if any(p.flags is not None for p in parts):
        flags = np.concatenate([np.zeros(p.shape, np.uint8) if p.flags is None else p.flags for p in parts])
    return Loose(f, np.concatenate([p.rows for p in parts], axis=1), flags)
