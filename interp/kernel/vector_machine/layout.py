"""Where everything stands in a kernel whose Specials are loops: the loops and Ifs around each node, and the order of nodes."""

from __future__ import annotations

from enum import Enum, auto

from uops.interp.kernel.structure.blocks import GROUPS, LANES, Block, Kernel, Loop
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS

ACCESSES = frozenset({Op.LOAD, Op.STORE, Op.ATOMICADD})
WRITES = frozenset({Op.STORE, Op.ATOMICADD})

Path = tuple[UOp, ...]


class Kind(Enum):
    """What a loop's iterations are to each other."""

    GROUP = auto()
    LANE = auto()
    ORDERED = auto()
    FREE = auto()


class Layout:
    """Where everything stands."""

    def __init__(self, kernel: Kernel, block: Block) -> None:
        self.leaves = frozenset(kernel.leaves)
        self.root = kernel.root
        self.path: dict[UOp, Path] = {}
        self.blocks: dict[Path, Block] = {(): block}
        self.number: dict[Path, dict[UOp, int]] = {}  # per block: item, a loop by its range -> position
        self.kinds: dict[UOp, Kind] = {}
        self.loops: dict[UOp, Loop] = {}
        self.guards: dict[UOp, tuple[UOp, ...]] = {}  # of nodes, and of loops by their ranges
        self.items: list[UOp] = []
        self._walk(block)

    def _walk(self, root: Block) -> None:
        stack: list[tuple[Path, Block]] = [((), root)]
        while stack:
            path, block = stack.pop()
            numbers = self.number[path] = {}
            for k, (item, guards) in enumerate(zip(block.items, block.guards)):
                name = item.range if isinstance(item, Loop) else item
                numbers[name] = k
                if guards:
                    self.guards[name] = guards
                if isinstance(item, Loop):
                    self.kinds[name], self.loops[name] = _kind(item), item
                    self.blocks[*path, name] = item.block
                    stack.append(((*path, name), item.block))
                else:
                    self.path[name] = path
                    self.items.append(name)

    def ordered(self, a: UOp, b: UOp) -> bool:
        """Whether one of two nodes happens before the other in each iteration of the loops around both."""
        p, q = self.path[a], self.path[b]
        around = shared(p, q)
        place, numbers = self.blocks[around], self.number[around]
        n = len(around)
        i, j = numbers[p[n] if len(p) > n else a], numbers[q[n] if len(q) > n else b]
        return i != j and bool((place.before[j] >> i | place.before[i] >> j) & 1)

    def space(self, m: UOp) -> AddrSpace:
        """Where a memory lies; a leaf is an argument."""
        found: AddrSpace = AddrSpace.GLOBAL if m in self.leaves else m.arg.addrspace
        return found

    def base(self, u: UOp) -> UOp | None:
        """The memory that a reference leads to."""
        while u not in self.leaves:
            if u.op is Op.BUFFER:
                return u
            if u.op not in VIEWS or not u.src:
                return None
            u = u.src[0]
        return u


def _kind(loop: Loop) -> Kind:
    if loop.type in GROUPS:
        return Kind.GROUP
    if loop.type in LANES:
        return Kind.LANE
    return Kind.ORDERED if loop.ordered else Kind.FREE


def shared(p: Path, q: Path) -> Path:
    """The loops around both."""
    n = 0
    for a, b in zip(p, q):
        if a is not b:
            break
        n += 1
    return p[:n]
