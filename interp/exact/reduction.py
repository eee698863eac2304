"""Reduce: the exact result rounded once, and every result of some order and association (R32)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce

from uops.interp.exact.answers import AnswerSet, any_nan, float_result, floats_between
from uops.interp.exact.numbers.arithmetic import multiply_exactly, round_real
from uops.interp.exact.numbers.formats import (
    FINITE,
    FORMATS,
    INFINITE,
    NAN,
    Dyadic,
    FloatFormat,
    Real,
    decode_integer,
    dyadic,
    round_to,
    wrap_integer,
)
from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.ops import EXTREMES, Op


def reduce_elements(op: Op, dtype: DType, bits: Sequence[int]) -> AnswerSet:
    """Return the reduction of some elements of one dtype, given as bit patterns; of none, the identity."""
    if dtype.kind is DTypeKind.FLOAT:
        return _FLOAT_REDUCTIONS[op](FORMATS[dtype], bits)
    values = [decode_integer(dtype, b) for b in bits]
    return AnswerSet(dtype, wrap_integer(dtype, _reduce_integers_before_wrapping(op, dtype, values)))


def _reduce_integers_before_wrapping(op: Op, dtype: DType, values: list[int]) -> int:
    """Return the exact reduction, not yet reduced modulo 2**n; on bool Add is or, Mul and, Max or (R09)."""
    if op in EXTREMES:
        if not values and dtype.kind is DTypeKind.INDEX:
            raise SpecError(f"R32: {op.name} of index needs at least one element, as it has no identity")
        ends = values or [int(dtype.min if op is Op.MAX else dtype.max)]
        return max(ends) if op is Op.MAX else min(ends)
    if dtype.kind is DTypeKind.BOOL:
        return int(any(values) if op is Op.ADD else all(values))
    return sum(values) if op is Op.ADD else math.prod(values)


def _make_extreme_reduction(pick: Callable[[Sequence[int]], int]) -> Callable[[FloatFormat, Sequence[int]], AnswerSet]:
    """Return the reduction by Max or Min of floats.

    It is exact, NaN if any element is, and either zero if there are both (R11). Its identity is the end of the dtype's range.
    """

    def reduce_extreme(fmt: FloatFormat, bits: Sequence[int]) -> AnswerSet:
        if not bits:
            sign = int(pick((0, 1)) == 1)
            return AnswerSet(fmt.dtype, (fmt.inf_mag if fmt.has_inf else fmt.max_mag) | fmt.zero(sign))
        if any(map(fmt.is_nan, bits)):
            return any_nan(fmt)
        best = pick([fmt.key(b) for b in bits])
        zeros = sorted({b for b in bits if not fmt.key(b)}) if not best else []
        return AnswerSet(fmt.dtype, zeros[0], tuple(zeros[1:])) if zeros else AnswerSet(fmt.dtype, fmt.from_key(best))

    return reduce_extreme


# Sums


def enclose_sum_in_any_order(fmt: FloatFormat, terms: Sequence[Real], are_products: bool, best: int) -> AnswerSet:
    """Return the set of all results of adding `terms` in some order, with `best` in it.

    The error is at most (n - 1) * u * sum(abs(terms)). Where the terms are products, each rounded first or fused, it is at most n
    * u * sum(abs(terms)) + n * eta. Where some order overflows, the infinities and NaN that it reaches are allowed too. The sign
    of a zero is free.
    """
    if any(t.kind == NAN for t in terms):
        return any_nan(fmt)
    infinite = {t.sign for t in terms if t.kind == INFINITE}
    finite = [t for t in terms if t.kind == FINITE]
    e = min([fmt.unit, *(t.e for t in finite)]) - fmt.precision  # so u = 2**-precision times a term is an integer
    sides = [[t.m << (t.e - e) for t in finite if t.sign == sign] for sign in (0, 1)]
    eta = are_products << (fmt.unit - e)

    def error_of(n: int, size: int) -> int:
        return (max(n - 1, 0) + are_products) * size // (1 << fmt.precision) + n * eta

    # rounding is monotonic, so no partial sum leaves the range that the terms of one sign reach by themselves
    up, down = (_overflows(fmt, sum(side) + error_of(len(side), sum(side)), e) for side in sides)
    if infinite:
        clash = len(infinite) == 2 or (up if 1 in infinite else down)
        ends = () if len(infinite) == 2 else (fmt.infinity(min(infinite)),)
        return AnswerSet(fmt.dtype, best, ends, nan=clash or fmt.is_nan(best))
    total = sum(sides[0]) - sum(sides[1])
    error = error_of(len(finite), sum(sides[0]) + sum(sides[1]))
    natural = fmt.encode(int(total < 0), abs(total), e)
    answer = floats_between(fmt, natural, (total - error, e), (total + error, e))
    points = (natural,) if total else (0, fmt.sign_bit)
    answer = answer._replace(best=best, points=points, nan=answer.nan or fmt.is_nan(best))
    return _allow_overflow(fmt, answer, up, down)


def _overflows(fmt: FloatFormat, m: int, e: int) -> bool:
    return fmt.encode(0, m, e) > fmt.max_mag


def _allow_overflow(fmt: FloatFormat, answer: AnswerSet, may_overflow_up: bool, may_overflow_down: bool) -> AnswerSet:
    """Add the results of an overflow on the way: that infinity, and NaN where both signs can meet."""
    if not fmt.has_inf:
        return answer._replace(nan=answer.nan or may_overflow_up or may_overflow_down)
    ends = tuple(fmt.infinity(sign) for sign, overflows in ((0, may_overflow_up), (1, may_overflow_down)) if overflows)
    return answer._replace(points=answer.points + ends, nan=answer.nan or (may_overflow_up and may_overflow_down))


def round_exact_sum(fmt: FloatFormat, terms: Sequence[Real]) -> int:
    """Return the bits of the sum of exact numbers, rounded once."""
    if any(t.kind for t in terms):
        infinite = {t.sign for t in terms if t.kind == INFINITE}
        return fmt.nan if any(t.kind == NAN for t in terms) or len(infinite) == 2 else fmt.infinity(infinite.pop())
    e = min((t.e for t in terms), default=0)
    total = sum((-t.m if t.sign else t.m) << (t.e - e) for t in terms)
    return fmt.encode(int(total < 0), abs(total), e)


def _reduce_add(fmt: FloatFormat, bits: Sequence[int]) -> AnswerSet:
    terms = [fmt.decode(b) for b in bits]
    return enclose_sum_in_any_order(fmt, terms, False, round_exact_sum(fmt, terms))


def reduce_dot(fmt: FloatFormat, a: Sequence[int], b: Sequence[int]) -> AnswerSet:
    """Return Reduce(Add) over Mul(a, b), whose products may be fused into the sum.

    The canonical result is the sum, rounded once, of the rounded products.
    """
    terms = [multiply_exactly(fmt.decode(x), fmt.decode(y)) for x, y in zip(a, b, strict=True)]
    best = round_exact_sum(fmt, [fmt.decode(round_real(fmt, t)) for t in terms])
    return enclose_sum_in_any_order(fmt, terms, True, best)


# Products


def _reduce_mul(fmt: FloatFormat, bits: Sequence[int]) -> AnswerSet:
    """Return the product: its error is at most |p| * ((1 + u)**(n - 1) - 1), and what underflow of partial products adds."""
    terms = [fmt.decode(b) for b in bits]
    one = Real(FINITE, 0, 1, 0)
    exact = reduce(multiply_exactly, terms, one)
    best = round_real(fmt, exact)
    if any(t.kind == NAN for t in terms) or len(terms) < 2:
        return float_result(fmt, best)
    sizes = [dyadic(t.m, t.e) for t in terms if t.kind == FINITE and t.m]
    grow = (1 + Fraction(1, 1 << fmt.precision)) ** (len(terms) - 1)
    most = math.prod((s for s in sizes if s > 1), start=Fraction(1)) * grow
    least = math.prod((s for s in sizes if s < 1), start=Fraction(1)) / grow
    eta = dyadic(1, fmt.unit)
    may_overflow = round_to(fmt.dtype, most) > fmt.max_mag
    may_vanish = 2 * least <= len(terms) * eta  # every subnormal partial product may lose half a step
    if exact.kind:
        return float_result(fmt, best)._replace(nan=exact.kind == NAN or may_vanish or not fmt.has_inf)
    if not exact.m:
        return AnswerSet(fmt.dtype, best, nan=may_overflow)
    size = dyadic(exact.m, exact.e)
    error = size * (grow - 1)
    if least < dyadic(fmt.hidden, fmt.unit):
        error += (len(terms) - 1) * eta / 2 * most
    low, high = max(size - error, Fraction(0)), size + error
    ends = (-high, -low) if exact.sign else (low, high)
    answer = floats_between(fmt, best, _to_dyadic(ends[0]), _to_dyadic(ends[1]))
    answer = _allow_overflow(fmt, answer, may_overflow and not exact.sign, may_overflow and bool(exact.sign))
    return answer._replace(nan=answer.nan or (may_overflow and may_vanish))


def _to_dyadic(x: Fraction) -> Dyadic:
    """Return x, whose denominator is a power of two, as (m, e)."""
    return x.numerator, 1 - x.denominator.bit_length()


#: op -> its reduction of floats
_FLOAT_REDUCTIONS: dict[Op, Callable[[FloatFormat, Sequence[int]], AnswerSet]] = {
    Op.ADD: _reduce_add,
    Op.MUL: _reduce_mul,
    Op.MAX: _make_extreme_reduction(max),
    Op.MIN: _make_extreme_reduction(min),
}
