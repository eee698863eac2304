"""Values of nodes, each computed once, after those that it needs; iterative, as graphs are deep.

Takes: a node, the values known so far, and the two functions that a kind of values consists of. Gives: the value of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from uops.spec.ir.node import UOp

T = TypeVar("T")


def compute_sources_first(
    root: UOp, known: dict[UOp, T], list_sources: Callable[[UOp], Sequence[UOp]], compute: Callable[[UOp], T]
) -> T:
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
