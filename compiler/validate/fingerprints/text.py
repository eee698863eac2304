"""The text of a kernel: its nodes in their loops and Ifs, and the accesses to each memory.

Takes: a body, as a graph of KERNEL or SCHEDULED or as a LINEAR. Gives: what all evaluations of it have in common.
Spec: R52 (Load), R57 (Range), R114 (If), R128 (private memory).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from uops.compiler.validate.fingerprints.integers import NotEvaluable
from uops.compiler.validate.fingerprints.memory import may_have_copy_per_iteration
from uops.compiler.validate.reader import PlacedNode, place_nodes_in_blocks
from uops.compiler.validate.sites import address_of
from uops.spec.ir.node import UOp, collect_users, toposort
from uops.spec.ir.ops import ACCESSES, ALU, COUNTERS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, is_private_buffer, strip_afters


class KernelText:
    """The nodes of a kernel. Raises NotEvaluable for a text that has no terms, or whose Loads have no order.

    - `placed` has the nodes in order, and `accesses` the Loads and Stores of each memory.
    - `name` tells it from the other text of a comparison.
    - `stored` has all memories that are stored: Params that are never loaded are in `write_only_params`, the rest in `tracked`.
    """

    def __init__(self, root: UOp, name: str = "") -> None:
        while root.op is Op.PROGRAM:
            assert root.linear is not None
            root = root.linear
        self.root, self.name = root, name
        self.nodes = toposort(root)
        if not _TAKEN.issuperset(u.op for u in self.nodes):
            op = next(u.op for u in self.nodes if u.op not in _TAKEN)
            raise NotEvaluable(f"{op.name} has no terms")
        self.placed = place_nodes_in_blocks(root)
        self.loops = [u for u in self.nodes if u.op in COUNTERS]
        self.specials = tuple(u for u in self.loops if u.op is Op.SPECIAL)
        self.accesses: dict[UOp, list[PlacedNode]] = {}
        for p in self.placed:
            if p.node.op in ACCESSES:
                self.accesses.setdefault(base_memory(address_of(p.node)), []).append(p)
        loaded, self.stored = (
            {m for m, places in self.accesses.items() if any(p.node.op is op for p in places)} for op in (Op.LOAD, Op.STORE)
        )
        self.write_only_params = {m for m in self.stored - loaded if m.op is Op.PARAM}
        self.tracked = self.stored - self.write_only_params
        if root.op is not Op.LINEAR:
            self._require_loads_ordered_with_stores()

    def list_stores(self, m: UOp) -> list[PlacedNode]:
        """Return the Stores of a memory, in order."""
        return [p for p in self.accesses[m] if p.node.op is Op.STORE]

    def list_loads(self, m: UOp) -> list[PlacedNode]:
        """Return the Loads of a memory, in order."""
        return [p for p in self.accesses[m] if p.node.op is Op.LOAD]

    def loops_around(self, p: PlacedNode) -> tuple[UOp, ...]:
        """Return the loops around a node; those of lanes and workgroups are around all."""
        return (*self.specials, *p.loops)

    def list_private_loops(self, m: UOp) -> tuple[UOp, ...]:
        """Return the loops whose iterations have a copy each: those that contain every access, unless lanes share the memory.

        If an iteration did read what another one wrote, it would find elements that are equal to nothing else.
        """
        if not is_private_buffer(m):
            return ()
        common = set.intersection(*({*self.loops_around(p)} for p in self.accesses[m]))
        return tuple(r for r in self.loops if r in common and may_have_copy_per_iteration(m, r))

    def may_lie_between(self, first: UOp, u: UOp, last: UOp) -> bool:
        """Return False if a node is executed before `first` or after `last` in each iteration of the loops around all three."""
        if self.root.op is Op.LINEAR:
            return self._place[first] < self._place[u] < self._place[last]
        return u not in toposort(first) and last not in toposort(u)

    @cached_property
    def _place(self) -> dict[UOp, int]:
        return {p.node: k for k, p in enumerate(self.placed)}

    @cached_property
    def positions_by_loops_alone(self) -> dict[UOp, tuple[UOp, ...]]:
        """The positions of each access, without those that depend on a Load."""
        return {p.node: self._without_memory(list_positions(p.node)) for p in self.placed if p.node.op in ACCESSES}

    @cached_property
    def conditions_by_loops_alone(self) -> dict[UOp, tuple[UOp, ...]]:
        """The gate of each access and the conditions of the Ifs around it, without those that depend on a Load."""
        return {
            p.node: self._without_memory((*list_gates(p.node), *(f.condition for f in p.ifs)))
            for p in self.placed
            if p.node.op in ACCESSES
        }

    def _without_memory(self, nodes: Sequence[UOp]) -> tuple[UOp, ...]:
        return tuple(u for u in nodes if u not in self._with_memory)

    @cached_property
    def _with_memory(self) -> set[UOp]:
        """The nodes that depend on a Load."""
        found: set[UOp] = set()
        for u in self.nodes:
            if u.op is Op.LOAD or not found.isdisjoint(u.src):
                found.add(u)
        return found

    @cached_property
    def chains_of_sums(self) -> frozenset[UOp]:
        """The nodes by which a Reduce, or the update of an accumulator, goes on by its op: g + h in f + (g + h)."""
        users = collect_users(self.nodes)
        reduces = [u for u in self.nodes if u.op is Op.REDUCE]
        stores = list(self._list_accumulating_stores()) if self.root.op is Op.LINEAR else []
        outside = {self.root, *reduces, *stores}
        stack = [(u.arg.op, u.operand) for u in reduces]
        stack += [(Op.ADD if u.value.op is Op.MULACC else u.value.op, u.value) for u in stores]
        found: set[UOp] = set()
        waiting: list[tuple[Op, UOp]] = []  # nodes with users that are not found, or not yet
        while stack:
            op, u = stack.pop()
            is_fused = op is Op.ADD and u.op is Op.MULACC
            if u in found or not (u.op is op or is_fused or u.op is Op.CAST):
                continue
            if not all(user in found or user in outside for user in users[u]):
                waiting.append((op, u))
                continue
            found.add(u)
            stack += [(op, s) for s in ([u.addend] if is_fused else u.src)]
            stack += waiting
            waiting = []
        return frozenset(found)

    def _list_accumulating_stores(self) -> Iterator[UOp]:
        """Yield Stores of values that depend on the memory that they are stored to."""
        for m in self.tracked:
            for store in (p.node for p in self.list_stores(m)):
                if any(u.op is Op.LOAD and base_memory(u.buffer) is m for u in toposort(store.value)):
                    yield store

    def _require_loads_ordered_with_stores(self) -> None:
        """Raise NotEvaluable unless each Load is ordered with each Store of its memory by the edges of a graph."""
        for m in self.tracked:
            loads = [p.node for p in self.list_loads(m)]
            for s in (p.node for p in self.list_stores(m)):
                before = set(toposort(s))
                if any(load not in before and s not in toposort(load) for load in loads):
                    raise NotEvaluable("a Load and a Store of one memory have no order")


def list_positions(access: UOp) -> tuple[UOp, ...]:
    """Return the positions of a Load or Store."""
    address = strip_afters(address_of(access))
    return address.positions if address.op is Op.INDEX else ()


def list_gates(access: UOp) -> tuple[UOp, ...]:
    """Return the gate of a Load or Store, if it has one."""
    return () if access.gate is None else (access.gate,)


#: Nodes without a value of their own, in a body or a list.
WITHOUT_VALUE = MEMORY_ROOTS | {Op.STORE, Op.AFTER, Op.END, Op.GROUP, Op.SINK, Op.IF, Op.ENDIF, Op.BARRIER, Op.LINEAR}
_TAKEN = ALU | WITHOUT_VALUE | COUNTERS | {Op.CONST, Op.LOAD, Op.STACK, Op.INDEX, Op.REDUCE, Op.BITCAST}
