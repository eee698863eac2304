"""The core level: the sets that the seed's text itself fixes (P3). A core set contains the strict set.

Each entry of `CORE_WIDENINGS` widens the strict set of one op. The decomposition in an op's row is evaluated by the same rules
and united with that set. With flush to zero (R19: a backend may declare it), every operand and result of float arithmetic may
have its subnormals replaced by zeros.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uops.interp.allowed.elementwise.arithmetic import mark_anything
from uops.interp.allowed.elementwise.flush import allow_flush_to_zero
from uops.interp.allowed.elementwise.transcendental import narrow_float64_clamping_if_dtype_lacks_inf, widen_by_ulps
from uops.interp.allowed.layout import LAYOUT, Array, DTypeLayout
from uops.interp.allowed.overlay import LevelRules, Overlay, Rule
from uops.interp.allowed.reduce import reduce_add_floats, reduce_max_floats
from uops.interp.allowed.rules import (
    EVALUATED_WHEN_EXACT,
    STRICT,
    STRICT_RULES,
    all_exact,
    apply_op_at_strict_level,
    apply_strict_cast,
    operand_layout,
    unite_sets,
    unite_with_fused_sums,
)
from uops.interp.allowed.value import (
    ANY,
    NAN,
    NINF,
    NZERO,
    PINF,
    PZERO,
    ArrayOrSets,
    SetArray,
    allow_anything,
    as_set_array,
    best_of,
    broadcast_value,
    writable_copy,
)
from uops.interp.tensor.scope import TensorScope
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU as ALU_OPS
from uops.spec.ir.ops import BITWISE, COMPARE, Op

#: (op, layout of the operands, operands, the strict set) -> the core set
CoreWidening = Callable[[Op, DTypeLayout, Sequence[ArrayOrSets], ArrayOrSets], ArrayOrSets]
#: The core bound of Exp2, Log2 and Sin, in ulps (R17).
CORE_ULPS = 4
#: The absolute error that core adds to Sin (R17).
CORE_SIN_ERROR = 2.0**-20
#: The bound of Mul(A, Recip(B)) around A / B, in ulps: its relative error is 2u + u^2.
CORE_DIV_ULPS = 2


def _allow_any_at(value: ArrayOrSets, f: DTypeLayout, where: Array) -> ArrayOrSets:
    """Return `value` with *any* allowed at `where`."""
    where = np.broadcast_to(where, value.shape)
    if not where.any():
        return value
    if not isinstance(value, SetArray):
        return allow_anything(f, value, where)
    out = writable_copy(value)
    mark_anything(out, where)
    return out


def _may_integer_member_pass(int_value: ArrayOrSets, test: Callable[[Array], Array]) -> Array:
    """Return where some member of an integer set passes `test`."""
    if not isinstance(int_value, SetArray):
        return np.asarray(test(int_value))
    satisfied: Array = np.asarray(test(int_value.points).any(0))
    anything = int_value.anything_mask()
    return satisfied if anything is None else satisfied | anything


def _may_be_nan(v: ArrayOrSets) -> Array:
    if not isinstance(v, SetArray):
        return np.isnan(v)
    nan: Array = np.asarray(np.isnan(v.rows).any(0))
    return nan if v.flags is None else nan | ((v.flags & (NAN | ANY)) != 0)


def _allow_any_on_zero_divisor(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets) -> ArrayOrSets:
    """Allow any value where the divisor may be zero (R03: strict gives 0 for Idiv and a for Mod)."""
    return _allow_any_at(strict, f, _may_integer_member_pass(values[1], lambda x: x == 0))


def _allow_any_on_oversized_shift(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets) -> ArrayOrSets:
    """Allow any value for a count, read as unsigned, at or beyond the width (R06)."""
    bits = f.dtype.bits
    return strict if not bits else _allow_any_at(strict, f, _may_integer_member_pass(values[1], lambda x: (x < 0) | (x >= bits)))


def _allow_max_to_ignore_nan(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets) -> ArrayOrSets:
    """Allow the other operand beside a NaN (R11: NaN handling of Max is free)."""
    out = strict
    for k, v in enumerate(values):
        nan = np.broadcast_to(_may_be_nan(v), strict.shape)
        if nan.any():
            other = broadcast_value(values[1 - k], strict.shape)
            out = unite_sets(f, out, apply_op_at_strict_level(Op.WHERE, f, (nan, other, out)))
    return out


def _allow_both_comparison_results_on_nan(
    op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets
) -> ArrayOrSets:
    """Allow both results of CmpGe and CmpLe on NaN (R13)."""
    nan = np.broadcast_to(_may_be_nan(values[0]) | _may_be_nan(values[1]), strict.shape)
    if not nan.any():
        return strict
    bool_ = LAYOUT[dt.bool_]
    return unite_sets(bool_, strict, best_of(strict) ^ nan)


def _widen_nonzero_finite_ends(f: DTypeLayout, value: ArrayOrSets, ulps: int) -> ArrayOrSets:
    """Move the ends of each interval outward by `ulps` spacings; ends that are zero, infinite or NaN stay."""
    out = writable_copy(as_set_array(f, value))
    rows = out.rows
    widen_by_ulps(f, rows, (rows == 0) | ~np.isfinite(rows), ulps)
    return SetArray(f, rows, out.flags)


def _allow_division_by_reciprocal(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets) -> ArrayOrSets:
    """Allow Mul(A, Recip(B)) and all results within its error bound (R16: Div is correctly rounded under strict)."""
    product = apply_op_at_strict_level(Op.MUL, f, (values[0], apply_op_at_strict_level(Op.RECIP, f, values[1:])))
    return unite_sets(f, _widen_nonzero_finite_ends(f, strict, CORE_DIV_ULPS), product)


def _allow_sqrt_via_exp2(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets) -> ArrayOrSets:
    """Allow Exp2(0.5 * Log2(A)) with core's Exp2 and Log2 (R16: Sqrt is correctly rounded under strict)."""
    half = apply_op_at_strict_level(Op.MUL, f, (apply_op_at_core_level(Op.LOG2, f, values), np.array(0.5).astype(f.np)))
    return unite_sets(f, strict, apply_op_at_core_level(Op.EXP2, f, (half,)))


