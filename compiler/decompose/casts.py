"""Conversions of R15 as graphs that never convert a number out of range.

`lower_cast` is the one entry: it converts a lowered value, in which a small float that the target lacks is the unsigned integer
of its bits.
"""

from __future__ import annotations

from uops.compiler.decompose.build import BITS, E, where
from uops.compiler.decompose.narrow import SMALL, encode, narrow, widen
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp

#: Dtypes that are themselves in lowered graphs on a target without small floats.
NATIVE = frozenset({dt.bool_, *dt.INTS, dt.float32, dt.float64})


def storage(d: DType, native: frozenset[DType] = NATIVE) -> DType:
    """The dtype of `d`'s values in a lowered graph: `d`, or the unsigned integer of its width."""
    return d if d in native else BITS[d]


def lower_cast(value: UOp, src: DType, dst: DType, native: frozenset[DType] = NATIVE) -> UOp:
    """The Cast from `src` to `dst` (R15) of a lowered `value`, as a lowered value.

    A small float outside `native` is the unsigned integer of its bits on both sides; one inside is a float of the graph, whose
    Casts to and from float32 are left as nodes. What is left of other Casts: between float32 and float64, from integers to those,
    between integers, and from those floats to int32, uint32, int64 and uint64, always in range.
    """
    return cast(E.of(value), src, dst, native).u


def cast(x: E, src: DType, dst: DType, native: frozenset[DType] = NATIVE) -> E:
    """`lower_cast` on expressions."""
    if src is dst:
        return x
    if src.is_float:
        if dst in SMALL and dst in native and src is dt.float32:
            return x.cast(dst)
        return _from_float(_as_wide(x, src, native), dst, native)
    return _from_integer(x, dst, native)


def _as_wide(x: E, src: DType, native: frozenset[DType]) -> E:
    """`x` as float32, or float64 if it is one."""
    if src not in SMALL:
        return x
    return x.cast(dt.float32) if src in native else widen(x, src)


def _from_float(x: E, dst: DType, native: frozenset[DType]) -> E:
    if dst is dt.bool_:
        return x.ne(0.0)
    if dst in SMALL:
        return _deliver(narrow(x, dst), dst, native)
    return x.cast(dst) if dst.is_float else float_to_integer(x, dst)


def _deliver(bits: E, dst: DType, native: frozenset[DType]) -> E:
    return bits.bitcast(dst) if dst in native else bits


def _from_integer(x: E, dst: DType, native: frozenset[DType]) -> E:
    if dst not in SMALL:
        return x.ne(0) if dst is dt.bool_ else x.cast(dst)
    if x.dtype is dt.bool_:
        one = x.const(encode(1.0, dst), BITS[dst])
        return _deliver(where(x, one, 0), dst, native)
    return _deliver(narrow(_exact(x, dst), dst), dst, native)


def _exact(x: E, dst: DType) -> E:
    """Integers as a float that rounds to `dst` as they do.

    float16 and fp8 overflow long before float32 rounds an integer, so that a float32 serves; for bfloat16 wide integers are first
    rounded to odd.
    """
    if dst is not dt.bfloat16 or x.dtype.bits <= 16:
        return x.cast(dt.float32)
    return integer_to_odd(x, dt.float32 if x.dtype.bits == 32 else dt.float64)


def integer_to_odd(x: E, dst: DType) -> E:
    """A 32-bit integer as float32 or a 64-bit one as float64: exact below 2^24 or 2^53, else rounded to odd.

    The odd rounding drops the 8 or 11 lowest bits, so that at least 16 or 42 significant ones stay: a second rounding to at most
    two bits fewer is as good as one from the integer.
    """
    drop = x.dtype.bits - dst.man_bits - 1
    low = (1 << drop) - 1
    unsigned = BITS[dst]
    bits = x.bitcast(unsigned)
    limit = 1 << (dst.man_bits + 1)
    fits = bits < limit if x.dtype.kind is Kind.UINT else bits + limit < 2 * limit
    sticky = (((bits & low) + low) | bits) & (((1 << x.dtype.bits) - 1) ^ low)
    return where(fits, bits, sticky).bitcast(x.dtype).cast(dst)


def float_to_integer(x: E, dst: DType) -> E:
    """float32 or float64 truncated toward zero, saturated, NaN to 0 (R15); the conversion itself is in range."""
    lo, hi = int(dst.min), int(dst.max)
    via = dst if dst.bits >= 32 else dt.int32
    low = where(x < float(lo), float(lo), x)
    largest = _largest(hi, x.dtype)
    if largest == hi:
        inside = where(low > float(hi), float(hi), low)
        return where(x.ne(x), 0.0, inside).cast(via).cast(dst)
    inside = where(low < float(hi + 1), low, 0.0)
    return where(x > float(largest), hi, inside.cast(via))


def _largest(limit: int, d: DType) -> int:
    """The largest value of `d` that is at most limit = 2^n - 1."""
    drop = max(0, limit.bit_length() - d.man_bits - 1)
    return limit >> drop << drop
