"""Scopes hold the values of nodes: one scope per evaluation of a body.

A scope maps nodes to cells: an array, a reference (`memory.StorageRef`) or VOID. The root graph has one scope. A Function has
one per node. It is its substituted body (R64), so its Params are the argument's own cells, evaluated on demand, and an element
that no GetTuple reads is not evaluated. A Call has one in which Params are new references, ordered after all of its arguments
(R63).
"""

from __future__ import annotations

from typing import Any

from uops.spec.ir.node import UOp

#: The cell of a void node.
VOID: Any = None
#: Returned by an action that pushed a frame which must finish first.
WAIT: Any = object()
#: An array, a `memory.StorageRef` or VOID.
Cell = Any


class TensorScope:
    """One evaluation of one body. `outer` and `args` bind Param k to node args[k] of the outer scope."""

    __slots__ = ("args", "base_accesses", "call", "cells", "inner", "masks", "outer", "own_accesses")

    def __init__(
        self, outer: TensorScope | None = None, args: tuple[UOp, ...] = (), call: UOp | None = None, base_accesses: int = 0
    ) -> None:
        self.cells: dict[UOp, Cell] = {}
        self.outer = outer
        self.args = args
        self.call = call
        self.base_accesses = base_accesses  # accesses that happen before everything here, as a set of bits
        self.inner: dict[UOp, TensorScope] = {}
        self.own_accesses: dict[UOp, int] = {}  # accesses that a node itself makes, as a set of bits
        self.masks: dict[UOp, int] = {}  # memoized results of `TensorMachine.accesses_before_end_of`