def _allow_pow_via_exp2(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets) -> ArrayOrSets:
    """Allow Exp2(Log2(A) * B) with core's Exp2 and Log2 (R18: Pow is within 2 ulp under strict)."""
    scaled = apply_op_at_strict_level(Op.MUL, f, (apply_op_at_core_level(Op.LOG2, f, values[:1]), values[1]))
    return unite_sets(f, strict, apply_op_at_core_level(Op.EXP2, f, (scaled,)))


def _widen_to_core_ulps(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets) -> ArrayOrSets:
    """Widen the result to 4 ulp, at exact points too (R17: fewer under strict)."""
    return _widen_nonzero_finite_ends(f, strict, CORE_ULPS - f.ulps) if f.ulps < CORE_ULPS else strict


def _widen_sin_to_core_ulps_and_abs_error(
    op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets
) -> ArrayOrSets:
    """Widen the result of Sin to 4 ulp and 2^-20 (R17)."""
    out = writable_copy(as_set_array(f, _widen_to_core_ulps(op, f, values, strict)))
    rows = out.rows
    for row, sign in ((0, -1.0), (2, 1.0)):
        wide = rows[row].astype(np.float64) + sign * CORE_SIN_ERROR
        rows[row] = np.where(np.isfinite(rows[row]), narrow_float64_clamping_if_dtype_lacks_inf(f, wide), rows[row])
    return SetArray(f, rows, out.flags)


def _allow_unfused_mulacc(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], strict: ArrayOrSets) -> ArrayOrSets:
    """Allow the decomposition Add(Mul(A, B), C), which rounds twice."""
    return unite_sets(f, strict, apply_op_at_strict_level(Op.ADD, f, (apply_op_at_strict_level(Op.MUL, f, values[:2]), values[2])))


