"""PyTorch, eager, with its own fused functions where it has them."""

from __future__ import annotations

import os

import numpy as np
import torch
import torch.nn.functional as F
from formulas import GEMMS, stack_encoder_layers
from protocol import serve
from resnet import PeerResNetOps, make_resnet

torch.set_num_threads(int(os.environ["BENCH_THREADS"]))


def tensor(a):
    """Return a tensor on an array's memory."""
    return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if a.dtype.name == "bfloat16" else torch.from_numpy(a)


def view_operand(a, layout):
    """Return the workload's operand as a view of the stored one."""
    if layout == "transposed" and a.is_floating_point() and a.dim() > 1:
        return a.mT
    return a[..., ::2] if layout == "strided" and a.is_floating_point() else a


def encoder_layer(x, p, heads):
    """Return one layer of the encoder."""
    batch, sequence, hidden = x.shape
    query, key, value, out, up, down = p
    q, k, v = ((x @ w).view(batch, sequence, heads, -1).transpose(1, 2) for w in (query, key, value))
    attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, sequence, hidden)
    x = F.layer_norm(x + attended @ out, (hidden,))
    return F.layer_norm(x + F.gelu(x @ up, approximate="tanh") @ down, (hidden,))


NETWORK = make_resnet(
    PeerResNetOps(
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
    "encoder": stack_encoder_layers(encoder_layer),
    "resnet18": NETWORK,
} | dict.fromkeys(GEMMS, torch.matmul)


class TorchResult:
    """A result that NumPy accepts as an array; torch itself does not convert bfloat16."""

    def __init__(self, t):
        self.t = t

    def __array__(self, dtype=None, copy=None):
        return (self.t.float() if self.t.dtype is torch.bfloat16 else self.t).numpy()


def prepare(name, arrays, layout):
    """Return a function that runs a workload."""
    tensors = [tensor(a) for a in arrays]

    def action():
        with torch.inference_mode():
            return TorchResult(TABLE[name](*(view_operand(t, layout) for t in tensors)))

    return action


def prepare_gradient(name, arrays, targets):
    """Return a function that computes a workload and the gradients of targets."""
    *tensors, cotangent = map(tensor, arrays)
    chosen = [tensors[k].requires_grad_() for k in targets]

    def action():
        value = TABLE[name](*tensors)
        return [TorchResult(t) for t in (value.detach(), *torch.autograd.grad(value, chosen, cotangent))]

    return action


if __name__ == "__main__":
    serve(prepare, torch.__version__, prepare_gradient)
