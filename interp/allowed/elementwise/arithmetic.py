"""Float arithmetic on sets.

Rounding to nearest is monotone. So the rounded ends of an exact interval enclose every rounded value. Each op maps the three rows
(lo, best, hi) of its operands in one call. A few elements need more: infinities, NaN, a zero whose sign matters, a pole inside.
They are recomputed piece by piece, and lists of points point by point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.allowed.elementwise.discrete import find_anything_elements, has_points, list_results_in_place_if_operands_listed
from uops.interp.allowed.elementwise.pieces import evaluate_piece_corners
from uops.interp.allowed.layout import Array, ArrayKernel, DTypeLayout
from uops.interp.allowed.value import (
    ANY,
    NZERO,
    PZERO,
    ArrayOrSets,
    SetArray,
    broadcast_and_take_flat_elements,
    scatter_elements_into,
    writable_copy,
)
from uops.interp.ops.elementwise import KERNELS
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

#: (kernel, operands with rows leading, which operands have rows) -> result rows
RowRule = Callable[[ArrayKernel, list[Array], list[bool]], Array]
#: Elements to recompute by pieces: results that are not finite or zero, and last operands of both signs.
NONFINITE, ZERO, SIGN = 1, 2, 4


def _apply_increasing(kernel: ArrayKernel, x: list[Array], has_rows: list[bool]) -> Array:
    """Evaluate an op that increases in each operand."""
    return kernel(*x)


def _apply_decreasing(kernel: ArrayKernel, x: list[Array], has_rows: list[bool]) -> Array:
    """Evaluate an op of one operand that decreases in it."""
    return kernel(x[0])[::-1]


def _apply_sub(kernel: ArrayKernel, x: list[Array], has_rows: list[bool]) -> Array:
    """Evaluate Sub, which increases in its first operand and decreases in its second."""
    return kernel(x[0], x[1][::-1] if has_rows[1] else x[1])


def _compute_monotone_rows_from_operand_ends(kernel: ArrayKernel, operand_rows: list[Array], is_set: list[bool]) -> Array:
    """Evaluate Mul or Div, whose extremes lie at corners."""
    if is_set[0] and is_set[1]:
        a, b = operand_rows[0][[0, 0, 2, 2, 1]], operand_rows[1][[0, 2, 0, 2, 1]]
        corners = kernel(a, b)
        out = np.empty((3, *corners.shape[1:]), corners.dtype)
        np.minimum.reduce(corners[:4], axis=0, out=out[0, ...])
        np.maximum.reduce(corners[:4], axis=0, out=out[2, ...])
        out[1] = corners[4]
        return out
    rows = kernel(operand_rows[0], operand_rows[1])
    out = np.empty_like(rows)
    np.minimum(rows[0], rows[2], out=out[0, ...])
    np.maximum(rows[0], rows[2], out=out[2, ...])
    out[1] = rows[1]
    return out


def _apply_mulacc_at_corners(kernel: ArrayKernel, operand_rows: list[Array], is_set: list[bool]) -> Array:
    """Evaluate Mulacc, whose extremes lie at corners of the product and ends of the addend."""
    a = operand_rows[0][[0, 0, 2, 2, 1]] if is_set[0] else operand_rows[0]
    b = operand_rows[1][[0, 2, 0, 2, 1]] if is_set[1] else operand_rows[1]
    low, high = (
        (operand_rows[2][[0, 0, 0, 0, 1]], operand_rows[2][[2, 2, 2, 2, 1]]) if is_set[2] else (operand_rows[2], operand_rows[2])
    )
    if not (is_set[0] or is_set[1]):
        return kernel(operand_rows[0], operand_rows[1], operand_rows[2])
    lows, highs = kernel(a, b, low), kernel(a, b, high)
    return np.stack([np.minimum.reduce(lows[:4], axis=0), lows[4], np.maximum.reduce(highs[:4], axis=0)])


#: op -> its evaluation on rows, and which elements need pieces
RULES: dict[Op, tuple[RowRule, int]] = {
    Op.ADD: (_apply_increasing, NONFINITE),
    Op.SUB: (_apply_sub, NONFINITE),
    Op.NEG: (_apply_decreasing, 0),
    Op.MUL: (_compute_monotone_rows_from_operand_ends, NONFINITE | ZERO),
    Op.DIV: (_compute_monotone_rows_from_operand_ends, NONFINITE | ZERO | SIGN),
    Op.RECIP: (_apply_decreasing, NONFINITE | ZERO | SIGN),
    Op.SQRT: (_apply_increasing, NONFINITE),
    Op.MAX: (_apply_increasing, NONFINITE),
    Op.MULACC: (_apply_mulacc_at_corners, NONFINITE | ZERO),
}


def apply_float_arithmetic_to_sets(op: Op, f: DTypeLayout, kernel: ArrayKernel, operands: Sequence[ArrayOrSets]) -> ArrayOrSets:
    """Return the set of an op of `RULES` on floats of which some are sets."""
    rule, checks = RULES[op]
    rank = max(len(v.shape) for v in operands)
    has_rows = [isinstance(v, SetArray) for v in operands]
    rows = [align_set_rows_keeping_plain_arrays(v, rank) for v in operands]
    out = SetArray(f, rule(kernel, rows, has_rows))
    doubtful = _find_elements_that_need_pieces(checks, out.rows, rows, operands)
    if doubtful is not None:
        out = writable_copy(out)
        recompute_by_pieces(op, f, kernel, operands, out, doubtful)
    propagate_anything(out, operands)
    if has_points(operands):
        out = list_results_in_place_if_operands_listed(f, kernel, operands, [f] * len(operands), writable_copy(out))
    if op is Op.MAX:
        out = allow_either_zero_in_max(f, operands, out)
    return out


def align_set_rows_keeping_plain_arrays(v: ArrayOrSets, rank: int) -> Array:
    """Return a value ready to broadcast: rows get their axis in front of `rank` axes, an array stays as it is."""
    if not isinstance(v, SetArray):
        return v
    rows = v.rows
    return rows if rows.ndim == rank + 1 else rows.reshape(3, *(1,) * (rank + 1 - rows.ndim), *rows.shape[1:])


def _find_elements_that_need_pieces(
    check_flags: int, result_rows: Array, operand_rows: list[Array], operands: Sequence[ArrayOrSets]
) -> Array | None:
    """Return where the result rows `result_rows` may be wrong; None if nowhere."""
    doubtful: Array | None = None
    if check_flags & NONFINITE:
        finite = np.isfinite(result_rows)
        if not finite.all():
            doubtful = np.asarray(~finite.all(0))
    if check_flags & ZERO and not result_rows.all():
        zero = np.asarray((result_rows == 0).any(0))
        doubtful = zero if doubtful is None else doubtful | zero
    if check_flags & SIGN and isinstance(operands[-1], SetArray):
        sign = np.signbit(operand_rows[-1])
        mixed = sign[0] != sign[2]
        if mixed.any():
            mixed = np.broadcast_to(mixed, result_rows.shape[1:])
            doubtful = mixed if doubtful is None else doubtful | mixed
    if doubtful is not None:
        exact = np.ones((), np.bool_)
        for v in operands:
            if isinstance(v, SetArray):
                exact = exact & v.exact_mask()
        doubtful = doubtful & ~exact
    for v in operands:
        if isinstance(v, SetArray) and v.flags is not None:
            flagged = np.broadcast_to((v.flags != 0) & ((v.flags & ANY) == 0), result_rows.shape[1:])
            doubtful = flagged if doubtful is None else doubtful | flagged
    return doubtful if doubtful is not None and doubtful.any() else None


def recompute_by_pieces(
    op: Op, f: DTypeLayout, kernel: ArrayKernel, operands: Sequence[ArrayOrSets], out: SetArray, needs_pieces: Array
) -> None:
    """Recompute the doubtful elements of `out` by pieces, in place."""
    positions = np.flatnonzero(needs_pieces)
    wide = None if f.dtype.has_inf else KERNELS[op][dt.float32]
    taken = [broadcast_and_take_flat_elements(f, v, out.shape, positions) for v in operands]
    scatter_elements_into(out, positions, evaluate_piece_corners(f, kernel, taken, wide))


def propagate_anything(out: SetArray, operands: Sequence[ArrayOrSets]) -> None:
    """Allow anything in `out` where some operand allows it, in place."""
    anything = find_anything_elements(operands, out.shape)
    if anything is not None:
        mark_anything(out, anything)


def mark_anything(out: SetArray, where: Array) -> None:
    """Allow anything in `out` at `where`, in place."""
    out.flags = np.where(where, np.uint8(ANY), 0 if out.flags is None else out.flags).astype(np.uint8)
    if out.is_listed is not None:
        out.is_listed = out.is_listed & ~where


def allow_either_zero_in_exact_max(f: DTypeLayout, a: Array, b: Array, best: Array) -> ArrayOrSets:
    """Return the Max of exact operands: of two zeros either zero (R11)."""
    if best.all():
        return best
    either_zero = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    if not either_zero.any():
        return best
    return SetArray(f, _extend_zero_ends_to_both_zeros(np.stack([best, best, best]), either_zero))


def allow_either_zero_in_max(f: DTypeLayout, operands: Sequence[ArrayOrSets], out: SetArray) -> SetArray:
    """Allow either zero in a Max where both operands may be zeros, of different signs, and the result may be a zero (R11)."""
    if not ((out.rows == 0).any() or out.flags is not None):
        return out
    (a_minus, a_plus), (b_minus, b_plus) = (_find_minus_and_plus_zeros(v) for v in operands)
    flagged_zero = np.zeros((), np.bool_) if out.flags is None else (out.flags & (PZERO | NZERO)) != 0
    either_zero = np.broadcast_to((a_minus & b_plus) | (a_plus & b_minus), out.shape)
    either_zero = either_zero & ((out.rows == 0).any(0) | flagged_zero)
    if not either_zero.any():
        return out
    out = writable_copy(out)
    out.interval = _extend_zero_ends_to_both_zeros(out.rows, either_zero)
    if out.flags is not None:
        out.flags = np.where(either_zero & flagged_zero, out.flags | (PZERO | NZERO), out.flags).astype(np.uint8)
    if out.is_listed is not None:
        out.is_listed = out.is_listed & ~either_zero
    return out


def _find_minus_and_plus_zeros(v: ArrayOrSets) -> tuple[Array, Array]:
    """Return where the set of `v` holds -0.0, and where it holds +0.0."""
    rows = v.rows if isinstance(v, SetArray) else np.stack([v, v, v])
    lo, hi = rows[0], rows[2]
    inside = (lo <= 0) & (hi >= 0)
    minus = inside & (np.signbit(lo))
    plus = inside & (~np.signbit(hi))
    if isinstance(v, SetArray) and v.flags is not None:
        return minus | ((v.flags & NZERO) != 0), plus | ((v.flags & PZERO) != 0)
    return minus, plus


def _extend_zero_ends_to_both_zeros(rows: Array, where: Array) -> Array:
    """Return rows whose zero ends at `where` are extended to both zeros."""
    rows = rows.copy()
    zero = np.zeros((), rows.dtype)
    rows[0] = np.where(where & (rows[0] == 0), -zero, rows[0])
    rows[2] = np.where(where & (rows[2] == 0), zero, rows[2])
    return rows
