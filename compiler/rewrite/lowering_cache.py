"""What one lowering remembers of nodes, so that no pass computes again what another one found.

`Memory` holds, for nodes of the program being lowered: the order below a root (`uops.spec.ir.node.toposort`) and the nodes of each
op in it (`uops.spec.ir.node.nodes_of`), the loops around a node (`uops.spec.ir.scope.open_ranges`), normal forms per list of rules
(`Rewriter`), costs (`rewrite.cost`), and what functions that are `remembered` gave. All are functions of the node alone. It is in
use inside of `with remembering(memory):`, in this thread, and dropped with the lowering, or with those that were given one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uops.compiler.log import active
from uops.spec.ir import node
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(slots=True)
class Memory:
    """`normal`: by whose normal forms they are, and the rules (kept alive, as they are known by identity)."""

    orders: dict[UOp, list[UOp]] = field(default_factory=dict)
    kinds: dict[UOp, dict[Op, list[UOp]]] = field(default_factory=dict)
    opened: dict[UOp, frozenset[UOp]] = field(default_factory=dict)
    normal: dict[tuple[type, int], tuple[Any, dict[UOp, UOp], set[UOp]]] = field(default_factory=dict)
    costs: dict[UOp, int] = field(default_factory=dict)
    made: dict[tuple[object, UOp], UOp] = field(default_factory=dict)


class _Active(threading.local):
    memory: Memory | None = None


_active = _Active()


def memory() -> Memory | None:
    """What is in use here."""
    return _active.memory


def remembered(change: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """The function, which does no root twice while a memory is in use, unless somebody records what it does."""

    @functools.wraps(change)
    def asked(root: UOp) -> UOp:
        found = _active.memory
        if found is None or active() is not None:
            return change(root)
        known = found.made.get((change, root))
        if known is None:
            known = found.made[change, root] = change(root)
        return known

    return asked


class remembering:
    """Use `found` inside."""

    __slots__ = ("before", "found", "outer")

    def __init__(self, found: Memory) -> None:
        self.found = found

    def __enter__(self) -> None:
        found, kept = self.found, node.orders
        self.before, _active.memory = _active.memory, found
        self.outer = kept.kept, kept.kinds, kept.opened
        kept.kept, kept.kinds, kept.opened = found.orders, found.kinds, found.opened

    def __exit__(self, *error: object) -> None:
        kept = node.orders
        _active.memory, (kept.kept, kept.kinds, kept.opened) = self.before, self.outer
