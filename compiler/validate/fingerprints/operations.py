"""Operations on terms: elementwise ones, conversions, choices, vectors and reductions.

Takes: nodes, and the values of their operands. Gives: the values of the nodes. Memory is `evaluate`'s.
Spec: R05 (integer overflow wraps), R09 (bool), R32 (value of a Reduce).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.compiler.validate.fingerprints.bounds import RING_RULES, IntegerBounds
from uops.compiler.validate.fingerprints.integers import (
    RULES,
    Integer,
    NotEvaluable,
    Numbers,
    apply_rule,
    choose_integers,
    with_rank,
    wrap,
)
from uops.compiler.validate.fingerprints.mixing import (
    Fingerprints,
    combine,
    combine_unordered,
    fingerprint_of_words,
    of_integers,
    to_integers,
)
from uops.compiler.validate.fingerprints.terms import (
    COMMUTATIVE,
    AccumulatorRead,
    SumLaws,
    TermValue,
    as_addends,
    constant_term,
    fingerprint,
    fingerprint_in_own_dtype,
    finish_group,
    holds_every_value,
    is_reduction_op,
    reduction_of,
    wraps_of,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BITWISE, BOOL_CONJUNCTIONS, COMPARE, CONVERSIONS, DIVISION, EXTREMES, Op

#: Maximum number of elements of one array: iterations times lanes.
MAX_POINTS = 1 << 22

Mask = npt.NDArray[np.bool_]


def require_few_points(*arrays: npt.NDArray[Any]) -> None:
    """Raise NotEvaluable if an operation on these arrays has too many elements."""
    if math.prod(np.broadcast_shapes(*(a.shape for a in arrays))) > MAX_POINTS:
        raise NotEvaluable(f"a value has more than {MAX_POINTS:,} elements over all iterations")


def align(operands: Sequence[TermValue]) -> list[TermValue]:
    """Give scalars among vectors the axes of the vectors' lanes."""
    ranks = [len(t.shape) for t in operands]
    rank = max(ranks, default=0)
    return [t.with_trailing_axes(rank - n) if 0 < n < rank else t for t, n in zip(operands, ranks, strict=True)]


def apply_operation(u: UOp, operands: Sequence[TermValue], laws: SumLaws, bounds: IntegerBounds) -> TermValue:
    """Return an operation of the ALU on values."""
    op, d = u.op, u.dtype
    if op is Op.WHERE:
        return choose(*operands)
    if op in CONVERSIONS:
        return convert(u, operands[0], laws, bounds)
    if op in RULES and all(t.integer is not None for t in operands):
        integers = [t.integer for t in operands if t.integer is not None]
        require_few_points(*(x.numbers for x in integers))
        return TermValue(apply_rule(op, d, integers))
    if is_reduction_op(op, d) and (t := extend_sum(op, d, operands[0], operands[1], laws)) is not None:
        return t
    if d.kind is DTypeKind.BOOL and op in _CONNECTIVES and (t := combine_with_known_truth(op in BOOL_CONJUNCTIONS, *operands)):
        return t
    if op is Op.MULACC and not d.is_float:
        product = UOp(Op.MUL, (u.lhs, u.rhs))
        addends = align([apply_operation(product, operands[:2], laws, bounds), operands[2]])
        return apply_operation(UOp(Op.ADD, (product, u.addend)), addends, laws, bounds)
    if op is Op.MULACC and _is_sum_of_its_product(d, operands[2], laws):
        x, y, _ = operands
        factors = extend_sum(Op.MUL, d, x, y, laws) or TermValue(
            None, combine_unordered(_tag(Op.MUL, d, u.lhs.dtype, laws), fingerprint(x), fingerprint(y))
        )
        if (t := extend_sum(Op.ADD, d, operands[2], factors, laws)) is not None:
            return t
    if op in RING_RULES and d.is_integer:
        rings = [to_integers(fingerprint_in_own_dtype(t)) for t in operands]
        require_few_points(*rings)
        is_exact = d is dt.index or (bounds.keeps_range(u) and all(wraps_of(t) is None for t in operands))
        with np.errstate(over="ignore"):
            return TermValue(None, of_integers(RING_RULES[op](*rings)), wraps=None if is_exact else d)
    parts = [fingerprint(t) for t in operands]
    require_few_points(*parts)
    is_of_numbers = op in _NUMBER_FUNCTIONS and all(s.dtype.is_integer for s in u.src)
    if op is Op.IDIV:  # the least integer by -1 depends on the dtype (R04)
        is_of_numbers = (
            is_of_numbers and operands[1].integer is not None and bool((operands[1].integer.require_numbers() != -1).all())
        )
    tag = fingerprint_of_words(op.name, "integer") if is_of_numbers else _tag(op, d, _operand_dtype(u), laws)
    return TermValue(None, combine_unordered(tag, *parts) if op in COMMUTATIVE else combine(tag, *parts))


