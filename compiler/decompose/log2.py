"""Log2 of float32 and float64 as a graph: x = 2^e * m with m in [sqrt(1/2), sqrt(2)), log2(x) = e + f*q(f) with f = m - 1 exact.

e and m come from integer arithmetic on the bits, offset by the bits of sqrt(1/2). A subnormal is first converted from its bits as
an integer, which scales it by an exact power of two without reading a subnormal operand. The last step is one fma, so that no
bits cancel: near 1, e is 0.
"""

from __future__ import annotations

import math

from uops.compiler.decompose import coefficients as k
from uops.compiler.decompose.build import E, bits_of, horner, pick, where
from uops.spec.ir import dtypes as dt
from uops.spec.ir.build import wrap
from uops.spec.ir.dtypes import DType
from uops.spec.ir.record import dataclass

LOG2 = {dt.float32: k.LOG2_32, dt.float64: k.LOG2_64}


@dataclass(frozen=True, slots=True)
class Split:
    """A positive finite number as 2^exponent * (1 + fraction)."""

    exponent: E
    fraction: E


def split(x: E, subnormals: bool = True) -> Split:
    """`x` as 2^e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); meaningless, but without a trap, unless x is positive and finite.

    Without `subnormals`, a float64 `x` must also be normal.
    """
    return _split32(x) if x.dtype is dt.float32 else _split64(x, subnormals)


def _split32(x: E) -> Split:
    one, low = 1 << 23, root_bits(dt.float32)
    subnormal = x < 2.0**-126
    bits = x.bitcast(dt.int32)
    bits = where(subnormal, bits.cast(dt.float32).bitcast(dt.int32), bits)
    offset = bits - pick(subnormal, wrap(low + 149 * one, dt.int32), low, dt.int32)
    return Split((offset >> 23).cast(dt.float32), ((offset & (one - 1)) + low).bitcast(dt.float32) - 1.0)


def _split64(x: E, subnormals: bool) -> Split:
    """As `_split32`, in unsigned words: few targets shift or convert signed 64-bit lanes, so integers become doubles through
    their bits."""
    one, low, bias = 1 << 52, root_bits(dt.float64), 1075  # the bias makes every exponent positive
    bits, shift = x.bits(), x.const(bias * one - low, dt.uint64)
    if subnormals:
        tiny = x < 2.0**-1022
        bits = where(tiny, small_integer(bits, 0.0).bits(), bits)
        shift = where(tiny, wrap((bias - 1074) * one - low, dt.uint64), shift)
    offset = bits + shift
    return Split(small_integer(offset >> 52, float(bias)), ((offset & (one - 1)) + low).bitcast(dt.float64) - 1.0)


def small_integer(value: E, less: float) -> E:
    """The uint64 `value` below 2^52 as a float64, minus the integer `less`."""
    return (value | bits_of(2.0**52, dt.float64)).bitcast(dt.float64) - (2.0**52 + less)


def root_bits(d: DType) -> int:
    """The bits of sqrt(1/2) in `d`."""
    return bits_of(math.sqrt(0.5), d)


def log2(x: E) -> E:
    """log2(x) for float32 or float64, within 2 ulp over the whole range (R17): NaN below zero, -inf at both zeros."""
    s = split(x)
    y = horner(s.fraction, LOG2[x.dtype]).fma(s.fraction, s.exponent)
    y = where(x < math.inf, y, x)
    y = where(x < 0.0, math.nan, y)
    return where(x.eq(0.0), -math.inf, y)
