"""Kernel bodies: one form for equal ones, and a cache of lowered ones.

`renumber_loops_and_map_nodes` numbers the loops of a KERNEL body from 0, in the order that they had. So everything that depends
on their order stays (R58, R95, R109). Since nodes are interned, kernels that compute the same on memory of the same sizes have
one body from then on. Ids of loops and of a body's own memory are local to it (R62, R130), so nothing else changes with them.

`map_kernel_bodies` replaces the bodies of a launch. `KernelBodyCache` keeps lowered bodies for later programs: a process that
compiles the same layer in many programs lowers it once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace

from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op


def renumber_loops_and_map_nodes(body: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """Return the body on renumbered loops, and the replacement of each node that depends on one."""
    ids = sorted({int(u.arg.axis_id) for u in nodes_with_op(body, Op.RANGE)})
    if ids == list(range(len(ids))):
        return body, {}
    rank = {a: k for k, a in enumerate(ids)}
    replaced: dict[UOp, UOp] = {}
    for u in toposort(body):
        src = tuple([replaced.get(s, s) for s in u.src])
        arg = replace(u.arg, axis_id=rank[u.arg.axis_id]) if u.op is Op.RANGE else u.arg
        if src != u.src or arg is not u.arg:
            replaced[u] = UOp(u.op, src, arg, u.tag)
    return replaced.get(body, body), replaced


def map_kernel_bodies(launch: UOp, lower_body: Callable[[UOp], UOp]) -> UOp:
    """Return the launch with `lower_body` applied to every body, once per distinct one."""
    done: dict[UOp, UOp] = {}
    calls = []
    for call in launch.src:
        body, *arguments = call.src
        if body not in done:
            done[body] = lower_body(body)
        calls.append(UOp(call.op, (done[body], *arguments), call.arg, call.tag))
    return UOp(launch.op, tuple(calls), launch.arg, launch.tag)


class KernelBodyCache:
    """Lowered bodies under a key; at most `limit`, the least recently used dropped first. Safe in threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lock = threading.Lock()
        self.entries: OrderedDict[tuple[UOp, Hashable], UOp] = OrderedDict()

    def get(self, body: UOp, settings_key: Hashable) -> UOp | None:
        """Return the lowered body, or None."""
        with self.lock:
            lowered = self.entries.get((body, settings_key))
            if lowered is not None:
                self.entries.move_to_end((body, settings_key))
            return lowered

    def put(self, body: UOp, settings_key: Hashable, lowered: UOp) -> None:
        """Keep a lowered body."""
        with self.lock:
            self.entries[body, settings_key] = lowered
            while len(self.entries) > self.limit:
                self.entries.popitem(last=False)
