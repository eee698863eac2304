"""Exp2, Log2 and Sin on sets (R17): some ulps around the correctly rounded result, exact at exact points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uops.interp.allowed.elementwise.arithmetic import mark_any
from uops.interp.allowed.elementwise.discrete import anywhere
from uops.interp.allowed.elementwise.pieces import compose, cut
from uops.interp.allowed.layout import Array, Layout, keys, same_bits, ulp
from uops.interp.allowed.value import ANY, NAN, NINF, NZERO, PINF, PZERO, Loose, Value, patch, pick
from uops.spec.ir.ops import Op

Kernel = Callable[..., Array]
#: Beyond this many periods of Sin between two ends nothing is known but the range.
_TURN = 2 * np.pi


def _exact_exp2(x: Array, y: Array) -> Array:
    """2^k at an integer k, and the limits."""
    return np.asarray((np.trunc(x) == x) | np.isnan(x))


def _exact_log2(x: Array, y: Array) -> Array:
    """Log2 of 2^k: the mantissa is 1/2; zeros, infinities, NaN and negative numbers have IEEE's answer."""
    m, _ = np.frexp(x.astype(np.float64))
    return np.asarray((m == 0.5) | ~(x > 0) | ~np.isfinite(y))


def _exact_sin(x: Array, y: Array) -> Array:
    return np.asarray((x == 0) | ~np.isfinite(x))


EXACT: dict[Op, Callable[[Array, Array], Array]] = {Op.EXP2: _exact_exp2, Op.LOG2: _exact_log2, Op.SIN: _exact_sin}
#: Least and greatest result: an approximation leaves the range by rounding only where the range's end is no value of the dtype.
FLOOR: dict[Op, float] = {Op.EXP2: 0.0}


