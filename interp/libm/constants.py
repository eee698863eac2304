"""Constants and tables as pairs of float64, computed with fixed-point Python integers."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np

from uops.interp.tensor.storage import Array

#: Fractional bits of the fixed-point numbers.
P = 256
#: 1 as a fixed-point number.
_ONE = 1 << P

#: Entries of the tables: exp2 at j / 256, sine and cosine at j * pi / 128.
STEPS = 256


def nearest_double_pair(x: Fraction) -> tuple[float, float]:
    """Return the float64 nearest to `x`, and the float64 nearest to the remainder."""
    high = float(x)
    return high, float(x - Fraction(high))


def _double_pair_arrays(values: list[Fraction]) -> tuple[Array, Array]:
    """Return the high and low parts of `nearest_double_pair` of each value, as two arrays."""
    high, low = zip(*map(nearest_double_pair, values))
    return np.array(high, np.float64), np.array(low, np.float64)


def _fixed_atanh_of_inverse(n: int, bits: int) -> int:
    """Return atanh(1/n) in fixed point."""
    return _fixed_point_arctan_or_artanh_of_inverse(n, bits, 1)


def _fixed_atan_of_inverse(n: int, bits: int) -> int:
    """Return atan(1/n) in fixed point."""
    return _fixed_point_arctan_or_artanh_of_inverse(n, bits, -1)


def _fixed_point_arctan_or_artanh_of_inverse(n: int, bits: int, series_sign: int) -> int:
    """Return the sum over k of sign^k / ((2k + 1) n^(2k + 1)) in fixed point, with 32 guard bits."""
    power = (1 << bits + 32) // n
    total, k = 0, 0
    while power:
        total += series_sign**k * (power // (2 * k + 1))
        power //= n * n
        k += 1
    return total >> 32


@cache
def ln2() -> Fraction:
    """Return ln 2, correct to about 256 bits."""
    return Fraction(2 * _fixed_atanh_of_inverse(3, P), _ONE)


def pi_fixed(bits: int) -> int:
    """Return pi * 2^bits by Machin's formula, off by a few units."""
    return 16 * _fixed_atan_of_inverse(5, bits) - 4 * _fixed_atan_of_inverse(239, bits)


@cache
def pi() -> Fraction:
    """Return pi, correct to about 256 bits."""
    return Fraction(pi_fixed(P), _ONE)


def _taylor_series(x: Fraction, first_power: int, power_step: int, sign_ratio: int) -> Fraction:
    """Return the sum over k of sign^k * x^n / n! with n = first_power + power_step k, in fixed point."""
    fixed = (x.numerator << P) // x.denominator
    term, n, total, sign_now = _ONE, 0, 0, 1
    while term or n < first_power:
        if n >= first_power and (n - first_power) % power_step == 0:
            total += sign_now * term
            sign_now *= sign_ratio
        n += 1
        term = (term * fixed >> P) // n
    return Fraction(total, _ONE)


@cache
def exp2_table() -> tuple[Array, Array]:
    """Return 2^(j/256) for j = 0 .. 255 as high and low parts."""
    return _double_pair_arrays([Fraction(1)] + [_taylor_series(ln2() * j / STEPS, 0, 1, 1) for j in range(1, STEPS)])


@cache
def sine_and_cosine_double_pair_tables() -> tuple[Array, Array, Array, Array]:
    """Return sin (high, low) and cos (high, low) of j * pi / 128 for j = 0 .. 255; exact at the multiples of pi / 2."""
    quarter = STEPS // 4
    first = [_taylor_series(pi() * j / (STEPS // 2), 1, 2, -1) for j in range(1, quarter)]
    rising = [Fraction(0), *first, Fraction(1)]
    half = rising + rising[-2:0:-1]
    sine = half + [-s for s in half]
    cosine = sine[quarter:] + sine[:quarter]
    return (*_double_pair_arrays(sine), *_double_pair_arrays(cosine))


#: First and last entry of the table of log2, in units of 1/256: it covers [0.7, 1.42].
LOG_FIRST, LOG_LAST = 180, 363


@cache
def log2_table() -> tuple[Array, Array, Array]:
    """Return c of 12 bits near 256/j, and -log2(c) as a pair, for j = LOG_FIRST .. LOG_LAST; exactly 1 and 0 at j = 256."""
    inverses = [Fraction(round(Fraction(256 * 2048, j)), 2048) for j in range(LOG_FIRST, LOG_LAST + 1)]
    return (np.array([float(c) for c in inverses], np.float64), *_double_pair_arrays([-_log2_near_one(c) for c in inverses]))


def _log2_near_one(c: Fraction) -> Fraction:
    """Return log2 of c near 1 as 2 atanh((c - 1) / (c + 1)) / ln 2."""
    z = (c - 1) / (c + 1)
    fixed = (z.numerator << P) // z.denominator
    square, power, total, k = fixed * fixed >> P, fixed, 0, 0
    while power not in (0, -1):
        total += power // (2 * k + 1)
        power = power * square >> P
        k += 1
    return Fraction(2 * total, _ONE) / ln2()
