"""Discontinuities: comparisons, Where, Trunc, Cast and Bitcast of sets (R30): both branches as points where few, else a hull or
*any*."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.allowed.elementwise.arithmetic import mark_any
from uops.interp.allowed.elementwise.discrete import anywhere, discrete, refine, refined
from uops.interp.allowed.layout import Array, Layout, keys, span, unkeys
from uops.interp.allowed.value import (
    ANY,
    NAN,
    NINF,
    NZERO,
    PINF,
    POINTS,
    PZERO,
    Loose,
    Value,
    as_loose,
    best_of,
    from_points,
    owned,
    patch,
    pick,
    spread,
)  # fmt: skip
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

Kernel = Callable[..., Array]


def _bounds(v: Value) -> tuple[Array, Array, Array | None]:
    """lo and hi as numbers with the flagged members included, and where NaN is possible beside them."""
    if not isinstance(v, Loose):
        return v, v, None
    lo, hi = v.rows[0], v.rows[2]
    if v.flags is None:
        return lo, hi, None
    flags, f = v.flags, v.layout
    for flag, value in ((PZERO | NZERO, 0.0), (PINF, np.inf), (NINF, -np.inf)):
        has = (flags & flag) != 0
        if has.any():
            member = np.array(value).astype(f.np)
            lo = np.where(has & ~(lo <= member), member, lo)
            hi = np.where(has & ~(hi >= member), member, hi)
    return lo, hi, ((flags & NAN) != 0) | np.isnan(v.rows[0])


def _less(al: Array, ah: Array, bl: Array, bh: Array) -> tuple[Array, Array]:
    return al < bh, ~(ah < bl)


def _at_least(al: Array, ah: Array, bl: Array, bh: Array) -> tuple[Array, Array]:
    return ah >= bl, ~(al >= bh)


def _equal(al: Array, ah: Array, bl: Array, bh: Array) -> tuple[Array, Array]:
    return (al <= bh) & (bl <= ah), ~((al == bh) & (ah == bl))


#: (can be true, can be false) of intervals; the flag says that the operands are swapped
COMPARE: dict[Op, tuple[Callable[[Array, Array, Array, Array], tuple[Array, Array]], bool]] = {
    Op.CMPLT: (_less, False),
    Op.CMPGT: (_less, True),
    Op.CMPGE: (_at_least, False),
    Op.CMPLE: (_at_least, True),
    Op.CMPEQ: (_equal, False),
    Op.CMPNE: (_equal, False),
}


def compare(op: Op, f: Layout, r: Layout, fn: Kernel, operands: Sequence[Value]) -> Value:
    """A comparison of floats, f their layout, r bool's."""
    a, b = operands
    (al, ah, an), (bl, bh, bn) = _bounds(a), _bounds(b)
    rule, swapped = COMPARE[op]
    true, false = rule(bl, bh, al, ah) if swapped else rule(al, ah, bl, bh)
    for nan in (an, bn):
        false = false if nan is None else false | nan
    best = np.asarray(fn(best_of(a), best_of(b)))
    open_ = true & false
    lost = anywhere(operands, best.shape)
    if lost is not None:
        open_ = open_ | lost
    if not open_.any():
        return best
    out = Loose(r, None, None, np.stack([best, best ^ open_]))
    if refined(operands):
        return refine(r, fn, operands, (f, f), out)
    return out


def compare_same(fn: Kernel, x: Loose, r: Layout) -> Value:
    """A comparison of a node with itself: one node has one value (R27), so only NaN matters."""
    zero, nan = np.zeros((), x.layout.np), np.array(np.nan).astype(x.layout.np)
    number, other = bool(fn(zero, zero)), bool(fn(nan, nan))
    best = np.asarray(fn(x.best, x.best))
    if number == other:
        return best
    sure, maybe = np.isnan(x.rows[0]), np.isnan(x.rows).any(0)
    if x.flags is not None:
        sure = sure & (x.flags & ~np.uint8(NAN) == 0)
        maybe = maybe | ((x.flags & (NAN | ANY)) != 0)
    open_ = maybe & ~sure
    return Loose(r, None, None, np.stack([best, best ^ open_])) if open_.any() else best


