"""Reduce on sets (R32): a multiset in any order and association, accumulated in the source dtype or wider.

Sums are bounded around the exact sum, computed in a wider type whose own error is added to the bound. Additions of an exact zero
round nothing, so that only other terms count; a sum whose partial sums are all integers of the dtype is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.allowed.elementwise.pieces import compose
from uops.interp.allowed.layout import Array, Layout, keys, unkeys
from uops.interp.allowed.value import ANY, NAN, NINF, NZERO, PINF, POINTS, PZERO, Loose, Value, best_of, from_points
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

Axes = tuple[int, ...]
#: The type in which sums of float64 are bounded; its unit roundoff enters the bound, so that any platform's long double will do.
LONG = np.longdouble
WIDE_U = {8: float(np.finfo(LONG).eps), 4: 2.0**-52, 2: 2.0**-52, 1: 2.0**-52}


def _fold(ufunc: np.ufunc, x: Array, axes: Axes) -> Array:
    return np.asarray(ufunc.reduce(x, axis=axes, keepdims=True))


def wide_of(f: Layout) -> Any:
    return LONG if f.np.itemsize == 8 else np.float64


def ends_of(f: Layout, v: Value) -> tuple[Array, Array, Array | None]:
    """lo and hi in the wide type with flagged zeros and infinities included, and the flags."""
    wide = wide_of(f)
    if not isinstance(v, Loose):
        x = v.astype(wide)
        return x, x, None
    rows = v.rows.astype(wide)
    lo, hi = rows[0], rows[2]
    if v.flags is None:
        return lo, hi, None
    flags = v.flags | np.where(np.isnan(lo), NAN, 0).astype(np.uint8)
    for flag, value in ((PZERO | NZERO, 0.0), (PINF, np.inf), (NINF, -np.inf)):
        has = (v.flags & flag) != 0
        lo = np.where(has & ~(lo <= value), value, lo)
        hi = np.where(has & ~(hi >= value), value, hi)
    return lo, hi, flags


def float_sum(f: Layout, v: Value, axes: Axes, best: Array, factors: tuple[Value, Value] | None = None) -> Value:
    """Float Add over `axes`; `factors` are the operands of the Mul that the terms are, if so (they may be fused)."""
    if factors is None:
        lo, hi, flags = ends_of(f, v)
        exact = not isinstance(v, Loose)
    else:
        lo, hi, flags = _products(f, *factors)
        if flags is None and not isinstance(factors[0], Loose) and not isinstance(factors[1], Loose):
            exact = True
        else:
            exact = False
    with np.errstate(all="ignore"):
        return _bounded_sum(f, lo, hi, flags, axes, best, exact, factors is not None)


def _products(f: Layout, a: Value, b: Value) -> tuple[Array, Array, Array | None]:
    """Exact products in the wide type, or their ends."""
    (al, ah, fa), (bl, bh, fb) = ends_of(f, a), ends_of(f, b)
    if al is ah and bl is bh:
        p = al * bl
        return p, p, None
    c = np.stack(np.broadcast_arrays(al * bl, al * bh, ah * bl, ah * bh))
    lo, hi = np.minimum.reduce(c), np.maximum.reduce(c)
    flags = None
    mixed = np.isnan(lo) & ~(np.isnan(al) | np.isnan(bl)) & ~((al == ah) & (bl == bh))
    if mixed.any():  # an infinity meets a zero somewhere inside
        lo, hi = np.where(mixed, -np.inf, lo), np.where(mixed, np.inf, hi)
        flags = np.where(mixed, NAN, 0).astype(np.uint8)
    for x in (fa, fb):
        if x is not None:
            flags = np.broadcast_to(x, lo.shape) if flags is None else flags | x
    return lo, hi, flags


def _bounded_sum(f: Layout, lo: Array, hi: Array, flags: Array | None, axes: Axes, best: Array, exact: bool, fused: bool) -> Value:
    magnitude = np.abs(lo) if exact else np.maximum(np.abs(lo), np.abs(hi))
    total = _fold(np.add, magnitude, axes)
    terms = _fold(np.add, (magnitude != 0).astype(np.int64), axes)
    low = _fold(np.add, lo, axes)
    high = low if exact else _fold(np.add, hi, axes)
    if exact and flags is None and _all_integers(f, lo, total):
        return _signless_zero(f, best)
    wide_u = WIDE_U[f.np.itemsize]
    count = math.prod(lo.shape[a] for a in axes)
    if fused:
        bound = np.where(terms > 1, terms * (f.u * total + f.eta), 0.0)
    else:
        bound = np.where(terms > 1, (terms - 1) * f.u * total, 0.0)
    error = np.where(terms > 1, count * wide_u * total, wide_u * total if fused and f.np.itemsize == 8 else 0.0)
    bound = (bound + error) * (1 + 4 * wide_u)
    out_lo, lost_lo = to_storage(f, low - bound)
    out_hi, lost_hi = to_storage(f, high + bound)
    sure = lost_lo & lost_hi & ((low > bound) | (high < -bound))  # e4m3 beyond its range, whatever the order
    if sure.any():
        out_lo, out_hi = (np.where(sure, np.array(np.nan).astype(f.np), x) for x in (out_lo, out_hi))
    rows = np.stack([out_lo, best, out_hi])
    limit = f.max if f.dtype is dt.fp8e4m3 else f.max * (1 - f.u)
    extra = None
    if not (total < limit).all() or flags is not None or not f.dtype.has_inf:
        extra = _sum_flags(f, lo, hi, flags, axes, exact, lost_lo | lost_hi)
    out = Loose(f, rows, extra)
    return _with_zero(f, _repaired(f, out))


def to_storage(f: Layout, x: Array) -> tuple[Array, Array]:
    """Rounded to the dtype; where it has no infinity, clamped, with a mask of what was beyond."""
    if f.dtype.has_inf:
        y = x.astype(f.np) if f.np.itemsize >= 4 or f.np == np.float16 else x.astype(np.float32).astype(f.np)
        return y, np.zeros((), np.bool_)
    beyond = np.abs(x) > f.max * (1 + f.u * 4 / 7)
    return np.clip(x, -f.max, f.max).astype(np.float32).astype(f.np), beyond


def _all_integers(f: Layout, x: Array, total: Array) -> bool:
    """Every partial sum is an integer of the dtype, whatever the order."""
    return bool((total <= 2.0 ** (f.man + 1)).all() and (np.rint(x) == x).all() and (total <= f.max).all())


def _signless_zero(f: Layout, best: Array) -> Value:
    """The sign of a zero sum is free."""
    if best.all():
        return best
    zero = best == 0
    rows = np.stack([best, best, best])
    rows[0] = np.where(zero, -np.zeros((), f.np), best)
    rows[2] = np.where(zero, np.zeros((), f.np), best)
    return Loose(f, rows)


def _with_zero(f: Layout, out: Loose) -> Loose:
    """Where a zero is in the set, either zero is."""
    lo, hi = out.rows[0], out.rows[2]
    zero = np.zeros((), f.np)
    touch = (lo == 0) | (hi == 0)
    if touch.any():
        rows = out.rows.copy()
        rows[0] = np.where(lo == 0, -zero, lo)
        rows[2] = np.where(hi == 0, zero, hi)
        out.tri = rows
    return out


def _sum_flags(f: Layout, lo: Array, hi: Array, flags: Array | None, axes: Axes, exact: bool, lost: Array) -> Array:
    """Infinities and NaN that some order reaches (R32)."""
    limit = f.max * (1 + f.u)
    growth = 1 + _fold(np.add, np.ones(lo.shape), axes) * f.u * 1.01
    up = _fold(np.add, np.where((hi > 0) & ~np.isinf(hi), hi, 0), axes) * growth
    down = _fold(np.add, np.where((lo < 0) & ~np.isinf(lo), lo, 0), axes) * growth
    plus = (up >= limit) | _fold(np.logical_or, hi == np.inf, axes)
    minus = (down <= -limit) | _fold(np.logical_or, lo == -np.inf, axes)
    nan = _fold(np.logical_or, np.isnan(lo), axes)
    member = None
    if flags is not None:
        member = _fold(np.bitwise_or, flags, axes)
        nan = nan | ((member & NAN) != 0)
    nan = nan | (plus & minus) | lost
    if not f.dtype.has_inf:
        nan = nan | plus | minus
        plus = minus = np.zeros((), np.bool_)
    if exact:  # an infinite term stays, or meets the other infinity; a NaN stays
        known_plus, known_minus = _fold(np.logical_or, lo == np.inf, axes), _fold(np.logical_or, lo == -np.inf, axes)
        known_nan = _fold(np.logical_or, np.isnan(lo), axes) | (known_plus & known_minus)
        plus, minus = plus & ~known_minus & ~known_nan, minus & ~known_plus & ~known_nan
    out = np.where(nan, NAN, 0) | np.where(plus, PINF, 0) | np.where(minus, NINF, 0)
    if member is not None:
        out = np.where((member & ANY) != 0, ANY, out)
    return out.astype(np.uint8)


def _repaired(f: Layout, out: Loose) -> Loose:
    """Canonical rows where an end came out NaN or infinite: what is certain there follows from the best value."""
    rows = out.rows
    odd = ~np.isfinite(rows).all(0)
    if not odd.any():
        if out.flags is not None and not out.flags.any():
            out.flags = None
        return out
    flags = np.zeros(out.shape, np.uint8) if out.flags is None else out.flags
    nan = np.isnan(rows)
    top = f.key_max
    lo = np.where(nan[0] | nan[2], np.iinfo(np.int64).max, keys(f, rows[0]).astype(np.int64))
    hi = np.where(nan[0] | nan[2], -np.iinfo(np.int64).max, keys(f, rows[2]).astype(np.int64))
    flags = flags | np.where(np.isnan(rows[1]), NAN, 0).astype(np.uint8)
    flags = flags | np.where(rows[1] == np.inf, PINF, 0).astype(np.uint8) | np.where(rows[1] == -np.inf, NINF, 0).astype(np.uint8)
    fixed = compose(f, np.maximum(lo, -top - 2), hi, rows[1], flags)
    rows = np.where(odd, fixed.rows, rows)
    new = np.where(odd, 0 if fixed.flags is None else fixed.flags, flags).astype(np.uint8)
    return Loose(f, rows, new if new.any() else None)


def float_product(f: Layout, v: Value, axes: Axes, best: Array) -> Value:
    """Float Mul over `axes`: |p| * ((1 + u)^(n-1) - 1), plus what underflow and overflow on the way add."""
    count = math.prod(v.shape[a] for a in axes)
    if count == 1:
        return v
    with np.errstate(all="ignore"):
        return _bounded_product(f, v, axes, best, count)


def _bounded_product(f: Layout, v: Value, axes: Axes, best: Array, count: int) -> Value:
    lo, hi, flags = (x if x is None else x.astype(np.float64) if x.dtype != np.uint8 else x for x in ends_of(f, v))
    assert lo is not None and hi is not None
    exact = not isinstance(v, Loose)
    big = np.abs(lo) if exact else np.maximum(np.abs(lo), np.abs(hi))
    small = big if exact else np.where(np.signbit(lo) != np.signbit(hi), 0.0, np.minimum(np.abs(lo), np.abs(hi)))
    ordinary = np.isfinite(big) & (big > 0)
    rise, fall = _log2_product(big, ordinary & (big > 1), axes), _log2_product(small, (small > 0) & (small < 1), axes)
    zero = _fold(np.logical_or, small == 0, axes)
    surely_zero = _fold(np.logical_or, big == 0, axes)
    infinite = _fold(np.logical_or, np.isinf(big), axes)
    nan = _fold(np.logical_or, np.isnan(lo), axes)
    slack = 1e-6 * (1 + count)
    over = infinite | (rise + slack >= math.log2(f.max))
    under = zero | (fall - slack <= f.emin)
    varied = _fold(np.logical_or, np.signbit(lo) != np.signbit(hi), axes)
    sign = np.where(_fold(np.logical_xor, np.signbit(lo), axes), -1.0, 1.0)
    low, high = _magnitudes(small, axes), _magnitudes(big, axes)
    growth = math.expm1(count * math.log1p(f.u)) + count * 2.0**-51
    slip = np.where(under & ~surely_zero, count * f.eta * np.exp2(np.minimum(rise, 2000.0)) * (1 + growth), 0.0)
    least = np.where(slip < low, low * (1 - growth) - slip, 0.0)
    least = np.where(under & over, 0.0, np.maximum(least, 0.0))
    most = np.where(surely_zero, 0.0, high * (1 + growth) + slip)
    least = np.where(zero, 0.0, least)
    a, lost_a = to_storage(f, np.where(varied, -most, np.where(sign < 0, -most, least)))
    b, lost_b = to_storage(f, np.where(varied, most, np.where(sign < 0, -least, most)))
    a, b = _signed_ends(f, a, b, sign, varied)
    flag = np.where(nan | (over & under), NAN, 0)
    if f.dtype.has_inf:
        flag = flag | np.where(over & (varied | (sign > 0)), PINF, 0) | np.where(over & (varied | (sign < 0)), NINF, 0)
    else:
        flag = flag | np.where(over | lost_a | lost_b, NAN, 0)
    flag = np.where(nan & ~_uncertain(flags, lo, hi, axes), NAN, flag)
    surely_inf = infinite & ~zero & exact
    flag = np.where(surely_inf & ~nan, np.where(under, NAN, 0) | np.where(sign > 0, PINF, NINF), flag)
    if flags is not None:
        member = _fold(np.bitwise_or, flags, axes)
        flag = np.where((member & ANY) != 0, ANY, flag | (member & NAN))
    rows = np.stack([a, best, b])
    if exact:
        gone = nan | (infinite & surely_zero)
        flag = np.where(gone, NAN, flag)
        rows[:, gone | surely_inf] = best[gone | surely_inf]
    out = Loose(f, rows, flag.astype(np.uint8))
    return _repaired(f, out)


def _log2_product(x: Array, only: Array, axes: Axes) -> Array:
    """log2 of the product of the elements in `only`."""
    return _fold(np.add, np.where(only, np.log2(np.where(only, x, 1.0)), 0.0), axes)


def _uncertain(flags: Array | None, lo: Array, hi: Array, axes: Axes) -> Array:
    """True: a NaN among the terms may be absent."""
    return np.zeros((), np.bool_) if flags is None else np.ones((), np.bool_)


def _magnitudes(x: Array, axes: Axes) -> Array:
    """Product of magnitudes over axes in float64, by mantissas and exponents; infinite beyond its range."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 1.0))
    flat = np.moveaxis(mantissa, axes, range(len(axes))).reshape(-1, *(n for k, n in enumerate(x.shape) if k not in axes))
    e = np.add.reduce(exponent, axis=axes, keepdims=True, dtype=np.int64)
    p = np.ones(flat.shape[1:])
    for at in range(0, len(flat), 512):
        p, more = np.frexp(p * np.multiply.reduce(flat[at : at + 512], axis=0))
        e = e + more.reshape(e.shape)
    out: Array = np.ldexp(p.reshape(e.shape), np.clip(e, -5000, 5000).astype(np.int32))
    return np.where(_fold(np.logical_or, np.isinf(x), axes), np.inf, out)


