"""Another order of a kernel's items, drawn from a seed among all that the kernel allows (R55, R59)."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

from uops.interp.kernel.structure.blocks import Block, Item, Kernel, closure
from uops.spec.ir.node import UOp


def shuffled(kernel: Kernel, seed: int) -> Kernel:
    """The same kernel, the items of each block in another order that `before` allows."""
    return replace(kernel, block=_reordered(kernel.block, random.Random(seed)))


def _reordered(block: Block, rng: random.Random) -> Block:
    """Another order of the items, each after those it waits for, drawn by `rng`."""
    left = [len(w) for w in block.waits]
    followers: list[list[int]] = [[] for _ in left]
    for j, sources in enumerate(block.waits):
        for k in sources:
            followers[k].append(j)
    ready = [(rng.random(), j) for j, n in enumerate(left) if not n]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, j = heapq.heappop(ready)
        order.append(j)
        for f in followers[j]:
            left[f] -= 1
            if not left[f]:
                heapq.heappush(ready, (rng.random(), f))
    new = {old: k for k, old in enumerate(order)}
    items = tuple(_reordered_item(block.items[j], rng) for j in order)
    waits = tuple(tuple(sorted(new[k] for k in block.waits[j])) for j in order)
    if order == list(range(len(order))):
        return Block(items, waits, block.before, block.guards)
    seen = 0
    for mask in block.before:
        seen |= mask
    bits = [1 << new[j] if seen >> j & 1 else 0 for j in order]
    return Block(items, waits, closure(waits, bits), tuple(block.guards[j] for j in order))


def _reordered_item(x: Item, rng: random.Random) -> Item:
    return x if isinstance(x, UOp) else replace(x, block=_reordered(x.block, rng))
