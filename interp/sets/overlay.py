"""Sets over a finished run: the machine's own evaluation gives every best value, and this walk adds what else is allowed.

Nodes are visited in the order in which the machine evaluated them, so that Loads and Stores meet as they did. Only a node that can
make a set from exact operands (`rules.SPARKS`) or has a source with a set costs more than one look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from uops.interp.machine import Machine
from uops.interp.memory import Ref, Storage
from uops.interp.movement import operand_sources
from uops.interp.scope import Scope
from uops.interp.sets.layout import LAYOUT, Array, Layout
from uops.interp.sets.memory import Patchwork
from uops.interp.sets.move import MOVES, PASS, moved
from uops.interp.sets.value import Loose, Value, settle, spread
from uops.spec.errors import Crash
from uops.spec.node import UOp
from uops.spec.ops import Op

_ndarray = np.ndarray


class Overlay:
    """The sets of one run. `loose` has, per scope, the nodes whose set is more than their cell; `level` chooses the rules."""

    def __init__(self, machine: Machine, rules: Any) -> None:
        self.machine = machine
        self.rules = rules
        self.loose: dict[Scope, dict[UOp, Loose]] = {s: {} for s in machine.scopes}
        self.read_sets: dict[int, Loose | None] = {}
        self.memory: dict[Storage, Patchwork] = {}
        self.walks: dict[Scope, Iterator[tuple[UOp, Any]]] = {s: iter(s.cells.items()) for s in machine.scopes}

    def walk(self) -> None:
        """Visit every node that was evaluated."""
        self._drain(self.machine.root)
        for s in self.machine.scopes:
            self._drain(s)

    def _drain(self, scope: Scope) -> None:
        sparks, rules = self.rules.sparks, self.rules.table
        stack = [scope]
        while stack:
            here = stack[-1]
            loose = self.loose[here]
            for u, cell in self.walks[here]:
                op = u.op
                if op is Op.GETTUPLE or op is Op.PARAM or op is Op.CALL:
                    inner = here.inner.get(u.src[0] if op is Op.GETTUPLE else u)
                    if inner is not None and op is not Op.PARAM:
                        for scope_ in self._nest(inner):
                            self._finish(scope_)
                    self._pass_scope(here, u)
                    continue
                rule = rules.get(op)
                if rule is None:
                    continue
                if op in sparks or self._touched(here, loose, u):
                    found = rule(self, here, u, cell)
                    if found is not None and found.__class__ is Loose:
                        settled = settle(found)
                        if settled.__class__ is Loose:
                            loose[u] = settled
            stack.pop()

    def _nest(self, inner: Scope) -> list[Scope]:
        return [inner]

    def _finish(self, inner: Scope) -> None:
        self._drain(inner)

    def _touched(self, scope: Scope, loose: dict[UOp, Loose], u: UOp) -> bool:
        cells = scope.cells
        for s in u.src:
            if s in loose:
                return True
            cell = cells.get(s)
            if cell.__class__ is Ref and cell.storage in self.memory:
                return True
        return False

    def _pass_scope(self, scope: Scope, u: UOp) -> None:
        """A GetTuple or a bound Param has the set of the node it stands for."""
        there = self.stands_for(scope, u)
        if there is not None:
            found = self.loose[there[0]].get(there[1])
            if found is not None:
                self.loose[scope][u] = found

    def stands_for(self, scope: Scope, u: UOp) -> tuple[Scope, UOp] | None:
        """The node, in another scope or here, whose value `u` has without computing anything."""
        if u.op is Op.GETTUPLE:
            packed = u.src[0]
            element = (packed if packed.op is Op.TUPLE else packed.src[0]).src[u.arg.index]
            return (scope, element) if packed.op is Op.TUPLE else (scope.inner[packed], element)
        if u.op is Op.PARAM and scope.outer is not None and u.arg.slot is not None:
            return scope.outer, scope.args[u.arg.slot]
        if u.op in PASS and len(u.src) >= 1 and not (u.op is Op.LOAD and len(u.src) > 1):
            return scope, u.src[0]
        return None

    # Values

    def value(self, scope: Scope, u: UOp) -> Value:
        """The set of a node, a reference by its implicit Load."""
        found = self.loose[scope].get(u)
        if found is not None:
            return found
        cell = scope.cells[u]
        return cell if cell.__class__ is _ndarray else self.read(cell)

    def read(self, cell: Any) -> Value:
        """The set of a cell that is no node of its own."""
        if cell.__class__ is _ndarray:
            return cell  # type: ignore[no-any-return]
        if cell.__class__ is not Ref:
            raise Crash("a void node is used as a value")
        known = self.read_sets.get(id(cell), Crash)
        if known is Crash:
            patches = self.memory.get(cell.storage)
            if cell.value is None:
                self.machine.read(cell)
            known = None if patches is None else patches.read(cell, cell.value)
            self.read_sets[id(cell)] = known
        return cell.value if known is None else known  # type: ignore[no-any-return, return-value]

    def layout(self, u: UOp) -> Layout:
        return LAYOUT[u.dtype]

    def more(self, scope: Scope, u: UOp) -> list[Array]:
        """The evaluated operands of a movement op after its first."""
        sources = u.src[1:] if u.op is Op.INDEX or u.op is Op.SLICE else operand_sources(u)[1:]
        return [self.machine.read(scope.cells[s]) for s in sources]

    def product(self, scope: Scope, u: UOp) -> tuple[Value, Value] | None:
        """The factors of `u` where it is a float Mul seen through movement, markers and Functions, moved like the product (R16, R32)."""
        path: list[tuple[Scope, UOp]] = []
        while u.op is not Op.MUL:
            if u.op in MOVES:
                path.append((scope, u))
                u = u.src[0]
            elif u.op is Op.NEG:
                path.append((scope, u))
                u = u.src[0]
            else:
                there = self.stands_for(scope, u)
                if there is None or scope.cells.get(u).__class__ is Ref:
                    return None
                scope, u = there
            if scope.cells.get(u).__class__ is not _ndarray:
                return None
        shape = scope.cells[u].shape
        factors = [spread(self.value(scope, s), shape) for s in u.src]
        for where, m in reversed(path):
            factors = self._move_factors(where, m, factors)
        return factors[0], factors[1]

    def _move_factors(self, scope: Scope, u: UOp, factors: Sequence[Value]) -> list[Value]:
        if u.op is Op.NEG:
            a = factors[0]
            negated = a.map(_negate) if isinstance(a, Loose) else -a
            return [negated if not isinstance(negated, Loose) else _reversed(negated), factors[1]]
        shape, more = scope.cells[u].shape, self.more(scope, u)
        return [moved(u, v, shape, more) for v in factors]


def _negate(x: Array, lead: int) -> Array:
    return x if x.dtype == np.bool_ or (x.dtype == np.uint8 and lead == 0) else -x


def _reversed(v: Loose) -> Loose:
    """Rows in order after a change of sign; flags of a sign swap."""
    flags = v.flags
    if flags is not None:
        swapped = (flags & 0b100001) | ((flags & 0b00010) << 1) | ((flags & 0b00100) >> 1) | ((flags & 0b01000) << 1) | ((flags & 0b10000) >> 1)
        flags = _restore(flags, swapped)
    return Loose(v.layout, v.rows[::-1], flags, v.pts, v.disc)


def _restore(flags: Array, swapped: Array) -> Array:
    """NaN and *any* stay, infinities and zeros trade places."""
    return ((flags & 0b100001) | (swapped & 0b011110)).astype(np.uint8)