def _apply_to_floats_only(rule: CoreWidening) -> CoreWidening:
    """Return a widening that leaves sets of other dtypes as they are."""
    return lambda op, f, values, strict: rule(op, f, values, strict) if f.is_float else strict


# fmt: off
#: How the core level widens the strict set of an op.
CORE_WIDENINGS: dict[Op, CoreWidening] = {
    Op.IDIV: _allow_any_on_zero_divisor, Op.MOD: _allow_any_on_zero_divisor,
    Op.SHL: _allow_any_on_oversized_shift, Op.SHR: _allow_any_on_oversized_shift,
    Op.MAX: _apply_to_floats_only(_allow_max_to_ignore_nan),
    Op.CMPGE: _apply_to_floats_only(_allow_both_comparison_results_on_nan),
    Op.CMPLE: _apply_to_floats_only(_allow_both_comparison_results_on_nan),
    Op.DIV: _allow_division_by_reciprocal, Op.SQRT: _allow_sqrt_via_exp2, Op.POW: _allow_pow_via_exp2,
    Op.MULACC: _apply_to_floats_only(_allow_unfused_mulacc),
    Op.EXP2: _widen_to_core_ulps, Op.LOG2: _widen_to_core_ulps, Op.SIN: _widen_sin_to_core_ulps_and_abs_error,
}
# fmt: on
#: Elementwise ops whose sets core does not widen beyond the flushing of subnormals.
NOT_WIDENED = (
    BITWISE
    | (COMPARE - {Op.CMPGE, Op.CMPLE})
    | {
        Op.RECIP,
        Op.TRUNC,
        Op.CAST,
        Op.ADD,
        Op.SUB,
        Op.MUL,
        Op.NEG,
        Op.NOT,
        Op.WHERE,
        Op.THREEFRY,
        Op.MIN,
    }
)  # fmt: skip
#: Float ops that compute: their operands and results may be flushed, and an fp8 result may saturate.
COMPUTING = frozenset(ALU_OPS - {Op.WHERE, Op.CAST, Op.THREEFRY, Op.NOT})


def apply_op_at_core_level(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets], ftz: bool = False) -> ArrayOrSets:
    """Return the core set of an elementwise op on operands of layout `f`; `ftz` allows flush to zero (R19)."""
    if ftz and f.is_float and op in COMPUTING:
        values = [allow_flush_to_zero(f, v) for v in values]
    out = _widen_strict_set_to_core(op, f, values)
    if f.dtype.may_saturate and op in COMPUTING and op not in COMPARE:
        numbers = [_drop_nan_beside_numbers(v) for v in values]
        from_numbers = out if all_exact(values) else _widen_strict_set_to_core(op, f, numbers)
        out = _allow_fp8_saturation(f, out, from_numbers, functools.reduce(np.logical_or, map(_is_always_nan, values)))
    if ftz and f.is_float and op in COMPUTING and op not in COMPARE:
        out = allow_flush_to_zero(f, out)
    return out


def _widen_strict_set_to_core(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets]) -> ArrayOrSets:
    """Return the core set of an elementwise op without flushes and saturation."""
    strict = apply_op_at_strict_level(op, f, values)
    extra = CORE_WIDENINGS.get(op)
    return strict if extra is None else extra(op, f, values, strict)


def _allow_fp8_saturation(f: DTypeLayout, out: ArrayOrSets, from_numbers: ArrayOrSets, is_operand_nan: Array) -> ArrayOrSets:
    """Allow the greatest finite value where an fp8 result overflows, of either sign where NaN hides the sign (R15: no saturation
    under strict).

    `from_numbers` are the results of numbers, and `is_operand_nan` says where a source has none.
    """
    plus, minus = _find_positive_and_negative_overflows(f, as_set_array(f, from_numbers))
    top, best = np.array(f.max).astype(f.np), best_of(out)
    for overflows, greatest in ((plus & ~is_operand_nan, top), (minus & ~is_operand_nan, -top)):
        if overflows.any():
            out = unite_sets(f, out, np.where(overflows, greatest, best))
    return out


