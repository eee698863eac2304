"""Pools of edge values, and random arrays, as bit patterns of every dtype.

`edge_bits(dtype)` has the values that break compilers: signed zeros, subnormals, the ends of the range, infinities, quiet and
signalling NaNs, neighbours at one ulp, halfway cases of narrower formats, powers of two plus and minus one, counts around the
width, and the divisors -1 and 0.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import STORAGE
from uops.spec.choices import ChoiceSource
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind

Array = npt.NDArray[Any]


_UINT = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def from_bits(bits: Array, d: DType) -> Array:
    """Return bit patterns (unsigned, of the dtype's width) as an array of `d`."""
    return bits.astype(_UINT[d.bits]).view(STORAGE[d])


def bits_to_number(bits: int, d: DType) -> int | float:
    """Return the value of a bit pattern; all NaNs are one."""
    element = from_bits(np.array([bits], np.uint64), d)[0]
    if not d.is_float:
        return int(element)
    return math.nan if np.isnan(np.float64(element)) else float(element)


def encode_representable_value_unchecked(d: DType, value: float) -> int:
    """Return the bits of a value that `d` represents exactly."""
    if value == 0:
        return (1 << (d.bits - 1)) if math.copysign(1, value) < 0 else 0
    sign, magnitude = (1 << (d.bits - 1)) if value < 0 else 0, abs(value)
    fraction, exponent = math.frexp(magnitude)
    exponent -= 1
    if exponent < d.min_exponent:
        return sign | int(magnitude * 2.0 ** (d.bias - 1) * 2.0**d.man_bits) if d is not dt.float64 else _f64_bits(value)
    return sign | (exponent + d.bias) << d.man_bits | int((fraction * 2 - 1) * (1 << d.man_bits))


def _f64_bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


@functools.cache
def edge_bits(d: DType) -> tuple[int, ...]:
    """Return the pool of edge values of `d`, most ordinary first, since shrinking moves there."""
    if d.kind is DTypeKind.BOOL:
        return (0, 1)
    return _float_edge_bits(d) if d.is_float else _integer_edge_bits(d)


def _integer_edge_bits(d: DType) -> tuple[int, ...]:
    bits = d.storage.bits
    values = [0, 1, 2, 3, -1, -2, 5, 7, 8, 10, bits - 1, bits, bits + 1]
    for k in range(2, bits + 1):
        values += [(1 << k) - 1, 1 << k, (1 << k) + 1, -(1 << k), (1 << (k - 1)) - 1]
    for mantissa_bits in sorted({f.man_bits for f in dt.FLOATS}):  # halfway between two floats, and next to that
        for k in sorted({mantissa_bits + 2, (mantissa_bits + bits) // 2, bits - 2, bits - 1}):
            if mantissa_bits + 2 <= k < bits:
                values += [(1 << k) + (1 << (k - mantissa_bits - 1)) + o for o in (-1, 0, 1)]
    return tuple(dict.fromkeys(v & ((1 << bits) - 1) for v in values))


def _float_edge_bits(d: DType) -> tuple[int, ...]:
    mantissa_bits, sign = d.man_bits, 1 << (d.bits - 1)
    one = d.bias << mantissa_bits
    top = encode_representable_value_unchecked(d, d.max_finite)
    ordinary = [encode_representable_value_unchecked(d, v) for v in (0.0, 1.0, 2.0, 0.5, 3.0, 1.5, 0.75)]
    spacing = [one + 1, one - 1, one + 2, one + (1 << (mantissa_bits - 1)), one + (1 << (mantissa_bits - 1)) + 1]
    small = [1, 2, 3, (1 << mantissa_bits) - 1, 1 << mantissa_bits, (1 << mantissa_bits) + 1]
    large = [top, top - 1, top - (1 << mantissa_bits)]
    powers = [
        (e << mantissa_bits) + o for e in range(1, (1 << d.exp_bits) - 1, max(1, (1 << d.exp_bits) // 32)) for o in (-1, 0, 1)
    ]
    halfway = [(one + (k << mantissa_bits)) | (1 << h) for h in range(max(0, mantissa_bits - 20), mantissa_bits) for k in (0, 1)]
    positive = dict.fromkeys(ordinary + spacing + small + large + powers + halfway)
    special = [top + 1, top + 1 | sign] if d.has_inf else []
    nans = [sign - 1, 2 * sign - 1]
    if d.has_inf:
        nans += [top + 2, (top + 1) | 1 << (mantissa_bits - 1)]
    return tuple(
        dict.fromkeys([p | s for p in positive for s in (0, sign)] + special + nans + _bits_at_range_ends_of_all_dtypes_and_exp2(d))
    )


def _bits_at_range_ends_of_all_dtypes_and_exp2(d: DType) -> list[int]:
    """Return the ends of other dtypes' ranges, as far as `d` represents them, and arguments at which results overflow or
    underflow."""
    values: list[float] = []
    for t in dt.INTS:
        for end in (int(t.min), int(t.max)):
            values += [end + o for o in (-1.5, -1, -0.5, 0, 0.5, 1)]
    for f in dt.FLOATS:
        top, least = f.max_finite, f.smallest_subnormal
        half = 2.0 ** (math.frexp(top)[1] - f.man_bits - 2)
        around = (top, top + half, top + half / 2, top + 2 * half, least, least / 2, least * 0.75)
        values += [s * v for v in around for s in (1, -1)]
    values += [s * (e + o) for e in (d.bias, d.bias + d.man_bits) for o in (-1, -0.5, 0, 0.5, 1) for s in (1, -1)]
    with np.errstate(all="ignore"):
        array = np.array(values, np.float64).astype(STORAGE[d])
    return [int(v) for v in array[np.isfinite(array.astype(np.float64))].view(_UINT[d.bits])]


@functools.cache
def special_bits_for_operand_pairs(d: DType) -> tuple[int, ...]:
    """Return the few values of `d` that most often form a special case when two of them meet."""
    if d.kind is DTypeKind.BOOL:
        return (0, 1)
    if not d.is_float:
        values = (0, 1, -1, 2, -2, 3, d.bits - 1, d.bits, int(d.min), int(d.max), int(d.min) + 1, int(d.max) - 1)
        return tuple(dict.fromkeys(v & ((1 << d.bits) - 1) for v in values))
    one, top, sign = d.bias << d.man_bits, encode_representable_value_unchecked(d, d.max_finite), 1 << (d.bits - 1)
    positive = [
        0,
        one,
        one + 1,
        *(encode_representable_value_unchecked(d, v) for v in (0.5, 1.5, 2.0, 3.0)),
        1,
        1 << d.man_bits,
        top,
    ]
    return (*(p | s for p in positive for s in (0, sign)), *([top + 1, top + 1 | sign] if d.has_inf else []), sign - 1)


STYLES = ("small", "edge", "bits", "normal", "mixed", "special", "spread")


def draw_array(draw: ChoiceSource, d: DType, shape: tuple[int, ...], style: str | None = None) -> Array:
    """Draw an array of `d`: small integers, edge values, raw bits, normals, a mixture, special values, or magnitudes spread evenly
    over powers of two."""
    n = math.prod(shape)
    style = style or draw.choice(STYLES)
    return _draw_elements(_make_generator(draw), d, n, style).reshape(shape)


def _make_generator(draw: ChoiceSource) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(draw.integer(0, 2**31 - 1)))


def draw_mulacc_operands_with_halfway_product(draw: ChoiceSource, d: DType, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Draw floats a, b and c where a * b is halfway between two numbers of `d` and c is tiny or zero.

    Their sum, rounded once, then depends on every bit of it. a is 1 plus an odd number of ulps, less than 4/3, and b is 1.5 times a
    power of two.
    """
    rng, n = _make_generator(draw), math.prod(shape)
    odd = 1 + 2 * rng.integers(0, max(1, (1 << d.man_bits) // 6), n, np.uint64)
    factors = np.array([encode_representable_value_unchecked(d, v) for v in (1.5, 0.75, 3.0)], np.uint64)
    small = np.array([1, 1 << d.man_bits, 0, 2], np.uint64)
    bits = (odd + np.uint64(d.bias << d.man_bits), rng.choice(factors, n), rng.choice(small, n))
    signs = np.uint64(1 << (d.bits - 1))
    a, b, c = (from_bits(x | signs * rng.integers(0, 2, n, np.uint64), d).reshape(shape) for x in bits)
    return a, b, c


def cast_drops_digits(source: DType, target: DType) -> bool:
    """Return True if a Cast drops digits of numbers."""
    if not target.is_float:
        return source.is_float and target.is_integer
    return (
        source.man_bits > target.man_bits
        if source.is_float
        else source.is_integer and _magnitude_bits(source) > target.man_bits + 1
    )


def _magnitude_bits(d: DType) -> int:
    """Return the number of bits of an integer's magnitude."""
    return d.bits - d.is_signed


def draw_near_cast_ties_or_over_integer_range(draw: ChoiceSource, source: DType, target: DType, shape: tuple[int, ...]) -> Array:
    """Draw numbers of `source` whose Cast to `target` depends on every dropped bit, or lies at the ends of the range.

    For an integer `target`, they cover its range and a little beyond. Otherwise, they are halfway between two neighbours of
    `target`, or next to that.
    """
    rng, n = _make_generator(draw), math.prod(shape)
    if target.is_integer:
        low = -1.25 if target.is_signed else -0.25
        with np.errstate(all="ignore"):
            return (rng.uniform(low, 1.25, n) * 2.0 ** (target.bits - target.is_signed)).astype(STORAGE[source]).reshape(shape)
    values = _draw_floats_near_ties(rng, source, target, n) if source.is_float else _draw_integers_near_ties(rng, source, target, n)
    return values.reshape(shape)


def _draw_integers_near_ties(rng: np.random.Generator, source: DType, target: DType, n: int) -> Array:
    """Draw integers with one more digit than `target` has, then zeros, plus or minus one. Half of them use all digits of
    `source`."""
    target_digits = target.man_bits + 1
    droppable_digits = _magnitude_bits(source) - target_digits
    dropped = np.where(
        rng.integers(0, 2, n) > 0, np.uint64(droppable_digits), rng.integers(1, droppable_digits, n, np.uint64, endpoint=True)
    )
    head = rng.integers(1 << (target_digits - 1), 1 << target_digits, n, np.uint64)
    x = (head << dropped) + (np.uint64(1) << (dropped - np.uint64(1))) + rng.integers(-1, 2, n).astype(np.uint64)
    return from_bits(np.where(rng.integers(0, 2, n) < source.is_signed, -x, x) & np.uint64(2**source.bits - 1), source)


def _draw_floats_near_ties(rng: np.random.Generator, source: DType, target: DType, n: int) -> Array:
    """Draw floats halfway between two neighbours of `target`, and one ulp to either side.

    The neighbours lie in the range of both dtypes. They are normal in `source` if its subnormals end before those of `target`.
    """
    end = np.array(min(source.max_finite, target.max_finite)).astype(STORAGE[target])
    last = encode_representable_value_unchecked(target, float(end))
    has_finer_subnormals = source.smallest_subnormal < target.smallest_subnormal
    first = 0 if has_finer_subnormals else encode_representable_value_unchecked(target, 2.0**source.min_exponent)
    bits = rng.integers(first, last, n, np.uint64)
    below, above = (from_bits(x, target).astype(np.float64) for x in (bits, bits + np.uint64(1)))
    with np.errstate(all="ignore"):
        middle = ((below + above) / 2).astype(STORAGE[source]).view(_UINT[source.bits]).astype(np.uint64)
    moved = middle + rng.integers(-1, 2, n).astype(np.uint64) + (rng.integers(0, 2, n, np.uint64) << np.uint64(source.bits - 1))
    return from_bits(moved & np.uint64(2**source.bits - 1), source)


def _draw_elements(rng: np.random.Generator, d: DType, n: int, style: str) -> Array:
    if d.kind is DTypeKind.BOOL:
        return rng.integers(0, 2, n).astype(np.bool_)
    if style == "mixed":
        a, b = _draw_elements(rng, d, n, "small"), _draw_elements(rng, d, n, "edge")
        return np.where(rng.integers(0, 4, n) == 0, b, a).astype(STORAGE[d])
    if style in _POOLS:
        if d is dt.index:
            return _draw_index_values(rng, n)
        pool = np.array(_POOLS[style](d), np.uint64)
        return from_bits(pool[rng.integers(0, len(pool), n)], d)
    if style == "bits" and d is not dt.index:
        return from_bits(rng.integers(0, 1 << d.bits, n, np.uint64, endpoint=False) if d.bits < 64 else _draw_words(rng, n), d)
    if style == "normal" and d.is_float:
        return rng.standard_normal(n).astype(STORAGE[d])
    if style == "spread" and d is not dt.index:
        return _draw_log_uniform_ints_or_moderate_floats(rng, d, n)
    lo = 0 if d.kind is DTypeKind.UINT else -4
    return rng.integers(lo, 6, n).astype(STORAGE[d])


_POOLS = {"edge": edge_bits, "special": special_bits_for_operand_pairs}


def _draw_log_uniform_ints_or_moderate_floats(rng: np.random.Generator, d: DType, n: int) -> Array:
    """Draw numbers of any magnitude; floats stay in a range where functions still have distinct results."""
    signs = 1 if d.kind is DTypeKind.UINT else rng.choice((-1.0, 1.0), n)
    if d.is_float:
        with np.errstate(all="ignore"):
            return (signs * np.exp2(rng.uniform(-8, min(11, math.log2(d.max_finite)), n))).astype(STORAGE[d])
    magnitude_bits = _magnitude_bits(d)
    below_end = np.nextafter(2.0**magnitude_bits, 0)  # rounding may reach the end, which `d` does not represent
    return (signs * np.minimum(np.exp2(rng.uniform(0, magnitude_bits, n)), below_end)).astype(STORAGE[d])


def _draw_words(rng: np.random.Generator, n: int) -> Array:
    return np.frombuffer(rng.bytes(8 * n), np.uint64)


def _draw_index_values(rng: np.random.Generator, n: int) -> Array:
    return rng.integers(-(2**40), 2**40, n)
