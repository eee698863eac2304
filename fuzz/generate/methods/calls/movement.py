"""Calls of methods that move elements: views, joins, repeats and casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.fuzz.generate.draw import draw_permutation
from uops.fuzz.generate.methods.calls.answers import Array, ExactAnswer, cast_array, cut, dtype_of, expect_same_bits
from uops.fuzz.generate.methods.calls.drawing import (
    LARGE_PERCENT,
    CallDraw,
    MethodCall,
    MethodRow,
    Shape,
    call,
    number_array,
    promote_all,
    weak_number,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import promote


def _operand(m: CallDraw, least_rank: int = 0, most_rank: int = 4, least: int = 0, elements: int = 300) -> Array:
    d = m.dtype()
    return m.array(d, m.shape(least_rank, most_rank, least, elements, LARGE_PERCENT))


def _spread(m: CallDraw, values: tuple[int, ...]) -> tuple[Any, ...]:
    """Return arguments as a sequence or one by one."""
    return values if m.chance(60) and len(values) != 1 else (values,) if m.chance(50) else (list(values),)


def _factorization(m: CallDraw, count: int) -> Shape:
    """Draw a shape of so many elements."""
    dims: list[int] = []
    rest = count
    while len(dims) < 3 and rest > 1 and m.chance(70):
        f = m.choice([f for f in range(1, 65) if rest % f == 0])
        dims.append(f)
        rest //= f
    return (*dims, rest) if rest != 1 or m.chance(50) else tuple(dims)


def _draw_reshape(method: str) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        x = _operand(m)
        shape = _factorization(m, x.size) if x.size else x.shape[::-1]
        if m.is_wrong():
            if m.chance(30):
                return call(method, x, (*shape, 1.0), answer=TypeError)
            return call(method, x, *_spread(m, (*shape, 2 if x.size else 3, 1 if x.size else -1)), answer=ValueError)
        given = shape
        if shape and x.size and m.chance(30):
            k = m.integer(0, len(shape) - 1)
            given = (*shape[:k], -1, *shape[k + 1 :])
        return call(method, x, *_spread(m, given), answer=expect_same_bits(x.reshape(shape)))

    return draw


def _draw_permute(m: CallDraw) -> MethodCall:
    x = _operand(m)
    order = tuple(draw_permutation(m.source, x.ndim))
    if m.is_wrong() and x.ndim > 1:
        return call("permute", x, *_spread(m, (*order[:-1], order[0])), answer=ValueError)
    given = tuple(k - x.ndim if m.chance(20) else k for k in order)
    return call("permute", x, *_spread(m, given), answer=expect_same_bits(x.transpose(order)))


def _draw_transpose(m: CallDraw) -> MethodCall:
    x = _operand(m, 1)
    a, b = m.axis(x.ndim), m.axis(x.ndim)
    if m.is_wrong():
        return call("transpose", x, a, m.wrong_axis(x.ndim), answer=IndexError)
    if x.ndim > 1 and m.chance(20):
        return call("transpose", x, answer=expect_same_bits(x.swapaxes(1, 0)))
    return call("transpose", x, a, b, answer=expect_same_bits(x.swapaxes(a, b)))


def _draw_t(m: CallDraw) -> MethodCall:
    x = _operand(m)
    return call("T", x, answer=expect_same_bits(x.T))


def _draw_expand(method: str) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        x = _operand(m, 0, 3, elements=60)
        x = cut(x, (slice(0, 1) if m.chance(40) else slice(None) for _ in x.shape))
        target = tuple(m.integer(0, 5) if n == 1 and x.size < 100 else n for n in x.shape)
        target = (*(m.integer(0, 3) for _ in range(m.integer(0, 4 - x.ndim) if x.size < 100 else 0)), *target)
        if m.is_wrong():
            clash = m.clashing(x.shape)
            return call(method, x, *_spread(m, clash or (*target, -1, -2)), answer=ValueError)
        start = len(target) - x.ndim
        given = tuple(-1 if k >= start and n == x.shape[k - start] and m.chance(30) else n for k, n in enumerate(target))
        return call(method, x, *_spread(m, given), answer=expect_same_bits(np.broadcast_to(x, target)))

    return draw


def _pad_array(x: Array, pairs: list[tuple[int, int]], value: Array) -> Array:
    """Return an array with a value around it; negative amounts remove elements."""
    x = cut(x, (slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pairs, x.shape)))
    out = np.empty([n + max(0, a) + max(0, b) for (a, b), n in zip(pairs, x.shape)], x.dtype)
    out[...] = value
    out[tuple(slice(max(0, a), max(0, a) + n) for (a, b), n in zip(pairs, x.shape))] = x
    return out


def _draw_pad(m: CallDraw) -> MethodCall:
    x = _operand(m, 0, 3, elements=60)
    pairs = []
    for n in x.shape:
        low = -min(2, n // 2)
        pairs.append((m.integer(low, 3), m.integer(low, 3)) if m.chance(60) else (0, 0))
    value = m.number(dtype_of(x))
    if m.is_wrong():
        return call("pad", x, [(1, 1)] * (x.ndim + 1), answer=ValueError)
    d = dtype_of(x)
    filler = weak_number(value, d)
    if not (type(value) is not float and value == 0):
        d = promote(d, dtype_of(filler))
    answer = ExactAnswer(
        _pad_array(cast_array(x, d), pairs, cast_array(filler, d)), by_bits=not (isinstance(value, float) and math.isnan(value))
    )
    kwargs = {} if type(value) is int and value == 0 and m.chance(50) else {"value": value}
    if x.ndim and m.chance(40):
        count = next((k for k in range(x.ndim) if pairs[k] != (0, 0)), x.ndim)
        flat = [p for pair in pairs[count:][::-1] for p in pair]
        return call("pad", x, flat, answer=answer, **kwargs)
    listed: list[Any] = [None if p == (0, 0) and m.chance(50) else p for p in pairs]
    return call("pad", x, listed, answer=answer, **kwargs)


def _draw_shrink(m: CallDraw) -> MethodCall:
    x = _operand(m)
    bounds: list[tuple[int, int]] = []
    for n in x.shape:
        low = m.integer(0, n) if m.chance(50) else 0
        bounds.append((low, m.integer(low, n) if m.chance(50) else n))
    if m.is_wrong() and x.ndim:
        return call("shrink", x, [*bounds[:-1], (0, x.shape[-1] + 1)], answer=ValueError)
    given = [None if b == (0, n) and m.chance(50) else b for b, n in zip(bounds, x.shape)]
    return call("shrink", x, given, answer=expect_same_bits(cut(x, (slice(*b) for b in bounds))))


def _draw_shrink_to(m: CallDraw) -> MethodCall:
    x = _operand(m)
    ends = tuple(m.integer(0, n) if m.chance(60) else n for n in x.shape)
    if m.is_wrong() and x.ndim:
        return call("shrink_to", x, (*ends[:-1], x.shape[-1] + 1), answer=ValueError)
    given = tuple(None if e == n and m.chance(50) else e for e, n in zip(ends, x.shape))
    return call("shrink_to", x, given, answer=expect_same_bits(cut(x, (slice(0, e) for e in ends))))


def _draw_flip(m: CallDraw) -> MethodCall:
    x = _operand(m)
    axes = [k for k in range(x.ndim) if m.chance(60)]
    if m.is_wrong():
        return call("flip", x, m.wrong_axis(x.ndim), answer=IndexError)
    if not axes:
        return call("flip", x, answer=expect_same_bits(np.flip(x)))
    given = tuple(k - x.ndim if m.chance(30) else k for k in axes)
    return call("flip", x, *_spread(m, given), answer=expect_same_bits(np.flip(x, tuple(axes))))


def _draw_unsqueeze(m: CallDraw) -> MethodCall:
    x = _operand(m, 0, 3)
    if m.is_wrong():
        return call("unsqueeze", x, m.choice((x.ndim + 1, -x.ndim - 2)), answer=IndexError)
    k = m.integer(-x.ndim - 1, x.ndim)
    return call("unsqueeze", x, k, answer=expect_same_bits(np.expand_dims(x, k)))


def _draw_squeeze(m: CallDraw) -> MethodCall:
    x = _operand(m)
    if m.is_wrong():
        return call("squeeze", x, m.wrong_axis(x.ndim), answer=IndexError)
    if not x.ndim or m.chance(40):
        return call("squeeze", x, answer=expect_same_bits(np.squeeze(x)))
    k = m.axis(x.ndim)
    return call("squeeze", x, k, answer=expect_same_bits(np.squeeze(x, k) if x.shape[k] == 1 else x))


def _draw_flatten(m: CallDraw) -> MethodCall:
    x = _operand(m)
    if m.is_wrong():
        return call("flatten", x, m.wrong_axis(x.ndim), answer=IndexError)
    if not x.ndim:
        return call("flatten", x, answer=expect_same_bits(x.reshape(1)))
    first = m.integer(0, x.ndim - 1)
    last = m.integer(first, x.ndim - 1)
    out = x.reshape(*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
    return call("flatten", x, m.choice((first, first - x.ndim)), m.choice((last, last - x.ndim)), answer=expect_same_bits(out))


def _draw_unflatten(m: CallDraw) -> MethodCall:
    x = _operand(m, 1, 3)
    k = m.axis(x.ndim)
    n = x.shape[k]
    sizes = _factorization(m, n) if n else (0, 2)
    if m.is_wrong():
        return call("unflatten", x, k, (2, n + 1), answer=ValueError)
    at = k % x.ndim
    out = x.reshape((*x.shape[:at], *sizes, *x.shape[at + 1 :]))
    given = (-1, *sizes[1:]) if sizes and n and m.chance(30) else sizes
    return call("unflatten", x, k, given, answer=expect_same_bits(out))


def _draw_split(m: CallDraw) -> MethodCall:
    x = _operand(m, 1, 3)
    k = m.axis(x.ndim)
    n = x.shape[k]
    if m.is_wrong():
        return call("split", x, [n, 1], k, answer=ValueError)
    if m.chance(50):
        size = m.integer(max(1, n // 4), n + 2)
        ends = [*range(0, max(n, 1), size)][1:]
        return call("split", x, size, k, answer=[*map(expect_same_bits, np.split(x, ends, k))])
    first = m.integer(0, n)
    second = m.integer(first, n)
    return call(
        "split", x, [first, second - first, n - second], k, answer=[*map(expect_same_bits, np.split(x, [first, second], k))]
    )


def _draw_chunk(m: CallDraw) -> MethodCall:
    x = _operand(m, 1, 3)
    k, count = m.axis(x.ndim), m.integer(1, 5)
    if m.is_wrong():
        return call("chunk", x, 0, k, answer=ValueError)
    n = x.shape[k]
    ends = [*range(0, max(n, 1), max(1, -(-n // count)))][1:]
    return call("chunk", x, count, k, answer=[*map(expect_same_bits, np.split(x, ends, k))])


def _similar(m: CallDraw, x: Array, shape: Shape) -> Array:
    """Draw an array of the same dtype, now and then of another one."""
    return m.array(dtype_of(x) if m.chance(85) else m.dtype(), shape)


def _join(m: CallDraw, method: str, parts: list[Array], k: int, join: Callable[[list[Array], int], Array]) -> MethodCall:
    """Return a join of Tensors, which have one dtype or are promoted to it."""
    same = all(p.dtype == parts[0].dtype for p in parts)
    out = join(promote_all(*parts), k)
    kwargs = {} if k == 0 and m.chance(50) else {"dim": k}
    args = parts if m.chance(60) else [tuple(parts)]
    return call(method, *args, answer=ExactAnswer(out, by_bits=same), **kwargs)


def _draw_cat(m: CallDraw) -> MethodCall:
    x = _operand(m, 1, 3, elements=100)
    k = m.axis(x.ndim)
    at = k % x.ndim
    shapes = [(*x.shape[:at], m.extent(9), *x.shape[at + 1 :]) for _ in range(m.integer(0, 3))]
    if m.is_wrong():
        return call("cat", x, m.array(dtype_of(x), (*x.shape, 1)), dim=k, answer=ValueError)
    return _join(m, "cat", [x, *(_similar(m, x, s) for s in shapes)], k, np.concatenate)


def _draw_stack(m: CallDraw) -> MethodCall:
    x = _operand(m, 0, 3, elements=100)
    others = [_similar(m, x, x.shape) for _ in range(m.integer(0, 3))]
    if m.is_wrong():
        return call("stack", x, *others, dim=m.choice((x.ndim + 1, -x.ndim - 2)), answer=IndexError)
    return _join(m, "stack", [x, *others], m.integer(-x.ndim - 1, x.ndim), np.stack)


def _draw_repeat(m: CallDraw) -> MethodCall:
    x = _operand(m, 0, 3, elements=60)
    counts = tuple(m.integer(0, 3) if x.size < 100 else 1 for _ in range(x.ndim + m.integer(0, 1)))
    if m.is_wrong() and counts:
        return call("repeat", x, *_spread(m, (*counts[:-1], -1)), answer=ValueError)
    return call("repeat", x, *_spread(m, counts), answer=expect_same_bits(np.tile(x, counts)))


def _draw_repeat_interleave(m: CallDraw) -> MethodCall:
    x = _operand(m, 0, 3, elements=100)
    n = m.integer(0, 3) if x.size < 200 else 1
    if m.is_wrong():
        return call("repeat_interleave", x, -1, answer=ValueError)
    if not x.ndim or m.chance(30):
        return call("repeat_interleave", x, n, answer=expect_same_bits(np.repeat(x, n)))
    k = m.axis(x.ndim)
    return call("repeat_interleave", x, n, k, answer=expect_same_bits(np.repeat(x, n, k)))


def _draw_roll(m: CallDraw) -> MethodCall:
    x = _operand(m, 1)
    if m.is_wrong():
        return call("roll", x, 1, m.wrong_axis(x.ndim), answer=IndexError)
    k, shift = m.axis(x.ndim), m.integer(-40, 40)
    return call("roll", x, shift, k, answer=expect_same_bits(np.roll(x, shift, k)))


def _draw_bitcast(m: CallDraw) -> MethodCall:
    d = m.dtype()
    targets = tuple(e for e in dt.STORABLE if e is not dt.bool_ or d is dt.bool_)
    e = m.choice(targets)
    shape = m.shape(0 if d.itemsize == e.itemsize else 1, 3)
    ratio = max(1, e.itemsize // d.itemsize)
    shape = (*shape[:-1], shape[-1] * ratio) if shape and d.itemsize != e.itemsize else shape
    x = m.array(d, shape)
    if m.is_wrong():
        return call("bitcast", m.array(dt.int32, (3,)), "bool", answer=TypeError)
    out = np.ascontiguousarray(x).reshape(shape)
    if d.itemsize == e.itemsize:
        out = np.frombuffer(out.tobytes(), STORAGE[e]).reshape(shape)
    else:
        last = shape[-1] * d.itemsize // e.itemsize
        out = np.frombuffer(out.tobytes(), STORAGE[e]).reshape(*shape[:-1], last)
    return call("bitcast", x, e.name, answer=expect_same_bits(out))


def _draw_identity(method: str) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        x = _operand(m)
        return call(method, x, answer=expect_same_bits(x))

    return draw


def _draw_cast(m: CallDraw) -> MethodCall:
    x, e = _operand(m), m.dtype()
    if m.is_wrong():
        return call("cast", x, m.choice(("float12", "void", "index")), answer=TypeError)
    return call("cast", x, m.choice((e.name, e.short)), answer=ExactAnswer(cast_array(x, e), by_bits=e is dtype_of(x)))


def _draw_named_cast(method: str, name: str) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        x, e = _operand(m), dt.DTYPES[name]
        return call(method, x, answer=ExactAnswer(cast_array(x, e), by_bits=e is dtype_of(x)))

    return draw


def _draw_assign(m: CallDraw) -> MethodCall:
    """Assign a value that broadcasts, to the whole Tensor."""
    x = _operand(m, elements=100)
    d = dtype_of(x)
    if m.chance(30):
        value = m.number(d)
        y = weak_number(value, d)
        if promote(d, dtype_of(y)) is not d:
            return call("assign", x, value, answer=TypeError)
        return call("assign", x, value, answer=ExactAnswer(np.broadcast_to(number_array(value, d), x.shape)))
    e = m.dtype() if m.chance(30) else d
    clash = m.clashing(x.shape)
    if m.is_wrong() and clash and promote(d, e) is d:
        return call("assign", x, m.array(e, clash), answer=ValueError)
    y = m.array(e, tuple(1 if m.chance(20) else n for n in x.shape[m.integer(0, x.ndim) :]))
    if promote(d, e) is not d:
        return call("assign", x, y, answer=TypeError)
    return call("assign", x, y, answer=ExactAnswer(np.broadcast_to(cast_array(y, d), x.shape), by_bits=e is d))


#: Names of casts -> dtype.
CASTS = {
    "float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64", "int": "int32", "long": "int64",
    "bool": "bool",
}  # fmt: skip

ROWS = (
    MethodRow("reshape", _draw_reshape("reshape")),
    MethodRow("view", _draw_reshape("view")),
    MethodRow("permute", _draw_permute),
    MethodRow("transpose", _draw_transpose),
    MethodRow("T", _draw_t),
    MethodRow("expand", _draw_expand("expand")),
    MethodRow("broadcast_to", _draw_expand("broadcast_to")),
    MethodRow("pad", _draw_pad, 3),
    MethodRow("shrink", _draw_shrink),
    MethodRow("shrink_to", _draw_shrink_to),
    MethodRow("flip", _draw_flip),
    MethodRow("unsqueeze", _draw_unsqueeze),
    MethodRow("squeeze", _draw_squeeze),
    MethodRow("flatten", _draw_flatten),
    MethodRow("unflatten", _draw_unflatten),
    MethodRow("split", _draw_split),
    MethodRow("chunk", _draw_chunk),
    MethodRow("cat", _draw_cat, 2),
    MethodRow("stack", _draw_stack),
    MethodRow("repeat", _draw_repeat),
    MethodRow("repeat_interleave", _draw_repeat_interleave),
    MethodRow("roll", _draw_roll),
    MethodRow("bitcast", _draw_bitcast),
    MethodRow("contiguous", _draw_identity("contiguous")),
    MethodRow("contiguous_backward", _draw_identity("contiguous_backward")),
    MethodRow("detach", _draw_identity("detach")),
    MethodRow("cast", _draw_cast, 2),
    *(MethodRow(method, _draw_named_cast(method, name)) for method, name in CASTS.items()),
    MethodRow("assign", _draw_assign),
)
