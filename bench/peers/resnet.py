"""ResNet-18 over a few functions of a library, on parameters in the order in which `workloads.py` makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class PeerResNetOps(NamedTuple):
    """The functions of a library from which ResNet-18 is built.

    `conv(x, w, stride, padding)`, `norm(x, weight, bias, mean, var)`, `relu(x)`, `add(x, y)`, `pool(x)` (3x3, stride 2, padding
    1), `head(x, w, b)` (mean over the image, then a dense layer), and the extent of a kernel.
    """

    conv: Callable[..., Any]
    norm: Callable[..., Any]
    relu: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]
    pool: Callable[[Any], Any]
    head: Callable[[Any, Any, Any], Any]
    extent: Callable[[Any], int] = lambda w: int(w.shape[-1])


def make_resnet(f: PeerResNetOps) -> Callable[..., Any]:
    """Return the network as a function of (x, *parameters)."""

    def run_network(x: Any, *parameters: Any) -> Any:
        rest = iter(parameters)

        def conv() -> tuple[Any, ...]:
            return tuple(next(rest) for _ in range(5))

        def run(t: Any, p: tuple[Any, ...], stride: int) -> Any:
            return f.norm(f.conv(t, p[0], stride, f.extent(p[0]) // 2), *p[1:])

        x = f.pool(f.relu(run(x, conv(), 2)))
        for stage in range(4):
            for k in range(2):
                stride = 2 if stage and not k else 1
                a, b = conv(), conv()
                y = run(f.relu(run(x, a, stride)), b, 1)
                x = f.relu(f.add(y, run(x, conv(), stride) if stride > 1 else x))
        return f.head(x, next(rest), next(rest))

    return run_network
