"""Random orders of a kernel's items, drawn from a seed among all that the kernel allows (R55, R59: races, After)."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

from uops.interp.kernel.structure.blocks import Item, KernelStructure, ScheduledBlock, happens_before_masks
from uops.spec.ir.node import UOp


def shuffle_item_order(kernel: KernelStructure, seed: int) -> KernelStructure:
    """Return the same kernel with the items of each block in another order that `before` allows."""
    return replace(kernel, block=_shuffle_block_within_dependencies(kernel.block, random.Random(seed)))


def _shuffle_block_within_dependencies(block: ScheduledBlock, rng: random.Random) -> ScheduledBlock:
    """Return the block with its items in an order drawn by `rng`, each after those it waits for."""
    unmet = [len(w) for w in block.waits]
    followers: list[list[int]] = [[] for _ in unmet]
    for j, sources in enumerate(block.waits):
        for k in sources:
            followers[k].append(j)
    ready = [(rng.random(), j) for j, n in enumerate(unmet) if not n]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, j = heapq.heappop(ready)
        order.append(j)
        for f in followers[j]:
            unmet[f] -= 1
            if not unmet[f]:
                heapq.heappush(ready, (rng.random(), f))
    new_position = {old: k for k, old in enumerate(order)}
    items = tuple(_shuffle_nested_block(block.items[j], rng) for j in order)
    waits = tuple(tuple(sorted(new_position[k] for k in block.waits[j])) for j in order)
    if order == list(range(len(order))):
        return ScheduledBlock(items, waits, block.before, block.guards)
    event_mask = 0
    for mask in block.before:
        event_mask |= mask
    bits = [1 << new_position[j] if event_mask >> j & 1 else 0 for j in order]
    return ScheduledBlock(items, waits, happens_before_masks(waits, bits), tuple(block.guards[j] for j in order))


def _shuffle_nested_block(x: Item, rng: random.Random) -> Item:
    """Shuffle the block of a loop; a node stays as it is."""
    return x if isinstance(x, UOp) else replace(x, block=_shuffle_block_within_dependencies(x.block, rng))
