"""Results memoized for the length of one lowering, so that no pass derives again what another one derived.

A `LoweringCache` holds, for nodes of the program being lowered:

- the order below a root (`uops.spec.ir.node.toposort`), and the nodes of each op in it (`nodes_with_op`);
- the loops around a node (`uops.spec.ir.scope.open_ranges`);
- normal forms per list of rules (`Rewriter`), and costs (`rewriter.weighted_tree_cost`);
- the instructions of a list by op, and its uses of private memory (`uops.compiler.ir.instructions`).

All of them are functions of the node alone. The cache is active inside `with use_lowering_cache(cache):`, in this thread. It is
dropped with the lowering, or with the last of several lowerings that share it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from uops.spec.ir.node import TraversalCache, UOp, traversals

T = TypeVar("T")


@dataclass(slots=True)
class LoweringCache(TraversalCache):
    """The memoized results of one lowering.

    `normal_forms` is by class of Rewriter and identity of the list of rules. Its values keep the rules alive, so that the identity
    stays theirs.
    """

    normal_forms: dict[tuple[type, int], tuple[Any, dict[UOp, UOp], set[UOp]]] = field(default_factory=dict)
    costs: dict[UOp, int] = field(default_factory=dict)
    of_lists: dict[tuple[Any, UOp], Any] = field(default_factory=dict)


def active_cache() -> LoweringCache | None:
    """Return the cache that is active in this thread, if there is one."""
    return cast("LoweringCache | None", traversals.cache)


def memoize_per_lowering(function: Callable[[UOp], T]) -> Callable[[UOp], T]:
    """Return a function of an instruction list whose results the active cache keeps; without one, each call computes."""

    @functools.wraps(function)
    def compute_or_recall(linear: UOp) -> T:
        cache = active_cache()
        if cache is None:
            return function(linear)
        key = function, linear
        result: T | None = cache.of_lists.get(key)
        if result is None:
            result = cache.of_lists[key] = function(linear)
        return result

    return compute_or_recall


class use_lowering_cache:
    """A context manager in which `cache` is active."""

    __slots__ = ("cache", "outer_cache")

    def __init__(self, cache: LoweringCache) -> None:
        self.cache = cache

    def __enter__(self) -> None:
        self.outer_cache = traversals.cache
        traversals.cache = self.cache

    def __exit__(self, *error: object) -> None:
        traversals.cache = self.outer_cache
