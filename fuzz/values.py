"""Edge-value pools and random arrays, by bit pattern, for every dtype.

`edge_bits(dtype)` holds what breaks compilers: signed zeros, subnormals, the ends of the range, infinities, quiet and signalling
NaNs, one plus and minus an ulp, halfway cases of narrower formats, powers of two plus and minus one, counts around the width,
divisors -1 and 0.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import STORAGE
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType, Kind

T = TypeVar("T")
Array = npt.NDArray[Any]


class Draw(Protocol):
    """Where the generator's choices come from; both drivers implement it."""

    def integer(self, lo: int, hi: int) -> int:
        """An integer of [lo, hi]; a driver that shrinks goes toward lo."""
        ...

    def chance(self, percent: int) -> bool:
        """True in about `percent` of 100 draws; shrinks toward false."""
        ...

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        """One of `options`; shrinks toward the first."""
        ...


_UINT = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def from_bits(bits: Array, d: DType) -> Array:
    """Bit patterns (unsigned, of the dtype's width) as an array of `d`."""
    return bits.astype(_UINT[d.bits]).view(STORAGE[d])


def float_bits(d: DType, value: float) -> int:
    """Bits of a value that `d` holds exactly."""
    if value == 0:
        return (1 << (d.bits - 1)) if math.copysign(1, value) < 0 else 0
    sign, m = (1 << (d.bits - 1)) if value < 0 else 0, abs(value)
    frac, e = math.frexp(m)
    e -= 1
    if e < 1 - d.bias:
        return sign | int(m * 2.0 ** (d.bias - 1) * 2.0**d.man_bits) if d is not dt.float64 else _f64_bits(value)
    return sign | (e + d.bias) << d.man_bits | int((frac * 2 - 1) * (1 << d.man_bits))


def _f64_bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


@functools.cache
def edge_bits(d: DType) -> tuple[int, ...]:
    """The pool of `d`, most ordinary first (shrinking goes there)."""
    if d.kind is Kind.BOOL:
        return (0, 1)
    return _float_edges(d) if d.is_float else _integer_edges(d)


def _integer_edges(d: DType) -> tuple[int, ...]:
    bits = 64 if d is dt.index else d.bits
    values = [0, 1, 2, 3, -1, -2, 5, 7, 8, 10, bits - 1, bits, bits + 1]
    for k in range(2, bits + 1):
        values += [(1 << k) - 1, 1 << k, (1 << k) + 1, -(1 << k), (1 << (k - 1)) - 1]
    return tuple(dict.fromkeys(v & ((1 << bits) - 1) for v in values))


def _float_edges(d: DType) -> tuple[int, ...]:
    man, sign = d.man_bits, 1 << (d.bits - 1)
    one = d.bias << man
    top = float_bits(d, d.max_finite)
    ordinary = [float_bits(d, v) for v in (0.0, 1.0, 2.0, 0.5, 3.0, 1.5, 0.75)]
    spacing = [one + 1, one - 1, one + 2, one + (1 << (man - 1)), one + (1 << (man - 1)) + 1]
    small = [1, 2, 3, (1 << man) - 1, 1 << man, (1 << man) + 1]
    large = [top, top - 1, top - (1 << man)]
    powers = [(e << man) + o for e in range(1, (1 << d.exp_bits) - 1, max(1, (1 << d.exp_bits) // 32)) for o in (-1, 0, 1)]
    halfway = [(one + (k << man)) | (1 << h) for h in range(max(0, man - 20), man) for k in (0, 1)]
    positive = dict.fromkeys(ordinary + spacing + small + large + powers + halfway)
    special = [top + 1, top + 1 | sign] if d.has_inf else []
    nans = [sign - 1, 2 * sign - 1]
    if d.has_inf:
        nans += [top + 2, (top + 1) | 1 << (man - 1)]
    return tuple(dict.fromkeys([p | s for p in positive for s in (0, sign)] + special + nans))


STYLES = ("small", "edge", "bits", "normal", "mixed")


def array(draw: Draw, d: DType, shape: tuple[int, ...], style: str | None = None) -> Array:
    """A random array of `d`: small integers, edge values, raw bits, normals, or a mixture."""
    n = math.prod(shape)
    style = style or draw.choice(STYLES)
    seed = draw.integer(0, 2**31 - 1)
    rng = np.random.Generator(np.random.SFC64(seed))
    return _fill(rng, d, n, style).reshape(shape)


def _fill(rng: np.random.Generator, d: DType, n: int, style: str) -> Array:
    if d.kind is Kind.BOOL:
        return rng.integers(0, 2, n).astype(np.bool_)
    if style == "mixed":
        a, b = _fill(rng, d, n, "small"), _fill(rng, d, n, "edge")
        return np.where(rng.integers(0, 4, n) == 0, b, a).astype(STORAGE[d])
    if style == "edge":
        pool = np.array(edge_bits(d), np.uint64)
        return from_bits(pool[rng.integers(0, len(pool), n)], d) if d is not dt.index else _index(rng, n)
    if style == "bits" and d is not dt.index:
        return from_bits(rng.integers(0, 1 << d.bits, n, np.uint64, endpoint=False) if d.bits < 64 else _words(rng, n), d)
    if style == "normal" and d.is_float:
        return rng.standard_normal(n).astype(STORAGE[d])
    lo = 0 if d.kind is Kind.UINT else -4
    return rng.integers(lo, 6, n).astype(STORAGE[d])


def _words(rng: np.random.Generator, n: int) -> Array:
    return np.frombuffer(rng.bytes(8 * n), np.uint64)


def _index(rng: np.random.Generator, n: int) -> Array:
    return rng.integers(-(2**40), 2**40, n)
