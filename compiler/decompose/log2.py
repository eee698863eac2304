"""Log2 of float32 and float64 as a graph: x = 2^e * m with m in [sqrt(1/2), sqrt(2)), log2(x) = e + f*q(f) with f = m - 1 exact.

e and m come from integer arithmetic on the bits, offset by the bits of sqrt(1/2). A subnormal is first converted from its bits as an integer, which
scales it by an exact power of two without reading a subnormal operand. The last step is one fma, so that no bits cancel: near 1, e is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from uops.compiler.decompose import coefficients as k
from uops.compiler.decompose.build import BITS, SIGNED, E, bits_of, horner, pick, where
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType

LOG2 = {dt.float32: k.LOG2_32, dt.float64: k.LOG2_64}


@dataclass(frozen=True, slots=True)
class Split:
    """A positive finite number as 2^exponent * (1 + fraction)."""

    exponent: E
    fraction: E


def split(x: E) -> Split:
    """`x` as 2^e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); meaningless, but without a trap, unless x is positive and finite."""
    d = x.dtype
    word, one = SIGNED[BITS[d]], 1 << d.man_bits
    low = root_bits(d)
    bits = x.bitcast(word)
    subnormal = bits < one
    bits = where(subnormal, bits.cast(d).bitcast(word), bits)
    offset = bits - pick(subnormal, low + (d.bias - 1 + d.man_bits) * one, low, word)
    exponent = (offset >> d.man_bits).cast(d)
    mantissa = ((offset & (one - 1)) + low).bitcast(d)
    return Split(exponent, mantissa - 1.0)


def root_bits(d: DType) -> int:
    """The bits of the largest number of `d` not above sqrt(1/2)."""
    if d is dt.float64:
        return bits_of(math.sqrt(0.5), d)
    return 0x3F3504F3


def log2(x: E) -> E:
    """log2(x) for float32 or float64, within 2 ulp over the whole range (R17): NaN below zero, -inf at both zeros."""
    s = split(x)
    y = horner(s.fraction, LOG2[x.dtype]).fma(s.fraction, s.exponent)
    y = where(x < math.inf, y, x)
    y = where(x < 0.0, math.nan, y)
    return where(x.eq(0.0), -math.inf, y)
