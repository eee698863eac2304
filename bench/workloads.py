"""Workloads on which speed and correctness are measured, written as a user would write them.

`WORKLOADS` has 19 kernels, a 6-layer encoder and ResNet-18 with random weights. `build(name, full)` returns the lazy Tensor, its
operands, and a function for NumPy's result; `full` sizes are for measurements, the others for tests. `work` counts the least that
a run has to do: floating point operations (`GFLOP/s`) or bytes read and written (`GB/s`). Data are seeded standard normal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from uops import Tensor

Array = Any
Sizes = tuple[int, ...]


class WorkloadInstance(NamedTuple):
    """One instance of a workload.

    `output` is lazy; `reference()` is NumPy's result in float64 or int64, of the same shape. `peer()` computes it with NumPy in
    the dtypes of the inputs, if one formula serves both. `magnitude()` is, for sums, the sum of the magnitudes of each element's
    terms, which bounds the error (R32: value of a Reduce). `constants` are the positions of inputs that training leaves alone.
    """

    output: Tensor
    inputs: tuple[Tensor, ...]
    reference: Callable[[], Array]
    peer: Callable[[], Array] | None = None
    magnitude: Callable[[], Array] | None = None
    constants: frozenset[int] = frozenset()

    @property
    def targets(self) -> list[int]:
        """The positions of the inputs that have a gradient."""
        return [k for k, t in enumerate(self.inputs) if t.dtype.is_float and k not in self.constants]

    def scale(self, reference: Array) -> Array:
        """Return the unit of errors per element: the magnitude, or else the greatest magnitude of the reference."""
        return np.abs(reference).max() if self.magnitude is None else self.magnitude()


def relative_error(values: Array, reference: Array, scale: Array) -> float:
    """Return the greatest error as a share of `scale`, NaN where one of the two is."""
    return float((np.abs(np.asarray(values, np.float64) - reference) / np.maximum(scale, 1e-30)).max())


@dataclass(frozen=True)
class Workload:
    """A workload. `make` builds an instance for sizes and a generator; `tolerance` is a share of its scale, 0 for equality.

    For sums the scale is the sum of the terms' magnitudes M, and R32's bound is (n - 1)u M. Of n standard normal terms, the
    partial sums grow as sqrt(k), so the roundings of one accumulator add up to a standard deviation of u n / sqrt(6), which is
    0.51 u M whatever n is: 4u is eight of them, for any order. Of 16 million terms in at least 64 partial sums it is u / 2.
    """

    name: str
    full: Sizes
    small: Sizes
    make: Callable[[Sizes, np.random.Generator], WorkloadInstance]
    unit: str
    work: Callable[[Sizes], float]
    tolerance: float


def build(name: str, full: bool = False, seed: int = 0) -> WorkloadInstance:
    """Return an instance of the workload of that name."""
    w = WORKLOADS[name]
    return w.make(w.full if full else w.small, np.random.default_rng(seed))


# Kernels


def _normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    """Return standard normal numbers."""
    return rng.standard_normal(shape, np.float32).astype(dtype)


def _make_instance(
    f: Callable[..., Tensor], reference: Callable[..., Array], *arrays: Array, is_sum: bool = False
) -> WorkloadInstance:
    """Return `f` on Tensors of the arrays, with `reference` on the arrays, floats in float64."""
    inputs = tuple(map(Tensor.from_numpy, arrays))
    wide = tuple(a if a.dtype.kind in "iu" else a.astype(np.float64) for a in arrays)
    magnitude = (lambda: reference(*map(np.abs, wide))) if is_sum else None
    return WorkloadInstance(
        f(*inputs), inputs, lambda: reference(*wide), lambda: np.ascontiguousarray(reference(*arrays)), magnitude
    )


def _gemm(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    m, k, n = s
    return _make_instance(lambda a, b: a @ b, np.matmul, _normal(rng, m, k), _normal(rng, k, n))


def _gemm_bf16(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    m, k, n = s
    return _make_instance(
        lambda a, b: a @ b, np.matmul, _normal(rng, m, k, dtype=ml_dtypes.bfloat16), _normal(rng, k, n, dtype=ml_dtypes.bfloat16)
    )


def _conv(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    channels, side = s
    x, w = _normal(rng, 1, channels, side, side), _normal(rng, channels, channels, 3, 3)
    return _make_instance(lambda a, b: a.conv2d(b, padding=1), lambda a, b: conv(a, b, 1, 1), x, w)


def _softmax(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    return _make_instance(lambda t: t.softmax(-1), softmax, _normal(rng, *s))


def _layernorm(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    def f(t: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return t.layernorm() * weight + bias

    return _make_instance(f, layernorm, _normal(rng, *s), _normal(rng, s[-1]), _normal(rng, s[-1]))


def _gelu(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    return _make_instance(lambda t: t.gelu(), gelu, _normal(rng, *s))


def _sum(axis: int | None) -> Callable[[Sizes, np.random.Generator], WorkloadInstance]:
    return lambda s, rng: _make_instance(lambda t: t.sum(axis), lambda a: a.sum(axis), _normal(rng, *s), is_sum=True)


def _transpose(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    return _make_instance(lambda t: t.T.contiguous(), lambda a: a.T, _normal(rng, *s))


def _attention(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    return _make_instance(lambda q, k, v: q.scaled_dot_product_attention(k, v), attention, *(_normal(rng, *s) for _ in range(3)))


def _cumsum(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    return _make_instance(lambda t: t.cumsum(), np.cumsum, _normal(rng, *s), is_sum=True)


def _gather(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    rows, columns, taken = s
    index = rng.integers(0, rows, taken).astype(np.int32)
    return _make_instance(lambda table, i: table[i], lambda table, i: table[i], _normal(rng, rows, columns), index)


def _argmax(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    return _make_instance(lambda t: t.argmax(1), lambda a: a.argmax(1), _normal(rng, *s))


# Networks


def _make_encoder(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    """Return layers of self-attention and a feed-forward part of four times the width, each added to its input and normalized."""
    layers, sequence, hidden, heads = s

    def weight(*shape: int) -> Array:
        return _normal(rng, *shape) / np.float32(math.sqrt(shape[0]))

    names = ("query", "key", "value", "out")
    params = [
        {n: weight(hidden, hidden) for n in names} | {"up": weight(hidden, 4 * hidden), "down": weight(4 * hidden, hidden)}
        for _ in range(layers)
    ]
    x = _normal(rng, 1, sequence, hidden)
    tensors = [{n: Tensor.from_numpy(w) for n, w in p.items()} for p in params]
    source = Tensor.from_numpy(x)
    out = source
    for p in tensors:
        out = encoder_layer(out, p, heads)

    def reference() -> Array:
        y = x.astype(np.float64)
        for p in params:
            y = _encoder_layer_numpy(y, p, heads)
        return y

    return WorkloadInstance(out, (source, *(t for p in tensors for t in p.values())), reference)


def encoder_layer(x: Tensor, p: dict[str, Tensor], heads: int) -> Tensor:
    """Return one layer of the encoder, on Tensors."""
    batch, sequence, hidden = x.shape

    def split(t: Tensor) -> Tensor:
        return t.reshape(batch, sequence, heads, hidden // heads).transpose(1, 2)

    q, k, v = (split(x @ p[n]) for n in ("query", "key", "value"))
    seen = q.scaled_dot_product_attention(k, v).transpose(1, 2).reshape(batch, sequence, hidden)
    x = (x + seen @ p["out"]).layernorm()
    return (x + (x @ p["up"]).gelu() @ p["down"]).layernorm()


def _encoder_layer_numpy(x: Array, p: dict[str, Array], heads: int) -> Array:
    """Return one layer of the encoder, on arrays."""
    batch, sequence, hidden = x.shape
    q, k, v = ((x @ p[n]).reshape(batch, sequence, heads, -1).swapaxes(1, 2) for n in ("query", "key", "value"))
    seen = attention(q, k, v).swapaxes(1, 2).reshape(batch, sequence, hidden)
    x = layernorm(x + seen @ p["out"])
    return layernorm(x + gelu(x @ p["up"]) @ p["down"])


def _make_resnet18(s: Sizes, rng: np.random.Generator) -> WorkloadInstance:
    """Return two basic blocks at each of four widths, after a 7x7 convolution and a max pool (He et al. 2015)."""
    side, width, classes = s
    net = ResNet18(width, classes, rng)
    x = _normal(rng, 1, 3, side, side)
    source = Tensor.from_numpy(x)
    tensors = {n: Tensor.from_numpy(a) for n, a in net.params.items()}
    out = net(source, tensors, TENSOR)
    constants = frozenset([0, *(k for k, n in enumerate(tensors, 1) if n.endswith((".mean", ".var")))])
    return WorkloadInstance(
        out, (source, *tensors.values()), lambda: net(x.astype(np.float64), net.params, NUMPY), constants=constants
    )


class ResNetOps(NamedTuple):
    """The few functions from which ResNet-18 is built, for Tensors or for arrays."""

    conv: Callable[[Any, Any, int, int], Any]
    norm: Callable[[Any, Any, Any, Any, Any], Any]
    relu: Callable[[Any], Any]
    max_pool: Callable[[Any], Any]


class ResNet18:
    """ResNet-18 with `params` by name; a call runs the network with given ops."""

    def __init__(self, width: int, classes: int, rng: np.random.Generator) -> None:
        self.params: dict[str, Array] = {}
        self.rng = rng
        self._add_conv_params("stem", 3, width, 7)
        self.blocks: list[tuple[str, int, bool]] = []
        last = width
        for stage in range(4):
            for k in range(2):
                out, stride = width << stage, 2 if stage and not k else 1
                name = f"{stage}.{k}"
                self._add_conv_params(f"{name}.a", last, out, 3)
                self._add_conv_params(f"{name}.b", out, out, 3)
                if stride > 1:
                    self._add_conv_params(f"{name}.skip", last, out, 1)
                self.blocks.append((name, stride, stride > 1))
                last = out
        self.params["fc"] = _normal(rng, last, classes) / np.float32(math.sqrt(last))
        self.params["fc.bias"] = _normal(rng, classes)

    def _add_conv_params(self, name: str, channels: int, out: int, kernel: int) -> None:
        """Add the weights of a convolution, and scale, shift, mean and variance of its normalization."""
        self.params[name] = _normal(self.rng, out, channels, kernel, kernel) / np.float32(kernel * math.sqrt(channels))
        for part, low, high in (("weight", 0.5, 1), ("bias", -0.1, 0.1), ("mean", -0.1, 0.1), ("var", 0.5, 2)):
            self.params[f"{name}.{part}"] = self.rng.uniform(low, high, out).astype(np.float32)

    def __call__(self, x: Any, p: dict[str, Any], f: ResNetOps) -> Any:
        def conv(t: Any, name: str, stride: int) -> Any:
            t = f.conv(t, p[name], stride, p[name].shape[-1] // 2)
            return f.norm(t, *(p[f"{name}.{part}"] for part in ("weight", "bias", "mean", "var")))

        x = f.max_pool(f.relu(conv(x, "stem", 2)))
        for name, stride, skips in self.blocks:
            y = conv(f.relu(conv(x, f"{name}.a", stride)), f"{name}.b", 1)
            x = f.relu(y + (conv(x, f"{name}.skip", stride) if skips else x))
        return x.mean((2, 3)) @ p["fc"] + p["fc.bias"]


TENSOR = ResNetOps(
    conv=lambda t, w, stride, padding: t.conv2d(w, stride=stride, padding=padding),
    norm=lambda t, weight, bias, mean, var: t.batchnorm(weight, bias, mean, (var + 1e-5).rsqrt()),
    relu=lambda t: t.relu(),
    max_pool=lambda t: t.max_pool2d(3, stride=2, padding=1),
)
NUMPY = ResNetOps(
    conv=lambda a, w, stride, padding: conv(a, w, stride, padding),
    norm=lambda a, *p: _scaled(a, *(v.astype(np.float64)[:, None, None] for v in p)),
    relu=lambda a: np.maximum(a, 0),
    max_pool=lambda a: _windows(np.pad(a, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf), 3, 2).max((-1, -2)),
)


# NumPy's side


def _scaled(a: Array, weight: Array, bias: Array, mean: Array, var: Array) -> Array:
    return (a - mean) / np.sqrt(var + 1e-5) * weight + bias


def _windows(a: Array, kernel: int, stride: int) -> Array:
    """Return the windows (N, C, oh, ow, k, k)."""
    return np.lib.stride_tricks.sliding_window_view(a, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]


def conv(a: Array, w: Array, stride: int, padding: int) -> Array:
    """Return a 2-D convolution of arrays."""
    t = _windows(np.pad(a, [(0, 0), (0, 0), (padding, padding), (padding, padding)]), w.shape[-1], stride)
    return np.moveaxis(np.tensordot(t, w.astype(np.float64), ([1, 4, 5], [1, 2, 3])), -1, 1)


def softmax(a: Array) -> Array:
    """Return the softmax over the last axis of an array."""
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layernorm(a: Array, weight: Array | float = 1.0, bias: Array | float = 0.0) -> Array:
    """Return the layer normalization over the last axis of an array."""
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * weight + bias


def gelu(a: Array) -> Array:
    """Return GELU of an array, in its tanh form."""
    return 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


def attention(q: Array, k: Array, v: Array) -> Array:
    """Return scaled dot-product attention of arrays."""
    return softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])) @ v


# The table


def _encoder_flops(s: Sizes) -> float:
    layers, sequence, hidden, _ = s
    return layers * (2.0 * sequence * 12 * hidden**2 + 4.0 * sequence**2 * hidden)


def _resnet_flops(s: Sizes) -> float:
    """Count the operations of convolutions and the last layer; each stage halves the side and doubles the width."""
    side, width, classes = s
    at = side // 2
    flops = 2.0 * at**2 * width * 3 * 49
    at //= 2
    for stage in range(4):
        out = width << stage
        if stage:
            at = -(-at // 2)
            flops += 2.0 * at**2 * (out * (out // 2) * 9 + out * (out // 2))
        else:
            flops += 2.0 * at**2 * out**2 * 9
        flops += 3 * 2.0 * at**2 * out**2 * 9
    return flops + 2.0 * (width << 3) * classes


def _gemm_flops(s: Sizes) -> float:
    return 2.0 * math.prod(s)


def _bytes_moved(per_element: float) -> Callable[[Sizes], float]:
    """Return a function from sizes to bytes moved."""
    return lambda s: per_element * math.prod(s)


#: The unit roundoff of float32.
_U = 2.0**-24

# fmt: off
#: name -> full sizes, small sizes, make, unit, work, tolerance
_ROWS: dict[str, Any] = {
    "gemm-256":    ((256, 256, 256),    (8, 8, 8),    _gemm,      "GFLOP/s", _gemm_flops,                           1e-5),
    "gemm-512":    ((512, 512, 512),    (9, 12, 10),  _gemm,      "GFLOP/s", _gemm_flops,                           1e-5),
    "gemm-1024":   ((1024, 1024, 1024), (16, 17, 16), _gemm,      "GFLOP/s", _gemm_flops,                           1e-5),
    "gemm-2048":   ((2048, 2048, 2048), (20, 32, 12), _gemm,      "GFLOP/s", _gemm_flops,                           1e-5),
    "matvec":      ((1, 4096, 4096),    (1, 24, 20),  _gemm,      "GB/s",    lambda s: 4.0 * s[1] * s[2],           1e-5),
    "gemm-skinny": ((64, 1024, 1024),   (4, 16, 24),  _gemm,      "GFLOP/s", _gemm_flops,                           1e-5),
    "gemm-bf16":   ((1024, 1024, 1024), (8, 16, 8),   _gemm_bf16, "GFLOP/s", _gemm_flops,                           1e-2),
    "conv2d":      ((64, 56),           (3, 6),       _conv,      "GFLOP/s", lambda s: 18.0 * (s[0] * s[1]) ** 2,   1e-5),
    "softmax":     ((1024, 1024),       (6, 10),      _softmax,   "GB/s",    _bytes_moved(8),                             1e-5),
    "layernorm":   ((1024, 1024),       (6, 10),      _layernorm, "GB/s",    _bytes_moved(8),                             1e-5),
    "gelu":        ((1 << 24,),         (100,),       _gelu,      "GB/s",    _bytes_moved(8),                             1e-5),
    "sum":         ((1 << 24,),         (100,),       _sum(None), "GB/s",    _bytes_moved(4),                             _U / 2),
    "row-sum":     ((4096, 4096),       (8, 12),      _sum(1),    "GB/s",    _bytes_moved(4),                             4 * _U),
    "col-sum":     ((4096, 4096),       (8, 12),      _sum(0),    "GB/s",    _bytes_moved(4),                             4 * _U),
    "transpose":   ((4096, 4096),       (8, 12),      _transpose, "GB/s",    _bytes_moved(8),                             0),
    "attention":   ((8, 512, 64),       (2, 6, 4),    _attention, "GFLOP/s", lambda s: 4.0 * math.prod(s) * s[1],   1e-5),
    "cumsum":      ((1 << 20,),         (20,),        _cumsum,    "GB/s",    _bytes_moved(8),                             4 * _U),
    "gather":      ((50000, 256, 4096), (30, 8, 12),  _gather,    "GB/s",    lambda s: 8.0 * s[1] * s[2],           0),
    "argmax":      ((4096, 4096),       (6, 9),       _argmax,    "GB/s",    _bytes_moved(4),                             0),
    "encoder":     ((6, 128, 384, 6),   (2, 4, 8, 2), _make_encoder,   "GFLOP/s", _encoder_flops,                        1e-4),
    "resnet18":    ((224, 64, 1000),    (32, 2, 5),   _make_resnet18,  "GFLOP/s", _resnet_flops,                         1e-4),
}
# fmt: on

WORKLOADS = {name: Workload(name, *row) for name, row in _ROWS.items()}
KERNELS = tuple(n for n in WORKLOADS if n not in ("encoder", "resnet18"))
