"""Results memoized for the length of one lowering, so that no pass derives again what another one derived.

A `LoweringCache` holds, for nodes of the program being lowered:

- the order below a root (`uops.spec.ir.node.toposort`), and the nodes of each op in it (`nodes_with_op`);
- the loops around a node (`uops.spec.ir.scope.open_ranges`);
- normal forms per list of rules (`Rewriter`), and costs (`rewriter.weighted_tree_cost`).

All of them are functions of the node alone. The cache is active inside `with use_lowering_cache(cache):`, in this thread. It is
dropped with the lowering, or with the last of several lowerings that share it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from uops.spec.ir import node
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(slots=True)
class LoweringCache:
    """The memoized results of one lowering.

    `normal_forms` is by class of Rewriter and identity of the list of rules. Its values keep the rules alive, so that the identity
    stays theirs.
    """

    orders: dict[UOp, list[UOp]] = field(default_factory=dict)
    nodes_by_op: dict[UOp, dict[Op, list[UOp]]] = field(default_factory=dict)
    open_ranges: dict[UOp, frozenset[UOp]] = field(default_factory=dict)
    normal_forms: dict[tuple[type, int], tuple[Any, dict[UOp, UOp], set[UOp]]] = field(default_factory=dict)
    costs: dict[UOp, int] = field(default_factory=dict)


class _ActiveCache(threading.local):
    cache: LoweringCache | None = None


_active = _ActiveCache()


def active_cache() -> LoweringCache | None:
    """Return the cache that is active in this thread, if there is one."""
    return _active.cache


class use_lowering_cache:
    """A context manager in which `cache` is active."""

    __slots__ = ("cache", "outer_cache", "outer_orders")

    def __init__(self, cache: LoweringCache) -> None:
        self.cache = cache

    def __enter__(self) -> None:
        cache, traversals = self.cache, node.orders
        self.outer_cache, _active.cache = _active.cache, cache
        self.outer_orders = traversals.orders_by_root, traversals.nodes_by_op, traversals.open_ranges
        traversals.orders_by_root, traversals.nodes_by_op, traversals.open_ranges = (
            cache.orders,
            cache.nodes_by_op,
            cache.open_ranges,
        )

    def __exit__(self, *error: object) -> None:
        traversals = node.orders
        _active.cache = self.outer_cache
        traversals.orders_by_root, traversals.nodes_by_op, traversals.open_ranges = self.outer_orders
