"""Calls that create Tensors: constants, sequences, lists of numbers, and random numbers, whose generator NumPy computes, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.fuzz.generate.methods.calls.answers import Answer, Array, Estimate, ExactAnswer, cast_array, exact, scalar
from uops.fuzz.generate.methods.calls.drawing import (
    CallDraw,
    MethodCall,
    MethodRow,
    Shape,
    call,
    default_number_dtype,
    number_array,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


def _dtype_argument(m: CallDraw, default: DType, dtypes: tuple[DType, ...] = dt.STORABLE) -> tuple[DType, dict[str, str]]:
    """Draw a dtype argument, or none for the default."""
    if default in dtypes and m.chance(40):
        return default, {}
    d = m.dtype(dtypes)
    return d, {"dtype": d.name}


def _draw_full(m: CallDraw) -> MethodCall:
    shape = m.shape(0, 4, large=5)
    value = m.choice((0, 1, -3, 7, 2.5, True, 300, -0.0, math.inf, math.nan, 2**40, 1e30))
    if m.is_wrong():
        return call("full", (*shape, -1), 0, answer=ValueError)
    d, kwargs = _dtype_argument(m, default_number_dtype(value))
    if d.is_integer and not (math.isfinite(value) and d.min <= math.trunc(value) <= d.max):
        return call("full", shape, value, answer=ValueError, **kwargs)
    number = math.trunc(value) if d.is_integer else value
    return call("full", shape, value, answer=ExactAnswer(np.full(shape, number_array(number, d))), **kwargs)


def _draw_filled(method: str, value: int) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        shape = m.shape(0, 4, large=5)
        d, kwargs = _dtype_argument(m, dt.float32)
        if m.is_wrong():
            return call(method, *shape, -2, answer=ValueError)
        args: tuple[Any, ...] = shape if m.chance(50) and len(shape) != 1 else (shape,)
        return call(method, *args, answer=ExactAnswer(np.full(shape, number_array(value, d))), **kwargs)

    return draw


def _draw_arange(m: CallDraw) -> MethodCall:
    if m.is_wrong():
        return call("arange", 0, 5, 0, answer=ValueError)
    whole = m.chance(60)
    if whole:
        first, step = (
            m.choice((0, 1, -5, 10, 2**31 - 3, -(2**31), 2**40, 2**63, -(2**63))),
            m.choice((1, 1, 2, -1, -3, 7, 1000, 2**31, 2**56)),
        )
        count = m.choice((0, 1, 5, 17, 40, 300))
        first = first if abs(first) < 2**30 or count < 50 else 3
        end = first + step * count - (m.integer(0, abs(step) - 1) * (1 if step > 0 else -1) if count else 0)
        values = [*range(first, end, step)]
        ends = (values[0], values[-1]) if values else (0, 0)
        fits = next((d for d in (dt.int32, dt.int64, dt.uint64) if d.min <= min(ends) and max(ends) <= d.max), None)
        if fits is None:
            return call("arange", first, end, step, answer=ValueError)
        d, kwargs = _dtype_argument(m, fits, tuple(d for d in dt.STORABLE if d is not dt.bool_))
        if d.is_integer and not all(d.min <= v <= d.max for v in ends):
            return call("arange", first, end, step, answer=ValueError, **kwargs)
        args = (end,) if first == 0 and step == 1 and m.chance(50) else (first, end, step)
        if d.is_float:
            return call("arange", *args, answer=_float_arange(first, step, len(values), d), **kwargs)
        return call("arange", *args, answer=ExactAnswer(np.array(values, STORAGE[d])), **kwargs)
    start, stride = m.choice((0.0, 0.5, -2.5, 1, 10.0)), m.choice((0.5, 1.0, 0.25, -0.5, 0.1, 1.5, 3.0))
    stop = start + stride * m.choice((0, 1, 4, 9, 33)) + stride * 0.4
    d, kwargs = _dtype_argument(m, dt.float32, (dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int32, dt.int8))
    n = max(0, math.ceil((stop - start) / stride))
    if d.is_float:
        return call("arange", start, stop, stride, answer=_float_arange(start, stride, n, d), **kwargs)
    second = math.trunc(start + stride)
    values = [math.trunc(start) + k * (second - math.trunc(start)) for k in range(n)]
    if any(not d.min <= v <= d.max for v in values):
        return call("arange", start, stop, stride, answer=ValueError, **kwargs)
    return call("arange", start, stop, stride, answer=ExactAnswer(np.array(values, STORAGE[d])), **kwargs)


def _float_arange(start: float, step: float, n: int, d: DType) -> Answer:
    """Return start + step * [0, 1, ...]: both numbers are rounded, and so are the product and the sum."""
    inner = d if d.bits >= 32 else dt.float32
    if max(abs(start), abs(step * max(n - 1, 1))) > inner.max_finite:
        inner = dt.float64
    numbers = [Estimate(inner, scalar(v), scalar(abs(v) * inner.unit_roundoff)) for v in (step, start)]
    positions = Estimate(inner, np.arange(n, dtype=np.float64), np.zeros(n))
    return (positions * numbers[0] + numbers[1]).store_as(d)


def _draw_linspace(m: CallDraw) -> MethodCall:
    first, last = m.choice((0, 1, -3, 2.5, 0.1)), m.choice((1, 10, -7, 0.3, 100))
    n = m.choice((0, 1, 2, 5, 17, 300))
    if m.is_wrong():
        return call("linspace", first, last, -1, answer=ValueError)
    d, kwargs = _dtype_argument(m, dt.float32, tuple(d for d in dt.STORABLE if d is not dt.bool_))
    if d.is_integer and not all(d.min <= v < d.max + 1 for v in (first, last)[: min(n, 2)]):
        return call("linspace", first, last, n, answer=ValueError, **kwargs)
    positions = np.arange(n, dtype=np.float64)
    step = (last - first) / (n - 1) if n > 1 else 0.0
    value = positions * step + first
    error = 4 * dt.float64.unit_roundoff * (np.abs(positions * step) + abs(first))
    if n > 1:
        value[-1], error[-1] = last, 0.0
    error = np.where(positions == 0, 0.0, error)
    return call("linspace", first, last, n, answer=Estimate(dt.float64, value, error, d), **kwargs)


def _draw_eye(m: CallDraw) -> MethodCall:
    n, columns = m.extent(17), m.extent(17) if m.chance(50) else None
    if m.is_wrong():
        return call("eye", -1, answer=ValueError)
    d, kwargs = _dtype_argument(m, dt.float32)
    out = np.eye(n, columns).astype(STORAGE[d])
    return call("eye", n, *(() if columns is None else (columns,)), answer=ExactAnswer(out), **kwargs)


def _draw_list(m: CallDraw) -> MethodCall:
    """Draw `Tensor(list)`: numbers that are rounded once to the dtype, or to that which they have alone (R25)."""
    shape: Shape = m.choice(((), (3,), (2, 2), (0,), (1, 3), (5,)))
    kind = m.choice(("bool", "whole", "whole", "large", "float", "float"))
    pool: tuple[Any, ...] = {
        "bool": (True, False),
        "whole": (0, 1, -1, 5, 100, 127),
        "large": (0, 2**31, -(2**31) - 1, 2**53 + 1, 2**62 + 1),
        "float": (0.5, -0.0, 1.1, 3.0, -7.25, 1e30, 1e-40, 16777217.0),
    }[kind]
    flat = [m.choice(pool) for _ in range(math.prod(shape))]
    data: Any = (
        flat[0] if not shape else flat if len(shape) == 1 else [flat[k * shape[1] : (k + 1) * shape[1]] for k in range(shape[0])]
    )
    if kind == "bool" and flat:
        alone = dt.bool_
    elif kind == "float" or not flat:
        alone = dt.float32
    else:
        alone = next(d for d in (dt.int32, dt.int64) if all(d.min <= v <= d.max for v in flat))
    d, kwargs = _dtype_argument(m, alone)
    if d.is_integer and any(not d.min <= math.trunc(v) <= d.max for v in flat):
        return call("Tensor", data, answer=ValueError, **kwargs)
    numbers = [number_array(math.trunc(v) if d.is_integer else bool(v) if d is dt.bool_ else v, d) for v in flat]
    out = np.array([x[()] for x in numbers], STORAGE[d]).reshape(shape)
    return call("Tensor", data, answer=ExactAnswer(out), **kwargs)


# ------------------------------------------------------------------------------------------------------------ random numbers

#: Rotations, key parity and rounds of Threefry2x32 (R22; Salmon et al. 2011).
ROTATIONS, PARITY, ROUNDS = (13, 15, 26, 6, 17, 29, 16, 24), 0x1BD11BDA, 20


def threefry(counters: Array, key: int) -> Array:
    """Return Threefry2x32 of uint64 counters under a uint64 key, both as (low, high) words."""
    words = (np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32))
    keys = (*words, np.uint32(PARITY) ^ words[0] ^ words[1])
    with np.errstate(over="ignore"):
        low = (counters & np.uint64(0xFFFFFFFF)).astype(np.uint32) + keys[0]
        high = (counters >> np.uint64(32)).astype(np.uint32) + keys[1]
        for k in range(ROUNDS):
            low = low + high
            r = ROTATIONS[k % 8]
            high = (high << np.uint32(r) | high >> np.uint32(32 - r)) ^ low
            if k % 4 == 3:
                n = k // 4 + 1
                low, high = low + keys[n % 3], high + keys[(n + 1) % 3] + np.uint32(n)
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def random_words(count: int, bits: int, seed: int, position: int) -> Array:
    """Return words of the generator, low word first, from counter `position` on."""
    per = 64 // bits
    counters = np.arange(-(-count // per), dtype=np.uint64) + np.uint64(position)
    return threefry(counters, seed % 2**64).view(f"u{bits // 8}")[:count]


def _uniform(shape: Shape, d: DType, seed: int, position: int) -> Array:
    """Return uniform numbers in [0, 1) as float64: the top bits of a word, as many as the significand has."""
    bits = 64 if d is dt.float64 else 32
    digits = d.man_bits + 1
    words = random_words(math.prod(shape), bits, seed, position)
    return np.asarray((words >> words.dtype.type(bits - digits)).astype(np.float64) * 2.0**-digits).reshape(shape)


def _draw_random(method: str, answer: Callable[[CallDraw, Shape, DType, int, int], tuple[Answer, dict[str, Any]]]) -> MethodRow:
    def draw(m: CallDraw) -> MethodCall:
        shape = m.shape(0, 3)
        seed, prior = m.choice((0, 1, 42, -1, 2**40)), m.choice((0, 0, 1, 4, 7))
        if m.is_wrong():
            return call(method, *shape, -1, answer=ValueError)
        d, kwargs = _dtype_argument(m, dt.float32, dt.FLOATS)
        out, more = answer(m, shape, d, seed, -(-prior // 2))
        return call(method, *(shape if m.chance(50) else (shape,)), answer=out, **kwargs, **more)._replace(seed=(seed, prior))

    return MethodRow(method, draw)


def _rand(m: CallDraw, shape: Shape, d: DType, seed: int, position: int) -> tuple[Answer, dict[str, Any]]:
    return exact(_uniform(shape, d, seed, position), d), {}


def _uniform_between(m: CallDraw, shape: Shape, d: DType, seed: int, position: int) -> tuple[Answer, dict[str, Any]]:
    low, high = m.choice(((0.0, 1.0), (-1.0, 1.0), (2.0, 5.0), (0.1, 0.3)))
    u = Estimate(d, _uniform(shape, d, seed, position), np.zeros(shape))
    width, least = (Estimate.of(cast_array(np.array(v), d), d) for v in (high - low, low))
    return u * width + least, {"low": low, "high": high}


def _normal(m: CallDraw, shape: Shape, d: DType, seed: int, position: int) -> tuple[Answer, dict[str, Any]]:
    """Return sqrt(-2 log(1 - u)) * cos(2 pi v) of two uniform draws after each other."""
    wide = d if d.bits >= 32 else dt.float32
    n = math.prod(shape)
    second = position + -(-n // (1 if wide is dt.float64 else 2))
    u, v = (_uniform(shape, wide, seed, p) for p in (position, second))
    number: Callable[[float], Estimate] = lambda x: Estimate.of(scalar(x), wide)  # noqa: E731
    rest = Estimate(wide, 1 - u, np.zeros(shape))
    size = rest.log() * number(-2.0)
    root = Estimate(wide, np.sqrt(size.value), size.error / np.maximum(np.sqrt(np.maximum(size.value, 0)), 1e-300))
    root = replace(root, error=np.where(size.value == 0, np.sqrt(size.error), root.error))
    root = root.round_once(root.value, root.error)
    angle = Estimate(wide, v, np.zeros(shape)) * number(2 * math.pi)
    exact_angle = angle.value - v * (number(2 * math.pi).value - 2 * math.pi)
    bound = angle.error + np.abs(exact_angle - angle.value) + (9 + 1) * 2 * wide.unit_roundoff
    return (root * Estimate(wide, np.cos(angle.value), bound)).store_as(d), {}


def _draw_randint(m: CallDraw) -> MethodCall:
    shape, seed, prior = m.shape(0, 3), m.choice((0, 1, 42)), m.choice((0, 0, 3))
    low, high = m.choice(((0, 10), (-5, 5), (0, 1), (0, 2**32), (-(2**31), 2**31), (100, 120)))
    if m.is_wrong():
        return call("randint", shape, low=3, high=m.choice((3, 2)), answer=ValueError)
    d, kwargs = _dtype_argument(m, dt.int32, dt.INTS)
    given = {"low": low, "high": high} | kwargs
    if not (d.min <= low and high - 1 <= d.max):
        return call("randint", shape, answer=ValueError, **given)
    words = random_words(math.prod(shape), 32, seed, -(-prior // 2)).astype(np.uint64)
    high_words = [(int(w) * (high - low) >> 32) + low for w in words]
    out = np.array(high_words, STORAGE[d]).reshape(shape)
    return call("randint", shape, answer=ExactAnswer(out), **given)._replace(seed=(seed, prior))


ROWS = (
    MethodRow("full", _draw_full),
    MethodRow("zeros", _draw_filled("zeros", 0)),
    MethodRow("ones", _draw_filled("ones", 1)),
    MethodRow("arange", _draw_arange, 2),
    MethodRow("linspace", _draw_linspace),
    MethodRow("eye", _draw_eye),
    MethodRow("Tensor", _draw_list),
    _draw_random("rand", _rand),
    _draw_random("uniform", _uniform_between),
    _draw_random("randn", _normal),
    _draw_random("normal", _normal),
    MethodRow("randint", _draw_randint),
)
