"""PyTorch, eager, with its own fused functions where it has them."""

from __future__ import annotations

import os

import numpy as np
import torch
import torch.nn.functional as F
from formulas import GEMMS, encoder
from protocol import serve
from resnet import Layers, resnet

torch.set_num_threads(int(os.environ["BENCH_THREADS"]))


def tensor(a):
    return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if a.dtype.name == "bfloat16" else torch.from_numpy(a)


def seen(a, layout):
    if layout == "transposed" and a.is_floating_point() and a.dim() > 1:
        return a.mT
    return a[..., ::2] if layout == "strided" and a.is_floating_point() else a


def layer(x, p, heads):
    batch, sequence, hidden = x.shape
    query, key, value, out, up, down = p
    q, k, v = ((x @ w).view(batch, sequence, heads, -1).transpose(1, 2) for w in (query, key, value))
    attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, sequence, hidden)
    x = F.layer_norm(x + attended @ out, (hidden,))
    return F.layer_norm(x + F.gelu(x @ up, approximate="tanh") @ down, (hidden,))


NETWORK = resnet(
    Layers(
        lambda x, w, stride, padding: F.conv2d(x, w, stride=stride, padding=padding),
        lambda x, weight, bias, mean, var: F.batch_norm(x, mean, var, weight, bias),
        F.relu,
        torch.add,
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x, w, b: x.mean((2, 3)) @ w + b,
    )
)

TABLE = {
    "conv2d": lambda x, w: F.conv2d(x, w, padding=1),
    "softmax": lambda a: F.softmax(a, -1),
    "layernorm": lambda a, w, b: F.layer_norm(a, a.shape[-1:], w, b),
    "gelu": lambda a: F.gelu(a, approximate="tanh"),
    "sum": lambda a: a.sum(),
    "row-sum": lambda a: a.sum(1),
    "col-sum": lambda a: a.sum(0),
    "transpose": lambda a: a.T.contiguous() if not a.T.is_contiguous() else a.T.clone(),
    "attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "cumsum": lambda a: a.cumsum(0),
    "gather": lambda table, i: table[i],
    "argmax": lambda a: a.argmax(1),
    "encoder": encoder(layer),
    "resnet18": NETWORK,
} | dict.fromkeys(GEMMS, torch.matmul)


class Result:
    """What NumPy takes for an array; bfloat16 is none to torch's own conversion."""

    def __init__(self, t):
        self.t = t

    def __array__(self, dtype=None, copy=None):
        return (self.t.float() if self.t.dtype is torch.bfloat16 else self.t).numpy()


def prepare(name, arrays, layout):
    tensors = [tensor(a) for a in arrays]

    def action():
        with torch.inference_mode():
            return Result(TABLE[name](*(seen(t, layout) for t in tensors)))

    return action


if __name__ == "__main__":
    serve(prepare, torch.__version__)
