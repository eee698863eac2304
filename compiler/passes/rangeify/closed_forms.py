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

from collections.abc import Callable, Iterator
from typing import NamedTuple

from uops.compiler.ir.accumulators import accumulator_dtype, reduction_identity
from uops.compiler.ir.affine import build_affine_sum, clamp_index, extract_affine_sum, index_constant
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, substitute
from uops.spec.ir.ops import Op

ZERO, ONE = index_constant(0), index_constant(1)
Simplify = Callable[[UOp], UOp]
#: Return True if an expression depends on a range, also through the index at which a placeholder stands for a value.
Depends = Callable[[UOp, UOp], bool]
#: Comparison -> (the left side is the greater one, equality is excluded).
_BOUNDS = {Op.CMPLT: (False, True), Op.CMPLE: (False, False), Op.CMPGE: (True, False), Op.CMPGT: (True, True)}
_NEGATED = {Op.CMPLT: Op.CMPGE, Op.CMPGE: Op.CMPLT, Op.CMPLE: Op.CMPGT, Op.CMPGT: Op.CMPLE, Op.CMPNE: Op.CMPEQ}


class ClosedForm(NamedTuple):
    """A reduction without its range: `value`, and the one index that contributes, or None if there may be several."""

    value: UOp
    selected_index: UOp | None = None


class GuardedValue(NamedTuple):
    """A term that is `value` where all of `conditions` hold, and the identity elsewhere."""

    conditions: tuple[UOp, ...]
    value: UOp


def find_closed_form(reduce_op: Op, term: UOp, r: UOp, simplify: Simplify, depends: Depends) -> ClosedForm | None:
    """Reduce `term` with `reduce_op` over the range `r` without a loop; None if no form matches.

    The caller substitutes the `selected_index` for `r` in placeholders whose index depends on `r`.
    """
    if reduce_op not in (Op.ADD, Op.MAX) or term.dtype is dt.bool_:
        return None
    guarded = _split_conditions(reduce_op, term)
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


# Terms as guarded values


def _split_conditions(reduce_op: Op, term: UOp) -> GuardedValue:
    """Split the conditions off a term that is the identity unless they hold."""
    conditions: list[UOp] = []
    while (match := _match_condition_and_value(reduce_op, term)) is not None:
        c, term = match
        conditions += _split_conjuncts(c)
    return GuardedValue(tuple(conditions), term)


def _match_condition_and_value(reduce_op: Op, term: UOp) -> tuple[UOp, UOp] | None:
    """Return (condition, value) if the term is the identity unless the condition holds."""
    if term.op is Op.WHERE:
        condition, if_true, if_false = term.src
        if _is_identity(reduce_op, if_false):
            return condition, if_true
        negation = negate_not_or_integer_comparison(condition)
        return (negation, if_false) if _is_identity(reduce_op, if_true) and negation is not None else None
    if reduce_op is not Op.ADD:
        return None
    if term.op is Op.CAST and term.operand.dtype is dt.bool_:
        return term.operand, B.const(1, term.dtype)
    if term.op is Op.MUL and not term.dtype.is_float:
        for mask, value in ((term.lhs, term.rhs), (term.rhs, term.lhs)):
            if mask.op is Op.CAST and mask.operand.dtype is dt.bool_:
                return mask.operand, value
            if mask.op is Op.WHERE and _is_identity(reduce_op, mask.if_false):
                return mask.condition, UOp(Op.MUL, (mask.if_true, value))
    return None


def _is_identity(op: Op, u: UOp) -> bool:
    if u.op is not Op.CONST:
        return False
    return u.arg.value == 0 if op is Op.ADD else u is reduction_identity(op, u.dtype)


def negate_not_or_integer_comparison(condition: UOp) -> UOp | None:
    """Return the operand of a Not, or the opposite comparison of integers; None for other conditions."""
    if condition.op is Op.NOT:
        return condition.operand
    return UOp(_NEGATED[condition.op], condition.src) if condition.op in _NEGATED and not condition.lhs.dtype.is_float else None


def _split_conjuncts(c: UOp) -> Iterator[UOp]:
    pending = [c]
    while pending:
        u = pending.pop()
        if u.op in (Op.AND, Op.MUL) and u.dtype is dt.bool_:
            pending += (u.rhs, u.lhs)
        elif u.op is Op.NOT and (negation := negate_not_or_integer_comparison(u.operand)) is not None:
            pending.append(negation)
        else:
            yield u


