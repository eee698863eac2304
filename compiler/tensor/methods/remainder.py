"""Remainders and floored quotients of floats: graphs with the bits of NumPy's `remainder` and `floor_divide`.

Both are computed from fmod, the exact x - y * trunc(x / y) of the unrounded quotient, by NumPy's steps. Floats of at most 32 bits
get fmod by long division in float64, float64 by modular exponentiation in int64. The steps round in float32, for float64 in
float64; a narrow float is rounded to its dtype at the end.
"""

from __future__ import annotations

import math

from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp

#: Bits of float64's significand and of its fraction, and the mask of all bits but the sign.
_SIGNIFICAND, _FRACTION, _MAGNITUDE = 53, 52, (1 << 63) - 1
#: Bits of infinity.
_INFINITY = 0x7FF << _FRACTION
#: Lower bits of a difference of float64 exponents, which is below 2^11, so that 1 << (difference >> _LOWER_BITS) is a uint64.
_LOWER_BITS = 5


def float_floor_mod(a: UOp, b: UOp) -> UOp:
    """Return a - b * floor(a / b) of the exact quotient, rounded once.

    It has the sign of b, and is NaN where b is 0 or a is infinite.
    """
    _, y, rest = _cast_to_step_dtype_and_fmod(a, b)
    zero = B.where(B.lt(y, 0.0), B.const(-0.0, y.dtype), B.const(0.0, y.dtype))
    return B.cast(B.where(B.eq(rest, 0.0), zero, B.where(_signs_differ(rest, y), B.add(rest, y), rest)), a.dtype)


def float_floor_divide(a: UOp, b: UOp) -> UOp:
    """Return (a - remainder) / b as the nearest whole number, a / b where b is 0. A zero has the sign of a / b."""
    x, y, rest = _cast_to_step_dtype_and_fmod(a, b)
    quotient, whole = B.div(x, y), B.div(B.sub(x, rest), y)
    whole = B.where(B.and_(B.ne(rest, 0.0), _signs_differ(rest, y)), B.sub(whole, 1.0), whole)
    truncated = B.trunc(whole)
    floor = B.where(B.lt(whole, truncated), B.sub(truncated, 1.0), truncated)
    nearest = B.where(B.gt(B.sub(whole, floor), 0.5), B.add(floor, 1.0), floor)
    signed = B.where(B.eq(whole, 0.0), B.mul(quotient, 0.0), nearest)
    return B.cast(B.where(B.eq(y, 0.0), quotient, signed), a.dtype)


def _cast_to_step_dtype_and_fmod(a: UOp, b: UOp) -> tuple[UOp, UOp, UOp]:
    """Return both operands in the dtype of the steps, and their fmod, in which a zero has either sign."""
    d = a.dtype
    if d is dt.float64:
        return a, b, _fmod_by_modular_power(a, b)
    rest = B.cast(_fmod_by_long_division(B.cast(a, dt.float64), B.cast(b, dt.float64), d), dt.float32)
    return B.cast(a, dt.float32), B.cast(b, dt.float32), rest


def _signs_differ(rest: UOp, y: UOp) -> UOp:
    """Return the condition that the remainder and the divisor have different signs."""
    return B.ne(B.lt(rest, 0.0), B.lt(y, 0.0))


def _fmod_by_long_division(x: UOp, y: UOp, unwidened_dtype: DType) -> UOp:
    """Return fmod of values of `unwidened_dtype`, in float64.

    Each step subtracts a multiple of the divisor y * 2^k. The multiple has as many bits as fit float64's significand beside those
    of that dtype, so that dividend and divisor are whole multiples, below 2^53, of one unit. Their rounded quotient then truncates
    as the exact one does, and product and difference are exact.
    """
    d = unwidened_dtype
    step = _SIGNIFICAND - (d.man_bits + 1)
    quotient_bits = 2 * d.bias + d.man_bits + 1  # the greatest value is below 2^(bias + 2), the least is 2^(1 - bias - man_bits)
    rest = x
    for k in reversed(range(0, quotient_bits, step)):
        divisor = B.mul(y, 2.0**k) if k else y
        rest = B.sub(rest, B.mul(B.trunc(B.div(rest, divisor)), divisor))
    smaller = B.lt(B.maximum(x, B.neg(x)), B.maximum(y, B.neg(y)))
    return B.where(smaller, x, rest)  # also where y is infinite


def _fmod_by_modular_power(x: UOp, y: UOp) -> UOp:
    """Return fmod of float64.

    For |x| = p * 2^i and |y| = m * 2^j it is (p * 2^(i - j) mod m) * 2^j where i >= j, else x.
    """
    above, below = (B.and_(B.bitcast(v, dt.int64), _MAGNITUDE) for v in (x, y))
    (p, i), (m, j) = _significand_and_biased_exponent(above), _significand_and_biased_exponent(below)
    rest = B.cast(_multiply_mod(_exponentiate_two_mod(B.sub(i, j), m), p, m), dt.float64)
    unit = B.mul(B.bitcast(B.shl(j, _FRACTION), dt.float64), 2.0**-_FRACTION)
    signed = B.mul(rest, B.where(B.lt(x, 0.0), B.neg(unit), unit))
    defined = B.and_(B.lt(above, _INFINITY), B.and_(B.lt(0, below), B.le(below, _INFINITY)))
    return B.where(defined, B.where(B.lt(above, below), x, signed), math.nan)


def _significand_and_biased_exponent(magnitude_bits: UOp) -> tuple[UOp, UOp]:
    """Return significand and biased exponent, as int64, from the bits of a float64 without its sign.

    A subnormal number has exponent 1.
    """
    exponent = B.maximum(B.shr(magnitude_bits, _FRACTION), 1)
    return B.sub(magnitude_bits, B.shl(B.sub(exponent, 1), _FRACTION)), exponent


def _exponentiate_two_mod(n: UOp, m: UOp) -> UOp:
    """Return 2^n mod m for n below 2^11: square for each lower bit of n, and double where it is set."""
    first = B.shl(B.const(1, dt.uint64), B.shr(n, _LOWER_BITS))
    power = B.cast(B.mod(first, B.cast(m, dt.uint64)), dt.int64)
    for bit in reversed(range(_LOWER_BITS)):
        power = _multiply_mod(power, B.shl(power, B.and_(B.shr(n, bit), 1)), m)
    return power


def _multiply_mod(a: UOp, b: UOp, m: UOp) -> UOp:
    """Return a * b mod m, for a < m < 2^53 and b < 2^54.

    The rounded quotient is at most 5 away from a * b / m, so that a * b - quotient * m, which wraps, is within 5 * m < 2^63.
    """
    quotient = B.div(B.mul(B.cast(a, dt.float64), B.cast(b, dt.float64)), B.cast(m, dt.float64))
    return B.mod(B.sub(B.mul(a, b), B.mul(B.cast(quotient, dt.int64), m)), m)
