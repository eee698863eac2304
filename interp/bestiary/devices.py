"""Values on several devices: held whole, all shards at once (R110, R116)."""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.interp.bestiary.machine import Step
from uops.interp.bestiary.values import folded, joined
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp


def _shards(u: UOp, x: Array) -> list[Array]:
    """What each device holds of the value of `u`."""
    devices = u.device if isinstance(u.device, tuple) else (u.device,)
    return [x] * len(devices) if u.axis is None else np.split(x, len(devices), axis=u.axis)


def allreduce(s: Step) -> Any:
    """The shards combined, element by element."""
    u, t = s.node, s.node.src[0]
    together = joined(u.dtype, _shards(t, s.value(t)))
    return np.asarray(folded(u.arg.op, u.dtype, together, (0,)))[0]


def mstack(s: Step) -> Any:
    """The values of the devices as shards of one value along axis 0."""
    found = joined(s.node.dtype, s.values(s.node.src))
    return (
        found.reshape((-1, *found.shape[2:])) if found.size else found.reshape((found.shape[0] * found.shape[1], *found.shape[2:]))
    )


def mselect(s: Step) -> Any:
    return _shards(s.node.src[0], s.value(s.node.src[0]))[s.node.arg.index]
