"""Sums of two doubles: the error-free steps that Pow, Sin and fused small-float arithmetic share."""

from __future__ import annotations

from uops.compiler.decompose.build import E

#: An unevaluated sum (high, low).
Pair = tuple[E, E]


def fast_two_sum(a: E, b: E) -> Pair:
    """(a + b rounded, its error); exact when |a| >= |b| or a is 0."""
    total = a + b
    return total, b - (total - a)


def two_sum(a: E, b: E) -> Pair:
    """(a + b rounded, its error), for any order of magnitudes; the error is NaN where the sum is not finite."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: E, b: E | float) -> Pair:
    """(a * b rounded, its error), exact unless the error underflows."""
    product = a * b
    return product, a.fma(b, -product)


def multiply(a: Pair, b: Pair) -> Pair:
    """The product of two pairs to about 2^-102, without the product of the low parts; not renormalised."""
    high, low = two_product(a[0], b[0])
    return high, a[1].fma(b[0], a[0].fma(b[1], low))


def fast_add(a: E | tuple[float, float], b: Pair) -> Pair:
    """a + b for |a| >= |b| or a = 0, where `a` is one number or a constant pair; not renormalised."""
    a_high = a if isinstance(a, E) else b[0].const(a[0])
    high, error = fast_two_sum(a_high, b[0])
    low = error + b[1]
    return high, low if isinstance(a, E) else low + a[1]
