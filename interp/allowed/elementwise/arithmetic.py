"""Float arithmetic on sets: rounding to nearest is monotone, so the rounded ends of an exact interval enclose every rounded value.

Each op maps the three rows (lo, best, hi) of its operands in one call of the plain meaning; the few elements where that is not
enough (infinities, NaN, a zero whose sign matters, a pole inside) are recomputed piece by piece, and lists of points point by
point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.allowed.elementwise.discrete import anywhere, refine, refined
from uops.interp.allowed.elementwise.pieces import corners
from uops.interp.allowed.layout import Array, Layout
from uops.interp.allowed.value import ANY, NZERO, PZERO, Loose, Value, owned, patch, pick
from uops.interp.ops.elementwise import KERNELS
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

Kernel = Callable[..., Array]
#: (kernel, operands with rows leading, which operands have rows) -> result rows
RowRule = Callable[[Kernel, list[Array], list[bool]], Array]
NONFINITE, ZERO, SIGN = 1, 2, 4  # which results ask for pieces


def _monotone(fn: Kernel, x: list[Array], loose: list[bool]) -> Array:
    return fn(*x)


def _falling(fn: Kernel, x: list[Array], loose: list[bool]) -> Array:
    return fn(x[0])[::-1]


def _difference(fn: Kernel, x: list[Array], loose: list[bool]) -> Array:
    return fn(x[0], x[1][::-1] if loose[1] else x[1])


def _product(fn: Kernel, x: list[Array], loose: list[bool]) -> Array:
    """Mul and Div: an extreme lies at a corner."""
    if loose[0] and loose[1]:
        a, b = x[0][[0, 0, 2, 2, 1]], x[1][[0, 2, 0, 2, 1]]
        p = fn(a, b)
        out = np.empty((3, *p.shape[1:]), p.dtype)
        np.minimum.reduce(p[:4], axis=0, out=out[0, ...])
        np.maximum.reduce(p[:4], axis=0, out=out[2, ...])
        out[1] = p[4]
        return out
    p = fn(x[0], x[1])
    out = np.empty_like(p)
    np.minimum(p[0], p[2], out=out[0, ...])
    np.maximum(p[0], p[2], out=out[2, ...])
    out[1] = p[1]
    return out


def _fused(fn: Kernel, x: list[Array], loose: list[bool]) -> Array:
    a = x[0][[0, 0, 2, 2, 1]] if loose[0] else x[0]
    b = x[1][[0, 2, 0, 2, 1]] if loose[1] else x[1]
    low, high = (x[2][[0, 0, 0, 0, 1]], x[2][[2, 2, 2, 2, 1]]) if loose[2] else (x[2], x[2])
    p, q = fn(a, b, low), fn(a, b, high)
    if not (loose[0] or loose[1]):
        return fn(x[0], x[1], x[2])
    return np.stack([np.minimum.reduce(p[:4], axis=0), p[4], np.maximum.reduce(q[:4], axis=0)])


RULES: dict[Op, tuple[RowRule, int]] = {
    Op.ADD: (_monotone, NONFINITE),
    Op.SUB: (_difference, NONFINITE),
    Op.NEG: (_falling, 0),
    Op.MUL: (_product, NONFINITE | ZERO),
    Op.DIV: (_product, NONFINITE | ZERO | SIGN),
    Op.RECIP: (_falling, NONFINITE | ZERO | SIGN),
    Op.SQRT: (_monotone, NONFINITE),
    Op.MAX: (_monotone, NONFINITE),
    Op.MULACC: (_fused, NONFINITE | ZERO),
}


def arithmetic(op: Op, f: Layout, fn: Kernel, operands: Sequence[Value]) -> Value:
    """The set of a float op of `RULES` where some operand is Loose."""
    rule, doubt = RULES[op]
    rank = max(len(v.shape) for v in operands)
    loose = [isinstance(v, Loose) for v in operands]
    rows = [lifted(v, rank) for v in operands]
    out = Loose(f, rule(fn, rows, loose))
    hard = _doubtful(op, doubt, out.rows, rows, operands)
    if hard is not None:
        out = owned(out)
        redo(op, f, fn, operands, out, hard)
    _spread_any(out, operands)
    if refined(operands):
        out = refine(f, fn, operands, [f] * len(operands), owned(out))
    if op is Op.MAX:
        out = zeros_of_max(f, operands, out)
    return out


def lifted(v: Value, rank: int) -> Array:
    """Rows ready to broadcast: an array stays as it is, rows get their axis in front of `rank` axes."""
    if not isinstance(v, Loose):
        return v
    t = v.rows
    return t if t.ndim == rank + 1 else t.reshape(3, *(1,) * (rank + 1 - t.ndim), *t.shape[1:])


def _doubtful(op: Op, doubt: int, out: Array, rows: list[Array], operands: Sequence[Value]) -> Array | None:
    """Where the rows alone may be wrong, or None."""
    hard: Array | None = None
    if doubt & NONFINITE:
        finite = np.isfinite(out)
        if not finite.all():
            hard = np.asarray(~finite.all(0))
    if doubt & ZERO and not out.all():
        zero = np.asarray((out == 0).any(0))
        hard = zero if hard is None else hard | zero
    if doubt & SIGN and isinstance(operands[-1], Loose):
        sign = np.signbit(rows[-1])
        mixed = sign[0] != sign[2]
        if mixed.any():
            mixed = np.broadcast_to(mixed, out.shape[1:])
            hard = mixed if hard is None else hard | mixed
    if hard is not None:
        exact = np.ones((), np.bool_)
        for v in operands:
            if isinstance(v, Loose):
                exact = exact & v.exact()
        hard = hard & ~exact
    for v in operands:
        if isinstance(v, Loose) and v.flags is not None:
            flagged = np.broadcast_to((v.flags != 0) & ((v.flags & ANY) == 0), out.shape[1:])
            hard = flagged if hard is None else hard | flagged
    return hard if hard is not None and hard.any() else None


def redo(op: Op, f: Layout, fn: Kernel, operands: Sequence[Value], out: Loose, hard: Array) -> None:
    """Recompute the elements in `hard` by pieces, in place."""
    where = np.flatnonzero(hard)
    wide = None if f.dtype.has_inf else KERNELS[op][dt.float32]
    patch(out, where, corners(f, fn, [pick(f, v, out.shape, where) for v in operands], wide))


def _spread_any(out: Loose, operands: Sequence[Value]) -> None:
    lost = anywhere(operands, out.shape)
    if lost is not None:
        mark_any(out, lost)


def mark_any(out: Loose, where: Array) -> None:
    out.flags = np.where(where, np.uint8(ANY), 0 if out.flags is None else out.flags).astype(np.uint8)
    if out.disc is not None:
        out.disc = out.disc & ~where


def exact_max(f: Layout, a: Array, b: Array, best: Array) -> Value:
    """Max of two zeros is either zero (R11)."""
    if best.all():
        return best
    free = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    if not free.any():
        return best
    return Loose(f, _free_zero(np.stack([best, best, best]), free))


def zeros_of_max(f: Layout, operands: Sequence[Value], out: Loose) -> Loose:
    """Where both operands may be zeros, of different signs, and the result a zero, either zero is allowed."""
    if not ((out.rows == 0).any() or out.flags is not None):
        return out
    has = [_has_zero(v) for v in operands]
    free = (has[0][0] & has[1][1]) | (has[0][1] & has[1][0])
    apart = np.zeros((), np.bool_) if out.flags is None else (out.flags & (PZERO | NZERO)) != 0
    free = np.broadcast_to(free, out.shape) & ((out.rows == 0).any(0) | apart)
    if not free.any():
        return out
    out = owned(out)
    out.tri = _free_zero(out.rows, free)
    if out.flags is not None:
        out.flags = np.where(free & apart, out.flags | (PZERO | NZERO), out.flags).astype(np.uint8)
    if out.disc is not None:
        out.disc = out.disc & ~free
    return out


def _has_zero(v: Value) -> tuple[Array, Array]:
    """Where the set of `v` holds -0.0, and +0.0."""
    rows = v.rows if isinstance(v, Loose) else np.stack([v, v, v])
    lo, hi = rows[0], rows[2]
    inside = (lo <= 0) & (hi >= 0)
    minus = inside & (np.signbit(lo))
    plus = inside & (~np.signbit(hi))
    if isinstance(v, Loose) and v.flags is not None:
        return minus | ((v.flags & NZERO) != 0), plus | ((v.flags & PZERO) != 0)
    return minus, plus


def _free_zero(rows: Array, free: Array) -> Array:
    rows = rows.copy()
    zero = np.zeros((), rows.dtype)
    rows[0] = np.where(free & (rows[0] == 0), -zero, rows[0])
    rows[2] = np.where(free & (rows[2] == 0), zero, rows[2])
    return rows
