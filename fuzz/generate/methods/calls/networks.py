"""Calls of building blocks of networks: convolution, pooling, linear layers, norms, attention, triangles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.fuzz.generate.methods.calls.answers import (
    Answer,
    Array,
    Estimate,
    ExactAnswer,
    cast_array,
    cut_last,
    dtype_of,
    exact,
    scalar,
    to_float64,
)
from uops.fuzz.generate.methods.calls.drawing import CallDraw, MethodCall, MethodRow, axes_of, call, to_float_dtype
from uops.fuzz.generate.methods.calls.reductions import (
    draw_matrices,
    in_accumulator,
    mean_of,
    multiply_matrices,
    softmax_of,
    sum_dtypes,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, promote

Pairs = list[tuple[int, int]]


# ------------------------------------------------------------------------------------------------------------ windows


def _draw_spatial(m: CallDraw, n: int, values: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Draw one number, or one per spatial axis; return the argument and the numbers."""
    if m.chance(60):
        v = m.choice(values)
        return v, (v,) * n
    each = tuple(m.choice(values) for _ in range(n))
    return each, each


def _draw_padding(m: CallDraw, n: int) -> tuple[Any, Pairs]:
    """Draw padding: one number, one per axis, or two per axis from the last axis on."""
    form = m.choice(("none", "one", "each", "pairs"))
    if form == "none":
        return 0, [(0, 0)] * n
    if form == "pairs":
        flat = tuple(m.integer(0, 2) for _ in range(2 * n))
        return flat, [(flat[2 * k], flat[2 * k + 1]) for k in range(n)][::-1]
    given, each = _draw_spatial(m, n, (0, 1, 2))
    return given, [(p, p) for p in each]


def _pad(x: Array, pairs: Pairs, value: Any) -> Array:
    """Return an array whose last axes have a value around them."""
    out = np.full(
        [*x.shape[: x.ndim - len(pairs)], *(n + a + b for n, (a, b) in zip(x.shape[-len(pairs) :], pairs))], value, x.dtype
    )
    cut_last(out, (slice(a, a + n) for n, (a, _) in zip(x.shape[-len(pairs) :], pairs)))[...] = x
    return out