def _find_positive_and_negative_overflows(f: DTypeLayout, v: SetArray) -> tuple[Array, Array]:
    """Return where a set has the result of an overflow to each side: an infinity, or NaN for both in a dtype without infinities."""
    flags = np.zeros(v.shape, np.uint8) if v.flags is None else v.flags
    if f.dtype.has_inf:
        return (v.rows[2] == np.inf) | ((flags & PINF) != 0), (v.rows[0] == -np.inf) | ((flags & NINF) != 0)
    is_nan = np.isnan(v.rows).any(0) | ((flags & NAN) != 0)
    return is_nan, is_nan


def _drop_nan_beside_numbers(v: ArrayOrSets) -> ArrayOrSets:
    """Return the sets without NaN, except where NaN is the only member."""
    if not isinstance(v, SetArray):
        return v
    out = writable_copy(v)
    if out.flags is not None:
        out.flags = np.where(np.isnan(out.rows[0]), out.flags, out.flags & ~np.uint8(NAN))
    out.rows[1] = np.where(np.isnan(out.rows[1]), out.rows[0], out.rows[1])
    if out.listed_points is not None:
        out.listed_points = np.where(np.isnan(out.listed_points), out.rows[1], out.listed_points)
    return out


def _is_always_nan(v: ArrayOrSets) -> Array:
    """Return where NaN is the only member of a float set."""
    if not isinstance(v, SetArray):
        return np.isnan(v)
    nan: Array = np.isnan(v.rows[0])
    return nan if v.flags is None else nan & ((v.flags & ~np.uint8(NAN)) == 0)


def _apply_core_cast(overlay: Overlay, scope: TensorScope, u: UOp, ftz: bool) -> ArrayOrSets:
    """Return the core set of a Cast node: fp8 may saturate, and what is out of an integer's range may be any value (R15)."""
    f, r = LAYOUT[u.operand.dtype], LAYOUT[u.dtype]
    v = overlay.set_of_node_loading_reference(scope, u.operand)
    if ftz and f.is_float and (r.is_float or r.dtype is dt.bool_):
        v = allow_flush_to_zero(f, v)
    out = apply_strict_cast(f, r, v)
    if r.is_float:
        if r.dtype.may_saturate:
            from_numbers = apply_strict_cast(f, r, _drop_nan_beside_numbers(v)) if f.is_float else out
            out = _allow_fp8_saturation(r, out, from_numbers, _is_always_nan(v) if f.is_float else np.zeros((), np.bool_))
        return allow_flush_to_zero(r, out) if ftz and f.is_float else out
    if f.is_float and r.dtype is not dt.bool_:
        out = _allow_any_at(out, r, _may_be_nan_or_out_of_range(r, v))
    return out


def _may_be_nan_or_out_of_range(int_layout: DTypeLayout, v: ArrayOrSets) -> Array:
    """Return where a value may be NaN or may truncate to no value of the target (R15)."""
    rows = v.rows if isinstance(v, SetArray) else v[None]
    wide = np.trunc(rows.astype(np.float64))
    low, high = (
        (-np.inf, np.inf)
        if int_layout.dtype is dt.index
        else (float(int_layout.dtype.min), float(int_layout.dtype.max) + (int_layout.dtype.bits == 64))
    )
    outside = ~((wide >= low) & ((wide < high) if int_layout.dtype.bits == 64 else (wide <= high))).all(0)
    if isinstance(v, SetArray) and v.flags is not None:
        outside = outside | (v.flags != 0)
    return np.asarray(outside)


