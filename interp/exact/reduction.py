"""Reduce: the exact result rounded once, and every result that some order and association can give (R32)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce

from uops.interp.exact.answers import Answer, any_nan, bounded, settled
from uops.interp.exact.numbers.arithmetic import product, rounded
from uops.interp.exact.numbers.formats import FINITE, FORMATS, INFINITE, NAN, Format, Real, dyadic, int_value, round_to, wrap
from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.ops import Op


def reduce_elements(op: Op, dtype: DType, bits: Sequence[int]) -> Answer:
    """The reduction of some elements of one dtype, given as bit patterns; of none, the identity."""
    if dtype.kind is Kind.FLOAT:
        return _FLOATS[op](FORMATS[dtype], bits)
    values = [int_value(dtype, b) for b in bits]
    return Answer(dtype, wrap(dtype, _integers(op, dtype, values)))


def _integers(op: Op, dtype: DType, values: list[int]) -> int:
    """Exact, then modulo 2**n; on bool Add is or, Mul and, Max or (R09)."""
    if op in (Op.MAX, Op.MIN):
        if not values and dtype.kind is Kind.INDEX:
            raise SpecError(f"R32: {op.name} of no index has no identity")
        ends = values or [int(dtype.min if op is Op.MAX else dtype.max)]
        return max(ends) if op is Op.MAX else min(ends)
    if dtype.kind is Kind.BOOL:
        return int(any(values) if op is Op.ADD else all(values))
    return sum(values) if op is Op.ADD else math.prod(values)


def _extreme(pick: Callable[[Sequence[int]], int]) -> Callable[[Format, Sequence[int]], Answer]:
    """Max or Min: exact, NaN if any is, either zero of both kinds (R11); the identity is the end of the dtype's range."""

    def meaning(fmt: Format, bits: Sequence[int]) -> Answer:
        if not bits:
            sign = int(pick((0, 1)) == 1)
            return Answer(fmt.dtype, (fmt.inf_mag if fmt.has_inf else fmt.max_mag) | fmt.zero(sign))
        if any(map(fmt.is_nan, bits)):
            return any_nan(fmt)
        best = pick([fmt.key(b) for b in bits])
        zeros = sorted({b for b in bits if not fmt.key(b)}) if not best else []
        return Answer(fmt.dtype, zeros[0], tuple(zeros[1:])) if zeros else Answer(fmt.dtype, fmt.from_key(best))

    return meaning


# Sums


def sum_of(fmt: Format, terms: Sequence[Real], products: bool, best: int) -> Answer:
    """All results of adding `terms` in some order, `best` included.

    The error is at most (n - 1) * u * sum(abs(terms)); of `products`, each rounded first or fused, it is at most
    n * u * sum(abs(terms)) + n * eta. Where some order overflows, the reachable of +-inf and NaN are allowed too; the sign of a
    zero is free.
    """
    if any(t.kind == NAN for t in terms):
        return any_nan(fmt)
    infinite = {t.sign for t in terms if t.kind == INFINITE}
    finite = [t for t in terms if t.kind == FINITE]
    e = min([fmt.unit, *(t.e for t in finite)]) - fmt.precision  # so that u = 2**-precision times a term is an integer
    sides = [[t.m << (t.e - e) for t in finite if t.sign == sign] for sign in (0, 1)]
    eta = products << (fmt.unit - e)

    def error_of(n: int, size: int) -> int:
        return (max(n - 1, 0) + products) * size // (1 << fmt.precision) + n * eta

    # rounding is monotonic, so no partial sum leaves what the terms of one sign reach by themselves
    up, down = (_overflows(fmt, sum(side) + error_of(len(side), sum(side)), e) for side in sides)
    if infinite:
        clash = len(infinite) == 2 or (up if 1 in infinite else down)
        ends = () if len(infinite) == 2 else (fmt.infinity(min(infinite)),)
        return Answer(fmt.dtype, best, ends, nan=clash or fmt.is_nan(best))
    total = sum(sides[0]) - sum(sides[1])
    error = error_of(len(finite), sum(sides[0]) + sum(sides[1]))
    natural = fmt.encode(int(total < 0), abs(total), e)
    answer = bounded(fmt, natural, (total - error, e), (total + error, e))
    points = (natural,) if total else (0, fmt.sign_bit)
    answer = answer._replace(best=best, points=points, nan=answer.nan or fmt.is_nan(best))
    return _with_overflow(fmt, answer, up, down)


