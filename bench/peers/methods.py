"""The workloads for Tensors that have methods, as a user of uops or of tinygrad writes them: the names are the same."""

from __future__ import annotations

from formulas import GEMMS, stack_encoder_layers
from resnet import PeerResNetOps, make_resnet


def norm(x):
    """Return the layer normalization."""
    return x.layernorm()


def encoder_layer(x, p, heads):
    """Return one layer of the encoder."""
    batch, sequence, hidden = x.shape
    query, key, value, out, up, down = p
    q, k, v = ((x @ w).reshape(batch, sequence, heads, -1).transpose(1, 2) for w in (query, key, value))
    x = norm(x + q.scaled_dot_product_attention(k, v).transpose(1, 2).reshape(batch, sequence, hidden) @ out)
    return norm(x + (x @ up).gelu() @ down)


NETWORK = make_resnet(
    PeerResNetOps(
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
    "layernorm": lambda a, w, b: norm(a) * w + b,
    "gelu": lambda a: a.gelu(),
    "sum": lambda a: a.sum(),
    "row-sum": lambda a: a.sum(1),
    "col-sum": lambda a: a.sum(0),
    "transpose": lambda a: a.T.contiguous(),
    "attention": lambda q, k, v: q.scaled_dot_product_attention(k, v),
    "cumsum": lambda a: a.cumsum(),
    "gather": lambda table, i: table[i],
    "argmax": lambda a: a.argmax(1),
    "encoder": stack_encoder_layers(encoder_layer),
    "resnet18": NETWORK,
} | dict.fromkeys(GEMMS, lambda a, b: a @ b)
