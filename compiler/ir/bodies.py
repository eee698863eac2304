"""Kernel bodies: one form for equal ones, and a cache of lowered ones.

`renumber_loops_and_map_nodes` numbers the loops of a KERNEL body from 0, in the order that they had. So everything that depends
on their order stays (R58, R95, R109). Since nodes are interned, kernels that compute the same on memory of the same sizes have
one body from then on. Ids of loops and of a body's own memory are local to it (R62, R130), so nothing else changes with them.

`order_outside_kernels` and `substitute_outside_kernels` see a program without the bodies of its Calls, but with those of its
Functions. `map_kernel_bodies` replaces the bodies of a launch. `KernelBodyCache` keeps lowered bodies for later programs: a process
that compiles the same layer in many programs lowers it once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from uops.spec.ir.native import OPAQUE_BODIES
from uops.spec.ir.node import UOp, nodes_with_op, ops_below, substitute, toposort
from uops.spec.ir.ops import ALU, Op

#: Ops of a scalar that variables determine, which a kernel computes itself.
SCALAR_OPS = ALU | {Op.CONST, Op.CAST, Op.STACK}


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


def order_outside_kernels(root: UOp) -> list[UOp]:
    """Return the nodes of a program in topological order, without the bodies of Calls."""
    order = toposort(root)
    if Op.CALL not in ops_below(root):
        return order
    bodies = {u.body for u in order if u.op is Op.CALL}
    return [u for u in toposort(root, gate=lambda u: u not in bodies) if u not in bodies]


def list_possibly_written_slots(call: UOp) -> Sequence[int]:
    """Return the numbers of the arguments that a Call may write: all, unless it says which (R63)."""
    written: Sequence[int] | None = None if call.arg is None else call.arg.written
    return range(len(call.arguments)) if written is None else written


def list_possibly_written_arguments(call: UOp) -> Sequence[UOp]:
    """Return the arguments that a Call may write."""
    return [call.arguments[k] for k in list_possibly_written_slots(call)]


def substitute_outside_kernels(root: UOp, replacements: dict[UOp, UOp]) -> UOp:
    """Return `root` with each key of `replacements` replaced, but for what is in the bodies of Calls.

    A body has Params of its own (R64), which may be the same nodes as Params outside.
    """
    if Op.CALL not in ops_below(root):
        return substitute(root, replacements)
    order = order_outside_kernels(root)
    rebuilt = {u: new for u, new in replacements.items() if new is not u}
    for u in order:
        if u not in replacements and not rebuilt.keys().isdisjoint(u.src):
            body = (u.body,) if u.op is Op.CALL else ()
            rebuilt[u] = u.replace(src=(*body, *[rebuilt.get(s, s) for s in u.src[len(body) :]]))
    return rebuilt.get(root, root)


def map_kernel_bodies(launch: UOp, lower_body: Callable[[UOp], UOp]) -> UOp:
    """Return the launch with `lower_body` applied to every body, once per distinct one.

    A CustomFunction or a Program is left as it is: there is nothing to lower (R169, functions and programs).
    """
    done: dict[UOp, UOp] = {}
    calls = []
    for call in launch.src:
        body, *arguments = call.src
        lowered = done.get(body)
        if lowered is None:
            lowered = done[body] = body if body.op in OPAQUE_BODIES else lower_body(body)
        calls.append(call if lowered is body else UOp(call.op, (lowered, *arguments), call.arg, call.tag))
    lowered_calls = tuple(calls)
    return launch if lowered_calls == launch.src else UOp(launch.op, lowered_calls, launch.arg, launch.tag)


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