def select(f: Layout, p: Array, a: Value, b: Value) -> Value:
    """Where with a known condition: keeps every bit (R28)."""
    if not isinstance(a, Loose) and not isinstance(b, Loose):
        return np.where(p, a, b)
    shape = np.broadcast_shapes(p.shape, a.shape, b.shape)
    x, y = as_loose(f, spread(a, shape)), as_loose(f, spread(b, shape))
    tri = np.where(p, x.rows, y.rows) if f.is_float else None
    flags = None
    if x.flags is not None or y.flags is not None:
        flags = np.where(p, 0 if x.flags is None else x.flags, 0 if y.flags is None else y.flags).astype(np.uint8)
    if x.pts is None and y.pts is None:
        return Loose(f, tri, flags)
    xp, yp = _points_or_best(x), _points_or_best(y)
    k = max(len(xp), len(yp))
    pts = np.where(p, _rows_to(xp, k), _rows_to(yp, k))
    disc = None
    if f.is_float:
        no = np.zeros((), np.bool_)
        disc = np.where(p, no if x.disc is None else x.disc, no if y.disc is None else y.disc)
    return Loose(f, tri, flags, pts, disc)


def _points_or_best(v: Loose) -> Array:
    return v.best[None] if v.pts is None else v.pts


def _rows_to(p: Array, k: int) -> Array:
    return p if len(p) == k else np.concatenate([p, np.broadcast_to(p[:1], (k - len(p), *p.shape[1:]))])


def where(f: Layout, p: Value, a: Value, b: Value) -> Value:
    """Where on a bool condition: both branches where it is open."""
    if not isinstance(p, Loose):
        return select(f, p, a, b)
    out = select(f, p.best, a, b)
    open_ = np.broadcast_to(~p.exact(), out.shape)
    at = np.flatnonzero(open_)
    if not at.size:
        return out
    result = owned(as_loose(f, spread(out, out.shape)))
    chosen = pick(f, out, out.shape, at).best
    patch(result, at, union(f, pick(f, a, out.shape, at), pick(f, b, out.shape, at), chosen))
    return result


def union(f: Layout, a: Loose, b: Loose, best: Array) -> Loose:
    """Both of two 1-D sets, as points where both are listed, else as a hull."""
    lost = anywhere((a, b), best.shape)
    if not f.is_float:
        return from_points(f, np.concatenate([best[None], a.points, b.points]), lost)
    flags = (0 if a.flags is None else a.flags) | (np.zeros(best.shape, np.uint8) if b.flags is None else b.flags)
    nan_a, nan_b = np.isnan(a.rows[0]), np.isnan(b.rows[0])
    flags = np.where(nan_a != nan_b, flags | NAN, flags).astype(np.uint8)
    ka, kb = keys(f, a.rows), keys(f, b.rows)
    lo = np.where(nan_a, b.rows[0], np.where(nan_b | (ka[0] <= kb[0]), a.rows[0], b.rows[0]))
    hi = np.where(nan_a, b.rows[2], np.where(nan_b | (ka[2] >= kb[2]), a.rows[2], b.rows[2]))
    out = Loose(f, np.stack([lo, best, hi]), flags if flags.any() else None)
    listed = _listed(a) & _listed(b)
    if listed.any():
        keep = np.flatnonzero(listed)
        both = from_points(f, np.concatenate([best[None], _points_or_best(a), _points_or_best(b)])[:, keep])
        disc = np.ones(keep.shape, np.bool_) if both.disc is None else both.disc
        patch(out, keep[disc], both.map(lambda x, lead: x[..., disc]))
    return out


def _listed(v: Loose) -> Array:
    known = v.exact()
    return known if v.disc is None else known | v.disc


