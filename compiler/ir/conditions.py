"""Terms under conditions, and comparisons of integers solved for a loop.

`split_conditions` takes the conditions off a term that is the identity of a reduction unless they hold. A condition is a
conjunction of comparisons. `isolate_range_in_comparison` brings one into the form k * r against a bound that does not depend on the
loop r. A cast of index to a machine integer counts as nothing where min_max proves that it does not wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from uops.compiler.ir.accumulators import reduction_identity
from uops.compiler.ir.affine import build_affine_sum, extract_affine_sum, index_constant
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BOOL_CONJUNCTIONS, RING_OPS, Op

#: Return True if an expression depends on a range, also through the index at which a placeholder stands for a value.
Depends = Callable[[UOp, UOp], bool]
_NEGATED = {Op.CMPLT: Op.CMPGE, Op.CMPGE: Op.CMPLT, Op.CMPLE: Op.CMPGT, Op.CMPGT: Op.CMPLE, Op.CMPNE: Op.CMPEQ, Op.CMPEQ: Op.CMPNE}


class GuardedValue(NamedTuple):
    """A term that is `value` where all of `conditions` hold, and the identity elsewhere."""

    conditions: tuple[UOp, ...]
    value: UOp


# Terms as guarded values


def split_conditions(reduce_op: Op, term: UOp) -> GuardedValue:
    """Split the conditions off a term that is the identity unless they hold."""
    conditions: list[UOp] = []
    while (match := _match_value_masked_by_condition(reduce_op, term)) is not None:
        c, term = match
        conditions += _split_conjuncts(c)
    return GuardedValue(tuple(conditions), term)


def _match_value_masked_by_condition(reduce_op: Op, term: UOp) -> tuple[UOp, UOp] | None:
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
        if u.op in BOOL_CONJUNCTIONS and u.dtype is dt.bool_:
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


def isolate_range_in_comparison(comparison: UOp, r: UOp, depends: Depends) -> LinearComparison | None:
    """Bring a comparison of integers into the form `factor` * r against a bound, if it has that form."""
    lhs, rhs = comparison.src
    if lhs.dtype.is_float or lhs.dtype is dt.bool_:
        return None
    for flipped, (side, other) in enumerate(((lhs, rhs), (rhs, lhs))):
        if depends(other, r) or (inner := recover_index_if_casts_cannot_wrap(side)) is None:
            continue
        total = extract_affine_sum(inner)
        factor = total.terms.pop(r, 0)
        left = build_affine_sum(total)
        bound = UOp(Op.SUB, (_as_index(other), left))
        if factor and not depends(left, r) and fits_int64(bound):
            return LinearComparison(factor, bound, bool(flipped))
    return None


def fits_int64(u: UOp, margin: int = 0) -> bool:
    """Return True if an index expression, plus and minus `margin`, fits int64, the widest index of a kernel (R08, index dtype)."""
    bounds = u.min_max
    return bounds is not None and dt.int64.min + margin <= bounds[0] and bounds[1] <= dt.int64.max - margin


def _as_index(u: UOp) -> UOp:
    exact = recover_index_if_casts_cannot_wrap(u)
    return B.cast(u, dt.index) if exact is None else exact


def recover_index_if_casts_cannot_wrap(u: UOp) -> UOp | None:
    """Return the index expression that the integer `u` is a cast of, if no step of the computation wraps."""
    if u.dtype is dt.index:
        return u
    index = _recover_index_equal_modulo_dtype(u)
    if index is None or index.min_max is None:
        return None
    lo, hi = index.min_max
    return index if u.dtype.min <= lo and hi <= u.dtype.max else None


def _recover_index_equal_modulo_dtype(u: UOp) -> UOp | None:
    """Return an index expression whose cast to the dtype of `u` is `u`. Casts commute with sums and products (R05, overflow)."""
    if u.op is Op.CONST:
        return index_constant(int(u.arg.value))
    if u.op is Op.CAST:
        operand = u.operand
        return (
            operand
            if operand.dtype is dt.index
            else recover_index_if_casts_cannot_wrap(operand)
            if operand.dtype in dt.INTS
            else None
        )
    if u.op in RING_OPS:
        parts = [_recover_index_equal_modulo_dtype(s) for s in u.src]
        return UOp(u.op, tuple(p for p in parts if p is not None)) if None not in parts else None
    return None