def _signed_ends(f: Layout, a: Array, b: Array, sign: Array, varied: Array) -> tuple[Array, Array]:
    """A zero end has the sign of the product, which is exact."""
    zero = np.zeros((), f.np)
    minus = varied | (sign < 0)
    plus = varied | (sign > 0)
    a = np.where((a == 0) & minus, -zero, np.where((a == 0), zero, a))
    b = np.where((b == 0) & plus, zero, np.where((b == 0), -zero, b))
    return a, b


def float_max(f: Layout, v: Value, axes: Axes, best: Array) -> Value:
    """Max is exact (R32), of two zeros either (R11)."""
    if not isinstance(v, Loose):
        if best.all():
            return best
        mixed = (best == 0) & (
            _fold(np.logical_or, (v == 0) & np.signbit(v), axes) & _fold(np.logical_or, (v == 0) & ~np.signbit(v), axes)
        )
        if not mixed.any():
            return best
        rows = np.stack([best, best, best])
        rows[0] = np.where(mixed, -np.zeros((), f.np), best)
        rows[2] = np.where(mixed, np.zeros((), f.np), best)
        return Loose(f, rows)
    lo, hi, flags = v.rows[0], v.rows[2], v.flags
    nan = np.isnan(lo)
    sure = _fold(np.logical_or, nan if flags is None else nan & (flags == 0), axes)
    k_lo, k_hi = keys(f, lo), keys(f, hi)
    out_flags = np.zeros(best.shape, np.uint8)
    if flags is not None:
        for flag, key in ((PZERO, 0), (NZERO, -1), (PINF, f.key_max + 1), (NINF, -f.key_max - 2)):
            has = (flags & flag) != 0
            k_lo = np.where(has & (nan | (k_lo > key)), key, k_lo).astype(k_lo.dtype)
            k_hi = np.where(has & (nan | (k_hi < key)), key, k_hi).astype(k_hi.dtype)
        maybe = _fold(np.logical_or, nan | ((flags & NAN) != 0), axes)
        out_flags = np.where(maybe, NAN, 0).astype(np.uint8)
        out_flags |= _fold(np.bitwise_or, flags & ANY, axes)
    a = _fold(np.maximum, np.where(nan, np.iinfo(k_lo.dtype).min, k_lo), axes)
    b = _fold(np.maximum, np.where(nan, np.iinfo(k_lo.dtype).min, k_hi), axes)
    free = (a == 0) & _fold(np.logical_or, (k_lo < 0) & (k_hi >= -1), axes)
    rows = np.stack([unkeys(f, np.where(free, -1, a).astype(k_lo.dtype)), best, unkeys(f, b)])
    rows[:, sure] = np.nan
    out_flags = np.where(sure, 0, out_flags).astype(np.uint8)
    return _max_points(f, v, axes, Loose(f, rows, out_flags if out_flags.any() else None))


