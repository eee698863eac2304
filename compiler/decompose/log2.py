"""Log2 of float32 and float64 as a graph: x = 2^e * m with m in [sqrt(1/2), sqrt(2)), log2(x) = e + f*q(f) with f = m - 1 exact.

e and m come from integer arithmetic on the bits, offset by the bits of sqrt(1/2). A subnormal is first converted from its bits as
an integer. That scales it by an exact power of two, and no subnormal operand is read. The last step is one fma, so no bits
cancel: near 1, e is 0.
"""

from __future__ import annotations

import math

from uops.compiler.decompose import coefficients as k
from uops.compiler.decompose.build import Expr, float_bits, horner, select_constants, where
from uops.spec.ir import dtypes as dt
from uops.spec.ir.build import wrap_to_width
from uops.spec.ir.dtypes import DType
from uops.spec.ir.record import dataclass

#: dtype -> the coefficients of log2(1 + f) / f
LOG2 = {dt.float32: k.LOG2_32, dt.float64: k.LOG2_64}


@dataclass(frozen=True, slots=True)
class ExponentFraction:
    """A positive finite number as 2^exponent * (1 + fraction)."""

    exponent: Expr
    fraction: Expr


def split_exponent_at_sqrt_half(x: Expr, may_be_subnormal: bool = True) -> ExponentFraction:
    """Return `x` as 2^e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)).

    Unless x is positive and finite the result has no meaning, but nothing traps. Without `may_be_subnormal`, a float64 `x` must
    also be normal.
    """
    return (
        _split_exponent32_and_mantissa_minus_one(x)
        if x.dtype is dt.float32
        else _split_exponent64_and_mantissa_minus_one(x, may_be_subnormal)
    )


def _split_exponent32_and_mantissa_minus_one(x: Expr) -> ExponentFraction:
    one, low = 1 << 23, sqrt_half_bits(dt.float32)
    subnormal = x < 2.0**-126
    bits = x.bitcast(dt.int32)
    bits = where(subnormal, bits.cast(dt.float32).bitcast(dt.int32), bits)
    offset = bits - select_constants(subnormal, wrap_to_width(low + 149 * one, dt.int32), low, dt.int32)
    return ExponentFraction((offset >> 23).cast(dt.float32), ((offset & (one - 1)) + low).bitcast(dt.float32) - 1.0)


def _split_exponent64_and_mantissa_minus_one(x: Expr, may_be_subnormal: bool) -> ExponentFraction:
    """Split a float64 in unsigned words; integers become doubles through their bits.

    Few targets shift or convert signed 64-bit lanes.
    """
    one, low, bias = 1 << 52, sqrt_half_bits(dt.float64), 1075  # the bias makes every exponent positive
    bits, shift = x.bits(), x.const_like(bias * one - low, dt.uint64)
    if may_be_subnormal:
        tiny = x < 2.0**-1022
        bits = where(tiny, small_uint64_to_float64(bits, 0.0).bits(), bits)
        shift = where(tiny, wrap_to_width((bias - 1074) * one - low, dt.uint64), shift)
    offset = bits + shift
    exponent = small_uint64_to_float64(offset >> 52, float(bias))
    return ExponentFraction(exponent, ((offset & (one - 1)) + low).bitcast(dt.float64) - 1.0)


def small_uint64_to_float64(value: Expr, subtrahend: float) -> Expr:
    """Return the uint64 `value` below 2^52 as a float64, minus the integer `subtrahend`."""
    return (value | float_bits(2.0**52, dt.float64)).bitcast(dt.float64) - (2.0**52 + subtrahend)


def sqrt_half_bits(d: DType) -> int:
    """Return the bits of sqrt(1/2) in `d`."""
    return float_bits(math.sqrt(0.5), d)


def log2(x: Expr) -> Expr:
    """Return log2(x) for float32 or float64, within 2 ulp over the whole range (R17): NaN below zero, -inf at both zeros."""
    parts = split_exponent_at_sqrt_half(x)
    y = horner(parts.fraction, LOG2[x.dtype]).fma(parts.fraction, parts.exponent)
    y = where(x < math.inf, y, x)
    y = where(x < 0.0, math.nan, y)
    return where(x.eq(0.0), -math.inf, y)
