"""Sums of two doubles: the error-free steps of Pow, Sin and fused small-float arithmetic."""

from __future__ import annotations

from uops.compiler.decompose.build import Expr

#: An unevaluated sum (high, low).
HighLowPair = tuple[Expr, Expr]


def fast_two_sum(a: Expr, b: Expr) -> HighLowPair:
    """Return (a + b rounded, its error), exact if |a| >= |b| or a is 0."""
    total = a + b
    return total, b - (total - a)


def two_sum(a: Expr, b: Expr) -> HighLowPair:
    """Return (a + b rounded, its error) for any order of magnitudes; the error is NaN if the sum is not finite."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Expr, b: Expr | float) -> HighLowPair:
    """Return (a * b rounded, its error), exact unless the error underflows."""
    product = a * b
    return product, a.fma(b, -product)


def multiply_pairs(a: HighLowPair, b: HighLowPair) -> HighLowPair:
    """Return the product of two pairs to about 2^-102, without the product of the low parts; it is not renormalised."""
    high, low = two_product(a[0], b[0])
    return high, a[1].fma(b[0], a[0].fma(b[1], low))


def add_pair_to_larger_without_renormalizing(larger: Expr | tuple[float, float], smaller_pair: HighLowPair) -> HighLowPair:
    """Return a + b for |a| >= |b| or a = 0, where `larger` is a number or a constant pair; it is not renormalised."""
    a_high = larger if isinstance(larger, Expr) else smaller_pair[0].const_like(larger[0])
    high, error = fast_two_sum(a_high, smaller_pair[0])
    low = error + smaller_pair[1]
    return high, low if isinstance(larger, Expr) else low + larger[1]