def _max_points(f: Layout, v: Loose, axes: Axes, out: Loose) -> Loose:
    """Where every term of a group is listed and few candidates remain, the candidates."""
    if v.pts is None or v.disc is None or v.flags is not None or np.isnan(v.rows).any():
        return out
    listed = _fold(np.logical_and, v.disc | v.exact(), axes)
    if not listed.any():
        return out
    pts = np.where(v.disc, v.pts, v.best)
    lead = tuple(a + 1 for a in axes)
    moved = np.moveaxis(pts, lead, range(1, len(axes) + 1))
    flat = moved.reshape(-1, *out.shape) if moved.size else moved
    candidates = np.where(keys(f, flat) < keys(f, out.rows[0]), out.best, flat)
    points = from_points(f, np.concatenate([out.best[None], candidates]))
    assert points.disc is not None
    disc = listed & points.disc
    return Loose(f, np.where(disc, points.rows, out.rows), None, points.points, disc)


def whole_reduce(op: Op, f: Layout, fn: Callable[[Array], Array], v: Loose, axes: Axes) -> Loose:
    """Reduce of integers or bools: exact on each combination while at most one term of a group varies, else *any*."""
    best = np.asarray(fn(best_of(v)))
    if f.np == np.bool_:
        return from_points(f, np.stack([best, fn(np.asarray(v.points.all(0))), fn(np.asarray(v.points.any(0)))]))
    open_ = ~v.exact()
    many = _fold(np.add, open_.astype(np.int64), axes) > 1
    lost = v.any()
    if lost is not None:
        many = many | _fold(np.logical_or, lost, axes)
    rows = np.stack([best] + [np.asarray(fn(p)) for p in v.points[1:POINTS]])
    return from_points(f, np.where(many, best, rows), many if many.any() else None)
