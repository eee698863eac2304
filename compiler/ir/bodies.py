"""Kernel bodies: one form for equal ones, and every distinct one lowered once.

`canonical` numbers the loops of a KERNEL body from 0, in the order that they had: what depends on their order (R58, R95, R109)
stays, and since nodes are interned, kernels that do the same on memory of the same sizes have one body from then on. Ids of loops
and of memory of its own (R62, R130) are a body's, so nothing else has to change with them.

`each` replaces the bodies of a launch. `Kept` remembers what became of bodies, for programs to come: a process that compiles the
same layer in many programs lowers it once. It holds a bounded number of bodies, the least recently used dropped first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace

from uops.spec.ir.node import UOp, nodes_of, toposort
from uops.spec.ir.ops import Op


def canonical(body: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """The body on renumbered loops, and what became of each node that depends on one."""
    ids = sorted({int(u.arg.axis_id) for u in nodes_of(body, Op.RANGE)})
    if ids == list(range(len(ids))):
        return body, {}
    rank = {a: k for k, a in enumerate(ids)}
    put: dict[UOp, UOp] = {}
    for u in toposort(body):
        src = tuple([put.get(s, s) for s in u.src])
        arg = replace(u.arg, axis_id=rank[u.arg.axis_id]) if u.op is Op.RANGE else u.arg
        if src != u.src or arg is not u.arg:
            put[u] = UOp(u.op, src, arg, u.tag)
    return put.get(body, body), put


def each(root: UOp, change: Callable[[UOp], UOp]) -> UOp:
    """The launch with `change` of every body, called once per distinct one."""
    done: dict[UOp, UOp] = {}
    for call in root.src:
        body = call.src[0]
        if body not in done:
            done[body] = change(body)
    calls = [UOp(c.op, (done[c.src[0]], *c.src[1:]), c.arg, c.tag) for c in root.src]
    return UOp(root.op, tuple(calls), root.arg, root.tag)


class Kept:
    """What became of bodies under a key; safe in threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lock = threading.Lock()
        self.found: OrderedDict[tuple[UOp, Hashable], UOp] = OrderedDict()

    def get(self, body: UOp, key: Hashable) -> UOp | None:
        with self.lock:
            known = self.found.get((body, key))
            if known is not None:
                self.found.move_to_end((body, key))
            return known

    def put(self, body: UOp, key: Hashable, made: UOp) -> None:
        with self.lock:
            self.found[body, key] = made
            while len(self.found) > self.limit:
                self.found.popitem(last=False)