def _is_sum_of_its_product(d: DType, addend: TermValue, laws: SumLaws) -> bool:
    if addend.added_to is not None:
        return True
    return not laws.fuses_sums_alone and ((Op.ADD, d) in laws.chains or addend.reduction == (Op.ADD, d))


def combine_with_known_truth(is_conjunction: bool, a: TermValue, b: TermValue) -> TermValue | None:
    """Return a conjunction or disjunction of which one operand is known; None if both are not."""
    if a.integer is None:
        a, b = b, a
    if a.integer is None:
        return None
    absorbing = constant_term(not is_conjunction, dt.bool_)
    keeps = (a.integer.require_numbers() != 0) == is_conjunction
    return TermValue(None, np.where(keeps, fingerprint(b), fingerprint(absorbing)))


def extend_sum(op: Op, d: DType, a: TermValue, b: TermValue, laws: SumLaws) -> TermValue | None:
    """Return the sum of two values of which one is a sum of this kind, or what an accumulator holds; else None."""
    reduction = reduction_of(op, d)
    if laws.keeps_groups:
        a, b = (TermValue(None, fingerprint(t)) if t.grouped else t for t in (a, b))
    if b.added_to is not None or (a.added_to is None and b.reduction == reduction):
        a, b = b, a
    is_bare_read = a.added_to is not None and a.reduction is None
    if not is_bare_read and a.reduction != reduction:
        if reduction not in laws.chains or a.added_to is not None or b.added_to is not None:
            return None
        a = TermValue(None, as_addends(a, reduction, laws), reduction)
    addends = as_addends(b, reduction, laws)
    if not is_bare_read:
        assert a.fingerprints is not None
        require_few_points(a.fingerprints, addends)
        with np.errstate(over="ignore"):
            addends = a.fingerprints + addends
    return TermValue(None, addends, reduction, a.added_to, grouped=laws.keeps_groups)


def choose(condition: TermValue, a: TermValue, b: TermValue) -> TermValue:
    """Return a Where. One on a condition that is not known is an operation, unless both values are equal."""
    if condition.integer is None:
        parts = [fingerprint(condition), fingerprint_in_own_dtype(a), fingerprint_in_own_dtype(b)]
        require_few_points(*parts)
        chosen = np.where(parts[1] == parts[2], parts[1], combine(_WHERE, *parts))
        return TermValue(None, chosen, wraps=wraps_of(a) or wraps_of(b))
    c = condition.integer.require_numbers() != 0
    if a.integer is not None and b.integer is not None:
        require_few_points(c, a.integer.numbers, b.integer.numbers)
        return TermValue(choose_integers(c, a.integer, b.integer))
    if a.added_to is not None or b.added_to is not None:
        return _choose_between_sums_of_one_accumulator(c, a, b)
    a, b = finish_group(a), finish_group(b)
    reduction = a.reduction or b.reduction
    if reduction is not None and all(t.reduction == reduction or _is_identity(t, reduction) for t in (a, b)):
        return TermValue(None, np.where(c, *(as_addends(t, reduction, _NO_LAWS) for t in (a, b))), reduction)
    x, y = fingerprint_in_own_dtype(a), fingerprint_in_own_dtype(b)
    require_few_points(c, x, y)
    return TermValue(None, np.where(c, x, y), wraps=wraps_of(a) or wraps_of(b))