def _overflows(fmt: Format, m: int, e: int) -> bool:
    return fmt.encode(0, m, e) > fmt.max_mag


def _with_overflow(fmt: Format, answer: Answer, up: bool, down: bool) -> Answer:
    """Adds what an intermediate overflow leads to: that infinity, and NaN where both signs can meet."""
    if not fmt.has_inf:
        return answer._replace(nan=answer.nan or up or down)
    ends = tuple(fmt.infinity(sign) for sign, on in ((0, up), (1, down)) if on)
    return answer._replace(points=answer.points + ends, nan=answer.nan or (up and down))


def exact_sum(fmt: Format, terms: Sequence[Real]) -> int:
    """Bits of the sum of exact numbers, rounded once."""
    if any(t.kind for t in terms):
        infinite = {t.sign for t in terms if t.kind == INFINITE}
        return fmt.nan if any(t.kind == NAN for t in terms) or len(infinite) == 2 else fmt.infinity(infinite.pop())
    e = min((t.e for t in terms), default=0)
    total = sum((-t.m if t.sign else t.m) << (t.e - e) for t in terms)
    return fmt.encode(int(total < 0), abs(total), e)


def _add(fmt: Format, bits: Sequence[int]) -> Answer:
    terms = [fmt.decode(b) for b in bits]
    return sum_of(fmt, terms, False, exact_sum(fmt, terms))


def dot(fmt: Format, a: Sequence[int], b: Sequence[int]) -> Answer:
    """Reduce(Add) over Mul(a, b), whose products may be fused into the sum; canonical: products rounded, their sum rounded once."""
    terms = [product(fmt.decode(x), fmt.decode(y)) for x, y in zip(a, b, strict=True)]
    best = exact_sum(fmt, [fmt.decode(rounded(fmt, t)) for t in terms])
    return sum_of(fmt, terms, True, best)


# Products


def _mul(fmt: Format, bits: Sequence[int]) -> Answer:
    """Error at most |p| ((1 + u)**(n - 1) - 1), plus what underflow on the way can do."""
    terms = [fmt.decode(b) for b in bits]
    one = Real(FINITE, 0, 1, 0)
    exact = reduce(product, terms, one)
    best = rounded(fmt, exact)
    if any(t.kind == NAN for t in terms) or len(terms) < 2:
        return settled(fmt, best)
    sizes = [dyadic(t.m, t.e) for t in terms if t.kind == FINITE and t.m]
    grow = (1 + Fraction(1, 1 << fmt.precision)) ** (len(terms) - 1)
    most = math.prod((s for s in sizes if s > 1), start=Fraction(1)) * grow
    least = math.prod((s for s in sizes if s < 1), start=Fraction(1)) / grow
    eta = dyadic(1, fmt.unit)
    over, vanish = round_to(fmt.dtype, most) > fmt.max_mag, 2 * least <= eta
    if exact.kind:
        return settled(fmt, best)._replace(nan=exact.kind == NAN or vanish or not fmt.has_inf)
    if not exact.m:
        return Answer(fmt.dtype, best, nan=over)
    size = dyadic(exact.m, exact.e)
    error = size * (grow - 1)
    if least < dyadic(fmt.hidden, fmt.unit):
        error += (len(terms) - 1) * eta / 2 * most
    low, high = max(size - error, Fraction(0)), size + error
    ends = (-high, -low) if exact.sign else (low, high)
    answer = bounded(fmt, best, _split(ends[0]), _split(ends[1]))
    answer = _with_overflow(fmt, answer, over and not exact.sign, over and bool(exact.sign))
    return answer._replace(nan=answer.nan or (over and vanish))


def _split(x: Fraction) -> tuple[int, int]:
    """x, of a power-of-two denominator, as (m, e)."""
    return x.numerator, 1 - x.denominator.bit_length()


_FLOATS: dict[Op, Callable[[Format, Sequence[int]], Answer]] = {
    Op.ADD: _add,
    Op.MUL: _mul,
    Op.MAX: _extreme(max),
    Op.MIN: _extreme(min),
}
