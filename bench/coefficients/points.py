"""Points that are hard for each function: every exponent, the seams of the reductions, cancellation, subnormals, overflow, known
worst cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
Arguments = tuple[Any, ...]
Maker = Callable[[Random, int], Arguments]


def any_double(r: Random, n: int) -> Any:
    """Return float64 of random bits."""
    return r.integers(0, 1 << 64, n, dtype=np.uint64).view(np.float64)


def any_single(r: Random, n: int) -> Any:
    """Return float32 of random bits."""
    return r.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)


def subnormal(r: Random, n: int) -> Any:
    """Return random positive subnormal float64."""
    return r.integers(1, 1 << 52, n).astype(np.uint64).view(np.float64)


def near_one(r: Random, n: int) -> Any:
    """Return 1 + k * 2^-53, k of every size and sign."""
    return 1 + r.integers(-(2**30), 2**30, n) * 2.0**-53 * 2.0 ** r.integers(0, 22, n)


def exponents(r: Random, n: int) -> Any:
    """Return powers of two with uniform exponents."""
    return 2.0 ** r.uniform(-1074, 1023.99, n)


#: Arguments of sin nearest to a multiple of pi/2, small and large, and extremes.
SIN_WORST = np.array(
    [6381956970095103 * 2.0**797, 11.0, 22.0, 355.0, 710.0, 103993.0, 1e22, 2.0**1023, np.finfo(np.float64).max, 5e-324, 2.0**-1022,
     1.0, np.nextafter(1.0, 0.0), 0.75, np.pi / 4, np.pi / 2, np.pi, 2 * np.pi, np.nextafter(np.pi, 4.0), -np.pi]
)  # fmt: skip

DOUBLE_POINTS: dict[str, dict[str, Maker]] = {
    "exp2": {
        "whole range": lambda r, n: (r.uniform(-1080, 1030, n),),
        "[-1, 1]": lambda r, n: (r.uniform(-1, 1, n),),
        "subnormal results": lambda r, n: (r.uniform(-1076, -1020, n),),
        "around k + 1/2": lambda r, n: (r.integers(-1000, 1000, n) + 0.5 + r.integers(-40, 40, n) * 2.0**-50,),
        "integers": lambda r, n: (np.arange(-1080.0, 1030.0),),
        "any bits": lambda r, n: (any_double(r, n),),
    },
    "log2": {
        "any bits": lambda r, n: (np.abs(any_double(r, n)),),
        "near 1": lambda r, n: (near_one(r, n),),
        "[1/2, 2]": lambda r, n: (r.uniform(0.5, 2, n),),
        "around sqrt(1/2) 2^k": lambda r, n: (np.sqrt(0.5) * near_one(r, n) * 2.0 ** r.integers(-3, 4, n),),
        "subnormals": lambda r, n: (subnormal(r, n),),
        "powers of two": lambda r, n: (2.0 ** np.arange(-1074, 1024),),
    },
    "sin": {
        "[-10, 10]": lambda r, n: (r.uniform(-10, 10, n),),
        "up to 2^30": lambda r, n: (r.uniform(-(2.0**30), 2.0**30, n),),
        "any bits": lambda r, n: (any_double(r, n),),
        "huge": lambda r, n: (2.0 ** r.uniform(50, 1023.99, n),),
        "near k pi/2": lambda r, n: (r.integers(1, 1 << 40, n).astype(np.float64) * (np.pi / 2),),
        "worst cases": lambda r, n: (SIN_WORST,),
    },
    "pow": {
        "whole range": lambda r, n: _make_pow_points(r, exponents(r, n), -1080, 1030),
        "base in [1/2, 2]": lambda r, n: _make_pow_points(r, r.uniform(0.5, 2, n), -1080, 1030),
        "base near 1": lambda r, n: _make_pow_points(r, np.abs(near_one(r, n)), -1080, 1030),
        "subnormal results": lambda r, n: _make_pow_points(r, exponents(r, n), -1076, -1022),
        "near overflow": lambda r, n: _make_pow_points(r, r.uniform(0.7, 1.5, n), 1000, 1024),
        "subnormal base": lambda r, n: (subnormal(r, n), r.uniform(-1, 1, n)),
        "integers": lambda r, n: (r.integers(1, 50, n) * 1.0, r.integers(-60, 60, n) * 1.0),
        "small exponents": lambda r, n: (r.uniform(0, 10, n), r.uniform(-3, 3, n)),
    },
}


def _make_pow_points(r: Random, x: Any, low: float, high: float) -> Arguments:
    """Return the bases that are not 1, each with an exponent such that the result is 2^t, t in [low, high]."""
    x = x[x != 1]
    return x, r.uniform(low, high, x.size) / np.log2(x)


def make_single_pow_points(r: Random, n: int) -> dict[str, Arguments]:
    """Return points for float32 Pow, by kind."""
    kinds = {
        "float32 range": (2.0 ** r.uniform(-149, 128, n), -155, 130),
        "float32 near 1": (1 + r.integers(-(2**20), 2**20, n) * 2.0**-24, -155, 130),
        "float32 subnormal results": (2.0 ** r.uniform(-149, 128, n), -150, -126),
    }
    out: dict[str, Arguments] = {}
    for label, (x, low, high) in kinds.items():
        single = x.astype(np.float32)
        single = single[(single != 1) & np.isfinite(single)]
        out[label] = single, (r.uniform(low, high, single.size) / np.log2(single.astype(np.float64))).astype(np.float32)
    return out