def _window_elements(
    x: Array, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> list[tuple[tuple[int, ...], Array]]:
    """Return, for each position in a window, the elements that all windows have there."""
    last = x.shape[x.ndim - len(kernel) :]
    counts = [(i - d * (k - 1) - 1) // s + 1 for i, k, s, d in zip(last, kernel, stride, dilation)]
    return [
        (at, cut_last(x, (slice(k * d, k * d + s * (o - 1) + 1, s) for k, d, s, o in zip(at, dilation, stride, counts))))
        for at in itertools.product(*map(range, kernel))
    ]


def _fits(shape: tuple[int, ...], pairs: Pairs, kernel: tuple[int, ...], dilation: tuple[int, ...]) -> bool:
    return all(n + a + b >= d * (k - 1) + 1 for n, (a, b), k, d in zip(shape, pairs, kernel, dilation))


def _draw_convolution(m: CallDraw) -> MethodCall:
    n, groups = m.choice((1, 2, 2, 3)), m.choice((1, 1, 2, 3))
    each, outs = m.integer(1, 3), groups * m.integer(1, 3)
    d = m.dtype()
    e = d if m.chance(85) else m.dtype()
    most = (16, 7, 4)[n - 1]
    x = m.tame(d, (m.integer(0, 2) if m.chance(20) else 1, groups * each, *(m.integer(2, most) for _ in range(n))))
    kernel = tuple(m.integer(1, 3) for _ in range(n))
    w = m.tame(e, (outs, each, *kernel))
    if m.is_wrong():
        return call("conv2d", x, m.array(e, (outs, each + 1, *kernel)), groups=groups, answer=ValueError)
    stride, strides = _draw_spatial(m, n, (1, 1, 2, 3))
    dilation, dilations = _draw_spatial(m, n, (1, 1, 1, 2))
    padding, pairs = _draw_padding(m, n)
    kwargs = {"groups": groups, "stride": stride, "dilation": dilation, "padding": padding}
    if not _fits(x.shape[2:], pairs, kernel, dilations):
        return call("conv2d", x, w, answer=ValueError, **kwargs)

    def convolve(a: Array, b: Array) -> Array:
        """Return the cross-correlation of padded input and weights."""
        parts = [
            np.einsum(
                "ngc...,goc->ngo...", v.reshape(v.shape[0], groups, each, *v.shape[2:]), cut_last(b, at).reshape(groups, -1, each)
            )
            for at, v in _window_elements(_pad(a, pairs, 0), kernel, strides, dilations)
        ]
        out = sum(parts[1:], parts[0])
        return np.asarray(out.reshape(a.shape[0], outs, *out.shape[3:]))

    bias = m.tame(d if m.chance(60) else m.dtype(), (outs,)) if m.chance(35) else None
    return call("conv2d", x, w, bias, answer=_convolution_answer(x, w, bias, convolve, each * math.prod(kernel)), **kwargs)


def _convolution_answer(x: Array, w: Array, bias: Array | None, convolve: Callable[[Array, Array], Array], terms: int) -> Answer:
    inner, outer = sum_dtypes(promote(dtype_of(x), dtype_of(w)))
    stored = outer if bias is None else promote(outer, dtype_of(bias))
    axes = (1, -1, *(1,) * (w.ndim - 2))
    if inner.is_float:
        out = Estimate.of(x, inner).matmul(Estimate.of(w, inner), convolve, terms)
        if bias is not None:
            common = promote(inner, dtype_of(bias))
            out = out.convert(common) + Estimate.of(bias.reshape(axes), common)
        return out.store_as(stored)
    with np.errstate(all="ignore"):
        whole = convolve(cast_array(x, inner), cast_array(w, inner)).astype(STORAGE[inner])
        if bias is None:
            return ExactAnswer(whole)
        common = promote(inner, dtype_of(bias))
        if common.is_float:
            return (Estimate.of(whole, common) + Estimate.of(bias.reshape(axes), common)).store_as(stored)
        return ExactAnswer(cast_array(cast_array(whole, common) + cast_array(bias, common).reshape(axes), stored))


def _draw_pool(m: CallDraw, method: str) -> MethodCall:
    n = m.choice((2, 2, 1, 3))
    d = m.dtype()
    x = m.tame(d, (*(m.extent(3) for _ in range(m.integer(0, 2))), *(m.integer(2, (16, 7, 4)[n - 1]) for _ in range(n))))
    kernel = tuple(m.integer(1, 3) for _ in range(n))
    given: Any = kernel
    if n == 2 and m.chance(40):
        kernel, given = (kernel[0],) * 2, kernel[0]
    stride, strides = (None, kernel) if m.chance(40) else _draw_spatial(m, n, (1, 2, 3))
    dilation, dilations = _draw_spatial(m, n, (1, 1, 2))
    padding, pairs = _draw_padding(m, n)
    kwargs = {"stride": stride, "dilation": dilation, "padding": padding}
    if m.is_wrong():
        return call(method, x, (0,) * n, answer=ValueError)
    if not _fits(x.shape[x.ndim - n :], pairs, kernel, dilations):
        return call(method, x, given, answer=ValueError, **kwargs)
    if method == "max_pool2d":
        return call(method, x, given, answer=_greatest_of_windows(x, pairs, kernel, strides, dilations), **kwargs)
    counted = m.chance(60)
    answer = _mean_of_windows(x, pairs, kernel, strides, dilations, counted)
    return call(method, x, given, answer=answer, **kwargs, **({} if counted else {"count_include_pad": False}))


def _greatest_of_windows(x: Array, pairs: Pairs, *windows: tuple[int, ...]) -> Answer:
    """Return the greatest element of each window; padding is below every value, the dtype's least one."""
    d = dtype_of(x)
    if d.is_float:
        v = _pad(to_float64(x), pairs, d.min)
        return exact(_fold(np.maximum, v, *windows), d, either_zero=True)
    least = False if d is dt.bool_ else d.min
    return ExactAnswer(_fold(np.maximum, _pad(x, pairs, least), *windows))


def _fold(f: Callable[..., Any], x: Array, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Array:
    parts = [v for _, v in _window_elements(x, kernel, stride, dilation)]
    out = parts[0]
    for p in parts[1:]:
        out = f(out, p)
    return np.asarray(out)


def _mean_of_windows(
    x: Array, pairs: Pairs, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], counted: bool
) -> Answer:  # fmt: skip
    """Return the mean of each window, over its size or over its elements that are no padding."""
    e = in_accumulator(x)

    def stack_windows(v: Array) -> Array:
        return np.stack([p for _, p in _window_elements(_pad(v, pairs, 0), kernel, stride, dilation)])

    windows = Estimate(e.arithmetic, stack_windows(e.value), stack_windows(e.error))
    total = windows.sum((0,))
    count = np.full(total.value.shape, float(math.prod(kernel))) if counted else stack_windows(np.ones(x.shape)).sum(0)
    return (total / Estimate(e.arithmetic, count, np.zeros(count.shape))).store_as(to_float_dtype(dtype_of(x)))


# ------------------------------------------------------------------------------------------------------------ layers


def _draw_linear(m: CallDraw) -> MethodCall:
    x, w = draw_matrices(m)
    if m.is_wrong():
        return call("linear", x, m.array(dtype_of(w), (x.shape[-1] + 1, 2)), answer=ValueError)
    product = multiply_matrices(x, w)
    if m.chance(40) or not product.shape:
        return call("linear", x, w, answer=product)
    bias = m.tame(product.dtype, product.shape[-1:])
    if isinstance(product, ExactAnswer):
        with np.errstate(all="ignore"):
            return call("linear", x, w, bias, answer=ExactAnswer(product.values + bias))
    d = product.dtype
    return call("linear", x, w, bias, answer=replace(product, stored=None).convert(d) + Estimate.of(bias, d))


def _draw_layernorm(m: CallDraw) -> MethodCall:
    x = m.tame(m.dtype(), m.shape(1, 4))
    if m.is_wrong():
        return call("layernorm", x, m.wrong_axis(x.ndim), answer=IndexError)
    axis: Any = m.axis(x.ndim) if m.chance(70) else tuple(k for k in range(x.ndim) if m.chance(50)) or -1
    eps = m.choice((1e-5, 1e-3, 1.0))
    axes, e = axes_of(axis, x.ndim), in_accumulator(x)
    centred = e - mean_of(e, axes, True)
    variance = mean_of(centred * centred, axes, True)
    variance = replace(variance, error=np.where(np.isfinite(variance.value), variance.error, 0.0))
    root = (variance + _number(eps, e)).sqrt()
    answer = (centred * (_number(1.0, e) / root)).store_as(to_float_dtype(dtype_of(x)))
    args = () if axis == -1 and m.chance(50) else (axis,)
    return call("layernorm", x, *args, answer=answer, **({} if eps == 1e-5 else {"eps": eps}))


def _number(value: float, like: Estimate) -> Estimate:
    return Estimate.of(scalar(value), like.arithmetic)


def _draw_batchnorm(m: CallDraw) -> MethodCall:
    d = m.dtype(dt.FLOATS)
    x = m.tame(d, m.shape(2, 4, 1))
    axis = 1 if m.chance(60) else m.axis(x.ndim)
    n = x.shape[axis]
    shape = tuple(n if j == axis % x.ndim else 1 for j in range(x.ndim))
    weight, bias = (m.tame(d, (n,)) if m.chance(70) else None for _ in range(2))
    mean, scale = m.tame(d, (n,)), m.tame(d, (n,))
    factor = Estimate.of(scale, d) if weight is None else Estimate.of(weight, d) * Estimate.of(scale, d)
    factor = replace(factor, value=factor.value.reshape(shape), error=factor.error.reshape(shape))
    out = (Estimate.of(x, d) - Estimate.of(mean.reshape(shape), d)) * factor
    out = out if bias is None else out + Estimate.of(bias.reshape(shape), d)
    return call("batchnorm", x, weight, bias, mean, scale, answer=out, **({} if axis == 1 else {"axis": axis}))


def _draw_attention(m: CallDraw) -> MethodCall:
    d = m.dtype(dt.FLOATS) if m.chance(90) else m.dtype()
    rows, columns, width, last = m.extent(9, 1), m.extent(9, 1), m.extent(9, 1), m.extent(5, 1)
    batch = tuple(m.integer(1, 2) for _ in range(m.integer(0, 2)))
    q, k, v = (m.tame(d, (*batch, *s)) for s in ((rows, width), (columns, width), (columns, last)))
    name = "scaled_dot_product_attention"
    if m.is_wrong():
        return call(name, q, m.array(d, (*batch, columns, width + 1)), v, answer=ValueError)
    wide = to_float_dtype(d)
    inner = sum_dtypes(wide).accumulation
    scale = m.choice((None, None, 0.5, 2.0))
    kwargs: dict[str, Any] = {} if scale is None else {"scale": scale}
    scores = Estimate.of(q, inner).matmul(Estimate.of(k.swapaxes(-1, -2), inner))
    scores = scores * _number(1 / math.sqrt(width) if scale is None else scale, scores)
    form = m.choice(("none", "causal", "bool", "added"))
    if form == "causal":
        kwargs["is_causal"] = True
        scores = _hide(scores, np.tril(np.ones((rows, columns), bool)))
    elif form == "bool":
        kwargs["attn_mask"] = m.array(dt.bool_, (rows, columns))
        scores = _hide(scores, kwargs["attn_mask"])
    elif form == "added":
        kwargs["attn_mask"] = m.tame(inner, (rows, columns))
        scores = scores + Estimate.of(kwargs["attn_mask"], inner)
    weights = softmax_of(scores, (scores.value.ndim - 1,)).convert(wide).convert(inner)
    return call(name, q, k, v, answer=weights.matmul(Estimate.of(cast_array(v, wide), inner)).store_as(wide), **kwargs)


def _hide(scores: Estimate, seen: Array) -> Estimate:
    return replace(scores, value=np.where(seen, scores.value, -math.inf), error=np.where(seen, scores.error, 0.0))


def _draw_triangle(method: str) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        d: DType = m.dtype()
        if m.is_wrong():
            return call(method, m.array(d, m.shape(0, 1)), answer=ValueError)
        x = m.array(d, m.shape(2, 4))
        k = m.choice((0, 0, 1, -1, 2, -3, 40, -40, 2**40, -(2**62)))
        rows, columns = np.arange(x.shape[-2]).reshape(-1, 1), np.arange(x.shape[-1])
        seen = columns - rows <= k if method == "tril" else columns - rows >= k
        out = np.where(seen, x, np.zeros((), x.dtype))
        return call(method, x, *(() if k == 0 and m.chance(50) else (k,)), answer=ExactAnswer(out, by_bits=True))

    return draw


ROWS = (
    MethodRow("conv2d", _draw_convolution, 4),
    MethodRow("max_pool2d", lambda m: _draw_pool(m, "max_pool2d"), 2),
    MethodRow("avg_pool2d", lambda m: _draw_pool(m, "avg_pool2d"), 2),
    MethodRow("linear", _draw_linear),
    MethodRow("layernorm", _draw_layernorm),
    MethodRow("batchnorm", _draw_batchnorm),
    MethodRow("scaled_dot_product_attention", _draw_attention, 2),
    MethodRow("tril", _draw_triangle("tril")),
    MethodRow("triu", _draw_triangle("triu")),
)
