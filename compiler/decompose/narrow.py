"""Small floats as the unsigned integers of their bits: correctly rounded narrowing, and exact widening.

Narrowing (R15: Cast, R19: subnormals) rounds to nearest even, once, from float32 or float64. Subnormals are kept. Overflow and
infinities give inf, in fp8e4m3 NaN. NaN gives the quiet NaN.

The rounding itself is one float addition. The addend is a power of two whose last place is the small format's last place at that
exponent. So the adder rounds there, for normal and subnormal results alike. float32 to bfloat16 keeps the exponent and rounds in
integers. Apart from bfloat16's own, no step reads or makes a subnormal of the wide format whose value matters.
"""

from __future__ import annotations

import math

from uops.compiler.decompose.build import BITS, SIGNED, Expr, float_bits, where
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

#: The float dtypes that are computed in a wider one.
SMALL = (dt.fp8e4m3, dt.fp8e5m2, dt.float16, dt.bfloat16)


def infinity_bits(d: DType) -> int:
    """Return the bits of inf, or in fp8e4m3 of its only NaN: every finite magnitude has smaller bits."""
    return 0x7F if d is dt.fp8e4m3 else ((1 << d.exp_bits) - 1) << d.man_bits


def nan_bits(d: DType) -> int:
    """Return the bits of the quiet NaN that narrowing gives."""
    return infinity_bits(d) | 1 << (d.man_bits - 1)


def encode_small_float(value: float, d: DType) -> int:
    """Return the bits of a value that is representable in the small float `d`."""
    sign = (1 << (d.bits - 1)) if math.copysign(1.0, value) < 0 else 0
    if not math.isfinite(value):
        return nan_bits(d) if value != value else sign | infinity_bits(d)
    exponent = max(math.frexp(value)[1] - 1 + d.bias, 1)
    significand = math.ldexp(abs(value), d.man_bits - (exponent - d.bias))
    return sign | (((exponent - 1) << d.man_bits) + int(significand) if value else 0)


def narrow(x: Expr, dst: DType) -> Expr:
    """Round float32 or float64 `x` to the small float `dst`, as the unsigned integer of its bits."""
    if dst is dt.bfloat16 and x.dtype is dt.float32:
        return _to_bfloat16(x)
    return _round_by_float_add(x, dst)


def _to_bfloat16(x: Expr) -> Expr:
    bits = x.bits()
    rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
    return where(x.ne(x), nan_bits(dt.bfloat16), rounded).cast(dt.uint16)


def _round_by_float_add(x: Expr, dst: DType) -> Expr:
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
    code = where(size < _overflow_threshold_bits(src, dst), code, _encode_overflow(size, dst, src))
    unsigned = code.bitcast(BITS[src]) | ((bits.bitcast(BITS[src]) >> (src.bits - dst.bits)) & (1 << (dst.bits - 1)))
    return unsigned.cast(BITS[dst])


def _overflow_threshold_bits(src: DType, dst: DType) -> int:
    """Return the least magnitude, as bits of `src`, whose code must be replaced.

    Between max_finite and it the addition rounds correctly by itself.
    """
    if dst is dt.fp8e4m3:
        return float_bits(464.0, src) + 1  # 464 is halfway to 480 and goes to the even 448
    return (src.bias + dst.bias + 1) << src.man_bits


def _encode_overflow(size: Expr, dst: DType, src: DType) -> Expr:
    """Return the code of magnitudes, as bits of `src`, that overflow or are NaN."""
    if dst is dt.fp8e4m3:
        return size.const(nan_bits(dst))
    infinite = float_bits(math.inf, src)
    return where(size > infinite, size.const(nan_bits(dst)), infinity_bits(dst))


def widen(bits: Expr, src: DType) -> Expr:
    """Return the float32 value of small floats given as unsigned bits; exact, NaN stays NaN, subnormals become normal numbers."""
    word = bits.cast(dt.uint32)
    if src is dt.bfloat16:
        return (word << 16).bitcast(dt.float32)
    size = word & ((1 << (src.bits - 1)) - 1)
    drop = 23 - src.man_bits
    shifted = size << drop
    normal = shifted + ((127 - src.bias) << 23)
    tiny = (size.bitcast(dt.int32).cast(dt.float32) * 2.0 ** (1 - src.bias - src.man_bits)).bits()
    value = where(size < (1 << src.man_bits), tiny, normal)
    value = where(size > infinity_bits(src) - 1, shifted | 0x7F800000, value)
    return (value | ((word & (1 << (src.bits - 1))) << (32 - src.bits))).bitcast(dt.float32)
