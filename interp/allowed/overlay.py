"""Propagation of sets over a finished run: the machine gave every best value, and this walk adds the other allowed ones.

Nodes are visited in the order in which the machine evaluated them, so Loads and Stores meet as they did. A node is evaluated only
if its op can make a set from exact operands, or if a source has a set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.interp.allowed.index import FactorPair, move_factors_to_all_possible_positions
from uops.interp.allowed.layout import LAYOUT, Array
from uops.interp.allowed.memory import StorageSets
from uops.interp.allowed.move import MOVES, apply_movement
from uops.interp.allowed.value import ArrayOrSets, SetArray, as_set_array, broadcast_value, collapse_if_exact, negate_float_set
from uops.interp.ops.movement import data_and_symbolic_sources
from uops.interp.tensor.machine import TensorMachine
from uops.interp.tensor.memory import StorageRef, TensorStorage
from uops.interp.tensor.scope import TensorScope
from uops.spec.errors import Crash
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, Op
from uops.spec.ir.scope import scope_nodes
from uops.spec.rows.accuracy import SEVERAL_RESULTS
from uops.spec.verify.infer import is_kernel_or_custom_function_body

_ndarray = np.ndarray
#: Ops before which a body is visited.
_BODY_OPS = (Op.GETTUPLE, Op.FUNCTION, Op.CALL)
#: Ops of kernels on floats that have several right answers for operands that have one: the order of a sum is free (R32).
_CHOOSING_IN_KERNELS = SEVERAL_RESULTS | {Op.REDUCE, Op.WMMA, Op.ATOMICADD}


#: (overlay, scope, node, its cell) -> its set, or None where the cell is the only result.
Rule = Callable[["Overlay", TensorScope, UOp, Any], ArrayOrSets | None]


class LevelRules(NamedTuple):
    """The rules of a level: a table by op, and the ops that are evaluated even if every operand is exact."""

    table: dict[Op, Rule]
    evaluated_when_exact: frozenset[Op]


class BodyVisit(NamedTuple):
    """A body to visit: its scope, the node that waits for it, and the node to stop after (None: the whole body)."""

    scope: TensorScope
    waiting: UOp
    until: UOp | None


class Overlay:
    """The sets of one run: per scope those of nodes with more results than their cell, per storage those stored in it."""

    def __init__(self, machine: TensorMachine, rules: LevelRules) -> None:
        self.machine = machine
        self.rules = rules
        self.inexact: dict[TensorScope, dict[UOp, SetArray]] = {s: {} for s in machine.scopes}
        self.walks: dict[TensorScope, Iterator[tuple[UOp, Any]]] = {}
        self.visited: dict[TensorScope, set[UOp]] = {s: set() for s in machine.scopes[1:]}
        self.memory: dict[TensorStorage, list[tuple[int, StorageSets]]] = {}
        self.implicit_loads: dict[int, SetArray | None] = {}

    # The walk

    def propagate_sets(self) -> None:
        """Visit every node that was evaluated, each body at the time when the machine entered it."""
        self.walks = {s: iter(s.cells.items()) for s in self.machine.scopes}
        stack: list[tuple[TensorScope, UOp | None, UOp | None]] = [(self.machine.root, None, None)]
        while stack:
            scope, until, _ = stack[-1]
            entered = self._propagate_until_unvisited_body(scope, until)
            if entered is not None:
                stack[-1] = (scope, until, entered.waiting)
                stack.append((entered.scope, entered.until, None))
                continue
            stack.pop()
            if stack:
                outer, _, waiting = stack[-1]
                if waiting is not None:
                    self._copy_set_from_origin(outer, waiting)

    def _propagate_until_unvisited_body(self, scope: TensorScope, until: UOp | None) -> BodyVisit | None:
        """Visit nodes of `scope` up to `until`, or up to one whose body must be visited first, which is returned."""
        table, always_evaluated = self.rules
        inexact, cells, memory = self.inexact[scope], scope.cells, self.memory
        visited = self.visited.get(scope)
        for u, cell in self.walks[scope]:
            if visited is not None:
                visited.add(u)
            op = u.op
            if op in always_evaluated:
                needs_evaluation = True
            else:
                needs_evaluation = False
                for s in u.src:
                    if s in inexact or (memory and cells.get(s).__class__ is StorageRef):
                        needs_evaluation = True
                        break
            if needs_evaluation:
                rule = table.get(op)
                if rule is not None:
                    value = rule(self, scope, u, cell)
                    if value.__class__ is SetArray:
                        self._record_if_inexact(inexact, u, value)
            if visited is not None and op is Op.PARAM:
                self._copy_set_from_origin(scope, u)
            elif op in _BODY_OPS:
                entered = self._find_unvisited_body_or_allow_any_written(scope, u)
                if entered is not None:
                    return entered
                self._copy_set_from_origin(scope, u)
            if u is until:
                return None
        return None

    def _record_if_inexact(self, inexact: dict[UOp, SetArray], u: UOp, value: SetArray) -> None:
        collapsed = collapse_if_exact(value)
        if isinstance(collapsed, SetArray):
            inexact[u] = collapsed

    def _find_unvisited_body_or_allow_any_written(self, scope: TensorScope, u: UOp) -> BodyVisit | None:
        """Return the body to visit before `u`; None if there is none or it was visited far enough."""
        if u.op is not Op.GETTUPLE:
            inner = scope.inner.get(u)
            if inner is None or not is_kernel_or_custom_function_body(u.body):
                return None if inner is None else BodyVisit(inner, u, None)
            self._allow_any_written_if_call_has_several_results(scope, u)
            return None
        packed = u.packed
        if packed.op is not Op.FUNCTION:
            return None
        inner, element = scope.inner[packed], packed.body.values[u.arg.index]
        return None if element in self.visited[inner] else BodyVisit(inner, u, element)

    def _copy_set_from_origin(self, scope: TensorScope, u: UOp) -> None:
        """Give a GetTuple or a bound Param the set of the node that it stands for."""
        alias = self.find_origin_of_alias(scope, u)
        if alias is not None:
            origin_scope, origin = alias
            value = self.inexact[origin_scope].get(origin)
            if value is not None:
                self.inexact[scope][u] = value

    def find_origin_of_alias(self, scope: TensorScope, u: UOp) -> tuple[TensorScope, UOp] | None:
        """Return the node, with its scope, whose value `u` has without a computation; None if `u` computes."""
        if u.op is Op.GETTUPLE:
            packed = u.packed
            if packed.op is Op.TUPLE:
                return scope, packed.values[u.arg.index]
            return scope.inner[packed], packed.body.values[u.arg.index]
        if u.op is Op.PARAM and scope.outer is not None and u.arg.slot is not None:
            return scope.outer, scope.args[u.arg.slot]
        if u.op in MARKERS:
            return scope, u.operand
        if u.op is Op.AFTER or (u.op is Op.LOAD and u.gate is None):
            return scope, u.buffer
        return None

    # Values

    def has_exact_sources(self, scope: TensorScope, u: UOp) -> bool:
        """Return True if no source of `u` has a set."""
        inexact = self.inexact[scope]
        return not any(
            s in inexact or (self.memory and isinstance(self.set_of_node_loading_reference(scope, s), SetArray)) for s in u.src
        )

    def set_of_node_loading_reference(self, scope: TensorScope, u: UOp) -> ArrayOrSets:
        """Return the value of a node; of a reference, the value of its implicit Load."""
        value = self.inexact[scope].get(u)
        if value is not None:
            return value
        cell = scope.cells[u]
        return cell if cell.__class__ is _ndarray else self.set_of_array_or_loaded_reference(cell)

    def set_of_array_or_loaded_reference(self, cell: Any) -> ArrayOrSets:
        """Return the value of a cell whose node has no set of its own: an array, or the loaded value of a reference."""
        if cell.__class__ is _ndarray:
            return cell
        if cell.__class__ is not StorageRef:
            raise Crash("a void node is used as a value")
        best: Array = np.asarray(self.machine.load_if_reference(cell))
        if cell.storage not in self.memory:
            return best
        key = id(cell)
        if key not in self.implicit_loads:
            assert cell.bit is not None
            contents = self.memory_sets_before(cell.storage, cell.bit)
            self.implicit_loads[key] = None if contents is None else contents.read_sets(cell, best)
        loaded = self.implicit_loads[key]
        return best if loaded is None else loaded

    def read_movement_operands_after_data(self, scope: TensorScope, u: UOp) -> list[Array]:
        """Return the values of a movement op's operands after the first."""
        if u.op is Op.INDEX:
            sources: Sequence[UOp] = u.positions
        else:
            sources = (u.offset,) if u.op is Op.SLICE else data_and_symbolic_sources(u)[1:]
        return [self.machine.load_if_reference(scope.cells[s]) for s in sources]

    # Memory

    def access_number(self, scope: TensorScope, u: UOp) -> int:
        """Return the number of the access that `u` made."""
        return scope.own_accesses[u].bit_length() - 1

    def memory_sets_before(self, storage: TensorStorage, access_number: int) -> StorageSets | None:
        """Return the sets in `storage` before access number `access_number`; None if all elements were exact."""
        latest = None
        for number, contents in self.memory.get(storage, ()):
            if number < access_number:
                latest = contents
        return latest

    def replay_store(self, scope: TensorScope, u: UOp) -> None:
        """Record the sets that a Store writes; a NaN whose bits are free counts as a set (R20: its payload is free)."""
        target = scope.cells[u.buffer]
        value = self.set_of_node_loading_reference(scope, u.value)
        gate = None if u.gate is None else self.set_of_node_loading_reference(scope, u.gate)
        d = u.buffer.dtype
        if (
            value.__class__ is _ndarray
            and d.is_float
            and np.isnan(value).any()
            and not self.nan_bits_come_only_from_inputs(scope, u.value)
        ):
            value = as_set_array(LAYOUT[d], value)
        if u.buffer in self.inexact[scope]:  # a view through an inexact index: any element may be the one written
            self._allow_anything_in_storage_after(target.storage, self.access_number(scope, u))
            return
        history = self.memory.get(target.storage)
        if history is None and not isinstance(value, SetArray) and not isinstance(gate, SetArray):
            return
        if history is None:
            history = self.memory[target.storage] = []
        contents = history[-1][1].copy() if history else StorageSets(target.storage)
        contents.record_store_or_any_if_gate_inexact(target, value, gate)
        history.append((self.access_number(scope, u), contents))

    def _allow_any_written_if_call_has_several_results(self, scope: TensorScope, call: UOp) -> None:
        """Record what a Call of a kernel writes: what the machine wrote, or anything if it has several right answers.

        The nodes of a kernel have no cells. It has one answer if its arguments have one and no op of it chooses among floats.
        Else all memory that it may write to may hold anything.
        """
        cells = [scope.cells[a] for a in call.arguments]
        storages = [c.storage for c in cells if c.__class__ is StorageRef]
        inexact = any(a in self.inexact[scope] for a in call.arguments) or any(s in self.memory for s in storages)
        if not scope.own_accesses.get(call) or not (inexact or _may_have_several_float_results(call.body)):
            return
        written = range(len(cells)) if call.arg is None or call.arg.written is None else call.arg.written
        for storage in dict.fromkeys(cells[k].storage for k in written if cells[k].__class__ is StorageRef):
            self._allow_anything_in_storage_after(storage, self.access_number(scope, call))

    def _allow_anything_in_storage_after(self, storage: TensorStorage, access_number: int) -> None:
        """Record that every element may hold anything after this access."""
        contents = StorageSets(storage)
        contents.set_all_to_anything()
        self.memory.setdefault(storage, []).append((access_number, contents))

    # Origins of values

    def nan_bits_come_only_from_inputs(self, scope: TensorScope, u: UOp) -> bool:
        """Return True if the NaNs of `u` keep their bits (R28: movement and memory keep every bit).

        They do if every bit comes from inputs and constants through movement and memory. False where that is not known.
        """
        stack, seen = [(scope, u)], set()
        while stack:
            here, n = stack.pop()
            if (here, n) in seen or not n.dtype.is_float:
                continue
            seen.add((here, n))
            cell = here.cells.get(n)
            if cell.__class__ is StorageRef:
                if cell.bit is not None and self._reads_arithmetic_nan(cell, cell.bit, self.machine.load_if_reference(cell)):
                    return False
                continue
            alias = self.find_origin_of_alias(here, n)
            if alias is not None:
                stack.append(alias)
            elif n.op in (Op.CONST, Op.PARAM, Op.BUFFER):
                continue
            elif n.op in MOVES or n.op in (Op.BITCAST, Op.SLICE):
                stack.append((here, n.operand))
            elif n.op in (Op.STACK, Op.LOAD):
                ref = here.cells[n.buffer] if n.op is Op.LOAD else None
                if ref.__class__ is StorageRef and self._reads_arithmetic_nan(ref, self.access_number(here, n), here.cells[n]):
                    return False
                stack.extend((here, s) for s in n.src)
            elif n.op is Op.WHERE:
                stack.extend((here, s) for s in (n.if_true, n.if_false))
            else:
                return False
        return True

    def _reads_arithmetic_nan(self, ref: StorageRef, access: int, best: Array) -> bool:
        """Return True if access number `access` to an address read a NaN that arithmetic had made."""
        contents = self.memory_sets_before(ref.storage, access)
        return contents is not None and contents.has_nan_with_free_bits(ref, best)

    def list_factors_if_moved_or_negated_mul(self, scope: TensorScope, u: UOp) -> list[FactorPair]:
        """Return the factors of a float Mul that `u` is, moved and negated as `u` is; empty if it is none.

        The Mul is seen through movement, Neg, markers and Functions (R16, R32: its product may be fused into a sum). There is one
        pair per combination of the positions that an inexact Index on the way may have.
        """
        path: list[tuple[TensorScope, UOp]] = []
        while u.op is not Op.MUL:
            if u.op in MOVES or u.op is Op.NEG:
                path.append((scope, u))
                u = u.operand
            else:
                alias = self.find_origin_of_alias(scope, u)
                if alias is None:
                    return []
                scope, u = alias
            if scope.cells.get(u).__class__ is not _ndarray:
                return []
        shape = scope.cells[u].shape
        a, b = (broadcast_value(self.set_of_node_loading_reference(scope, s), shape) for s in u.src)
        pairs: list[FactorPair] = [(a, b)]
        for outer, m in reversed(path):
            if m.op is Op.NEG:
                pairs = [(negate_float_set(a), b) for a, b in pairs]
            else:
                pairs = self._move_factors(outer, m, pairs)
        return pairs

    def _move_factors(self, scope: TensorScope, u: UOp, pairs: list[FactorPair]) -> list[FactorPair]:
        """Return pairs of factors after the movement op `u`."""
        shape = scope.cells[u].shape
        positions = [self.set_of_node_loading_reference(scope, s) for s in u.positions] if u.op is Op.INDEX else []
        if any(isinstance(p, SetArray) for p in positions):
            return move_factors_to_all_possible_positions(u, pairs, positions, shape)
        operands = self.read_movement_operands_after_data(scope, u)
        return [(apply_movement(u, a, shape, operands), apply_movement(u, b, shape, operands)) for a, b in pairs]


@functools.lru_cache(256)
def _may_have_several_float_results(body: UOp) -> bool:
    """Return True if a kernel may have several right answers although its arguments have one.

    A product of floats may be fused into a sum (R16).
    """
    ops = {u.op for u in scope_nodes(body) if u.dtype.is_float or (u.op is Op.ATOMICADD and u.value.dtype.is_float)}
    return not ops.isdisjoint(_CHOOSING_IN_KERNELS) or (Op.MUL in ops and not ops.isdisjoint((Op.ADD, Op.SUB)))