# Comparisons, solved for r


class LinearComparison(NamedTuple):
    """A comparison of `factor` * r with `bound`, an index expression that does not depend on r."""

    factor: int
    bound: UOp
    flipped: bool  # `bound` is the left side


def _isolate_range_in_comparison(comparison: UOp, r: UOp, depends: Depends) -> LinearComparison | None:
    """Bring a comparison of integers into the form `factor` * r against a bound, if it has that form."""
    lhs, rhs = comparison.src
    if lhs.dtype.is_float or lhs.dtype is dt.bool_:
        return None
    for flipped, (side, other) in enumerate(((lhs, rhs), (rhs, lhs))):
        if depends(other, r) or (inner := unwrap_exact_index(side)) is None:
            continue
        total = extract_affine_sum(inner)
        factor = total.terms.pop(r, 0)
        left = build_affine_sum(total)
        bound = UOp(Op.SUB, (_as_index(other), left))
        if factor and not depends(left, r) and _fits_int64(bound):
            return LinearComparison(factor, bound, bool(flipped))
    return None


def _fits_int64(u: UOp, margin: int = 0) -> bool:
    """Return True if an index expression, plus and minus `margin`, fits int64, the widest index of a kernel (R08, index dtype)."""
    bounds = u.min_max
    return bounds is not None and dt.int64.min + margin <= bounds[0] and bounds[1] <= dt.int64.max - margin


def _as_index(u: UOp) -> UOp:
    exact = unwrap_exact_index(u)
    return B.cast(u, dt.index) if exact is None else exact


def unwrap_exact_index(u: UOp) -> UOp | None:
    """Return the index expression that the integer `u` is a cast of, if no step of the computation wraps."""
    if u.dtype is dt.index:
        return u
    index = _unwrap_index_modulo_dtype(u)
    if index is None or index.min_max is None:
        return None
    lo, hi = index.min_max
    return index if u.dtype.min <= lo and hi <= u.dtype.max else None


def _unwrap_index_modulo_dtype(u: UOp) -> UOp | None:
    """Return an index expression whose cast to the dtype of `u` is `u`. Casts commute with sums and products (R05, overflow)."""
    if u.op is Op.CONST:
        return index_constant(int(u.arg.value))
    if u.op is Op.CAST:
        operand = u.operand
        return operand if operand.dtype is dt.index else unwrap_exact_index(operand) if operand.dtype in dt.INTS else None
    if u.op in (Op.ADD, Op.SUB, Op.MUL, Op.NEG):
        parts = [_unwrap_index_modulo_dtype(s) for s in u.src]
        return UOp(u.op, tuple(p for p in parts if p is not None)) if None not in parts else None
    return None


# Forms


def _close_by_equality_that_fixes_range(
    reduce_op: Op, value: UOp, conditions: tuple[UOp, ...], r: UOp, simplify: Simplify, depends: Depends
) -> ClosedForm | None:
    """Match an equality among the conditions that fixes r, and evaluate value and other conditions at that index."""
    for k, c in enumerate(conditions):
        solved = _isolate_range_in_comparison(c, r, depends) if c.op is Op.CMPEQ else None
        if solved is None:
            continue
        s = simplify(solved.bound if solved.factor == 1 else UOp(Op.IDIV, (solved.bound, index_constant(solved.factor))))
        if not _fits_int64(s):
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
    if not _fits_int64(count):
        return None
    if reduce_op is Op.MAX:
        return ClosedForm(_guard_with_identity(reduce_op, (UOp(Op.CMPGE, (count, ONE)),), value))
    return ClosedForm(_multiply_by_count(value, simplify(UOp(Op.MAX, (count, ZERO)))))


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
    solved = _isolate_range_in_comparison(condition, r, depends) if condition.op in _BOUNDS else None
    if solved is None:
        return None
    greater, strict = _BOUNDS[condition.op]
    k, bound = solved.factor, solved.bound
    if not _fits_int64(bound, abs(k)):
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


def _multiply_by_count(value: UOp, count: UOp) -> UOp:
    """Return the sum of `count` equal values."""
    d = value.dtype
    if not d.is_float:
        return UOp(Op.MUL, (value, B.cast(count, d)))
    wide = accumulator_dtype(d)
    product = B.cast(UOp(Op.MUL, (B.cast(value, wide), B.cast(count, wide))), d)
    return UOp(Op.WHERE, (UOp(Op.CMPGE, (count, ONE)), product, B.const(0, d)))
