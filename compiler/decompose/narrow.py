"""Small floats as the unsigned integers of their bits: correctly rounded narrowing, and exact widening.

Narrowing (R15: Cast, R19: subnormals) rounds to nearest even, once, from float32 or float64. Subnormals are kept. Overflow and
infinities give inf, or NaN in a dtype without infinities. NaN gives the quiet NaN.

The rounding itself is one float addition. The addend is a power of two whose last place is the small format's last place at that
exponent. So the adder rounds there, for normal and subnormal results alike. float32 to a dtype with as many exponents, such as
bfloat16, rounds in integers. Apart from the subnormals of such a dtype, no step reads or makes a subnormal of the wide format
whose value matters.
"""

from __future__ import annotations

import math

from uops.compiler.decompose.build import BITS, SIGNED, Expr, float_bits, where
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

#: The float dtypes that are computed in a wider one.
SMALL = tuple(d for d in dt.FLOATS if d.wide is not d)
#: The float dtypes in which a target computes.
WIDE = tuple(d for d in dt.FLOATS if d not in SMALL)


def infinity_bits(d: DType) -> int:
    """Return the bits of inf, or of the only NaN of a finite-only dtype: every finite magnitude has smaller bits."""
    return (1 << (d.bits - 1)) - 1 if d.finite_only else ((1 << d.exp_bits) - 1) << d.man_bits


def nan_bits(d: DType) -> int:
    """Return the bits of the quiet NaN that narrowing gives."""
    return infinity_bits(d) | 1 << (d.man_bits - 1)


def encode_representable_small_float(value: float, d: DType) -> int:
    """Return the bits of a value that is representable in the small float `d`."""
    sign = (1 << (d.bits - 1)) if math.copysign(1.0, value) < 0 else 0
    if not math.isfinite(value):
        return nan_bits(d) if value != value else sign | infinity_bits(d)
    exponent = max(math.frexp(value)[1] - 1 + d.bias, 1)
    significand = math.ldexp(abs(value), d.man_bits - (exponent - d.bias))
    return sign | (((exponent - 1) << d.man_bits) + int(significand) if value else 0)


def round_to_small_float_bits(x: Expr, dst: DType) -> Expr:
    """Round float32 or float64 `x` to the small float `dst`, as the unsigned integer of its bits."""
    if dst.exp_bits == x.dtype.exp_bits:
        return _round_to_small_bits_by_integer_add(x, dst)
    return _round_to_small_bits_by_float_add(x, dst)


def _round_to_small_bits_by_integer_add(x: Expr, dst: DType) -> Expr:
    """Round `x` to a dtype with as many exponents, whose bits are the first bits of those of `x`."""
    bits, drop = x.bits(), x.dtype.bits - dst.bits
    rounded = (bits + ((bits >> drop) & 1) + ((1 << (drop - 1)) - 1)) >> drop
    return where(x.ne(x), nan_bits(dst), rounded).cast(BITS[dst])


def _round_to_small_bits_by_float_add(x: Expr, dst: DType) -> Expr:
    """Round `x` to `dst` by one float addition.

    `base` is the exponent field of x, at least that of dst's least normal number. In units of dst's last place the magnitude is
    bits(|x| + magic) - bits(magic). The exponent field of the result, less one, is added to that.
    """
    src, word = x.dtype, SIGNED[BITS[x.dtype]]
    drop = src.man_bits - dst.man_bits
    sign_bit = src.bits - 1
    bits = x.bitcast(word)
    size = bits & ((1 << sign_bit) - 1)
    least = src.bias + 1 - dst.bias
    base = (size & (((1 << src.exp_bits) - 1) << src.man_bits)).maximum(least << src.man_bits)
    magic = base + (drop << src.man_bits)
    rounded = (size.bitcast(src) + magic.bitcast(src)).bitcast(word) - magic
    code = rounded + (base >> drop) - (least << dst.man_bits)
    code = where(size < _code_replacement_threshold_bits(src, dst), code, _overflow_or_nan_code(size, dst, src))
    unsigned = code.bitcast(BITS[src]) | ((bits.bitcast(BITS[src]) >> (src.bits - dst.bits)) & (1 << (dst.bits - 1)))
    return unsigned.cast(BITS[dst])


def _code_replacement_threshold_bits(src: DType, dst: DType) -> int:
    """Return the least magnitude, as bits of `src`, whose code must be replaced.

    Between max_finite and it the addition rounds correctly by itself.
    """
    if dst.finite_only:
        return float_bits(_last_rounded_to_finite(dst), src) + 1
    return (src.bias + dst.bias + 1) << src.man_bits


def _last_rounded_to_finite(d: DType) -> float:
    """Return the midpoint above the greatest value of a finite-only dtype, which is even: 464 for fp8e4m3."""
    return d.max_finite + math.ldexp(0.5, d.bias + 1 - d.man_bits)


def _overflow_or_nan_code(magnitude_bits: Expr, dst: DType, src: DType) -> Expr:
    """Return the code of magnitudes, as bits of `src`, that overflow or are NaN."""
    if dst.finite_only:
        return magnitude_bits.const_like(nan_bits(dst))
    infinite = float_bits(math.inf, src)
    return where(magnitude_bits > infinite, magnitude_bits.const_like(nan_bits(dst)), infinity_bits(dst))


def small_float_bits_to_float32(bits: Expr, src: DType) -> Expr:
    """Return the float32 value of small floats given as unsigned bits; exact, NaN stays NaN, subnormals become normal numbers."""
    word = bits.cast(dt.uint32)
    if src.exp_bits == dt.float32.exp_bits:
        return (word << (dt.float32.bits - src.bits)).bitcast(dt.float32)
    size = word & ((1 << (src.bits - 1)) - 1)
    drop = 23 - src.man_bits
    shifted = size << drop
    normal = shifted + ((127 - src.bias) << 23)
    tiny = (size.bitcast(dt.int32).cast(dt.float32) * src.smallest_subnormal).bits()
    value = where(size < (1 << src.man_bits), tiny, normal)
    value = where(size > infinity_bits(src) - 1, shifted | 0x7F800000, value)
    return (value | ((word & (1 << (src.bits - 1))) << (32 - src.bits))).bitcast(dt.float32)
