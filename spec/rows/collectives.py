"""The specification's seven multi-device collectives, as graphs.

D is an n-tuple of device names. `s` is the number of elements on one device. A Load to D shards axis 0; a Load to one name gathers.
"""

from __future__ import annotations

from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp

Devices = tuple[str, ...]


def _replicate(t: UOp, devices: Devices) -> UOp:
    """The whole of the vector `t` on every device: (m,) with axis null."""
    (m,) = t.shape
    n = len(devices)
    copies = b.replicated(b.copy(b.expand(b.reshape(t, (1, m)), (n, m)), devices), 0)
    return b.reshape(copies, (m,))


def broadcast(t: UOp, devices: Devices) -> UOp:
    """(s,) on one device to (s,) on D, axis null: every device holds all of it."""
    return _replicate(t, devices)


def scatter(t: UOp, devices: Devices) -> UOp:
    """(s,) on one device to (s,) on D, axis 0: one chunk per device (R75: n divides s)."""
    return b.copy(t, devices)


def gather(t: UOp, devices: Devices) -> UOp:
    """(n*s,) on D, axis 0, to (n*s,) on D[0]."""
    return b.copy(t, devices[0])


def reduce(t: UOp, devices: Devices) -> UOp:
    """(n*s,) on D, axis 0, to the (s,) sum of the shards on D[0]."""
    n = len(devices)
    (total,) = t.shape
    return b.sum_(b.reshape(gather(t, devices), (n, total // n)), 0)


def allgather(t: UOp, devices: Devices) -> UOp:
    """(n*s,) on D, axis 0, to (n*s,) on D, axis null."""
    return _replicate(t, devices)


def reduce_scatter(t: UOp, devices: Devices) -> UOp:
    """(n*s,) on D, axis 0, to the (s,) sum of the shards on D, axis 0 (R75: n divides s)."""
    n = len(devices)
    (total,) = t.shape
    s = total // n
    if s % n:
        raise SpecError(f"reduce_scatter over {n} devices needs a multiple of {n} elements per device, got {s} (R75)")
    x = b.permute(b.reshape(t, (n, n, s // n)), (1, 0, 2))
    return b.reshape(b.sum_(b.copy(x, devices), 1), (s,))


def allreduce(t: UOp, devices: Devices) -> UOp:
    """(n*s,) on D, axis 0, to the (s,) sum of the shards on D, axis null."""
    return allgather(reduce_scatter(t, devices), devices)


COLLECTIVES = {f.__name__: f for f in (broadcast, scatter, gather, reduce, allgather, reduce_scatter, allreduce)}
