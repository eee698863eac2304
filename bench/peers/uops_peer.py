"""uops itself, through the same door as the peers: each workload as `workloads.py` writes it, compiled once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from formulas import GEMMS
from protocol import serve
from resnet import Layers, resnet
from workloads import encoder_layer

import uops
from uops import Tensor
from uops.compiler.tensor.realize import capture

BACKEND = os.environ.get("BENCH_BACKEND", "llvm")
WEIGHTS = ("query", "key", "value", "out", "up", "down")


def seen(t, layout):
    if layout == "transposed" and t.dtype.is_float and t.ndim > 1:
        return t.transpose(-1, -2)
    return t[..., ::2] if layout == "strided" and t.dtype.is_float else t


def encoder(x, *p):
    for k in range(0, len(p), len(WEIGHTS)):
        x = encoder_layer(x, dict(zip(WEIGHTS, p[k:])), 6)
    return x


NETWORK = resnet(
    Layers(
        lambda x, w, stride, padding: x.conv2d(w, stride=stride, padding=padding),
        lambda x, weight, bias, mean, var: x.batchnorm(weight, bias, mean, (var + 1e-5).rsqrt()),
        lambda x: x.relu(),
        lambda x, y: x + y,
        lambda x: x.max_pool2d(3, stride=2, padding=1),
        lambda x, w, b: x.mean((2, 3)) @ w + b,
    )
)

TABLE = {
    "conv2d": lambda x, w: x.conv2d(w, padding=1),
    "softmax": lambda a: a.softmax(-1),
    "layernorm": lambda a, w, b: a.layernorm() * w + b,
    "gelu": lambda a: a.gelu(),
    "sum": lambda a: a.sum(),
    "row-sum": lambda a: a.sum(1),
    "col-sum": lambda a: a.sum(0),
    "transpose": lambda a: a.T.contiguous(),
    "attention": lambda q, k, v: q.scaled_dot_product_attention(k, v),
    "cumsum": lambda a: a.cumsum(),
    "gather": lambda table, i: table[i],
    "argmax": lambda a: a.argmax(1),
    "encoder": encoder,
    "resnet18": NETWORK,
} | dict.fromkeys(GEMMS, lambda a, b: a @ b)


def prepare(name, arrays, layout):
    tensors = [Tensor.from_numpy(a) for a in arrays]
    graph, inputs = capture(TABLE[name](*(seen(t, layout) for t in tensors)))
    program = uops.compile(graph, backend=BACKEND)
    return lambda: program(inputs).values[0]


if __name__ == "__main__":
    serve(prepare, uops.__version__)
