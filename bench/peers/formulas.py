"""The workloads as formulas on a library with NumPy's functions: NumPy itself, and jax.numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from protocol import view_operand
from resnet import PeerResNetOps, make_resnet

Formula = Callable[..., Any]


def stack_encoder_layers(layer: Formula) -> Formula:
    """Return layers of six heads, one after the other; each has six matrices."""

    def run_layers(x: Any, *p: Any) -> Any:
        for k in range(0, len(p), 6):
            x = layer(x, p[k : k + 6], 6)
        return x

    return run_layers


def build_formulas(xp: Any, conv: Formula | None = None, pool: Formula | None = None) -> dict[str, Formula]:
    """Return functions of a layout and the stored operands, by name.

    `conv(x, w, stride, padding)` and `pool(x)` are the library's own, if it has them.
    """
    convolve = conv or _make_convolution(xp)

    def softmax(a: Any) -> Any:
        e = xp.exp(a - a.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layernorm(a: Any, weight: Any = 1.0, bias: Any = 0.0) -> Any:
        centred = a - a.mean(-1, keepdims=True)
        return centred / xp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias

    def gelu(a: Any) -> Any:
        return 0.5 * a * (1 + xp.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * (a * a * a))))

    def attention(q: Any, k: Any, v: Any) -> Any:
        return softmax(q @ xp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])) @ v

    def encoder_layer(x: Any, p: tuple[Any, ...], heads: int) -> Any:
        batch, sequence, hidden = x.shape
        query, key, value, out, up, down = p
        q, k, v = ((x @ w).reshape(batch, sequence, heads, -1).swapaxes(1, 2) for w in (query, key, value))
        x = layernorm(x + attention(q, k, v).swapaxes(1, 2).reshape(batch, sequence, hidden) @ out)
        return layernorm(x + gelu(x @ up) @ down)

    # fmt: off
    plain: dict[str, Formula] = {
        "conv2d":    lambda x, w: convolve(x, w, 1, 1),
        "softmax":   softmax,
        "layernorm": layernorm,
        "gelu":      gelu,
        "sum":       lambda a: a.sum(),
        "row-sum":   lambda a: a.sum(1),
        "col-sum":   lambda a: a.sum(0),
        "transpose": lambda a: xp.copy(a.T, order="C"),
        "attention": attention,
        "cumsum":    lambda a: xp.cumsum(a),
        "gather":    lambda table, i: table[i],
        "argmax":    lambda a: a.argmax(1),
        "encoder":   stack_encoder_layers(encoder_layer),
        "resnet18":  _make_resnet(xp, convolve, pool or _make_max_pool(xp)),
    }
    # fmt: on
    plain |= dict.fromkeys(GEMMS, lambda a, b: a @ b)
    return {name: _with_layout(f) for name, f in plain.items()}


def _windows(xp: Any, a: Any, kernel: int, stride: int) -> Any:
    """Return the windows (N, C, oh, ow, k, k)."""
    windows = xp.lib.stride_tricks.sliding_window_view(a, (kernel, kernel), (2, 3))
    return windows[:, :, ::stride, ::stride]


def _make_convolution(xp: Any) -> Formula:
    """Return a 2-D convolution built from NumPy's functions."""

    def conv(x: Any, w: Any, stride: int, padding: int) -> Any:
        padded = xp.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
        return xp.moveaxis(xp.tensordot(_windows(xp, padded, w.shape[-1], stride), w, ([1, 4, 5], [1, 2, 3])), -1, 1)

    return conv


def _make_max_pool(xp: Any) -> Formula:
    """Return a 3x3 max pool with stride 2 and padding 1."""

    def pool(x: Any) -> Any:
        padded = xp.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-math.inf)
        return _windows(xp, padded, 3, 2).max((-1, -2))

    return pool


def _make_resnet(xp: Any, conv: Formula, pool: Formula) -> Formula:
    """Return ResNet-18 on the given convolution and pool."""

    def norm(a: Any, *p: Any) -> Any:
        weight, bias, mean, var = (v[:, None, None] for v in p)
        return (a - mean) / xp.sqrt(var + 1e-5) * weight + bias

    relu, add = lambda a: xp.maximum(a, 0), lambda a, b: a + b
    return make_resnet(PeerResNetOps(conv, norm, relu, add, pool, lambda a, w, b: a.mean((2, 3)) @ w + b))


GEMMS = ("gemm-256", "gemm-512", "gemm-1024", "gemm-2048", "matvec", "gemm-skinny", "gemm-bf16")


def _with_layout(f: Formula) -> Formula:
    """Return a formula of a layout and the stored operands."""
    return lambda layout, *stored: f(*(view_operand(a, layout) for a in stored))
