"""The core level: what the seed's text itself fixes (P3). A core set is the strict set and more.

Each row of `EXTRA` widens the strict set of one op; a row's decomposition is evaluated by the same rules and united with it. With
flush to zero (R19) every operand and result of float arithmetic may have its subnormals replaced by zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from uops.interp.allowed.elementwise.arithmetic import mark_any
from uops.interp.allowed.elementwise.flush import flushed
from uops.interp.allowed.elementwise.transcendental import stored, widen
from uops.interp.allowed.layout import LAYOUT, Array, Layout
from uops.interp.allowed.overlay import Overlay, Rule, Rules
from uops.interp.allowed.rules import SPARKS, STRICT, TABLE, apply, convert, unite
from uops.interp.allowed.value import ANY, NAN, Loose, Value, anything, as_loose, best_of, owned, spread
from uops.interp.tensor.scope import Scope
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU as ALU_OPS
from uops.spec.ir.ops import COMPARE, Op

#: (op, layout of the operands, operands, the strict set) -> the core set
Extra = Callable[[Op, Layout, Sequence[Value], Value], Value]
#: R17, core: ulps of Exp2, Log2 and Sin; the absolute error of Sin; ulps of the derived bound of Mul(A, Recip(B)), which is 2u +
#: u^2.
ULPS, SIN_ERROR, DIV_ULPS = 4, 2.0**-20, 2


def _any_where(value: Value, f: Layout, where: Array) -> Value:
    """*any* at `where`."""
    where = np.broadcast_to(where, value.shape)
    if not where.any():
        return value
    if not isinstance(value, Loose):
        return anything(f, value, where)
    out = owned(value)
    mark_any(out, where)
    return out


def _members(v: Value, test: Callable[[Array], Array]) -> Array:
    """Where some point of an integer set passes `test`."""
    if not isinstance(v, Loose):
        return np.asarray(test(v))
    found: Array = np.asarray(test(v.points).any(0))
    lost = v.any()
    return found if lost is None else found | lost


def _may_be_nan(v: Value) -> Array:
    if not isinstance(v, Loose):
        return np.isnan(v)
    found: Array = np.asarray(np.isnan(v.rows).any(0))
    return found if v.flags is None else found | ((v.flags & (NAN | ANY)) != 0)


def _divided(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R03: any value where the divisor may be zero."""
    return _any_where(strict, f, _members(values[1], lambda x: x == 0))