def cast_float(f: Layout, r: Layout, fn: Kernel, x: Loose) -> Loose:
    """Float to float: monotone; e4m3 turns what is beyond its range into NaN."""
    rows = fn(x.rows)
    flags = None if x.flags is None else x.flags
    if not r.dtype.has_inf:
        over = np.isnan(rows) & ~np.isnan(x.rows)
        rows = np.where(over & ~x.exact(), np.copysign(r.max, x.rows.astype(np.float32)), rows.astype(np.float32)).astype(r.np)
        extra = np.where((over[0] | over[2]) & ~x.exact(), NAN, 0).astype(np.uint8)
        if flags is not None:
            extra = extra | np.where((flags & (PINF | NINF)) != 0, NAN, 0).astype(np.uint8)
            extra |= flags & ~np.uint8(PINF | NINF)
        flags = extra if extra.any() else None
        rows[1] = fn(x.best)
    out = Loose(r, rows, flags)
    return refine(r, fn, (x,), (f,), owned(out)) if x.pts is not None else out


def cast_to_index(f: Layout, r: Layout, fn: Kernel, x: Loose) -> Value:
    """A Cast to index traps where the value is not finite (R29): there a backend may do anything (R26)."""
    finite = np.isfinite(x.rows).all(0)
    if x.pts is not None:
        finite &= np.isfinite(x.pts).all(0)
    pts = None if x.pts is None else np.where(finite, x.pts, x.best)
    flags = None if x.flags is None else x.flags & (0xFF ^ (PINF | NINF | NAN))
    out = cast_to_int(f, r, fn, Loose(f, np.where(finite, x.rows, x.best), flags, pts, x.disc))
    lost = ~finite if x.flags is None else ~finite | (x.flags != flags)
    if not lost.any():
        return out
    whole = owned(as_loose(r, out))
    mark_any(whole, np.asarray(lost))
    return whole


def cast_to_int(f: Layout, r: Layout, fn: Kernel, x: Loose) -> Value:
    """Float to integer: every integer between the ends where at most eight, else *any* (R30)."""
    best, lo, hi = np.asarray(fn(x.best)), np.asarray(fn(x.rows[0])), np.asarray(fn(x.rows[2]))
    if lo.dtype == object or r.np.kind != "u":
        width = hi.astype(np.float64) - lo.astype(np.float64)
    else:
        width = (hi - lo).astype(np.float64)
    lost = width >= POINTS
    if x.flags is not None:
        lost = lost | ((x.flags & ~np.uint8(PZERO | NZERO)) != 0)
    if x.flags is None and not lost.any() and not width.any():
        return best
    steps = int(np.where(lost, 0, width).max(initial=0)) + 1
    rows = [best] + [np.where(lost, best, lo + np.minimum(j, np.where(lost, 0, width)).astype(lo.dtype)) for j in range(steps)]
    if x.flags is not None:
        rows.append(np.where((x.flags & (PZERO | NZERO)) != 0, 0, best))
    out = from_points(r, np.stack(rows).astype(best.dtype), lost if lost.any() else None)
    if x.pts is not None:
        return refine(r, fn, (x,), (f,), owned(out))
    return out


def cast_to_bool(f: Layout, r: Layout, x: Loose) -> Value:
    """x != 0; NaN is true (R15)."""
    return compare(Op.CMPNE, f, r, lambda a, b: np.asarray(a != b), (x, np.zeros((), f.np)))


def cast(f: Layout, r: Layout, fn: Kernel, x: Loose) -> Value:
    if not f.is_float:
        return discrete(r, fn, (x,), (f,))
    if r.is_float:
        return cast_float(f, r, fn, x)
    if r.dtype is dt.index:
        return cast_to_index(f, r, fn, x)
    return cast_to_bool(f, r, x) if r.np == np.bool_ else cast_to_int(f, r, fn, x)


