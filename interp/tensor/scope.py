"""Where nodes have their values: one scope per evaluation of a body.

A scope maps nodes to cells: an array, a reference (`memory.Ref`) or VOID. The root has one; a Function has one per node (R64: a
Function is its substituted body, so its Params are the argument's own cells, evaluated on demand, and an element that no GetTuple
asks for is not evaluated); a Call has one in which Params are new references that come after all of its arguments (R63).
"""

from __future__ import annotations

from typing import Any

from uops.spec.ir.node import UOp

#: The cell of a node without a value.
VOID: Any = None
#: What an action returns when it pushed a frame that must finish first.
WAIT: Any = object()
Cell = Any


class Scope:
    """One evaluation of one body. `outer` and `args` bind Param k to node args[k] of the outer scope."""

    __slots__ = ("args", "base", "call", "cells", "inner", "masks", "outer", "own")

    def __init__(self, outer: Scope | None = None, args: tuple[UOp, ...] = (), call: UOp | None = None, base: int = 0) -> None:
        self.cells: dict[UOp, Cell] = {}
        self.outer = outer
        self.args = args
        self.call = call
        self.base = base  # accesses that happen before everything here
        self.inner: dict[UOp, Scope] = {}
        self.own: dict[UOp, int] = {}  # accesses that a node itself makes
        self.masks: dict[UOp, int] = {}
