"""Sin of float32 and float64 as a graph, with exact argument reduction.

float32 is (-1)^n * sin(x - n*pi) by one odd polynomial up to pi/2. float64 is the sine or cosine of x - n*pi/2, up to pi/4. Every
lane pays for the hardest reduction, so the reductions have few operations:

- float32, any x: float64 chunks of 1/(2 pi). A product of x with a 28-bit chunk is exact, and Trunc drops whole turns after each
  chunk.
- float64, any x: Payne and Hanek in integers. x = M * 2^e. A tree of Where and a shift select 192 bits of 2^e/(2 pi) from a
  constant, whose product with M modulo one turn is kept to 128 bits.
- finite |x| of at most `BOUNDED`: x - n*pi with pi in two or three doubles.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uops.compiler.decompose import coefficients as k
from uops.compiler.decompose.build import Expr, horner, where
from uops.compiler.decompose.doubles import fast_two_sum, two_product, two_sum
from uops.spec.ir import dtypes as dt

#: The largest |x| for which the reduction by a rounded quotient is used: n and its product with the first part of pi are exact.
BOUNDED = 2.0**30
#: A float64 whose sum with a small number has that number, rounded to an integer, in its low bits.
_MAGIC = 1.5 * 2.0**52
#: The sign bit of a float64.
_SIGN = 1 << 63
_LOW32 = 0xFFFFFFFF


def sin(x: Expr, finite_magnitude_bound: float = math.inf) -> Expr:
    """Return sin(x) for float32 or float64 within 2 ulp (R17), NaN for infinities, sin(-0) = -0.

    `finite_magnitude_bound` limits finite |x|.
    """
    return (_sin32 if x.dtype is dt.float32 else _sin64)(x, finite_magnitude_bound <= BOUNDED)


def _sin32(x: Expr, is_magnitude_small: bool) -> Expr:
    wide = x.cast(dt.float64)
    r = (
        _reduce_mod_pi_with_sign_by_quotient(wide) if is_magnitude_small else _reduce_mod_pi_with_sign_by_inv_2pi_chunks(wide)
    ).cast(dt.float32)
    z = r * r
    y = (horner(z, k.SIN_32) * z).fma(r, r)
    return where(x.eq(0.0), x, y)


def _reduce_mod_pi_with_sign_by_quotient(x: Expr) -> Expr:
    """Return (-1)^n * (x - n*pi), pi to 106 bits; NaN for infinities."""
    n, flip = round_with_parity(x, k.INV_PI)
    r = n.fma(-k.PI[1], n.fma(-k.PI[0], x))
    return flip_sign(r, flip)


def _reduce_mod_pi_with_sign_by_inv_2pi_chunks(x: Expr) -> Expr:
    """Return (-1)^n * (x - n*pi) for a float64 `x` that holds a float32, by `TURN_CHUNKS`.

    Each fma is exact where its result is large enough to matter: x has 24 bits, a chunk 28, and the turn before it is below 1.
    """
    first, *middle, last = k.TURN_CHUNKS
    turn = _fraction(x * first)
    for chunk in middle:
        turn = _fraction(x.fma(chunk, turn))
    turn = x.fma(last, turn)
    n, flip = round_with_parity(turn, 2.0)
    return flip_sign(n.fma(-0.5, turn) * k.TWO_PI, flip)


def _fraction(t: Expr) -> Expr:
    return t - t.trunc()


def round_with_parity(x: Expr, scale: float) -> tuple[Expr, Expr]:
    """Return n, the integer nearest to x*scale, |n| < 2^51, and its parity in the sign bit of a uint64."""
    shifted = x.fma(scale, _MAGIC)
    return shifted - _MAGIC, shifted.bits() << 63


def flip_sign(x: Expr, sign: Expr) -> Expr:
    """Return `x` negated where the sign bit of `sign` is set; the other bits of `sign` are clear."""
    return (x.bits() ^ sign).bitcast(x.dtype)


class ReducedAngle(NamedTuple):
    """The rest of an angle after whole multiples of pi/2, as an unevaluated sum, and their number, of which two bits matter."""

    high: Expr
    low: Expr
    quadrant: Expr


def _sin64(x: Expr, is_magnitude_small: bool) -> Expr:
    bits = x.bits()
    sign = bits & _SIGN
    magnitude = bits ^ sign
    size = magnitude.bitcast(dt.float64)
    high, low, quarter = (
        _reduce_bounded_mod_half_pi_by_quotient(size) if is_magnitude_small else _reduce_mod_half_pi_by_payne_hanek(magnitude, size)
    )
    y = where((quarter & 1).ne(0), _cos_kernel(high, low), _sin_kernel(high, low))
    return flip_sign(y, sign ^ ((quarter >> 1) << 63))


def _sin_kernel(high: Expr, low: Expr) -> Expr:
    """Return sin(high + low), |high| <= 1: high + high^3 P(z) + low cos(high), where the cosine needs few bits."""
    z = high * high
    return high + (z * high).fma(horner(z, k.SIN_64), z.fma(-0.5, 1.0) * low)


def _cos_kernel(high: Expr, low: Expr) -> Expr:
    """Return cos(high + low), |high| <= pi/4: 1 - z/2 without error, then z^2 Q(z) - low sin(high)."""
    z = high * high
    half = z * 0.5
    head, error = fast_two_sum(high.const_like(1.0), -half)
    return head + ((z * z).fma(horner(z, k.COS_64), error) - high * low)


def _reduce_bounded_mod_half_pi_by_quotient(x: Expr) -> ReducedAngle:
    """Return x - n*pi/2 as an unevaluated sum, pi/2 to 159 bits, and n modulo 4, for 0 <= x <= BOUNDED; NaN for inf."""
    shifted = x.fma(2 * k.INV_PI, _MAGIC)
    n = shifted - _MAGIC
    head = n.fma(-k.PI[0] / 2, x)  # exact: a multiple of 2^-52 below 2
    part, part_error = two_product(n, k.PI[1] / 2)
    high, error = two_sum(head, -part)
    return ReducedAngle(high, error - n.fma(k.PI[2] / 2, part_error), shifted.bits() & 3)


def _reduce_mod_half_pi_by_payne_hanek(magnitude_bits: Expr, absolute_value: Expr) -> ReducedAngle:
    """Return |x| - n*pi/2 as an unevaluated sum, and n; below 1 the argument itself is the reduced one."""
    turn_high, turn_low = _compute_turn_fraction_words(magnitude_bits)
    quarter = ((turn_high >> 61) + 1) >> 1
    high, low = _quarter_turn_fraction_to_radians((turn_high << 2) | (turn_low >> 62), turn_low << 2)
    high = where(absolute_value < math.inf, high, math.nan)
    small = absolute_value < 1.0
    return ReducedAngle(where(small, absolute_value, high), where(small, 0.0, low), where(small, 0, quarter))


def _compute_turn_fraction_words(magnitude_bits: Expr) -> tuple[Expr, Expr]:
    """Return |x|/(2 pi) modulo 1 in units of 2^-128, as two uint64, for |x| >= 1."""
    exponent = (magnitude_bits >> 52) - 1023
    mantissa = (magnitude_bits & ((1 << 52) - 1)) | (1 << 52)
    w0, w1, w2 = _extract_192_bits_of_inverse_two_pi(exponent)
    m1, m0 = mantissa >> 32, mantissa & _LOW32
    a1, a0, b1, b0 = w1 >> 32, w1 & _LOW32, w2 >> 32, w2 & _LOW32
    # mantissa * w1, all 117 bits: the middle column first
    p00, p01 = m0 * a0, m0 * a1
    middle = m1 * a0 + (p00 >> 32) + (p01 & _LOW32)
    carry_in = m1 * a1 + (p01 >> 32) + (middle >> 32)
    low = (middle << 32) | (p00 & _LOW32)
    total = low + (m1 * b1 + ((m0 * b1) >> 32) + ((m1 * b0) >> 32))  # the high word of mantissa * w2, at most 2 units too low
    carry = (total < low).cast(dt.uint64)
    return mantissa * w0 + carry_in + carry, total


def _extract_192_bits_of_inverse_two_pi(first_bit: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the 192 bits of `TURN_WORDS` from bit `first_bit` (0 to 1023) on.

    This is a barrel shift, by whole words and then by bits.
    """
    words = [first_bit.const_like(w) for w in k.TURN_WORDS]
    for step in (8, 4, 2, 1):
        far = (first_bit & (64 * step)).ne(0)
        words = [where(far, words[i + step], words[i]) for i in range(min(len(words) - step, step + 3))]
    shift = first_bit & 63
    rest = shift ^ 63
    w0, w1, w2 = ((words[i] << shift) | ((words[i + 1] >> 1) >> rest) for i in range(3))
    return w0, w1, w2


