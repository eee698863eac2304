"""Sine of float64 (R17: its accuracy) over the whole range, within 0.51 ulp.

x = k * pi/128 + r with |r| <= pi/256 and r a pair. Then sin(k pi/128 + r) = S cos r + C sin r with S and C from a table. Up to
2^21 the multiple of pi/128 is subtracted in five parts (Cody and Waite). Beyond, x * 128/pi mod 256 is computed in 192-bit
fixed point from a table that holds 2^e * 128/pi mod 256 for every exponent (Payne and Hanek).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from uops.interp.libm.constants import nearest_double_pair, pi, pi_fixed, sine_and_cosine_double_pair_tables
from uops.interp.libm.doubles import two_product, two_sum
from uops.interp.tensor.storage import Array

#: The greatest |x| that is reduced by subtraction.
_NEAR = 2.0**21
_STEP = pi() / 128
_STEP_PAIR = nearest_double_pair(_STEP)
_PER_STEP = float(1 / _STEP)
_u64 = np.uint64


def _split_for_cody_waite(x: Fraction) -> tuple[float, ...]:
    """Split `x` into four parts of 26 bits and a last one of 53."""
    parts = []
    for _ in range(4):
        unit = Fraction(2) ** (_binary_exponent(x) - 26)
        part = x // unit * unit
        parts.append(float(part))
        x -= part
    return (*parts, float(x))


def _binary_exponent(x: Fraction) -> int:
    """Return the e with 2^(e-1) <= x < 2^e, or one more."""
    return x.numerator.bit_length() - x.denominator.bit_length() + 1


_PARTS = _split_for_cody_waite(_STEP)


class _ReducedArgument(NamedTuple):
    """k and r with x = k * pi/128 + r, r as a pair."""

    multiple: Any
    rest_high: Any
    rest_low: Any


def _reduce_small_argument_cody_waite(x: Array) -> _ReducedArgument:
    """Return the reduced argument for |x| <= 2^21.

    The products of k with the parts of 26 bits are exact, as k is below 2^27. The product with the last part is rounded, which
    errs by less than 2^-138.
    """
    k = np.rint(x * _PER_STEP)
    h, low = x - k * _PARTS[0], 0.0
    for part in _PARTS[1:]:
        h, e = two_sum(h, -k * part)
        low = low + e
    h, low = two_sum(h, low)
    return _ReducedArgument(k.astype(np.int64), h, low)


#: Limbs of 32 bits per fixed-point number.
_LIMBS = 6
#: Fractional bits of a fixed-point number; 8 bits stand before the point.
_FRACTION = 32 * _LIMBS - 8
#: Exponent of the last bit of the smallest x beyond `_NEAR`, with one to spare.
_LEAST = -32


@cache
def _limbs_of_128_over_pi_by_exponent() -> Array:
    """Return 2^e * 128/pi mod 256 in limbs, lowest first, one row per e from _LEAST."""
    bits = 1300
    inverse = (128 << 2 * bits) // pi_fixed(bits)
    rows = []
    for e in range(_LEAST, 972):
        shift = bits - _FRACTION - e
        fixed = (inverse >> shift) % (1 << 32 * _LIMBS)
        rows.append([(fixed >> (32 * k)) & 0xFFFFFFFF for k in range(_LIMBS)])
    return np.array(rows, np.uint64)


def _reduce_large_argument_payne_hanek(x: Array) -> _ReducedArgument:
    """Return the reduced argument for positive finite x >= 2^21."""
    pattern = x.view(np.int64)
    mantissa = ((pattern & ((1 << 52) - 1)) | (1 << 52)).astype(_u64)
    turns = _limbs_of_128_over_pi_by_exponent()[(pattern >> 52) - 1075 - _LEAST]
    low, high, mask = mantissa & _u64(0xFFFFFFFF), mantissa >> _u64(32), _u64(0xFFFFFFFF)
    limbs: list[Any] = []
    carry: Any = _u64(0)
    for k in range(_LIMBS):
        a = low * turns[:, k]
        total = carry + (a & mask)
        if k >= 1:
            b = high * turns[:, k - 1]
            total = total + (low * turns[:, k - 1] >> _u64(32)) + (b & mask)
        if k >= 2:
            total = total + (high * turns[:, k - 2] >> _u64(32))
        limbs.append(total & mask)
        carry = total >> _u64(32)
    top = limbs[-1] + _u64(1 << 23)  # half a step more, so that the integer part is the nearest one
    fraction = (top & _u64(0xFFFFFF)).astype(np.float64) - 2.0**23
    h, rest = fraction * 2.0**-24, 0.0
    for k in range(_LIMBS - 2, -1, -1):
        h, e = two_sum(h, limbs[k].astype(np.float64) * 2.0 ** (32 * k - _FRACTION))
        rest = rest + e
    h, rest = two_sum(h, rest)
    r, r_low = two_product(h, _STEP_PAIR[0])
    return _ReducedArgument((top >> _u64(24)).astype(np.int64), r, r_low + (h * _STEP_PAIR[1] + rest * _STEP_PAIR[0]))


def _sine_of_reduced_argument(x: _ReducedArgument) -> Any:
    """Return sin(k pi/128 + r), r given as a pair."""
    k, r, r_low = x
    sine, sine_low, cosine, cosine_low = sine_and_cosine_double_pair_tables()
    at = k & 255
    s, c = sine[at], cosine[at]
    square = r * r
    p, p_low = two_product(c, r)
    bend = square * (-1 / 2 + square * (1 / 24 - square * (1 / 720)))
    tail = r * square * (-1 / 6 + square * (1 / 120 - square * (1 / 5040)))
    h, e = two_sum(s, p)
    return h + (e + (p_low + (c * r_low + cosine_low[at] * r) + sine_low[at] + s * bend + c * tail))


def sin(x: Array) -> Array:
    """Return sin(x). It is odd, so |x| is reduced; 0 keeps its sign, infinities and NaN give NaN."""
    size = np.abs(x)
    near = size <= _NEAR
    result = _sine_of_reduced_argument(_reduce_small_argument_cody_waite(np.where(near, size, 0.0)))
    far = np.asarray(~near & np.isfinite(x))
    if np.count_nonzero(far):
        result = np.asarray(result)
        result[far] = _sine_of_reduced_argument(_reduce_large_argument_payne_hanek(size[far]))
    result = np.where(near | far, result, np.nan)
    out: Array = np.where(x == 0, x, np.copysign(1.0, x) * result)
    return out
