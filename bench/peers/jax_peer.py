"""JAX on the CPU: one jitted function per workload, waited for."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from formulas import build_formulas
from protocol import serve


def conv(x, w, stride, padding):
    """Return a 2-D convolution."""
    return jax.lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2)


def pool(x):
    """Return a 3x3 max pool with stride 2 and padding 1."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])


def transpose_contiguous(layout, a):
    """Return a transposed copy of the operand, which is stored in a layout."""
    return jnp.array(a.T if layout == "plain" else jnp.swapaxes(a, 0, 1).T if layout == "transposed" else a[..., ::2].T)


TABLE = build_formulas(jnp, conv, pool) | {"transpose": transpose_contiguous}


def prepare(name, arrays, layout):
    """Return a function that runs a workload and waits for its result."""
    on_device = [jnp.asarray(a) for a in arrays]
    f = jax.jit(partial(TABLE[name], layout))
    return lambda: f(*on_device).block_until_ready()


def prepare_gradient(name, arrays, targets):
    """Return a function that computes a workload and the gradients of targets, and waits for them."""
    *on_device, cotangent = map(jnp.asarray, arrays)

    def run(cotangent, *operands):
        def apply_to_targets(*chosen):
            return TABLE[name]("plain", *(chosen[targets.index(k)] if k in targets else a for k, a in enumerate(operands)))

        value, pull_back = jax.vjp(apply_to_targets, *(operands[k] for k in targets))
        return [value, *pull_back(cotangent)]

    f = jax.jit(run)
    return lambda: jax.block_until_ready(f(cotangent, *on_device))


if __name__ == "__main__":
    serve(prepare, jax.__version__, prepare_gradient)
