"""The functions that LLVM calls where a processor lacks an instruction, compiled for this processor: against libm and Python."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.backends.cross.support import SUPPORT_SYMBOLS, render_support_functions
from uops.backends.llvm import binding

_LIBM = ctypes.CDLL("libm.so.6")
_SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 2.0**-1022, 1.7976931348623157e308, 1.0, -1.0)


@pytest.fixture(scope="module")
def function() -> Callable[..., Any]:
    """A function by name, for calls with a ctypes type for the result and the arguments."""
    text = render_support_functions()
    for name in SUPPORT_SYMBOLS:
        text = text.replace(f"@{name}(", f"@our_{name}(")  # this process has functions of the same names
    names = sorted(SUPPORT_SYMBOLS)
    image = binding.compile_object(text, binding.detect_host_without_gfni(), binding.LlvmTier.FULL)
    loaded = binding.load_object(image, *(f"our_{name}" for name in names))
    addresses = dict(zip(names, loaded.addresses, strict=True))

    def find(name: str, kind: Any, count: int) -> Any:
        native = ctypes.CFUNCTYPE(kind, *[kind] * count)(addresses[name])
        return lambda *arguments, _keep=loaded: native(*arguments)

    return find


def draw_double(draw: random.Random) -> float:
    """A float64 of any kind: special, any bits, subnormal, a small integer times a power of two, or a few magnitudes."""
    sign = draw.choice((-1, 1))
    choice = draw.randrange(6)
    if choice == 0:
        return draw.choice(_SPECIAL)
    if choice == 1:
        return float(struct.unpack("<d", draw.getrandbits(64).to_bytes(8, "little"))[0])
    if choice == 2:
        return sign * draw.getrandbits(52) * 2.0**-1074
    if choice == 3:
        return sign * draw.randrange(10) * 2.0 ** draw.randrange(-60, 60)
    exponent = draw.choice((0, 1, -1, -511, -512, -537, draw.randrange(-500, 500), draw.randrange(-1022, 1023)))
    return float(sign * (1 + draw.getrandbits(52) / 2**52) * 2.0**exponent)


def same(x: float, y: float) -> bool:
    return struct.pack("<d", x) == struct.pack("<d", y) or (x != x and y != y)


def test_fma_rounds_once(function: Callable[..., Any]) -> None:
    ours = function("fma", ctypes.c_double, 3)
    _LIBM.fma.restype, _LIBM.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    draw = random.Random(0)
    for _ in range(30_000):
        x, y, z = (draw_double(draw) for _ in range(3))
        if draw.randrange(3) == 0 and math.isfinite(x * y):
            z = -x * y * (1 + draw.choice((0.0, 2**-52, -(2**-53), 2**-40)))  # cancels
        assert same(ours(x, y, z), _LIBM.fma(x, y, z)), (x.hex(), y.hex(), z.hex())


def test_fmaf_rounds_once(function: Callable[..., Any]) -> None:
    ours = function("fmaf", ctypes.c_float, 3)
    _LIBM.fmaf.restype, _LIBM.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    draw = random.Random(1)
    for _ in range(30_000):
        x, y, z = (float(np.frombuffer(draw.getrandbits(32).to_bytes(4, "little"), np.float32)[0]) for _ in range(3))
        if draw.randrange(3) == 0 and math.isfinite(x * y) and abs(x * y) < 1e38:
            z = float(np.float32(-x * y))
        assert same(ours(x, y, z), _LIBM.fmaf(x, y, z)), (x, y, z)


@pytest.mark.parametrize(("name", "kind", "d"), [("trunc", ctypes.c_double, np.float64), ("truncf", ctypes.c_float, np.float32)])
def test_truncation_keeps_signs_and_whole_numbers(function: Callable[..., Any], name: str, kind: Any, d: Any) -> None:
    ours, draw = function(name, kind, 1), random.Random(2)
    with np.errstate(over="ignore", under="ignore"):
        values = [float(d(draw_double(draw))) for _ in range(20_000)]
    assert all(same(ours(x), float(np.trunc(d(x)))) for x in values)


@pytest.mark.parametrize("signed", [False, True])
def test_division_of_64_bits(function: Callable[..., Any], signed: bool) -> None:
    kind, mark = (ctypes.c_int64, "") if signed else (ctypes.c_uint64, "u")
    quotient, remainder = function(f"__{mark}divdi3", kind, 2), function(f"__{mark}moddi3", kind, 2)
    draw = random.Random(3)
    for _ in range(20_000):
        n, d = (draw.getrandbits(64) >> draw.randrange(64) for _ in range(2))
        if signed:
            n, d = draw.choice((-1, 1)) * (n >> 1), draw.choice((-1, 1)) * (d >> 1)
        if d:
            q = abs(n) // abs(d) * (-1 if (n < 0) != (d < 0) else 1)
            assert (quotient(n, d), remainder(n, d)) == (q, n - q * d), (n, d)
