"""The specification's seven multi-device collectives, as graphs.

In the docstrings, D is an n-tuple of device names and `s` the number of elements on one device. A Load to D shards axis 0; a Load
to one device gathers.
"""

from __future__ import annotations

from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp

Devices = tuple[str, ...]


def replicate_on_devices(t: UOp, devices: Devices) -> UOp:
    """Build a copy of all of `t` on every device, with axis null."""
    n = len(devices)
    copies = b.copy(b.expand(b.reshape(t, (1, *t.shape)), (n, *t.shape)), devices)
    return b.reshape(b.replicated(copies, 0), t.shape)


def broadcast(t: UOp, devices: Devices) -> UOp:
    """Build a broadcast: (s,) on one device to (s,) on D, axis null, so that every device holds all elements."""
    return replicate_on_devices(t, devices)


def scatter(t: UOp, devices: Devices) -> UOp:
    """Build a scatter: (s,) on one device to (s,) on D, axis 0, a chunk per device (R75: n divides s)."""
    return b.copy(t, devices)


def gather(t: UOp, devices: Devices) -> UOp:
    """Build a gather: (n*s,) on D, axis 0, to (n*s,) on D[0]."""
    return b.copy(t, devices[0])


def reduce(t: UOp, devices: Devices) -> UOp:
    """Build a reduce: (n*s,) on D, axis 0, to the (s,) sum of the shards on D[0]."""
    n = len(devices)
    (total,) = t.shape
    return b.sum_and_drop_axis(b.reshape(gather(t, devices), (n, total // n)), 0)


def allgather(t: UOp, devices: Devices) -> UOp:
    """Build an allgather: (n*s,) on D, axis 0, to (n*s,) on D, axis null."""
    return replicate_on_devices(t, devices)


def reduce_scatter(t: UOp, devices: Devices) -> UOp:
    """Build a reduce-scatter: (n*s,) on D, axis 0, to the (s,) sum of the shards on D, axis 0.

    Raises SpecError unless n divides s (R75, n-tuple sizes).
    """
    n = len(devices)
    (total,) = t.shape
    s = total // n
    if s % n:
        raise SpecError(f"reduce_scatter over {n} devices needs a multiple of {n} elements per device, got {s} (R75)")
    x = b.permute(b.reshape(t, (n, n, s // n)), (1, 0, 2))
    return b.reshape(b.sum_and_drop_axis(b.copy(x, devices), 1), (s,))


def allreduce(t: UOp, devices: Devices) -> UOp:
    """Build an allreduce: (n*s,) on D, axis 0, to the (s,) sum of the shards on D, axis null."""
    return allgather(reduce_scatter(t, devices), devices)


#: Name -> builder.
COLLECTIVES = {f.__name__: f for f in (broadcast, scatter, gather, reduce, allgather, reduce_scatter, allreduce)}