def _is_identity(t: TermValue, reduction: tuple[Op, DType]) -> bool:
    """Return True for a value that adds nothing to a reduction."""
    return t.reduction is None and not as_addends(t, reduction, _NO_LAWS).any()


_NO_LAWS = SumLaws()


def choose_under_unknown_condition(condition: TermValue, a: Fingerprints, b: Fingerprints) -> Fingerprints:
    """Return the fingerprints of a Where on a condition that is not known."""
    c = fingerprint(condition)
    return combine(_WHERE, *np.broadcast_arrays(with_rank(c, max(a.ndim, b.ndim)), a, b))


def _choose_between_sums_of_one_accumulator(c: Mask, a: TermValue, b: TermValue) -> TermValue:
    first, second = a.added_to, b.added_to
    if (
        first is None
        or second is None
        or first.memory is not second.memory
        or not same_positions(first.positions, second.positions)
        or first.is_cleared is not None
        or second.is_cleared is not None
    ):
        raise NotEvaluable("an iteration chooses between what an earlier one computed and something else")
    if a.reduction is not None and b.reduction is not None and a.reduction != b.reduction:
        raise NotEvaluable("an iteration chooses between reductions of two kinds")
    none = np.zeros((1,) * c.ndim, np.uint64)
    x, y = (none if t.fingerprints is None else t.fingerprints for t in (a, b))
    return TermValue(None, np.where(c, x, y), a.reduction or b.reduction, replace(first, loads=first.loads | second.loads))


def same_positions(a: Numbers, b: Numbers) -> bool:
    """Return True if two accesses are to the same elements in each iteration."""
    return a.shape == b.shape and bool((a == b).all())


def convert(u: UOp, t: TermValue, laws: SumLaws, bounds: IntegerBounds) -> TermValue:
    """Return a Cast or Bitcast. A Cast to a dtype that holds every value of the old one keeps the value."""
    d, source = u.dtype, u.operand.dtype
    if d is source:
        return t
    if u.op is Op.CAST:
        if t.integer is not None and not d.is_float:
            if d.kind is DTypeKind.BOOL:
                return TermValue(RULES[Op.CMPNE](t.integer, Integer(np.zeros((1,) * len(t.shape), np.int64))))
            return TermValue(wrap(t.integer, d))
        if t.reduction is not None and t.added_to is None:
            op = t.reduction[0]
            is_rounded = (op, d) in laws.rounded_late and holds_every_value(source, d)
            is_widened = (op, source) in laws.rounded_late and holds_every_value(d, source)
            if is_rounded or is_widened:
                return TermValue(None, t.fingerprints, (op, d))
        if t.added_to is None and (holds_every_value(d, source) or (wraps_of(t) is None and _keeps_integer(u, bounds))):
            return TermValue(None, fingerprint(t))
    if t.integer is not None or (u.op is Op.CAST and source.is_integer):  # what a Cast gives depends on the number alone
        return TermValue(None, combine(fingerprint_of_words(u.op.name, d.name, "integer"), fingerprint(t)))
    return TermValue(None, combine(_tag(u.op, d, source, laws), fingerprint(t)))


def stack_elements(elements: Sequence[TermValue], axis: int) -> TermValue:
    """Return elements along a new axis, which is the first one of the shape."""
    if elements and elements[0].added_to is None and all(t is elements[0] for t in elements):
        return elements[0].map_arrays(lambda x: _repeat_along(x, axis, len(elements)))
    elements = [finish_group(t) for t in align(elements)]
    if all(t.integer is not None for t in elements):
        integers = [t.integer for t in elements if t.integer is not None]
        counters = {c for x in integers for c in x.factors}
        zero = np.zeros((1,) * axis, np.int64)
        factors = {c: _stack_arrays([x.factors.get(c, zero) for x in integers], axis) for c in counters}
        return TermValue(Integer(_stack_arrays([x.numbers for x in integers], axis), factors))
    kinds = {(t.reduction, t.wraps) for t in elements}
    if len(kinds) == 1 and kinds != {(None, None)} and all(t.added_to is None for t in elements):
        ((reduction, wraps),) = kinds
        arrays = [t.fingerprints for t in elements if t.fingerprints is not None]
        return TermValue(None, _stack_arrays(arrays, axis), reduction, wraps=wraps)
    return TermValue(None, _stack_arrays([fingerprint(t) for t in elements], axis))