def trunc(f: Layout, fn: Kernel, x: Loose) -> Loose:
    """Round toward zero: the integers between the ends as points where few, else the hull."""
    rows = fn(x.rows)
    out = owned(Loose(f, rows, x.flags))
    wide = rows.astype(np.float64)
    with_flags = np.zeros(x.shape, np.bool_) if x.flags is None else x.flags != 0
    few = (wide[2] - wide[0] <= POINTS - 2) & ~x.exact() & ~with_flags & (keys(f, rows[0]) != keys(f, rows[2]))
    at = np.flatnonzero(few)
    if at.size:
        part = rows.reshape(3, -1)[:, at]
        patch(out, at, from_points(f, _integers(f, part)))
    return refine(f, fn, (x,), (f,), out) if x.pts is not None else out


def _integers(f: Layout, rows: Array) -> Array:
    """Best, then every integral value between lo and hi, zeros of the right signs."""
    lo, hi = rows[0].astype(np.float64), rows[2].astype(np.float64)
    steps = int((hi - lo).max(initial=0))
    up = [np.minimum(lo + j, hi) for j in range(1, steps + 1)]
    up = [np.where((v == 0) & np.signbit(hi), -0.0, v) for v in up]
    minus = np.where((lo < 0) & (hi >= 0) | (lo == 0) & np.signbit(lo), -0.0, lo)
    plus = np.where((lo <= 0) & ((hi > 0) | (hi == 0) & ~np.signbit(hi)), 0.0, lo)
    out = np.stack([rows[1].astype(np.float64), lo, hi, minus, plus, *up])
    return out.astype(np.float32).astype(f.np) if f.np.itemsize == 1 else out.astype(f.np)


def few_points(f: Layout, x: Loose) -> Loose:
    """The same float sets with each interval of at most eight values listed, every other *any*; NaN is many values."""
    steps = span(f, x.rows[0], x.rows[2])
    flags = np.zeros(x.shape, np.uint8) if x.flags is None else x.flags
    nan = np.isnan(x.rows).any(0)
    disc = np.zeros(x.shape, np.bool_) if x.disc is None else x.disc
    if x.pts is not None:
        nan = np.where(disc, np.isnan(x.pts).any(0), nan)
    lost = nan | ~(disc | ((steps < POINTS) & (flags == 0)))
    steps = np.where(lost | disc, 0, steps).astype(np.int64)
    base = np.where(lost | disc, keys(f, x.best), keys(f, x.rows[0])).astype(np.int64)
    pts = np.stack([x.best] + [unkeys(f, base + np.minimum(steps, j)) for j in range(int(steps.max(initial=0)) + 1)])
    if x.pts is not None:
        pts = np.concatenate([pts, np.where(disc, x.pts, x.best)])
    return from_points(f, pts, lost if lost.any() else None)


def bitcast(f: Layout, r: Layout, x: Loose) -> Loose:
    """The bits of the few points, else *any*; a different item size regroups the last axis (R46)."""
    if f.is_float:
        x = few_points(f, x)
    pts, lost = x.points, x.any()
    old, new = f.np.itemsize, r.np.itemsize
    if old == new:
        return from_points(r, pts.view(r.np), lost)
    if old > new:
        split = np.ascontiguousarray(pts).view(r.np)
        return from_points(r, split, None if lost is None else np.repeat(lost, old // new, axis=-1))
    ratio = new // old
    groups = pts.reshape(*pts.shape[:-1], pts.shape[-1] // ratio, ratio)
    gone = np.zeros(groups.shape[1:-1], np.bool_) if lost is None else lost.reshape(groups.shape[1:]).any(-1)
    bits = groups.view(f"u{old}")  # -0 is another one than +0
    varied = (bits != bits[:1]).any(0).sum(-1)
    gone = gone | (varied > 1)
    base = np.broadcast_to(groups[:1], groups.shape)
    rows = np.where(gone[..., None], base, groups)
    joined = np.ascontiguousarray(rows).view(r.np)[..., 0]
    return from_points(r, joined, gone if gone.any() else None)