def widen(f: Layout, rows: Array, fixed: Array, ulps: int) -> None:
    """Move lo down and hi up by `ulps` spacings, except where `fixed` (3, *shape); in place."""
    ends = rows[0].astype(np.float64), rows[2].astype(np.float64)
    for row, sign in ((0, -1.0), (2, 1.0)):
        step = np.where(fixed[row], 0.0, ulp(f, rows[row]) * (sign * ulps))
        if not step.any():
            continue
        wide = _across(f, *ends, row, ends[row // 2] + step, sign * ulps)
        rows[row] = np.where(step == 0, rows[row], stored(f, wide))


def _across(f: Layout, lo: Array, hi: Array, row: int, moved: Array, ulps: float) -> Array:
    """A power of two inside the interval has a spacing twice that of a smaller end, and may reach further toward zero."""
    near, far = (lo, hi) if row == 0 else (hi, lo)
    if not (lo != hi).any():
        return moved
    _, e = np.frexp(near)
    power = np.copysign(np.ldexp(1.0, e), near)
    inside = (near * far > 0) & (np.abs(power) <= np.abs(far)) & (np.abs(near) <= np.abs(far)) & np.isfinite(near)
    reach = power + ulps * np.ldexp(1.0, np.maximum(e, f.emin) - f.man)
    reach = np.where(inside, reach, moved)
    return np.minimum(moved, reach) if row == 0 else np.maximum(moved, reach)


def stored(f: Layout, wide: Array) -> Array:
    """float64 to the dtype, not beyond its greatest value where it has no infinity."""
    if not f.dtype.has_inf:
        wide = np.clip(wide, -f.max, f.max)
    if f.np.itemsize == 1:
        return wide.astype(np.float32).astype(f.np)
    return wide.astype(f.np)


def transcendental(op: Op, f: Layout, fn: Kernel, x: Value) -> Value:
    """Exp2, Log2 or Sin of a set."""
    if op is Op.SIN and isinstance(x, Loose):
        return _sin(f, fn, x)
    if not isinstance(x, Loose):
        y = fn(x)
        fixed = EXACT[op](x, y) | ~np.isfinite(y)
        if fixed.all():
            return y
        rows = np.stack([y, y, y])
        widen(f, rows, np.broadcast_to(fixed, rows.shape), f.ulps)
        return Loose(f, _floored(op, rows))
    rows = fn(x.rows)
    fixed = (EXACT[op](x.rows, rows) & x.exact()) | ~np.isfinite(rows)
    widen(f, rows, fixed, f.ulps)
    out = Loose(f, _floored(op, rows))
    hard = _special(op, f, rows, x)
    if hard.any():
        where = np.flatnonzero(hard)
        patch(out, where, _by_pieces(op, f, fn, pick(f, x, out.shape, where)))
    lost = anywhere([x], out.shape)
    if lost is not None:
        mark_any(out, lost)
    return out


def _floored(op: Op, rows: Array) -> Array:
    if op in FLOOR:
        low = rows[0] < 0
        if low.any():
            rows[0] = np.where(low, np.zeros((), rows.dtype), rows[0])
    return rows


def _special(op: Op, f: Layout, rows: Array, x: Loose) -> Array:
    """Elements with flags, or with NaN at one end only (Log2 across zero, e4m3 overflow)."""
    nan = np.isnan(rows)
    hard = nan.any(0) & ~x.exact()
    if x.flags is not None:
        hard = hard | ((x.flags != 0) & ((x.flags & ANY) == 0))
    return np.asarray(hard)


def _by_pieces(op: Op, f: Layout, fn: Kernel, x: Loose) -> Loose:
    """Monotone ops on each piece of a 1-D set."""
    values, present = cut(f, x)
    y = fn(values)
    over = np.isnan(y) & ~np.isnan(values) if not f.dtype.has_inf else None
    flags = np.zeros(x.shape, np.uint8)
    nan = np.isnan(y)
    flags |= np.where((nan.any(1) & present).any(0), NAN, 0).astype(np.uint8)
    if over is not None and op is Op.EXP2:
        y = np.where(over, np.array(f.max).astype(f.np), y)
        nan = np.isnan(y)
    lo_row, hi_row = y[:, 0].copy(), y[:, 1].copy()
    rows = np.stack([lo_row, lo_row, hi_row])
    args = np.stack([values[:, 0], values[:, 0], values[:, 1]])
    point = same_bits(f, args[0], args[2])
    widen(f, rows, (EXACT[op](args, rows) & point) | ~np.isfinite(rows), f.ulps)
    rows = _floored(op, rows)
    lo, hi = keys(f, rows[0]).astype(np.int64), keys(f, rows[2]).astype(np.int64)
    top = f.key_max
    use = present & ~nan.any(1)
    most = np.iinfo(np.int64).max
    for key, flag in ((top + 1, PINF), (-top - 2, NINF), (0, PZERO), (-1, NZERO)):
        point = use & (lo == key) & (hi == key)
        flags |= np.where(point.any(0), flag, 0).astype(np.uint8)
        use = use & ~point
    low = np.where(use, lo, most).min(0)
    high = np.where(use, hi, -most).max(0)
    return compose(f, low, high, fn(x.best), flags)


def _sin(f: Layout, fn: Kernel, x: Loose) -> Loose:
    """Monotone between the extremes; an extreme inside puts 1 or -1 into the hull; far ends give [-1, 1]."""
    y = fn(x.rows)
    lo, hi = np.minimum(y[0], y[2]), np.maximum(y[0], y[2])
    exact = x.exact()
    a, b = x.rows[0].astype(np.float64), x.rows[2].astype(np.float64)
    wide = ~((b - a) < _TURN) | (np.abs(a) > 1e5) | (np.abs(b) > 1e5)
    slack = 1e-9
    top = wide | _contains(a, b, np.pi / 2, slack)
    low = wide | _contains(a, b, -np.pi / 2, slack)
    one = np.ones((), y.dtype)
    rows = np.stack([np.where(low & ~exact, -one, lo), y[1], np.where(top & ~exact, one, hi)])
    fixed = EXACT[Op.SIN](x.rows, rows) & exact
    widen(f, rows, fixed, f.ulps)
    out = Loose(f, rows)
    infinite = ~exact & (np.isinf(a) | np.isinf(b))
    flags = np.where(infinite, NAN, 0).astype(np.uint8)
    if x.flags is not None:
        flags |= np.where(x.flags & (NAN | PINF | NINF), NAN, 0).astype(np.uint8)
        zero = (x.flags & (PZERO | NZERO)) != 0
        flags |= x.flags & (PZERO | NZERO | ANY)
        flags[zero & np.isnan(rows[1])] |= NAN
    if infinite.any():
        rows[0] = np.where(infinite, -one, rows[0])
        rows[2] = np.where(infinite, one, rows[2])
        widen(f, rows, np.broadcast_to(~infinite, rows.shape), f.ulps)
    if flags.any():
        out.flags = flags
    return out


def _contains(a: Array, b: Array, point: float, slack: float) -> Array:
    """Where [a, b] holds point + k * 2 pi for some k, up to `slack`."""
    k = np.ceil((a - point - slack) / _TURN)
    return np.asarray(point + k * _TURN <= b + slack)