def _repeat_along(x: npt.NDArray[Any], axis: int, count: int) -> npt.NDArray[Any]:
    return np.broadcast_to(x.reshape((*x.shape[:axis], 1, *x.shape[axis:])), (*x.shape[:axis], count, *x.shape[axis:]))


def _stack_arrays(arrays: Sequence[npt.NDArray[Any]], axis: int) -> npt.NDArray[Any]:
    if not arrays:
        return np.zeros((*(1,) * axis, 0), np.int64)
    rank = max(a.ndim for a in arrays)
    if all(a.size == 1 for a in arrays):
        return np.array([a.item() for a in arrays], arrays[0].dtype).reshape((*(1,) * axis, len(arrays), *(1,) * (rank - axis)))
    arrays = [with_rank(a, rank) for a in arrays]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return np.stack([np.broadcast_to(a, shape) for a in arrays], axis=axis)


def take_elements(u: UOp, whole: TermValue, positions: Sequence[TermValue], axis: int) -> TermValue:
    """Return elements of a value at positions that are the same in every iteration."""
    at = [_constant_positions(p, int(u.operand.shape[k]), axis) for k, p in enumerate(positions)]
    if len(at) > 1 and any(k.shape for k in at):
        raise NotEvaluable("an Index of a value has several vectors of positions")

    def take(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        for k in at:
            if x.shape[axis] == 1:  # the value is the same along this axis
                k = np.zeros_like(k)
            x = x.take(k, axis=axis) if k.shape else x.take(int(k), axis=axis)
        return np.asarray(x)

    if whole.integer is not None:
        return TermValue(whole.integer.map_arrays(take))
    read = whole.added_to
    if read is not None and read.is_cleared is not None:
        raise NotEvaluable("an element of a sum that is cleared")
    if read is not None:
        full = np.broadcast_to(read.positions, (*read.positions.shape[:axis], *(int(n) for n in u.operand.shape)))
        read = AccumulatorRead(read.memory, take(full), read.loads)
    prints = None if whole.fingerprints is None else take(whole.fingerprints)
    return TermValue(None, prints, whole.reduction, read, whole.wraps, whole.grouped)


def _constant_positions(position: TermValue, extent: int, axis: int) -> Numbers:
    if position.integer is None:
        raise NotEvaluable("a position in a value is itself a value of memory")
    numbers = position.integer.require_numbers()
    if any(n > 1 for n in numbers.shape[:axis]):
        raise NotEvaluable("a position in a value depends on a loop")
    at = numbers.reshape(numbers.shape[axis:])
    if not ((at >= 0) & (at < extent)).all():
        raise NotEvaluable("a position in a value is out of range")
    return at


def _keeps_integer(u: UOp, bounds: IntegerBounds) -> bool:
    """Return True for a Cast between integers whose result surely is its operand."""
    if not u.dtype.is_integer or not u.operand.dtype.is_integer:
        return False
    low, high = bounds.of(u.operand)
    return bool(u.dtype.min <= low and high <= u.dtype.max)


def _operand_dtype(u: UOp) -> DType:
    """Return the dtype of the first operand."""
    return u.src[0].dtype  # lhs or operand


def _tag(op: Op, d: DType, operand_dtype: DType, laws: SumLaws) -> np.uint64:
    """Return what tells an operation from others."""
    if op is Op.MUL and d.is_float and laws.wide_products:
        return fingerprint_of_words("product of floats")
    return fingerprint_of_words(op.name, d.name, operand_dtype.name)


_WHERE = fingerprint_of_words(Op.WHERE.name)
#: Operations whose result depends on the numbers alone, and not on the dtypes that hold them. (INT_MIN by -1 is of one dtype: R04.)
_NUMBER_FUNCTIONS = COMPARE | EXTREMES | BITWISE | DIVISION | {Op.SHR}
#: Operations on bools that are and, or or.
_CONNECTIVES = frozenset({Op.AND, Op.MUL, Op.OR, Op.ADD, Op.MAX})
