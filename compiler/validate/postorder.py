"""Values of nodes, each computed once, after those that it needs; iterative, as graphs are deep.

Takes: a node, the values known so far, and the two functions that a kind of values consists of. Gives: the value of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")
#: A node, or an element of one.
N = TypeVar("N", bound=Hashable)


def compute_sources_first(root: N, known: dict[N, T], list_sources: Callable[[N], Sequence[N]], compute: Callable[[N], T]) -> T:
    """Return the value of a node. What `compute` gives is added to `known`, after that of each node of `list_sources`."""
    stack = [root]
    while stack:
        u = stack[-1]
        if u in known:
            stack.pop()
            continue
        missing = [s for s in list_sources(u) if s not in known]
        if missing:
            stack += missing
        else:
            known[u] = compute(u)
            stack.pop()
    return known[root]
