"""Pools of operand values for each dtype and edge class.

`edge_classes(dtype)` maps an edge class to operand values as bit patterns. `ordinary_bits(dtype)` gives *witnesses*: values for
which a backend that returns zeros, NaNs or its first operand is wrong. A case of an elementwise row has some before the values of
each class, so that doing nothing passes no cell.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.testing.values import edge_bits, encode_representable_value_unchecked, from_bits
from uops.spec.ir.derive.exact import round_nearest
from uops.spec.ir.dtypes import DType, DTypeKind

Array = npt.NDArray[Any]
Bits = tuple[int, ...]


def make_seeded_generator(*key: object) -> np.random.Generator:
    """Create a random generator that depends on the key alone, so that the suite is the same on every machine."""

    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))


@functools.cache
def ordinary_bits(d: DType) -> Bits:
    """Return unremarkable values of `d`, none of them 0 or 1 except for bool."""
    if d.kind is DTypeKind.BOOL:
        return (1, 0, 1, 1, 0, 0, 1, 0)
    if d.is_float:
        values = (2.5, -3.0, 0.75, 5.0, -0.375, 48.0, 1.5, -7.0)
        return tuple(encode_representable_value_unchecked(d, round_nearest(d, min(v, d.max_finite))) for v in values)
    top = (1 << d.storage.bits) - 1
    return tuple(v & top for v in (5, 3, 7, 2, 11, 6, 9, 4))


def _is_nan(d: DType, bits: int) -> bool:
    magnitude = bits & ((1 << (d.bits - 1)) - 1)
    return magnitude > encode_representable_value_unchecked(d, d.max_finite) + d.has_inf


def _is_inf(d: DType, bits: int) -> bool:
    return d.has_inf and bits & ((1 << (d.bits - 1)) - 1) == encode_representable_value_unchecked(d, d.max_finite) + 1


@functools.cache
def float_edge_classes(d: DType) -> dict[str, Bits]:
    """Divide the edge pool of a float dtype into classes, such as `subnormal` and `nan`."""
    mask, tiny = (1 << (d.bits - 1)) - 1, 1 << d.man_bits
    pool: dict[str, list[int]] = {"zero": [], "subnormal": [], "limit": [], "inf": [], "nan": [], "rounding": []}
    top = encode_representable_value_unchecked(d, d.max_finite)
    for bits in edge_bits(d):
        magnitude = bits & mask
        if _is_nan(d, bits):
            pool["nan"].append(bits)
        elif _is_inf(d, bits):
            pool["inf"].append(bits)
        elif magnitude == 0:
            pool["zero"].append(bits)
        elif magnitude < tiny:
            pool["subnormal"].append(bits)
        elif magnitude > top - 2 * tiny or magnitude < 4 * tiny:
            pool["limit"].append(bits)
        else:
            pool["rounding"].append(bits)
    return {k: tuple(bits) for k, bits in pool.items() if bits}


@functools.cache
def divide_integer_edges_into_zero_limit_powers(d: DType) -> dict[str, Bits]:
    """Divide the edge pool of an integer dtype into zero, the ends of the range with minus one, and the rest."""
    bits = d.storage.bits
    ends = {1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1, (1 << bits) - 1, (1 << bits) - 2}
    rest = [v for v in edge_bits(d) if v not in ends and v]
    return {"zero": (0,), "limit": tuple(sorted(ends)), "powers": tuple(rest)}


def edge_classes(d: DType) -> dict[str, Bits]:
    """Map each edge class to values of `d`; a bool has one class, its truth table."""
    if d.kind is DTypeKind.BOOL:
        return {"values": (0, 1)}
    return float_edge_classes(d) if d.is_float else divide_integer_edges_into_zero_limit_powers(d)


def random_bits(d: DType, n: int, *key: object) -> Array:
    """Return `n` uniformly random bit patterns."""
    rng = make_seeded_generator("bits", d.name, *key)
    if d.kind is DTypeKind.BOOL:
        return rng.integers(0, 2, n, np.uint64)
    words = np.frombuffer(rng.bytes(8 * n), np.uint64)
    return words & np.uint64((1 << d.bits) - 1)


def to_array(bits: Array | Bits | list[int], d: DType) -> Array:
    """Return bit patterns as an array of `d`."""
    words = np.array(bits, np.uint64)
    return words.astype(np.bool_) if d.kind is DTypeKind.BOOL else from_bits(words, d)