def _make_core_elementwise_rule(ftz: bool) -> Rule:
    """Return the core rule of an elementwise op."""

    def evaluate_alu(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
        values = [overlay.set_of_node_loading_reference(scope, s) for s in u.src]
        return apply_op_at_core_level(u.op, operand_layout(u), values, ftz)

    return evaluate_alu


def _make_core_add_sub_rule(ftz: bool) -> Rule:
    """Return the core rule of Add and Sub: sums and fused sums may be flushed or saturated."""

    def apply_op(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets]) -> ArrayOrSets:
        return apply_op_at_core_level(op, f, values, ftz)

    def unite_core_sums_with_fused_ones(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
        if not u.dtype.is_float or not (ftz or u.dtype.may_saturate):
            return STRICT_RULES[u.op](overlay, scope, u, cell)
        unfused = apply_op(u.op, LAYOUT[u.dtype], [overlay.set_of_node_loading_reference(scope, s) for s in u.src])
        return unite_with_fused_sums(overlay, scope, u, unfused, apply_op)

    return unite_core_sums_with_fused_ones


def _make_core_reduce_rule(ftz: bool) -> Rule:
    """Return the core rule of Reduce.

    Each operand or result that is flushed moves a sum by less than the least normal value. A flushed factor makes a product zero.
    The products in a sum may stay unfused, where flushed factors or saturation put them beyond the rounding that strict allows.
    Max may pass a NaN on or drop it (R11).
    """

    def widen_strict_reduce_or_cell_to_core(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
        strict = STRICT_RULES[Op.REDUCE](overlay, scope, u, cell)
        if not u.dtype.is_float or not u.arg.axes or cell.size == 0:
            return strict
        f, v = LAYOUT[u.dtype], overlay.set_of_node_loading_reference(scope, u.operand)
        out: ArrayOrSets = cell if strict is None else strict
        if u.arg.op is Op.ADD and (ftz or f.dtype.may_saturate) and isinstance(v, SetArray) and 0 not in v.shape:
            factor_pairs = overlay.list_factors_if_moved_or_negated_mul(scope, u.operand)
            out = reduce_add_floats(f, v, u.arg.axes, cell, factor_pairs, may_stay_unfused=True)
        if u.arg.op is Op.MAX:
            out = _allow_any_where_max_meets_nan(f, v, u.arg.axes, out)
        if f.dtype.may_saturate and u.arg.op is not Op.MAX:
            is_operand_nan = np.logical_or.reduce(_is_always_nan(v), axis=u.arg.axes, keepdims=True)
            out = _allow_fp8_saturation(f, out, out, is_operand_nan)
            if math.prod(v.shape) > 2 * cell.size:
                out = _allow_results_of_saturated_parts(f, u.arg.op, out, ~is_operand_nan)
        if ftz and v.shape and 0 not in v.shape:
            out = _widen_reduce_by_flushes(f, u.arg.op, v, u.arg.axes, out)
        return out

    return widen_strict_reduce_or_cell_to_core


def _allow_results_of_saturated_parts(f: DTypeLayout, op: Op, out: ArrayOrSets, has_numbers: Array) -> ArrayOrSets:
    """Allow what follows a partial sum or product that saturates, where a result may overflow: any finite number for a sum, and
    any magnitude with the signs of the overflows for a product (R15).
    """
    v = as_set_array(f, out)
    plus, minus = _find_positive_and_negative_overflows(f, v)
    overflows = (plus | minus) & has_numbers
    if not overflows.any():
        return out
    top, zero, best = np.array(f.max).astype(f.np), np.zeros((), f.np), v.best
    low = np.where(minus | (op is Op.ADD), -top, zero)
    high = np.where(plus | (op is Op.ADD), top, -zero)
    inside = np.where(overflows, high, best)
    return unite_sets(f, out, SetArray(f, np.stack([np.where(overflows, low, best), inside, inside]), None))


def _allow_any_where_max_meets_nan(f: DTypeLayout, v: ArrayOrSets, axes: tuple[int, ...], strict: ArrayOrSets) -> ArrayOrSets:
    """Allow any value where a NaN is among the terms (R11: NaN handling of Max is free)."""
    nan = _may_be_nan(v)
    if not nan.any():
        return strict
    some_nan = np.logical_or.reduce(nan, axis=axes, keepdims=True)
    return _allow_any_at(strict, f, some_nan)


def _widen_reduce_by_flushes(f: DTypeLayout, op: Op, v: ArrayOrSets, axes: tuple[int, ...], out: ArrayOrSets) -> ArrayOrSets:
    """Widen the set `out` of a Reduce of `v` over `axes` by the flushes of its operands and results."""
    if op is Op.MAX:  # a flushed operand is a zero, and of two zeros either one is greatest (R11)
        of_flushed = reduce_max_floats(f, allow_flush_to_zero(f, v), axes, best_of(out))
        return allow_flush_to_zero(f, unite_sets(f, out, of_flushed))
    least = 2.0**f.emin
    out = writable_copy(as_set_array(f, out))
    rows = out.rows
    if op is Op.ADD:
        slack = 2.0 * least * (best_of(v).size // max(1, rows[1].size))
        for row, sign in ((0, -slack), (2, slack)):
            rows[row] = np.where(
                np.isfinite(rows[row]),
                narrow_float64_clamping_if_dtype_lacks_inf(f, rows[row].astype(np.float64) + sign),
                rows[row],
            )
        return allow_flush_to_zero(f, SetArray(f, rows, out.flags))
    sizes = _least_magnitudes(v)
    is_flushed = np.logical_or.reduce((sizes < least) & (sizes > 0), axis=axes, keepdims=True)
    is_flushed |= np.multiply.reduce(np.minimum(sizes, 1.0), axis=axes, keepdims=True) <= least
    if not is_flushed.any():
        return allow_flush_to_zero(f, out)
    low, high, zero = rows[0], rows[2], np.zeros((), f.np)
    is_flushed &= np.isfinite(low) | np.isfinite(high)  # else the product has a NaN or an infinity as a factor
    best = out.best
    united = unite_sets(f, out, np.where(is_flushed & ~np.signbit(high), zero, best))
    return unite_sets(f, united, np.where(is_flushed & np.signbit(low), -zero, best))


def _least_magnitudes(v: ArrayOrSets) -> Array:
    """Return the least magnitude in each float set as float64; 0 in an interval with both signs."""
    if not isinstance(v, SetArray):
        return np.abs(v.astype(np.float64))
    low, high = v.rows[0].astype(np.float64), v.rows[2].astype(np.float64)
    least: Array = np.where(np.signbit(low) != np.signbit(high), 0.0, np.fmin(np.abs(low), np.abs(high)))
    if v.listed_points is not None and v.is_listed is not None:
        least = np.where(v.is_listed, np.fmin.reduce(np.abs(v.listed_points.astype(np.float64))), least)
    return least if v.flags is None else np.where((v.flags & (PZERO | NZERO)) != 0, 0.0, least)


@functools.cache
def check_level_and_ftz_and_select_rules(level: str, ftz: bool) -> LevelRules:
    """Return the rules of a level.

    Raises ValueError for another level than `strict` and `core`, and for `ftz` at the strict level.
    """
    if level == "strict":
        if ftz:
            raise ValueError("ftz=True needs level 'core', got 'strict': flush to zero is a deviation of core (R19)")
        return STRICT
    if level != "core":
        raise ValueError(f"level must be 'strict' or 'core', got {level!r}")
    table = dict(STRICT_RULES)
    rule = _make_core_elementwise_rule(ftz)
    table.update(dict.fromkeys(ALU_OPS, rule))
    table.update(
        {Op.ADD: _make_core_add_sub_rule(ftz), Op.SUB: _make_core_add_sub_rule(ftz), Op.REDUCE: _make_core_reduce_rule(ftz)}
    )
    table[Op.CAST] = lambda overlay, scope, u, cell: _apply_core_cast(overlay, scope, u, ftz)
    return LevelRules(table, EVALUATED_WHEN_EXACT | frozenset(CORE_WIDENINGS) | {Op.CAST} | COMPUTING)
