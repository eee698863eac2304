"""Operand pools of the edge classes, by dtype.

`classes(dtype)` maps an edge class to operand values as bit patterns. Each class begins with *witnesses*, ordinary values on
which a backend that returns zeros, NaNs or its first operand is wrong, so that no cell can be passed by doing nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.testing.values import edge_bits, float_bits, from_bits
from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.exact import round_nearest
from uops.spec.ir.dtypes import DType, Kind

Array = npt.NDArray[Any]
Bits = tuple[int, ...]


def seeded(*key: object) -> np.random.Generator:
    """A generator that is a function of the key alone: the suite is the same on every machine."""
    import hashlib

    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))


@functools.cache
def ordinary(d: DType) -> Bits:
    """Unremarkable values, none of them 0 or 1."""
    if d.kind is Kind.BOOL:
        return (1, 0, 1, 1, 0, 0, 1, 0)
    if d.is_float:
        values = (2.5, -3.0, 0.75, 5.0, -0.375, 48.0, 1.5, -7.0)
        return tuple(float_bits(d, round_nearest(d, v)) for v in values)
    top = (1 << (64 if d is dt.index else d.bits)) - 1
    return tuple(v & top for v in (5, 3, 7, 2, 11, 6, 9, 4))


def _is_nan(d: DType, bits: int) -> bool:
    magnitude = bits & ((1 << (d.bits - 1)) - 1)
    return magnitude > float_bits(d, d.max_finite) + d.has_inf


def _is_inf(d: DType, bits: int) -> bool:
    return d.has_inf and bits & ((1 << (d.bits - 1)) - 1) == float_bits(d, d.max_finite) + 1


@functools.cache
def float_classes(d: DType) -> dict[str, Bits]:
    """The edge pool of a float dtype, divided by what is remarkable about a value."""
    mask, tiny = (1 << (d.bits - 1)) - 1, 1 << d.man_bits
    found: dict[str, list[int]] = {"zero": [], "subnormal": [], "limit": [], "inf": [], "nan": [], "rounding": []}
    top = float_bits(d, d.max_finite)
    for v in edge_bits(d):
        m = v & mask
        if _is_nan(d, v):
            found["nan"].append(v)
        elif _is_inf(d, v):
            found["inf"].append(v)
        elif m == 0:
            found["zero"].append(v)
        elif m < tiny:
            found["subnormal"].append(v)
        elif m > top - 2 * tiny or m < 4 * tiny:
            found["limit"].append(v)
        else:
            found["rounding"].append(v)
    return {k: tuple(v) for k, v in found.items() if v}


@functools.cache
def integer_classes(d: DType) -> dict[str, Bits]:
    """The edge pool of an integer dtype: zero, minus one, the ends of the range, and the rest."""
    bits = 64 if d is dt.index else d.bits
    ends = {1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1, (1 << bits) - 1, (1 << bits) - 2}
    rest = [v for v in edge_bits(d) if v not in ends and v]
    return {"zero": (0,), "limit": tuple(sorted(ends)), "powers": tuple(rest)}


def classes(d: DType) -> dict[str, Bits]:
    """Edge class -> values of `d`; a bool has its truth table as one class."""
    if d.kind is Kind.BOOL:
        return {"values": (0, 1)}
    return float_classes(d) if d.is_float else integer_classes(d)


def random_bits(d: DType, n: int, *key: object) -> Array:
    """`n` uniformly random bit patterns."""
    rng = seeded("bits", d.name, *key)
    if d.kind is Kind.BOOL:
        return rng.integers(0, 2, n, np.uint64)
    words = np.frombuffer(rng.bytes(8 * n), np.uint64)
    return words & np.uint64((1 << d.bits) - 1)


def to_array(bits: Array | Bits | list[int], d: DType) -> Array:
    """Bit patterns as an array of `d`."""
    words = np.array(bits, np.uint64)
    return words.astype(np.bool_) if d.kind is Kind.BOOL else from_bits(words, d)
