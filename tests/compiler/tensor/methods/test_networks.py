"""Windows, convolution, pooling, normalisation and attention against direct loops in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import SpecError, Tensor
from uops.spec.ir import dtypes as dt

Fn = Callable[..., Any]


def windows(x: Any, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    """(..., o..., k...) by one slice per element of the kernel."""
    n = len(kernel)
    sizes = [(i - d * (k - 1) - 1) // s + 1 for i, k, s, d in zip(x.shape[-n:], kernel, stride, dilation, strict=True)]
    out = np.zeros((*x.shape[:-n], *sizes, *kernel), x.dtype)
    for at in itertools.product(*map(range, kernel)):
        cut = tuple(slice(k * d, k * d + (o - 1) * s + 1, s) for k, d, o, s in zip(at, dilation, sizes, stride, strict=True))
        out[(..., *[slice(None)] * n, *at)] = x[(..., *cut)]
    return out


def conv(x: Any, w: Any, bias: Any = None, groups: int = 1, stride: Any = 1, dilation: Any = 1, padding: Any = 0) -> Any:
    n = w.ndim - 2
    stride, dilation, padding = ((v,) * n if isinstance(v, int) else tuple(v) for v in (stride, dilation, padding))
    pairs = [(p, p) for p in padding] if len(padding) == n else [(padding[2 * k], padding[2 * k + 1]) for k in range(n)][::-1]
    t = windows(np.pad(x, [(0, 0), (0, 0), *pairs]), w.shape[2:], stride, dilation)
    parts = []
    for g in range(groups):
        c, o = w.shape[1], w.shape[0] // groups
        axes = ([1, *range(2 + n, 2 + 2 * n)], [1, *range(2, 2 + n)])
        parts.append(np.moveaxis(np.tensordot(t[:, g * c : (g + 1) * c], w[g * o : (g + 1) * o], axes), -1, 1))
    out = np.concatenate(parts, 1)
    return out if bias is None else out + bias.reshape(1, -1, *(1,) * n)


# input, weight, keywords
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 5), (4, 3, 3, 3), {}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"padding": 1}),
    ((1, 2, 7, 6), (3, 2, 3, 2), {"stride": 2, "padding": (1, 0)}),
    ((1, 2, 6, 6), (2, 2, 2, 2), {"stride": 2}),
    ((1, 2, 7, 7), (2, 2, 3, 3), {"dilation": 2}),
    ((1, 2, 9, 8), (2, 2, 3, 2), {"dilation": (2, 3), "stride": (3, 2), "padding": 2}),
    ((1, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    ((1, 3, 4, 4), (3, 1, 2, 2), {"groups": 3}),
    ((1, 1, 9, 9), (1, 1, 2, 2), {"stride": 5}),
    ((1, 1, 5, 6), (1, 1, 2, 2), {"padding": (0, 1, 2, 0)}),
    ((1, 3, 4, 4), (2, 3, 1, 1), {"stride": 2}),
    ((2, 2, 9), (3, 2, 3), {"stride": 2, "padding": 1}),
    ((1, 1, 4, 3, 3), (2, 1, 2, 2, 2), {}),
    ((0, 2, 4, 4), (3, 2, 3, 3), {}),
]


@pytest.mark.parametrize(("shape", "kernel", "keywords"), CONVOLUTIONS)
def test_convolution_is_the_sum_over_its_windows(shape: Any, kernel: Any, keywords: dict[str, Any], agree: Any, data: Any) -> None:
    x, w, bias = data(*shape), data(*kernel), data(kernel[0])
    got = Tensor(x).conv2d(Tensor(w), Tensor(bias), **keywords)
    agree(got, conv(x.astype("f8"), w.astype("f8"), bias.astype("f8"), **keywords), 8, scale=256)


def test_convolution_of_narrow_types_accumulates_wide(agree: Any, data: Any) -> None:
    x, w = data(1, 2, 4, 4, dtype="int8", low=-100, high=100), data(2, 2, 3, 3, dtype="int8", low=-100, high=100)
    agree(Tensor(x).conv2d(Tensor(w)), conv(x.astype("i4"), w.astype("i4")))
    h = x.astype("float16")
    assert Tensor(h).conv2d(Tensor(h[:, :, :2, :2])).dtype.name == "float16"


def test_the_bias_of_a_convolution_promotes_its_result() -> None:
    x, w, bias = Tensor.ones(1, 1, 2, 2, dtype="int32"), Tensor.ones(1, 1, 2, 2, dtype="int32"), Tensor([0.5])
    assert x.conv2d(w, bias).dtype is dt.float32 and x.conv2d(w, bias).item() == 4.5
    assert x.conv2d(w, bias.cast("float64")).dtype is dt.float64
    assert x.conv2d(w, bias, dtype="int32").dtype is dt.int32
    assert x.half().conv2d(w.half(), bias.half()).dtype is dt.float16


POOLS: list[dict[str, Any]] = [
    {},
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "stride": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "stride": 3},
    {"kernel_size": 2, "stride": 1, "dilation": 2},
]


@pytest.mark.parametrize("keywords", POOLS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_max_pool_is_the_greatest_of_each_window(keywords: dict[str, Any], dtype: str, agree: Any, data: Any) -> None:
    x = data(2, 3, 7, 6, dtype=dtype) - (10 if dtype == "int8" else 0)
    k, s, d, p = _pool(keywords)
    least = -np.inf if dtype == "float32" else -128
    padded = np.pad(x, [(0, 0), (0, 0), (p, p), (p, p)], constant_values=least)
    agree(Tensor(x).max_pool2d(**keywords), windows(padded, k, s, d).max((-1, -2)), 0)


@pytest.mark.parametrize("keywords", POOLS)
def test_avg_pool_is_the_mean_of_each_window(keywords: dict[str, Any], agree: Any, data: Any) -> None:
    x = data(1, 2, 7, 6)
    k, s, d, p = _pool(keywords)
    w, ones = (windows(np.pad(v, [(0, 0), (0, 0), (p, p), (p, p)]), k, s, d) for v in (x.astype("f8"), np.ones_like(x)))
    sums, counts = w.sum((-1, -2)), ones.sum((-1, -2))
    got = [Tensor(x).avg_pool2d(**keywords), Tensor(x).avg_pool2d(**keywords, count_include_pad=False)]
    agree(got, [sums / (k[0] * k[1]), sums / counts], 4, scale=4)


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize(("dtype", "value"), [("float16", 40000), ("int32", 2 * 10**9), ("uint32", 2**31), ("int8", 100)])
def test_avg_pool_divides_before_it_rounds(dtype: str, value: int, count_include_pad: bool) -> None:
    mean = Tensor.full((1, 1, 2, 2), value, dtype).avg_pool2d(2, count_include_pad=count_include_pad)
    assert (mean.dtype.name, mean.tolist()) == (dtype if dtype == "float16" else "float32", [[[[value]]]])


def _pool(keywords: dict[str, Any]) -> tuple[Any, Any, Any, int]:
    def pair(v: Any) -> Any:
        return (v, v) if isinstance(v, int) else v

    k = pair(keywords.get("kernel_size", 2))
    return k, pair(keywords.get("stride", k)), pair(keywords.get("dilation", 1)), keywords.get("padding", 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_layernorm_is_the_centred_over_the_deviation(dtype: str, agree: Any, data: Any) -> None:
    x = data(3, 4, 5, dtype=dtype)
    w = x.astype("f8")

    def norm(axis: Any) -> Any:
        return (w - w.mean(axis, keepdims=True)) / np.sqrt(w.var(axis, keepdims=True) + 1e-5)

    agree([Tensor(x).layernorm(), Tensor(x).layernorm((1, 2))], [norm(-1), norm((1, 2))], 8, scale=1)


def test_batchnorm_scales_each_channel(agree: Any, data: Any) -> None:
    x, (w, b, m), v = data(2, 3, 4, 4), data(3, 3), data(3, low=1, high=3)
    want = (x - m[:, None, None]) / np.sqrt(v)[:, None, None] * w[:, None, None] + b[:, None, None]
    invstd = Tensor(v).rsqrt()
    agree(Tensor(x).batchnorm(Tensor(w), Tensor(b), Tensor(m), invstd), want, 8, scale=16)
    agree(Tensor(x).batchnorm(None, None, Tensor(m), invstd), (x - m[:, None, None]) / np.sqrt(v)[:, None, None], 8, scale=4)


def attention(q: Any, k: Any, v: Any, mask: Any = 0.0) -> Any:
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def test_attention_with_every_mask(agree: Any, data: Any) -> None:
    q, k, v = data(2, 2, 4, 3), data(2, 2, 5, 3), data(2, 2, 5, 6)
    added, seen = data(4, 5), np.tril(np.ones((4, 5), bool))
    t = [Tensor(a) for a in (q, k, v)]
    hidden = np.where(seen, 0, -np.inf)
    agree(
        [
            t[0].scaled_dot_product_attention(t[1], t[2]),
            t[0].scaled_dot_product_attention(t[1], t[2], Tensor(added)),
            t[0].scaled_dot_product_attention(t[1], t[2], Tensor(seen)),
            t[0].scaled_dot_product_attention(t[1], t[2], is_causal=True),
            t[0].scaled_dot_product_attention(t[1], t[2], scale=1 / np.sqrt(3).item()),
        ],
        [attention(q, k, v), attention(q, k, v, added), attention(q, k, v, hidden), attention(q, k, v, hidden), attention(q, k, v)],
        32,
        scale=4,
    )


def test_attention_of_integers_is_that_of_floats(agree: Any) -> None:
    q, k, v = np.array([[1, 2], [3, 4]]), np.array([[1, 0], [0, 1]]), np.array([[5, 6], [7, 8]])
    got = Tensor(q, dtype="int32").scaled_dot_product_attention(Tensor(k, dtype="int32"), Tensor(v, dtype="int32"))
    agree(got, attention(q, k, v).astype("f4"), 8, scale=8)


@pytest.mark.parametrize("diagonal", [-(2**63), -(2**31) - 1, -4, -3, 3, 4, 2**31 - 2, 2**31 - 1, 2**63 - 1, 2**64 - 1])
def test_a_diagonal_may_lie_far_outside(diagonal: int) -> None:
    x = np.ones((3, 4))
    near = max(-9, min(diagonal, 9))
    assert Tensor.ones(3, 4).tril(diagonal).tolist() == np.tril(x, near).tolist()
    assert Tensor.ones(3, 4).triu(diagonal).tolist() == np.triu(x, near).tolist()


def test_linear_adds_its_bias(agree: Any, data: Any) -> None:
    x, w, bias = data(2, 3, 4), data(4, 5), data(5)
    agree([Tensor(x).linear(Tensor(w), Tensor(bias)), Tensor(x).linear(Tensor(w))], [x @ w + bias, x @ w], 8, scale=64)


T = Tensor.zeros(1, 2, 4, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: T.conv2d(Tensor.zeros(3, 3, 2, 2)),
            r"Tensor.conv2d: expected input .*, got \(1, 2, 4, 4\), \(3, 3, 2, 2\), 1 groups \[MUL.C3",
        ),
        (lambda: T.conv2d(Tensor.zeros(3, 1, 2, 2), groups=2), r"got .* \(3, 1, 2, 2\), 2 groups"),
        (lambda: T.conv2d(Tensor.zeros(3, 2, 5, 5)), r"at least as large as a window of \(5, 5\) elements, got \(1, 2, 4, 4\)"),
        (lambda: T.conv2d(Tensor.zeros(3, 2, 2, 2), stride=(1, 1, 1)), r"one per spatial axis, got stride \(1, 1, 1\)"),
        (
            lambda: T.conv2d(Tensor.zeros(3, 2, 2, 2), Tensor.zeros(1)),
            r"conv2d: expected a bias of shape \(3,\), got \(1,\)",
        ),
        (lambda: T.conv2d(Tensor.zeros(1, 2, 2, 2), Tensor.zeros(3)), r"expected a bias of shape \(1,\), got \(3,\)"),
        (lambda: T.conv2d(Tensor.zeros(4, 2, 2, 2), Tensor.zeros(2, 2)), r"expected a bias of shape \(4,\), got \(2, 2\)"),
        (lambda: T.max_pool2d(stride=0), "expected numbers of at least 1"),
        (lambda: T.scaled_dot_product_attention(Tensor.zeros(3, 5), T), r"expected query .*, got \(1, 2, 4, 4\), \(3, 5\)"),
        (
            lambda: T.scaled_dot_product_attention(T, T, Tensor.ones(4, 4), is_causal=True),
            "expected is_causal or attn_mask, got both",
        ),
        (
            lambda: Tensor.ones(2, 0).scaled_dot_product_attention(Tensor.ones(2, 0), Tensor.ones(2, 3)),
            r"expected a scale or queries of at least one element, got shape \(2, 0\)",
        ),
        (lambda: Tensor.zeros(3).tril(), r"Tensor.tril: expected at least two axes, got shape \(3,\)"),
    ],
)
def test_mistakes_name_the_shapes(call: Fn, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call()
