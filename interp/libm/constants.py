"""Constants and tables as pairs of float64, from fixed-point Python integers of `P` fractional bits."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np

from uops.interp.tensor.storage import Array

P = 256
_ONE = 1 << P

#: exp2 is tabulated at j / 256, sine at j * pi / 128.
STEPS = 256


def pair(x: Fraction) -> tuple[float, float]:
    """The nearest float64 and the nearest float64 to what is left."""
    high = float(x)
    return high, float(x - Fraction(high))


def _pairs(values: list[Fraction]) -> tuple[Array, Array]:
    high, low = zip(*map(pair, values))
    return np.array(high, np.float64), np.array(low, np.float64)


def _atanh_inverse(n: int, bits: int) -> int:
    """atanh(1/n)."""
    return _inverse_series(n, bits, 1)


def _atan_inverse(n: int, bits: int) -> int:
    return _inverse_series(n, bits, -1)


def _inverse_series(n: int, bits: int, sign: int) -> int:
    power = (1 << bits + 32) // n
    total, k = 0, 0
    while power:
        total += sign**k * (power // (2 * k + 1))
        power //= n * n
        k += 1
    return total >> 32


@cache
def ln2() -> Fraction:
    return Fraction(2 * _atanh_inverse(3, P), _ONE)


def pi_fixed(bits: int) -> int:
    """pi * 2^bits by Machin's formula, off by a few units."""
    return 16 * _atan_inverse(5, bits) - 4 * _atan_inverse(239, bits)


@cache
def pi() -> Fraction:
    return Fraction(pi_fixed(P), _ONE)


def _series(x: Fraction, first: int, step: int, sign: int) -> Fraction:
    """sum over k of sign^k * x^(first + step k) / (first + step k)!, in fixed point."""
    fixed = (x.numerator << P) // x.denominator
    term, n, total, sign_now = _ONE, 0, 0, 1
    while term or n < first:
        if n >= first and (n - first) % step == 0:
            total += sign_now * term
            sign_now *= sign
        n += 1
        term = (term * fixed >> P) // n
    return Fraction(total, _ONE)


@cache
def exp2_table() -> tuple[Array, Array]:
    """2^(j/256) for j = 0 .. 255."""
    return _pairs([Fraction(1)] + [_series(ln2() * j / STEPS, 0, 1, 1) for j in range(1, STEPS)])


@cache
def sine_tables() -> tuple[Array, Array, Array, Array]:
    """sin (high, low) and cos (high, low) of j * pi / 128 for j = 0 .. 255; exact at the multiples of pi / 2."""
    quarter = STEPS // 4
    first = [_series(pi() * j / (STEPS // 2), 1, 2, -1) for j in range(1, quarter)]
    rising = [Fraction(0), *first, Fraction(1)]
    half = rising + rising[-2:0:-1]
    sine = half + [-s for s in half]
    cosine = sine[quarter:] + sine[:quarter]
    return (*_pairs(sine), *_pairs(cosine))


#: The inverse table of log2 covers [0.7, 1.42] in steps of 1/256.
LOG_FIRST, LOG_LAST = 180, 363


@cache
def log2_table() -> tuple[Array, Array, Array]:
    """c of 12 bits near 256/j, and -log2(c) as a pair, for j = LOG_FIRST .. LOG_LAST; exactly 1 and 0 at j = 256."""
    inverses = [Fraction(round(Fraction(256 * 2048, j)), 2048) for j in range(LOG_FIRST, LOG_LAST + 1)]
    return (np.array([float(c) for c in inverses], np.float64), *_pairs([-_log2(c) for c in inverses]))


def _log2(c: Fraction) -> Fraction:
    """2 atanh((c - 1) / (c + 1)) / ln 2, c near 1."""
    z = (c - 1) / (c + 1)
    fixed = (z.numerator << P) // z.denominator
    square, power, total, k = fixed * fixed >> P, fixed, 0, 0
    while power not in (0, -1):
        total += power // (2 * k + 1)
        power = power * square >> P
        k += 1
    return Fraction(2 * total, _ONE) / ln2()