def _quarter_turn_fraction_to_radians(high_word: Expr, low_word: Expr) -> tuple[Expr, Expr]:
    """Return pi/2 times the signed 128-bit fraction (high, low) in units of 2^-128, as an unevaluated sum of doubles.

    The words are split into 32, 32 and 52 bits, each an exact double, by setting them below the bits of a power of two.
    """
    top = _place_bits_in_double((high_word >> 32) ^ (1 << 31), 20, 2.0**20 + 0.5)
    middle = _place_bits_in_double(high_word & _LOW32, -12, 2.0**-12)
    half_unit = 2.0**-117  # so the bits that are cut off are rounded, not dropped
    bottom = _place_bits_in_double(low_word >> 12, -64, 2.0**-64 - half_unit)
    head, rest = fast_two_sum(top, middle)
    high_turn, low_turn = fast_two_sum(head, rest + bottom)
    radians, error = two_product(high_turn, k.PI[0] / 2)
    return radians, low_turn.fma(k.PI[0] / 2, high_turn.fma(k.PI[1] / 2, error))


def _place_bits_in_double(value: Expr, exponent: int, offset: float) -> Expr:
    """Return value * 2^(exponent - 52) + 2^exponent - offset, for an integer `value` below 2^52."""
    return (value | ((exponent + 1023) << 52)).bitcast(dt.float64) - offset