def _shifted(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R06: any value for a count at or beyond the width, read as unsigned."""
    bits = f.dtype.bits
    return strict if not bits else _any_where(strict, f, _members(values[1], lambda x: (x < 0) | (x >= bits)))


def _greatest(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R11: NaN handling is free, so that the other operand may come out."""
    out = strict
    for k, v in enumerate(values):
        nan = np.broadcast_to(_may_be_nan(v), strict.shape)
        if nan.any():
            other = spread(values[1 - k], strict.shape)
            out = unite(f, out, apply(Op.WHERE, f, (nan, other, out)))
    return out


def _ordered(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R13: CmpGe and CmpLe of NaN are either."""
    nan = np.broadcast_to(_may_be_nan(values[0]) | _may_be_nan(values[1]), strict.shape)
    if not nan.any():
        return strict
    bool_ = LAYOUT[dt.bool_]
    return unite(bool_, strict, best_of(strict) ^ nan)


def _wider(f: Layout, value: Value, ulps: int) -> Value:
    """The interval of a float set moved outward by `ulps` spacings, zeros and what is not finite apart."""
    out = owned(as_loose(f, value))
    rows = out.rows
    widen(f, rows, (rows == 0) | ~np.isfinite(rows), ulps)
    return Loose(f, rows, out.flags)


def _quotient(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R16: within the bound of Mul(A, Recip(B)), and that itself."""
    product = apply(Op.MUL, f, (values[0], apply(Op.RECIP, f, values[1:])))
    return unite(f, _wider(f, strict, DIV_ULPS), product)


def _root(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R16: Exp2(0.5 * Log2(A)) with core's Exp2 and Log2."""
    half = apply(Op.MUL, f, (core(Op.LOG2, f, values), np.array(0.5).astype(f.np)))
    return unite(f, strict, core(Op.EXP2, f, (half,)))


def _power(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R18: Exp2(Log2(A) * B) with core's Exp2 and Log2."""
    scaled = apply(Op.MUL, f, (core(Op.LOG2, f, values[:1]), values[1]))
    return unite(f, strict, core(Op.EXP2, f, (scaled,)))


def _approximate(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R17: 4 ulp, exact points no more than others."""
    return _wider(f, strict, ULPS - f.ulps) if f.ulps < ULPS else strict


def _sine(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """R17: 4 ulp and 2^-20."""
    out = owned(as_loose(f, _approximate(op, f, values, strict)))
    rows = out.rows
    for row, sign in ((0, -1.0), (2, 1.0)):
        wide = rows[row].astype(np.float64) + sign * SIN_ERROR
        rows[row] = np.where(np.isfinite(rows[row]), stored(f, wide), rows[row])
    return Loose(f, rows, out.flags)


def _unfused(op: Op, f: Layout, values: Sequence[Value], strict: Value) -> Value:
    """The decomposition Add(Mul(A, B), C) rounds twice."""
    return unite(f, strict, apply(Op.ADD, f, (apply(Op.MUL, f, values[:2]), values[2])))


def _float(rule: Extra) -> Extra:
    """A row that concerns floats only."""
    return lambda op, f, values, strict: rule(op, f, values, strict) if f.is_float else strict


# fmt: off
EXTRA: dict[Op, Extra] = {
    Op.IDIV: _divided, Op.MOD: _divided,
    Op.SHL: _shifted, Op.SHR: _shifted,
    Op.MAX: _float(_greatest),
    Op.CMPGE: _float(_ordered), Op.CMPLE: _float(_ordered),
    Op.DIV: _quotient, Op.SQRT: _root, Op.POW: _power, Op.MULACC: _float(_unfused),
    Op.EXP2: _approximate, Op.LOG2: _approximate, Op.SIN: _sine,
}
# fmt: on
#: Float ops that compute: their operands and results may be flushed, and an fp8 result may saturate.
COMPUTING = frozenset(ALU_OPS - {Op.WHERE, Op.CAST, Op.THREEFRY, Op.NOT})


def core(op: Op, f: Layout, values: Sequence[Value], ftz: bool = False) -> Value:
    """The core set of an elementwise op on operands of layout `f`."""
    if ftz and f.is_float and op in COMPUTING:
        values = [flushed(f, v) for v in values]
    strict = apply(op, f, values)
    extra = EXTRA.get(op)
    out = strict if extra is None else extra(op, f, values, strict)
    if f.np.itemsize == 1 and f.is_float and op in COMPUTING and op not in COMPARE:
        out = _saturated(f, out, values)
    if ftz and f.is_float and op in COMPUTING and op not in COMPARE:
        out = flushed(f, out)
    return out


def _saturated(f: Layout, out: Value, sources: Sequence[Value]) -> Value:
    """R15: where fp8 overflows, the greatest finite value may stand instead, of either sign where the sign is lost in NaN."""
    rows = out.rows if isinstance(out, Loose) else np.broadcast_to(out, (3, *out.shape))
    over = ~np.isfinite(rows).all(0)
    if isinstance(out, Loose) and out.flags is not None:
        over = over | (out.flags != 0)
    for v in sources:
        over = over & ~np.broadcast_to(np.isnan(best_of(v)), out.shape)
    if not over.any():
        return out
    best = best_of(out)
    top = np.array(f.max).astype(f.np)
    minus = np.signbit(best) | ~np.isfinite(best) & ~f.dtype.has_inf
    plus = ~np.signbit(best) | ~np.isfinite(best) & ~f.dtype.has_inf
    out = unite(f, out, np.where(over & plus, top, best))
    return unite(f, out, np.where(over & minus, -top, best))


def _cast(o: Overlay, scope: Scope, u: UOp, ftz: bool) -> Value:
    f, r = LAYOUT[u.src[0].dtype], LAYOUT[u.dtype]
    v = o.value(scope, u.src[0])
    if ftz and f.is_float and r.is_float:
        v = flushed(f, v)
    out = convert(f, r, v)
    if r.is_float:
        out = _saturated(r, out, (v,) if f.is_float else ()) if r.np.itemsize == 1 else out
        return flushed(r, out) if ftz and f.is_float else out
    if f.is_float and r.dtype is not dt.bool_:
        out = _any_where(out, r, _out_of_range(r, v))
    return out


def _out_of_range(r: Layout, v: Value) -> Array:
    """R15: a value that truncates to no value of the target, or NaN."""
    rows = v.rows if isinstance(v, Loose) else v[None]
    wide = np.trunc(rows.astype(np.float64))
    low, high = (-np.inf, np.inf) if r.dtype is dt.index else (float(r.dtype.min), float(r.dtype.max) + (r.dtype.bits == 64))
    bad = ~((wide >= low) & ((wide < high) if r.dtype.bits == 64 else (wide <= high))).all(0)
    if isinstance(v, Loose) and v.flags is not None:
        bad = bad | (v.flags != 0)
    return np.asarray(bad)


def _alu_rule(ftz: bool) -> Rule:
    def rule(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
        f = LAYOUT[u.src[1].dtype if u.op is Op.WHERE else u.src[0].dtype]
        values = [o.value(scope, s) for s in u.src]
        return core(u.op, f, values, ftz)

    return rule


def _sum_rule(ftz: bool) -> Rule:
    """Contraction, seen by the strict rule, beside the flushed sum."""

    def rule(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
        found = TABLE[u.op](o, scope, u, cell)
        if not u.dtype.is_float or not (ftz or u.dtype.bits == 8):
            return found
        f = LAYOUT[u.dtype]
        plain = core(u.op, f, [o.value(scope, s) for s in u.src], ftz)
        return plain if found is None else unite(f, plain, found)

    return rule


def _reduce_rule(ftz: bool) -> Rule:
    """Each of n operands and results that is flushed moves a sum by less than the least normal value; a flushed factor makes a
    product zero. Max passes NaN on or not (R11)."""

    def rule(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
        strict = TABLE[Op.REDUCE](o, scope, u, cell)
        if not u.dtype.is_float or not u.arg.axes or cell.size == 0:
            return strict
        f, v = LAYOUT[u.dtype], o.value(scope, u.src[0])
        out: Value = cell if strict is None else strict
        if u.arg.op is Op.MAX:
            out = _reduced_max(f, v, u.arg.axes, out)
        if f.np.itemsize == 1 and u.arg.op is not Op.MAX:
            out = _saturated(f, out, ())
        if ftz and v.shape and 0 not in v.shape:
            out = _flushed_reduce(f, u.arg.op, v, out)
        return out

    return rule


def _reduced_max(f: Layout, v: Value, axes: tuple[int, ...], strict: Value) -> Value:
    """R11: with NaN among the terms, any of them or the greatest of the rest."""
    nan = _may_be_nan(v)
    if not nan.any():
        return strict
    some = np.logical_or.reduce(nan, axis=axes, keepdims=True)
    return _any_where(strict, f, some)


def _flushed_reduce(f: Layout, op: Op, v: Value, out: Value) -> Value:
    if op is Op.MAX:
        return flushed(f, out)
    least = 2.0**f.emin
    out = owned(as_loose(f, out))
    rows = out.rows
    if op is Op.ADD:
        slack = 2.0 * least * (best_of(v).size // max(1, rows[1].size))
        for row, sign in ((0, -slack), (2, slack)):
            rows[row] = np.where(np.isfinite(rows[row]), stored(f, rows[row].astype(np.float64) + sign), rows[row])
        return flushed(f, Loose(f, rows, out.flags))
    small = np.abs(best_of(v).astype(np.float64))
    if not ((small < least) & (small > 0)).any() and np.multiply.reduce(np.minimum(small, 1.0), axis=None) > least:
        return flushed(f, out)
    zero = np.zeros((), f.np)
    return unite(f, out, np.where(np.isfinite(rows[1]), np.copysign(zero, rows[1].astype(np.float32)).astype(f.np), rows[1]))


@cache
def rules_of(level: str, ftz: bool) -> Rules:
    """The rules of a level; `ftz` belongs to core."""
    if level == "strict":
        if ftz:
            raise ValueError("flush to zero is a deviation of the core level (R19)")
        return STRICT
    if level != "core":
        raise ValueError(f"no level {level!r}: strict or core")
    table = dict(TABLE)
    rule = _alu_rule(ftz)
    table.update(dict.fromkeys(ALU_OPS, rule))
    table.update({Op.ADD: _sum_rule(ftz), Op.SUB: _sum_rule(ftz), Op.REDUCE: _reduce_rule(ftz)})
    table[Op.CAST] = lambda o, scope, u, cell: _cast(o, scope, u, ftz)
    return Rules(table, SPARKS | frozenset(EXTRA) | {Op.CAST} | COMPUTING)
