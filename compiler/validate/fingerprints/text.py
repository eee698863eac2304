"""The text of a kernel: its nodes in their loops and Ifs, and the accesses to each memory.

Takes: a body, as a graph of KERNEL or SCHEDULED or as a LINEAR. Gives: what all evaluations of it have in common.
Spec: R52 (Load), R57 (Range), R114 (If), R128 (private memory).
"""

from __future__ import annotations

from functools import cached_property

from uops.compiler.validate.fingerprints.integers import NotEvaluable
from uops.compiler.validate.fingerprints.memory import has_copy_per_iteration
from uops.compiler.validate.reader import PlacedNode, place_nodes_in_blocks
from uops.compiler.validate.sites import address_of
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ACCESSES, ALU, COUNTERS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, is_private_buffer, strip_afters


class KernelText:
    """The nodes of a kernel. Raises NotEvaluable for a text that has no terms, or whose Loads have no order.

    - `placed` has the nodes in order, and `accesses` the Loads and Stores of each memory.
    - `stored` has all memories that are stored: Params that are never loaded are in `only_stored`, and the rest in `updated`.
    """

    def __init__(self, root: UOp) -> None:
        while root.op is Op.PROGRAM:
            assert root.linear is not None
            root = root.linear
        self.root = root
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
        self.only_stored = {m for m in self.stored - loaded if m.op is Op.PARAM}
        self.updated = self.stored - self.only_stored
        if root.op is not Op.LINEAR:
            self._require_loads_ordered_with_stores()

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
        return tuple(r for r in self.loops if r in common and has_copy_per_iteration(m, r))

    @cached_property
    def positions_and_conditions_by_loops_alone(self) -> list[tuple[UOp, tuple[UOp, ...]]]:
        """Each access with its positions, its gate and the conditions of the Ifs around it, as far as no memory decides them."""
        depends: set[UOp] = set()
        for u in self.nodes:
            if u.op is Op.LOAD or not depends.isdisjoint(u.src):
                depends.add(u)
        return [
            (p.node, tuple(u for u in (*list_positions_and_gate(p.node), *(f.condition for f in p.ifs)) if u not in depends))
            for p in self.placed
            if p.node.op in ACCESSES
        ]

    @cached_property
    def chains_below_reduces(self) -> frozenset[UOp]:
        """Return the operations, chains of one op, whose operands a Reduce by that op sums."""
        found: set[UOp] = set()
        stack = [(u.arg.op, u.operand) for u in self.nodes if u.op is Op.REDUCE]
        while stack:
            op, u = stack.pop()
            if u.op is op and u not in found:
                found.add(u)
                stack += [(op, s) for s in u.src]
            elif u.op is Op.CAST:
                stack.append((op, u.operand))
        return frozenset(found)

    def _require_loads_ordered_with_stores(self) -> None:
        """Raise NotEvaluable unless each Load is ordered with each Store of its memory by the edges of a graph."""
        for m in self.updated:
            loads = [p.node for p in self.accesses[m] if p.node.op is Op.LOAD]
            for s in (p.node for p in self.accesses[m] if p.node.op is Op.STORE):
                before = set(toposort(s))
                if any(load not in before and s not in toposort(load) for load in loads):
                    raise NotEvaluable("a Load and a Store of one memory have no order")


def list_positions_and_gate(access: UOp) -> tuple[UOp, ...]:
    """Return the positions and the gate of a Load or Store."""
    address = strip_afters(address_of(access))
    positions = address.positions if address.op is Op.INDEX else ()
    return (*positions, *(() if access.gate is None else (access.gate,)))


#: Nodes without a value of their own, in a body or a list.
WITHOUT_VALUE = MEMORY_ROOTS | {Op.STORE, Op.AFTER, Op.END, Op.GROUP, Op.SINK, Op.IF, Op.ENDIF, Op.BARRIER, Op.LINEAR}
_TAKEN = ALU | WITHOUT_VALUE | COUNTERS | {Op.CONST, Op.LOAD, Op.STACK, Op.INDEX, Op.REDUCE, Op.BITCAST}
