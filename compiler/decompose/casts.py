"""Casts (R15) as graphs that never convert a number out of range.

`lower_cast` is the one entry. It converts a lowered value, in which a small float that the target lacks is the unsigned integer
of its bits.
"""

from __future__ import annotations

from uops.compiler.decompose.build import BITS, Expr, where
from uops.compiler.decompose.narrow import (
    SMALL,
    encode_representable_small_float,
    round_to_small_float_bits,
    small_float_bits_to_float32,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp

#: Dtypes that stay as they are in lowered graphs for a target without small floats.
NATIVE = frozenset(dt.STORABLE).difference(SMALL)


def soften_dtype(d: DType, native: frozenset[DType] = NATIVE) -> DType:
    """Return the dtype that stands for `d` in a lowered graph: `d` itself, or the word of a soft float that holds its bits."""
    return d if d in native else BITS[d]


def lower_cast(value: UOp, src: DType, dst: DType, native: frozenset[DType] = NATIVE) -> UOp:
    """Return the Cast from `src` to `dst` (R15) of a lowered `value`, as a lowered value.

    A small float outside `native` is the unsigned integer of its bits on both sides. One inside is a float of the graph, whose
    Casts to and from float32 stay nodes. Other Casts that stay are always in range. They are between float32 and float64, from
    integers to those, between integers, and from those floats to int32, uint32, int64 and uint64.
    """
    return lower_cast_expr(Expr.of(value), src, dst, native).u


def lower_cast_expr(x: Expr, src: DType, dst: DType, native: frozenset[DType] = NATIVE) -> Expr:
    """Apply `lower_cast` to expressions."""
    if src is dst:
        return x
    if src.is_float:
        if dst in SMALL and dst in native and src is dt.float32:
            return x.cast(dst)
        return _cast_from_float(_widen_small_float_by_bits_or_cast(x, src, native), dst, native)
    return _cast_from_integer(x, dst, native)


def _widen_small_float_by_bits_or_cast(x: Expr, src: DType, native: frozenset[DType]) -> Expr:
    """Return `x` as float32, or as float64 if it is one."""
    if src not in SMALL:
        return x
    return x.cast(dt.float32) if src in native else small_float_bits_to_float32(x, src)


def _cast_from_float(x: Expr, dst: DType, native: frozenset[DType]) -> Expr:
    if dst is dt.bool_:
        return x.ne(0.0)
    if dst in SMALL:
        return _bitcast_if_native(round_to_small_float_bits(x, dst), dst, native)
    return x.cast(dst) if dst.is_float else float_to_integer_saturating(x, dst)


def _bitcast_if_native(bits: Expr, dst: DType, native: frozenset[DType]) -> Expr:
    return bits.bitcast(dst) if dst in native else bits


def _cast_from_integer(x: Expr, dst: DType, native: frozenset[DType]) -> Expr:
    if dst not in SMALL:
        return x.ne(0) if dst is dt.bool_ else x.cast(dst)
    if x.dtype is dt.bool_:
        one = x.const_like(encode_representable_small_float(1.0, dst), BITS[dst])
        return _bitcast_if_native(where(x, one, 0), dst, native)
    return _bitcast_if_native(round_to_small_float_bits(_integer_to_float_for_narrowing(x, dst), dst), dst, native)


def _integer_to_float_for_narrowing(x: Expr, dst: DType) -> Expr:
    """Return integers as floats that round to `dst` as the integers do.

    float16 and fp8 overflow long before float32 rounds an integer, so float32 serves. For a wider range, such as that of
    bfloat16, wide integers are first rounded to odd.
    """
    if dst.max_finite < 2.0 ** (dt.float32.man_bits + 1) or x.dtype.bits <= 16:
        return x.cast(dt.float32)
    return integer_to_float_round_odd(x, dt.float32 if x.dtype.bits == 32 else dt.float64)


def integer_to_float_round_odd(x: Expr, dst: DType) -> Expr:
    """Convert a 32-bit integer to float32 or a 64-bit one to float64: exactly below 2^24 or 2^53, else rounded to odd.

    Rounding to odd drops the 8 or 11 lowest bits, so at least 16 or 42 significant ones stay. A second rounding to at most two
    bits fewer is then as good as one from the integer.
    """
    drop = x.dtype.bits - dst.man_bits - 1
    low = (1 << drop) - 1
    unsigned = BITS[dst]
    bits = x.bitcast(unsigned)
    limit = 1 << (dst.man_bits + 1)
    fits = bits < limit if x.dtype.kind is DTypeKind.UINT else bits + limit < 2 * limit
    sticky = (((bits & low) + low) | bits) & (((1 << x.dtype.bits) - 1) ^ low)
    return where(fits, bits, sticky).bitcast(x.dtype).cast(dst)


def float_to_integer_saturating(x: Expr, dst: DType) -> Expr:
    """Truncate float32 or float64 toward zero and saturate, NaN to 0 (R15); the conversion itself is in range."""
    lo, hi = int(dst.min), int(dst.max)
    via = dst if dst.bits >= 32 else dt.int32
    low = where(x < float(lo), float(lo), x)
    largest = _largest_representable(hi, x.dtype)
    if largest == hi:
        in_range = where(low > float(hi), float(hi), low)
        return where(x.ne(x), 0.0, in_range).cast(via).cast(dst)
    in_range = where(low < float(hi + 1), low, 0.0)
    return where(x > float(largest), hi, in_range.cast(via))


def _largest_representable(limit: int, d: DType) -> int:
    """Return the largest value of `d` that is at most limit = 2^n - 1."""
    drop = max(0, limit.bit_length() - d.man_bits - 1)
    return limit >> drop << drop
