"""The loops of a kernel whose Specials are loops: the loops and Ifs around each node, and the order of nodes."""

from __future__ import annotations

from enum import Enum, auto

from uops.interp.kernel.structure.blocks import LANE_AXES, WORKGROUP_AXES, KernelStructure, Loop, LoopPath, ScheduledBlock
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS


class LoopKind(Enum):
    """The relation of a loop's iterations to each other: workgroups, lanes, ordered iterations, or unordered ones of one lane."""

    GROUP = auto()
    LANE = auto()
    ORDERED = auto()
    FREE = auto()


class LoopNest:
    """The loops around the nodes of a kernel.

    `path` has the ranges around each node, outermost first, and `kinds` the kind of each loop.
    """

    def __init__(self, kernel: KernelStructure, block: ScheduledBlock) -> None:
        self.leaves = frozenset(kernel.leaves)
        self.root = kernel.root
        self.path: dict[UOp, LoopPath] = {}
        self.blocks: dict[LoopPath, ScheduledBlock] = {(): block}
        self.number: dict[LoopPath, dict[UOp, int]] = {}  # per block: item, a loop by its range -> position
        self.kinds: dict[UOp, LoopKind] = {}
        self.loops: dict[UOp, Loop] = {}
        self.guards: dict[UOp, tuple[UOp, ...]] = {}  # of nodes, and of loops by their ranges
        self.items: list[UOp] = []
        self._register_nodes_and_loops_of_blocks(block)

    def _register_nodes_and_loops_of_blocks(self, root: ScheduledBlock) -> None:
        """Collect the nodes and loops of all blocks."""
        stack: list[tuple[LoopPath, ScheduledBlock]] = [((), root)]
        while stack:
            path, block = stack.pop()
            numbers = self.number[path] = {}
            for k, (item, guards) in enumerate(zip(block.items, block.guards)):
                node = item.range if isinstance(item, Loop) else item
                numbers[node] = k
                if guards:
                    self.guards[node] = guards
                if isinstance(item, Loop):
                    self.kinds[node], self.loops[node] = _classify_loop(item), item
                    self.blocks[*path, node] = item.block
                    stack.append(((*path, node), item.block))
                else:
                    self.path[node] = path
                    self.items.append(node)

    def are_ordered(self, a: UOp, b: UOp) -> bool:
        """Return True if one of two nodes happens before the other in each iteration of the loops around both."""
        p, q = self.path[a], self.path[b]
        shared = common_loops(p, q)
        block, numbers = self.blocks[shared], self.number[shared]
        n = len(shared)
        i, j = numbers[p[n] if len(p) > n else a], numbers[q[n] if len(q) > n else b]
        return i != j and bool((block.before[j] >> i | block.before[i] >> j) & 1)

    def address_space_of(self, m: UOp) -> AddrSpace:
        """Return the address space of a memory; a leaf is an argument."""
        space: AddrSpace = AddrSpace.GLOBAL if m in self.leaves else m.arg.addrspace
        return space

    def memory_base_of(self, u: UOp) -> UOp | None:
        """Return the memory that a reference leads to, None if it leads to none."""
        while u not in self.leaves:
            if u.op is Op.BUFFER:
                return u
            if u.op not in VIEWS or not u.src:
                return None
            u = u.src[0]  # operand or buffer
        return u


def _classify_loop(loop: Loop) -> LoopKind:
    """Return the kind of a loop."""
    if loop.type in WORKGROUP_AXES:
        return LoopKind.GROUP
    if loop.type in LANE_AXES:
        return LoopKind.LANE
    return LoopKind.ORDERED if loop.is_ordered else LoopKind.FREE


def common_loops(p: LoopPath, q: LoopPath) -> LoopPath:
    """Return the loops around both."""
    n = 0
    for a, b in zip(p, q):
        if a is not b:
            break
        n += 1
    return p[:n]
