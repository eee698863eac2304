"""Sets over a finished run: the machine's own evaluation gives every best value, and this walk adds what else is allowed.

Nodes are visited in the order in which the machine evaluated them, so that Loads and Stores meet as they did. Only a node that can
make a set from exact operands or has a source with a set costs more than one look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.interp.allowed.layout import LAYOUT, Array
from uops.interp.allowed.memory import Patchwork
from uops.interp.allowed.move import MOVES, moved
from uops.interp.allowed.value import Loose, Value, as_loose, negated, settle, spread
from uops.interp.ops.movement import operand_sources
from uops.interp.tensor.machine import Machine
from uops.interp.tensor.memory import Ref, Storage
from uops.interp.tensor.scope import Scope
from uops.spec.errors import Crash
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, Op

_ndarray = np.ndarray
#: Ops that pass their first source on as it is.
PASS = MARKERS | {Op.AFTER, Op.LOAD}
_ENTERS = (Op.GETTUPLE, Op.FUNCTION, Op.CALL)


#: (overlay, scope, node, its cell) -> its set, or None where the cell says it all.
Rule = Callable[["Overlay", Scope, UOp, Any], Value | None]


class Rules(NamedTuple):
    """A level. `sparks` are the ops whose rule is asked even when every operand is exact."""

    table: dict[Op, Rule]
    sparks: frozenset[Op]


class Overlay:
    """The sets of one run: per scope the nodes whose set is more than their cell, per storage the sets stored in it."""

    def __init__(self, machine: Machine, rules: Rules) -> None:
        self.machine = machine
        self.rules = rules
        self.loose: dict[Scope, dict[UOp, Loose]] = {s: {} for s in machine.scopes}
        self.walks: dict[Scope, Iterator[tuple[UOp, Any]]] = {}
        self.visited: dict[Scope, set[UOp]] = {s: set() for s in machine.scopes[1:]}
        self.memory: dict[Storage, list[tuple[int, Patchwork]]] = {}
        self.reads: dict[int, Loose | None] = {}

    # The walk

    def walk(self) -> None:
        """Visit every node that was evaluated, each body when the machine entered it; iterative."""
        self.walks = {s: iter(s.cells.items()) for s in self.machine.scopes}
        stack: list[tuple[Scope, UOp | None, UOp | None]] = [(self.machine.root, None, None)]
        while stack:
            scope, until, _ = stack[-1]
            entered = self._advance(scope, until)
            if entered is not None:
                inner, u, element = entered
                stack[-1] = (scope, until, u)
                stack.append((inner, element, None))
                continue
            stack.pop()
            if stack:
                outer, _, waiting = stack[-1]
                if waiting is not None:
                    self._inherit(outer, waiting)

    def _advance(self, scope: Scope, until: UOp | None) -> tuple[Scope, UOp, UOp | None] | None:
        """Visit nodes of `scope`, up to `until`, or up to one whose body must be visited first."""
        sparks, table, loose, cells, memory = self.rules.sparks, self.rules.table, self.loose[scope], scope.cells, self.memory
        visited = self.visited.get(scope)
        for u, cell in self.walks[scope]:
            if visited is not None:
                visited.add(u)
            op = u.op
            if op in sparks:
                touched = True
            else:
                touched = False
                for s in u.src:
                    if s in loose or (memory and cells.get(s).__class__ is Ref):
                        touched = True
                        break
            if touched:
                rule = table.get(op)
                if rule is not None:
                    found = rule(self, scope, u, cell)
                    if found.__class__ is Loose:
                        self._keep(loose, u, found)
            if visited is not None and op is Op.PARAM:
                self._inherit(scope, u)
            elif op in _ENTERS:
                entered = self._body(scope, u)
                if entered is not None:
                    return entered
                self._inherit(scope, u)
            if u is until:
                return None
        return None

    def _keep(self, loose: dict[UOp, Loose], u: UOp, found: Loose) -> None:
        settled = settle(found)
        if isinstance(settled, Loose):
            loose[u] = settled

    def _body(self, scope: Scope, u: UOp) -> tuple[Scope, UOp, UOp | None] | None:
        """The scope to visit before `u`, and the element up to which."""
        if u.op is not Op.GETTUPLE:
            inner = scope.inner.get(u)
            return None if inner is None else (inner, u, None)
        packed = u.src[0]
        if packed.op is not Op.FUNCTION:
            return None
        inner, element = scope.inner[packed], packed.src[0].src[u.arg.index]
        return None if element in self.visited[inner] else (inner, u, element)

    def _inherit(self, scope: Scope, u: UOp) -> None:
        """A GetTuple or a bound Param has the set of the node it stands for."""
        there = self.stands_for(scope, u)
        if there is not None:
            found = self.loose[there[0]].get(there[1])
            if found is not None:
                self.loose[scope][u] = found

    def stands_for(self, scope: Scope, u: UOp) -> tuple[Scope, UOp] | None:
        """The node, here or in another scope, whose value `u` has without computing anything."""
        if u.op is Op.GETTUPLE:
            packed = u.src[0]
            if packed.op is Op.TUPLE:
                return scope, packed.src[u.arg.index]
            return scope.inner[packed], packed.src[0].src[u.arg.index]
        if u.op is Op.PARAM and scope.outer is not None and u.arg.slot is not None:
            return scope.outer, scope.args[u.arg.slot]
        if u.op in PASS and not (u.op is Op.LOAD and len(u.src) > 1):
            return scope, u.src[0]
        return None

    # Values

    def is_exact(self, scope: Scope, u: UOp) -> bool:
        """True when no source of `u` has a set."""
        loose = self.loose[scope]
        return not any(s in loose or (self.memory and isinstance(self.value(scope, s), Loose)) for s in u.src)

    def value(self, scope: Scope, u: UOp) -> Value:
        """The set of a node, of a reference by its implicit Load."""
        found = self.loose[scope].get(u)
        if found is not None:
            return found
        cell = scope.cells[u]
        return cell if cell.__class__ is _ndarray else self.read(cell)

    def read(self, cell: Any) -> Value:
        """The set of a cell that is no set of a node."""
        if cell.__class__ is _ndarray:
            return cell
        if cell.__class__ is not Ref:
            raise Crash("a void node is used as a value")
        best: Array = np.asarray(self.machine.read(cell))
        if cell.storage not in self.memory:
            return best
        key = id(cell)
        if key not in self.reads:
            assert cell.bit is not None
            patches = self.patches(cell.storage, cell.bit)
            found = None if patches is None else patches.read(cell, best)
            self.reads[key] = found
        known = self.reads[key]
        return best if known is None else known

    def more(self, scope: Scope, u: UOp) -> list[Array]:
        """The evaluated operands of a movement op after its first."""
        sources = u.src[1:] if u.op in (Op.INDEX, Op.SLICE) else operand_sources(u)[1:]
        return [self.machine.read(scope.cells[s]) for s in sources]

    # Memory

    def bit(self, scope: Scope, u: UOp) -> int:
        """The number of the access that `u` made."""
        return scope.own[u].bit_length() - 1

    def patches(self, storage: Storage, bit: int) -> Patchwork | None:
        """The sets in `storage` as access number `bit` met them."""
        found = None
        for at, patches in self.memory.get(storage, ()):
            if at < bit:
                found = patches
        return found

    def store(self, scope: Scope, u: UOp) -> None:
        """Replay a Store; a NaN whose bits are free counts as a set."""
        target = scope.cells[u.src[0]]
        value = self.value(scope, u.src[1])
        live = self.value(scope, u.src[2]) if len(u.src) > 2 else None
        d = u.src[0].dtype
        if value.__class__ is _ndarray and d.is_float and np.isnan(value).any() and not self.keeps_bits(scope, u.src[1]):
            value = as_loose(LAYOUT[d], value)
        if u.src[0] in self.loose[scope]:  # a view through an inexact index: any element may be the one written
            self._lose(target.storage, self.bit(scope, u))
            return
        history = self.memory.get(target.storage)
        if history is None and not isinstance(value, Loose) and not isinstance(live, Loose):
            return
        if history is None:
            history = self.memory[target.storage] = []
        patches = history[-1][1].copy() if history else Patchwork(target.storage)
        patches.write(target, value, live)
        history.append((self.bit(scope, u), patches))

    def _lose(self, storage: Storage, bit: int) -> None:
        patches = Patchwork(storage)
        patches.forget_all()
        self.memory.setdefault(storage, []).append((bit, patches))

    # Where a value comes from

    def keeps_bits(self, scope: Scope, u: UOp) -> bool:
        """Whether every bit of `u` is known to come from inputs and constants through movement and memory, so that its NaNs keep
        theirs (R28)."""
        stack, seen = [(scope, u)], set()
        while stack:
            here, n = stack.pop()
            if (here, n) in seen or not n.dtype.is_float:
                continue
            seen.add((here, n))
            cell = here.cells.get(n)
            if cell.__class__ is Ref:
                if cell.bit is not None and self._finds_free_nan(cell, cell.bit, self.machine.read(cell)):
                    return False
                continue
            there = self.stands_for(here, n)
            if there is not None:
                stack.append(there)
            elif n.op in (Op.CONST, Op.PARAM, Op.BUFFER):
                continue
            elif n.op in MOVES or n.op in (Op.BITCAST, Op.SLICE):
                stack.append((here, n.src[0]))
            elif n.op in (Op.STACK, Op.LOAD):
                ref = here.cells[n.src[0]] if n.op is Op.LOAD else None
                if ref.__class__ is Ref and self._finds_free_nan(ref, self.bit(here, n), here.cells[n]):
                    return False
                stack.extend((here, s) for s in n.src)
            elif n.op is Op.WHERE:
                stack.extend((here, s) for s in n.src[1:])
            else:
                return False
        return True

    def _finds_free_nan(self, ref: Ref, bit: int, best: Array) -> bool:
        """Whether access number `bit` to an address found a NaN that arithmetic had made."""
        patches = self.patches(ref.storage, bit)
        return patches is not None and patches.has_free_nan(ref, best)

    def product(self, scope: Scope, u: UOp) -> tuple[Value, Value] | None:
        """The factors of `u` where it is a float Mul seen through movement, Neg, markers and Functions, moved as it is (R16,
        R32)."""
        path: list[tuple[Scope, UOp]] = []
        while u.op is not Op.MUL:
            if u.op in MOVES or u.op is Op.NEG:
                path.append((scope, u))
                u = u.src[0]
            else:
                there = self.stands_for(scope, u)
                if there is None:
                    return None
                scope, u = there
            if scope.cells.get(u).__class__ is not _ndarray:
                return None
        shape = scope.cells[u].shape
        factors: Sequence[Value] = [spread(self.value(scope, s), shape) for s in u.src]
        for where, m in reversed(path):
            if m.op is Op.NEG:
                factors = negated(factors[0]), factors[1]
                continue
            shape, more = where.cells[m].shape, self.more(where, m)
            factors = [moved(m, v, shape, more) for v in factors]
        return factors[0], factors[1]
