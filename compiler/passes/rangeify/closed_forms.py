"""Closed forms of reductions over a range.

`find_closed_form(op, term, r, ...)` reduces an expression with `op` over all r in 0 <= r < n, as an expression without r. It gives
None where no form matches. In each form below, v is an expression that does not depend on r, c a condition, and z the identity of
op (for Add, either zero):

    constant    op over r of v                  = v times n (Add), v (Max, for n > 0)
    selected    op over r of (c ? v(r) : z)     where c makes r equal to s: (0 <= s < n and c(s)) ? v(s) : z
    counted     op over r of (c ? v : z)        where c bounds r from both sides, lo <= r < hi: v times max(0, hi - lo) (Add),
                                                lo < hi ? v : z (Max)

A condition is a conjunction of comparisons of integers. Each is a sum of k * r and of terms that do not depend on r. A cast of
index to a machine integer counts as nothing where min_max proves that it does not wrap. A value stays inside the choice that guards
it. So a value that is not selected, such as NaN or infinity, never contributes (R50, gather). A product with a mask is a choice for
integers only. For floats, the results are allowed by R32 (Reduce value). A sum of one term and zeros is that term, up to the sign
of zero. The sum of n equal terms lies within (n - 1)u of n * v, which is computed in float32 or wider and guarded for n = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from uops.compiler.ir.accumulators import accumulator_dtype, reduction_identity
from uops.compiler.ir.affine import clamp_index, index_constant
from uops.compiler.ir.conditions import Depends, fits_int64, isolate_range_in_comparison, split_conditions
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, substitute
from uops.spec.ir.ops import Op

ZERO, ONE = index_constant(0), index_constant(1)
Simplify = Callable[[UOp], UOp]
#: Comparison -> (the left side is the greater one, equality is excluded).
_BOUNDS = {Op.CMPLT: (False, True), Op.CMPLE: (False, False), Op.CMPGE: (True, False), Op.CMPGT: (True, True)}


class ClosedForm(NamedTuple):
    """A reduction without its range: `value`, and the one index that contributes, or None if there may be several."""

    value: UOp
    selected_index: UOp | None = None


def find_closed_form(reduce_op: Op, term: UOp, r: UOp, simplify: Simplify, depends: Depends) -> ClosedForm | None:
    """Reduce `term` with `reduce_op` over the range `r` without a loop; None if no form matches.

    The caller substitutes the `selected_index` for `r` in placeholders whose index depends on `r`.
    """
    if reduce_op not in (Op.ADD, Op.MAX) or term.dtype is dt.bool_:
        return None
    guarded = split_conditions(reduce_op, term)
    dependent = tuple(c for c in guarded.conditions if depends(c, r))
    invariant = tuple(c for c in guarded.conditions if not depends(c, r))
    form = _close_by_equality_that_fixes_range(reduce_op, guarded.value, dependent, r, simplify, depends)
    if form is None and not depends(guarded.value, r):
        form = _close_by_counting_indices_in_bounds(reduce_op, guarded.value, dependent, r, simplify, depends)
    if form is None:
        return None
    return ClosedForm(simplify(_guard_with_identity(reduce_op, invariant, form.value)), form.selected_index)


def _guard_with_identity(reduce_op: Op, conditions: tuple[UOp, ...], value: UOp) -> UOp:
    """Return `value` where all of `conditions` hold, else the identity."""
    for c in conditions:
        value = UOp(Op.WHERE, (c, value, reduction_identity(reduce_op, value.dtype)))
    return value


# Forms


def _close_by_equality_that_fixes_range(
    reduce_op: Op, value: UOp, conditions: tuple[UOp, ...], r: UOp, simplify: Simplify, depends: Depends
) -> ClosedForm | None:
    """Match an equality among the conditions that fixes r, and evaluate value and other conditions at that index."""
    for k, c in enumerate(conditions):
        solved = isolate_range_in_comparison(c, r, depends) if c.op is Op.CMPEQ else None
        if solved is None:
            continue
        s = simplify(solved.bound if solved.factor == 1 else UOp(Op.IDIV, (solved.bound, index_constant(solved.factor))))
        if not fits_int64(s):
            continue
        gates = [UOp(Op.CMPGE, (s, ZERO)), UOp(Op.CMPLT, (s, r.bound))]
        if abs(solved.factor) != 1:
            gates.append(UOp(Op.CMPEQ, (UOp(Op.MOD, (solved.bound, index_constant(solved.factor))), ZERO)))
        others = (*conditions[:k], *conditions[k + 1 :])
        at = {r: s}
        guarded = _guard_with_identity(reduce_op, tuple(substitute(o, at) for o in others), substitute(value, at))
        return ClosedForm(_guard_with_identity(reduce_op, tuple(gates), guarded), s)
    return None


def _close_by_counting_indices_in_bounds(
    reduce_op: Op, value: UOp, conditions: tuple[UOp, ...], r: UOp, simplify: Simplify, depends: Depends
) -> ClosedForm | None:
    """Match conditions that bound r from below and above, and count the indices between the bounds."""
    lo, hi = ZERO, r.bound
    for c in conditions:
        solved = _solve_bound_on_range(c, r, depends)
        if solved is None:
            return None
        if solved.is_lower:
            lo = simplify(UOp(Op.MAX, (lo, solved.bound)))
        else:
            hi = simplify(_build_minimum(hi, solved.bound, simplify))
    count = simplify(UOp(Op.SUB, (hi, lo)))
    if not fits_int64(count):
        return None
    if reduce_op is Op.MAX:
        return ClosedForm(_guard_with_identity(reduce_op, (UOp(Op.CMPGE, (count, ONE)),), value))
    return ClosedForm(_build_sum_of_equal_values(value, simplify(UOp(Op.MAX, (count, ZERO)))))


def _build_minimum(a: UOp, b: UOp, simplify: Simplify) -> UOp:
    is_less = simplify(UOp(Op.CMPLT, (a, b)))
    if is_less.op is Op.CONST:
        return a if is_less.arg.value else b
    return UOp(Op.WHERE, (is_less, a, b))


class RangeBound(NamedTuple):
    """A bound on a range r: r >= `bound` if it `is_lower`, else r < `bound`."""

    is_lower: bool
    bound: UOp


def _solve_bound_on_range(condition: UOp, r: UOp, depends: Depends) -> RangeBound | None:
    """Return the bound that a condition sets on `r`, or None for a condition of another form."""
    solved = isolate_range_in_comparison(condition, r, depends) if condition.op in _BOUNDS else None
    if solved is None:
        return None
    greater, strict = _BOUNDS[condition.op]
    k, bound = solved.factor, solved.bound
    if not fits_int64(bound, abs(k)):
        bound = _clamp_to_range(bound, k, r)
    greater ^= solved.flipped
    if k < 0:
        k, bound, greater = -k, UOp(Op.NEG, (bound,)), not greater
    # k r >= x is r >= ceil(x / k), k r > x is r >= floor(x / k) + 1; the other two comparisons are their negations
    if greater != strict:
        ceiling = bound if k == 1 else UOp(Op.IDIV, (UOp(Op.ADD, (bound, index_constant(k - 1))), index_constant(k)))
        return RangeBound(greater, ceiling)
    floor = bound if k == 1 else UOp(Op.IDIV, (bound, index_constant(k)))
    return RangeBound(greater, UOp(Op.ADD, (floor, ONE)))


def _clamp_to_range(bound: UOp, factor: int, r: UOp) -> UOp:
    """Clamp a bound to just beyond the values of `factor` * r, which does not change the comparison."""
    end = UOp(Op.MUL, (r.bound, index_constant(factor)))
    return clamp_index(bound, *((index_constant(-1), end) if factor > 0 else (end, ONE)))


def _build_sum_of_equal_values(value: UOp, count: UOp) -> UOp:
    """Return the sum of `count` equal values."""
    d = value.dtype
    if not d.is_float:
        return UOp(Op.MUL, (value, B.cast(count, d)))
    wide = accumulator_dtype(d)
    product = B.cast(UOp(Op.MUL, (B.cast(value, wide), B.cast(count, wide))), d)
    return UOp(Op.WHERE, (UOp(Op.CMPGE, (count, ONE)), product, B.const(0, d)))
