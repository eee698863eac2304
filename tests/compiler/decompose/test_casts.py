"""Casts of every pair of dtypes in lowered form against the exact conversion of the specification (R15, R19)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.compiler.decompose import SMALL, encode_representable_small_float, integer_to_float_round_odd, soften_dtype
from uops.compiler.decompose.build import BITS, Expr
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.build import convert_constant
from uops.spec.ir.dtypes import DType

CastKernel = Callable[[DType, DType], Callable[..., Any]]
VALUES = (dt.bool_, *dt.INTS, *dt.FLOATS)


def decode(bits: Any, d: DType) -> Any:
    """The values of storage bits, as float64 or the integers they are."""
    return bits.view(STORAGE[d]).astype(np.float64) if d in SMALL else bits


def midpoints(d: DType) -> list[float]:
    """Values halfway between neighbours of `d`, the halfway to overflow included, and their neighbours in float64: all for fp8,
    else a sample."""
    codes = range(0, 1 << (d.bits - 1), 1 if d.bits == 8 else 97)
    values = [v for v in decode(np.array(codes).astype(soften_dtype(d).name), d).tolist() if math.isfinite(v)]
    step = [abs(v) * 2.0 ** -(d.man_bits + 1) if v >= 2.0 ** (1 - d.bias) else 2.0 ** (-d.bias - d.man_bits) for v in values]
    halves = [v + math.ldexp(1, math.frexp(max(v, 2.0 ** (1 - d.bias)))[1] - 2 - d.man_bits) for v in (*values, d.max_finite)]
    near = [math.nextafter(h, t) for h in halves for t in (0.0, math.inf)]
    return [*values, *halves, *near, *(v + s for v, s in zip(values, step, strict=True))]


def float_points(src: DType) -> list[float]:
    """Values of `src` that test the rounding and the range of every destination."""
    edges = [0.0, -0.0, 0.3, 0.5, 0.999, 1.5, 2.5, 127.5, 128.5, 254.5, 255.5, 1e-310, 1e300, 3.5e38, math.inf, -math.inf, math.nan]
    powers = [2.0**n + s for n in (7, 8, 15, 16, 24, 31, 32, 53, 62, 63, 64) for s in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    below = [math.nextafter(2.0**n, 0) for n in (31, 32, 63, 64)] + [2.0**n - 2.0 ** (n - 24) for n in (31, 32, 63, 64)]
    every = [*edges, *powers, *below, *(m for d in SMALL for m in midpoints(d))]
    return [*every, *(-v for v in every)]


def integer_points(src: DType) -> list[int]:
    """Powers of two, halfway cases of every float with their neighbours, and the limits."""
    near = [
        (1 << n) + (1 << max(n - p, 0)) * s + t
        for n in range(src.bits)
        for p in (1, 3, 4, 8, 9, 11, 12, 24, 25, 53, 54)
        for s in (-1, 0, 1)
        for t in (-1, 0, 1)
    ]
    return sorted({b.wrap_to_width(v, src) for v in (*near, *(-v for v in near), int(src.min), int(src.max))})


def inputs(src: DType) -> tuple[Any, list[Any]]:
    """Storage array and Python values."""
    if src is dt.bool_:
        return np.array([False, True]), [False, True]
    if src.is_integer:
        values = integer_points(src)
        return np.array(values, src.name), values
    if src in SMALL:
        bits = np.arange(1 << src.bits, dtype=np.uint32).astype(BITS[src].name)
        bits = bits if src.bits == 8 else bits[:: 7 if src is dt.float16 else 5]
        return bits, decode(bits, src).tolist()
    array = np.array(float_points(src)).astype(src.name)
    return array, array.astype(np.float64).tolist()


@pytest.mark.parametrize("dst", VALUES, ids=str)
@pytest.mark.parametrize("src", VALUES, ids=str)
def test_r15_cast(src: DType, dst: DType, cast_kernel: CastKernel) -> None:
    array, values = inputs(src)
    got = decode(cast_kernel(src, dst)(array), dst).tolist()
    for value, g in zip(values, got, strict=True):
        want = convert_constant(value, dst)
        same = g != g if want != want else g == want and (not dst.is_float or math.copysign(1, g) == math.copysign(1, want))
        assert same, f"Cast of {value!r} from {src} to {dst} is {g!r}, not {want!r} (R15)"


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r19_widening_every_value(d: DType, cast_kernel: CastKernel) -> None:
    bits = np.arange(1 << d.bits, dtype=np.uint32).astype(BITS[d].name)
    got, want = cast_kernel(d, dt.float32)(bits), bits.view(STORAGE[d]).astype(np.float32)
    assert np.array_equal(got, want, equal_nan=True) and np.array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("src", [dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r19_narrowing_gives_back_every_value(d: DType, src: DType, cast_kernel: CastKernel) -> None:
    bits = np.arange(1 << d.bits, dtype=np.uint32).astype(BITS[d].name)
    values = bits.view(STORAGE[d]).astype(src.name)
    number = ~np.isnan(values)
    assert np.array_equal(cast_kernel(src, d)(values)[number], bits[number])


def test_r15_float32_to_float16_strided(cast_kernel: CastKernel) -> None:
    x = np.arange(0, 1 << 32, 1021, dtype=np.uint64).astype(np.uint32).view(np.float32)
    got = cast_kernel(dt.float32, dt.float16)(x).view(np.float16)
    assert np.array_equal(got, x.astype(np.float16), equal_nan=True)


@pytest.mark.parametrize("dst", [d for d in SMALL if d is not dt.float16], ids=str)
def test_r15_float32_to_small_strided(dst: DType, cast_kernel: CastKernel) -> None:
    x = np.arange(0, 1 << 32, 1021, dtype=np.uint64).astype(np.uint32).view(np.float32)
    got = cast_kernel(dt.float32, dst)(x).view(STORAGE[dst])
    assert np.array_equal(got.astype(np.float32), x.astype(STORAGE[dst]).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(
    ("src", "dst", "drop"),
    [(dt.int32, dt.float32, 8), (dt.uint32, dt.float32, 8), (dt.int64, dt.float64, 11), (dt.uint64, dt.float64, 11)],
)
def test_integer_to_odd_is_exact_or_an_odd_multiple(src: DType, dst: DType, drop: int, compiled: Callable[..., Any]) -> None:
    leaf, values = b.param(0, (), src), integer_points(src)
    got = compiled(integer_to_float_round_odd(Expr.of(leaf), dst).u, [leaf])(np.array(values, src.name))
    for v, g in zip(values, map(int, got.tolist()), strict=True):
        assert g == v or (abs(v) >> (dst.man_bits + 1) and abs(g - v) < 1 << drop and g % (2 << drop) == 1 << drop), (v, g)


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r23_encode_gives_the_bits_of_every_value(d: DType) -> None:
    bits = np.arange(1 << d.bits, dtype=np.uint32).astype(BITS[d].name)
    for code, value in zip(bits.tolist(), decode(bits, d).tolist(), strict=True):
        assert (
            encode_representable_small_float(value, d) == code
            if value == value
            else math.isnan(decode(np.array([encode_representable_small_float(value, d)], BITS[d].name), d)[0])
        )
