"""The loop structure of a kernel, read off its graph or its instruction list.

Takes the root of a body: a Sink, End, Reduce over ranges or any other node; a Linear; or a Program, which stands for its
Linear. `is_leaf` says which nodes the caller supplies. Gives a `KernelStructure`: blocks of items in an order that runs, each
with the items that happen before it. A graph leaves the order of unrelated effects open (R55, R59: races, After); a Linear does
not. Only `before` may be relied on.

In a graph, a node runs once per iteration of the ranges that it depends on and that nothing closed below it (R127). A loop
stands in the loops that are open at the node that closes it (R58). Several ranges closed by one node nest by the priority of
their types, then by axis id; a range stands inside of those that its bound depends on (R109). A node stands inside of an If on
which it depends through values or as a dependency of an After. A node that only waits for one inside does not: an End, Group,
Sink, or the other dependencies of an After. In a Linear, position alone decides.

Raises SpecError for a Range that nothing closes, and for open ranges of which neither loop encloses the other. It also does so
for blocks of a Linear that do not nest, and for items that wait for each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

from uops.interp.kernel.structure.spaces import reject_non_reg_load_or_non_global_param
from uops.spec.errors import SpecError
from uops.spec.ir.axes import AXIS_TABLE, GRID, WORKGROUP, AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import KERNEL_ACCESSES, OPAQUE_INSTRUCTIONS, Op
from uops.spec.ir.scope import RANGES, VIEWS, ranges_closed_by

#: Types of Ranges whose iterations are the lanes of one workgroup (R60, R61).
LANE_AXES = WORKGROUP
#: Types of Ranges whose iterations are workgroups (R60, R61).
WORKGROUP_AXES = GRID
#: Specials whose names begin so number workgroups, all others lanes (R125).
GROUP_NAMES = ("gidx", "blockIdx", "tidx", "threadpool")

#: Ops that are no items: they have no value and no effect of their own.
_STRUCTURE = frozenset({Op.SINK, Op.GROUP, Op.LINEAR, Op.PROGRAM, Op.SOURCE, Op.ENDIF})
#: Ops that have their values from the loops around.
_COUNTERS = RANGES | {Op.SPECIAL}
#: Ops that do not stand inside of an If because they wait for a node inside.
_OUTSIDE = frozenset({Op.END, Op.GROUP, Op.SINK, Op.ENDIF})


@dataclass(eq=False, slots=True)
class ScheduledBlock:
    """Items in an order that runs.

    `waits[j]` are the items that item j itself waits for. Bit k of `before[j]` says that item k happens before item j, for the
    items k that are loops or barriers or may access memory. `guards[j]` are the Ifs around item j alone.
    """

    items: tuple[Item, ...] = ()
    waits: tuple[tuple[int, ...], ...] = ()
    before: Sequence[int] = ()
    guards: tuple[tuple[UOp, ...], ...] = ()


@dataclass(eq=False, slots=True)
class Loop:
    """The iterations of `range`, which the End or Reduce `closer` closes.

    Of several ranges that it closes, this one may be the outermost or innermost. A Special is the range and the closer of its
    own loop (`launch`). A Reduce reads its operand in each iteration of the innermost loop, and has its value after the
    outermost.
    """

    range: UOp
    closer: UOp
    outermost: bool = True
    innermost: bool = True
    block: ScheduledBlock = field(default_factory=ScheduledBlock)

    @property
    def type(self) -> AxisType:
        """The type of the range; a Special's follows from its name (R125)."""
        arg = self.range.arg
        if self.range.op is Op.SPECIAL:
            return AxisType.GLOBAL if arg.name.startswith(GROUP_NAMES) else AxisType.LOCAL
        kind: AxisType = arg.type
        return kind

    @property
    def is_ordered(self) -> bool:
        """True if an iteration happens before the next one (R57)."""
        return AXIS_TABLE[self.type].ordered


#: What a block holds: a node, or a loop with a block of its own.
Item = UOp | Loop
#: The ranges of nested loops, outermost first.
LoopPath = tuple[UOp, ...]


@dataclass(eq=False, slots=True)
class KernelStructure:
    """The loops of a kernel.

    `specials` are the dimensions of the launch (R125): every lane runs the whole block. Nodes that only their bounds depend on
    are not in it. `path` gives the ranges around each node, outermost first. `root` is the node whose value, if any, is the
    kernel's. With `is_linear`, the order is that of a Linear.
    """

    root: UOp
    leaves: tuple[UOp, ...]
    specials: tuple[UOp, ...]
    block: ScheduledBlock
    path: dict[UOp, LoopPath]
    is_linear: bool


def build_kernel_structure(root: UOp, is_leaf: Callable[[UOp], bool]) -> KernelStructure:
    """Return the loop structure of a body; the sources of a leaf are not visited."""
    while root.op is Op.PROGRAM:
        root = root.src[0]  # linear
    reject_non_reg_load_or_non_global_param(toposort(root, gate=lambda u: not is_leaf(u)))
    return _structure_from_linear(root, is_leaf) if root.op is Op.LINEAR else _structure_from_graph(root, is_leaf)


# --------------------------------------------------------------------------------------------------------------- a graph


def _structure_from_graph(root: UOp, is_leaf: Callable[[UOp], bool]) -> KernelStructure:
    """Return the loop structure of a body that is a graph."""
    nodes = toposort(root, gate=lambda u: not is_leaf(u))
    leaves = tuple(u for u in nodes if is_leaf(u))
    path = _compute_loop_paths(nodes, frozenset(leaves))
    of_bounds = _find_nodes_of_launch_bounds_alone(root, nodes)
    block = _build_blocks([u for u in nodes if u not in of_bounds], frozenset(leaves), path)
    return KernelStructure(root, leaves, tuple(u for u in nodes if u.op is Op.SPECIAL), block, path, False)


def _find_nodes_of_launch_bounds_alone(root: UOp, nodes: Sequence[UOp]) -> frozenset[UOp]:
    """Return the nodes that only bounds of Specials depend on: they run before the body, and are no part of it (R125)."""
    below_bounds = frozenset(toposort(*[u.bound for u in nodes if u.op is Op.SPECIAL]))
    if not below_bounds:
        return below_bounds
    roots = [u for u in root.src if u not in below_bounds] if root.op is Op.LINEAR else [root]
    return below_bounds.difference(toposort(*roots, gate=lambda u: u.op is not Op.SPECIAL))


_NO_RANGES: frozenset[UOp] = frozenset()


def _compute_open_ranges(nodes: Sequence[UOp], leaves: frozenset[UOp]) -> dict[UOp, frozenset[UOp]]:
    """Return the ranges that each node depends on and that are not closed below it; equal sets are mostly one object."""
    open_ranges: dict[UOp, frozenset[UOp]] = {}
    for u in nodes:
        ranges = _NO_RANGES
        if u not in leaves:
            for s in u.src:
                ranges_below = open_ranges[s]
                if ranges_below is not ranges and not ranges_below <= ranges:
                    ranges = ranges | ranges_below if ranges else ranges_below
            closed = ranges_closed_by(u)
            if closed and not ranges.isdisjoint(closed):
                ranges = ranges.difference(closed)
        open_ranges[u] = ranges | {u} if u.op in RANGES else ranges
    return open_ranges


def closed_ranges_outermost_first(u: UOp) -> tuple[UOp, ...]:
    """Return the ranges that a node closes, outermost first (R109, order of axes)."""
    closed = ranges_closed_by(u)
    by_priority = sorted(dict.fromkeys(closed), key=lambda r: (r.arg.type.priority, r.arg.axis_id)) if closed else []
    if len(by_priority) < 2:
        return tuple(by_priority)
    order: dict[UOp, None] = {}
    for r in by_priority:  # a bound stands outside of its loop, so the loops that it depends on do, too
        order |= dict.fromkeys(x for x in toposort(r) if x in closed)
    return tuple(order)


def _compute_loop_paths(nodes: Sequence[UOp], leaves: frozenset[UOp]) -> dict[UOp, LoopPath]:
    """Return the loops around each node. Raises SpecError where they do not nest."""
    open_ranges = _compute_open_ranges(nodes, leaves)
    parents: dict[UOp, frozenset[UOp]] = {}  # range -> the ranges open around its loop
    for u in nodes:
        enclosing = open_ranges[u]
        for r in closed_ranges_outermost_first(u) if u not in leaves else ():
            if r in parents:
                raise SpecError(f"axis {r.arg.axis_id} is closed more than once (R88)")
            parents[r] = enclosing
            enclosing = enclosing | {r}
    chain_of: dict[UOp, LoopPath] = {}
    path_of: dict[frozenset[UOp], LoopPath] = {_NO_RANGES: ()}
    for u in nodes:
        if open_ranges[u] not in path_of:
            path_of[open_ranges[u]] = _find_path_with_all_or_reject_open_axis(u, open_ranges[u], parents, chain_of)
    return {
        u: _find_enclosing_path_and_check_bound(u, open_ranges, parents, chain_of) if u.op in RANGES else path_of[open_ranges[u]]
        for u in nodes
    }


def _find_path_with_all_or_reject_open_axis(
    u: UOp, ranges: frozenset[UOp], ranges_around: dict[UOp, frozenset[UOp]], chain_memo: dict[UOp, LoopPath]
) -> LoopPath:
    """Return the loops that have all of `ranges`, which are open at `u`.

    Raises SpecError for a range that is never closed, and for two of which neither loop encloses the other.
    """
    for r in sorted(ranges, key=_axis_id):
        if r not in ranges_around:
            raise SpecError(f"axis {r.arg.axis_id} is used by {u.op.name.lower()} and never closed (R58)")
    return _find_loop_nest_with_all_or_reject(ranges, ranges_around, chain_memo)


def _axis_id(r: UOp) -> int:
    axis: int = r.arg.axis_id
    return axis


def _find_enclosing_path_and_check_bound(
    r: UOp, open_ranges: dict[UOp, frozenset[UOp]], ranges_around: dict[UOp, frozenset[UOp]], chain_memo: dict[UOp, LoopPath]
) -> LoopPath:
    """Return the loops around a Range's own. Raises SpecError if the bound depends on a range that is not among them."""
    enclosing_path = _compute_path_including_range(r, ranges_around, chain_memo)[:-1]
    missing = next((x for x in open_ranges[r] if x is not r and x not in enclosing_path), None)
    if missing is not None:
        raise SpecError(
            f"the bound of axis {r.arg.axis_id} depends on axis {missing.arg.axis_id}, whose loop does not enclose it (R58)"
        )
    return enclosing_path


def _find_loop_nest_with_all_or_reject(
    ranges: Iterable[UOp], ranges_around: dict[UOp, frozenset[UOp]], chain_memo: dict[UOp, LoopPath]
) -> LoopPath:
    """Return the chain of loops that has all of `ranges`, outermost first. Raises SpecError unless they nest."""
    ranges = sorted(ranges, key=_axis_id)  # a set has no order, and messages should have one
    chains = [_compute_path_including_range(r, ranges_around, chain_memo) for r in ranges]
    longest = max(chains, key=len, default=())
    enclosed = set(longest)
    for r in ranges:
        if r not in enclosed:
            both = f"axes {longest[-1].arg.axis_id} and {r.arg.axis_id}"
            raise SpecError(f"{both} are open at one node, and neither loop encloses the other (R58)")
    return longest


def _compute_path_including_range(r: UOp, ranges_around: dict[UOp, frozenset[UOp]], chain_memo: dict[UOp, LoopPath]) -> LoopPath:
    """Return the loops around a range and its own; memoized in `chain_memo`.

    It works without recursion: inner ranges wait on a stack for their parents.
    """
    stack: list[UOp] = [r]
    entered: set[UOp] = set()  # loops whose own parents lie above them on the stack
    while stack:
        top = stack[-1]
        if top in chain_memo:
            stack.pop()
            continue
        if top not in ranges_around:
            raise SpecError(f"axis {top.arg.axis_id} is used by a loop's bound or body and never closed (R58)")
        missing = [p for p in ranges_around[top] if p not in chain_memo]
        if any(p in entered for p in missing):
            raise SpecError(f"axis {top.arg.axis_id} stands inside of its own loop (R58)")
        entered.add(top)
        if missing:
            stack += missing
            continue
        stack.pop()
        chain_memo[top] = (*_find_loop_nest_with_all_or_reject(ranges_around[top], ranges_around, chain_memo), top)
    return chain_memo[r]


def _build_blocks(nodes: Sequence[UOp], leaves: frozenset[UOp], path: dict[UOp, LoopPath]) -> ScheduledBlock:
    """Return the outermost block of a graph, with the blocks of its loops."""
    loops = {r: loop for u in nodes if u not in leaves for r, loop in _make_closed_loops(u)}
    enclosing_ifs, events = _find_enclosing_ifs(nodes, leaves), _find_nodes_with_access_or_barrier(nodes, leaves)
    items: dict[LoopPath, dict[Item, int]] = {(): {}}  # per block: item -> position of its first node
    edges: dict[LoopPath, dict[Item, set[Item]]] = {(): {}}
    for position, u in enumerate(nodes):
        if u in leaves or u.op in _COUNTERS or u.op in _STRUCTURE:
            continue
        closed = closed_ranges_outermost_first(u)
        loop_path = path[u]
        for r in closed:
            items.setdefault(loop_path, {}).setdefault(loops[r], position)
            loop_path = (*loop_path, r)
            items.setdefault(loop_path, {})
        if not closed:
            items.setdefault(loop_path, {}).setdefault(u, position)
    for u in nodes:
        if u not in leaves and u.op not in _STRUCTURE and u.op is not Op.SPECIAL:
            for s in _dependencies_through_non_items(u):
                edge = None if s in leaves or s.op in _COUNTERS else _lift_dependency_to_common_block(s, u, path, loops)
                if edge is not None:
                    edges.setdefault(path[s], {}).setdefault(edge[1], set()).add(edge[0])
    return _assemble_blocks(items, edges, loops, enclosing_ifs, events)


def _make_closed_loops(u: UOp) -> list[tuple[UOp, Loop]]:
    """Return the loops that `u` closes, each with its range."""
    ranges = closed_ranges_outermost_first(u)
    return [(r, Loop(r, u, k == 0, k == len(ranges) - 1)) for k, r in enumerate(ranges)]


def _dependencies_through_non_items(u: UOp) -> list[UOp]:
    """Return the items, closers and ranges that `u` waits for.

    A node that is no item stands for the nodes that it waits for itself.
    """
    dependencies: dict[UOp, None] = {}
    seen: set[UOp] = set()
    stack = list(u.src)
    while stack:
        s = stack.pop()
        if s.op not in _STRUCTURE:
            dependencies[s] = None
        elif s not in seen:
            seen.add(s)
            stack += s.src
    return list(dependencies)


#: Ops that access memory, or order accesses.
_EVENTS = KERNEL_ACCESSES | OPAQUE_INSTRUCTIONS | {Op.BARRIER}


def _find_nodes_with_access_or_barrier(nodes: Sequence[UOp], leaves: frozenset[UOp]) -> frozenset[UOp]:
    """Return the nodes that may access memory or order accesses.

    These are the ops of `_EVENTS`, and users of a reference as a value (R51).
    """
    references: set[UOp] = set()
    events: set[UOp] = set()
    for u in nodes:
        if u in leaves:
            if u.op is not Op.CONST:
                references.add(u)
            continue
        view = u.op in VIEWS
        if u.op is Op.BUFFER or (view and u.src and u.src[0] in references):  # operand or buffer
            references.add(u)
        used = () if u.op is Op.AFTER else u.src[1:] if view else u.src  # positions, extents, offset
        if u.op in _EVENTS or any(s in references for s in used):
            events.add(u)
    return frozenset(events)


def _lift_dependency_to_common_block(
    source: UOp, u: UOp, path: dict[UOp, LoopPath], loops: dict[UOp, Loop]
) -> tuple[Item, Item] | None:
    """Return the pair of items that orders `source` before `u`, in the innermost block that has both.

    None means that there is nothing to order.
    """
    path_of_source = path[source]
    closed = closed_ranges_outermost_first(u)
    if closed and len(path_of_source) > len(path[u]):  # inside of a loop that `u` closes
        loop_path = (*path[u], *closed)
        if u.op is Op.END or len(path_of_source) == len(loop_path):
            return None
        return source, loops[loop_path[len(path_of_source)]]  # a Reduce reads its operand in the innermost loop
    first, then = _item_at_path(source, path_of_source, path, loops), _item_at_path(u, path_of_source, path, loops)
    return None if first is then else (first, then)


def _item_at_path(u: UOp, block_path: LoopPath, path: dict[UOp, LoopPath], loops: dict[UOp, Loop]) -> Item:
    """Return the item of the block at `block_path` that is or holds `u`; a Range and its closer stand for its loop."""
    loop_path = path[u]
    if len(loop_path) > len(block_path):
        return loops[loop_path[len(block_path)]]
    if u.op in RANGES:
        return loops[u]
    closed = closed_ranges_outermost_first(u)
    return loops[closed[0]] if closed else u


def _find_enclosing_ifs(nodes: Sequence[UOp], leaves: frozenset[UOp]) -> dict[UOp, tuple[UOp, ...]]:
    """Return the Ifs around each node that has some."""
    enclosing_ifs: dict[UOp, tuple[UOp, ...]] = {}
    for u in nodes:
        if u in leaves or u.op in _OUTSIDE:
            continue
        waits = u.dependencies if u.op is Op.AFTER else ()
        sources = (u.buffer,) if u.op is Op.AFTER else u.src
        ifs_of_node = dict.fromkeys(f for s in sources for f in enclosing_ifs.get(s, ()))
        ifs_of_node.update((s, None) for s in (*waits, *sources) if s.op is Op.IF)
        ifs_of_node.update((f, None) for s in waits if s.op is Op.IF for f in enclosing_ifs.get(s, ()))
        if ifs_of_node:
            enclosing_ifs[u] = tuple(ifs_of_node)
    return enclosing_ifs


def _assemble_blocks(
    items_by_path: dict[LoopPath, dict[Item, int]],
    waits_by_path: dict[LoopPath, dict[Item, set[Item]]],
    loops: dict[UOp, Loop],
    enclosing_ifs: dict[UOp, tuple[UOp, ...]],
    events: frozenset[UOp],
) -> ScheduledBlock:
    """Sort and link the items of every block, and return the outermost block."""
    outermost = ScheduledBlock()
    for p in items_by_path:
        block_edges = waits_by_path.get(p, {})
        order = _sort_topologically(items_by_path[p], block_edges)
        number = {x: k for k, x in enumerate(order)}
        waits = tuple(tuple(sorted(number[s] for s in block_edges.get(x, ()))) for x in order)
        bits = [1 << k if isinstance(x, Loop) or x in events else 0 for k, x in enumerate(order)]
        guards = tuple(enclosing_ifs.get(x, ()) if isinstance(x, UOp) else () for x in order)
        block = ScheduledBlock(tuple(order), waits, happens_before_masks(waits, bits), guards)
        if p:
            loops[p[-1]].block = block
        else:
            outermost = block
    return outermost


def happens_before_masks(waits: Sequence[tuple[int, ...]], event_bits: Sequence[int]) -> tuple[int, ...]:
    """Return what happens before each item, as a set of those that have a bit; equal sets are mostly one object."""
    before: list[int] = []
    for sources in waits:
        mask = 0
        for k in sources:
            more = before[k] | event_bits[k] if event_bits[k] else before[k]
            if more | mask != mask:
                mask = mask | more if mask else more
        before.append(mask)
    return tuple(before)


def _sort_topologically(item_positions: dict[Item, int], waits_for: dict[Item, set[Item]]) -> list[Item]:
    """Return the items by dependency, and by the order of the graph where that leaves a choice. Raises SpecError for a cycle."""
    waiting = {x: len(waits_for.get(x, ())) for x in item_positions}
    followers: dict[Item, list[Item]] = {}
    for x, sources in waits_for.items():
        for s in sources:
            followers.setdefault(s, []).append(x)
    by_position = {k: x for x, k in _number_by_position(item_positions)}
    ready = [k for k, x in by_position.items() if not waiting[x]]
    heapq.heapify(ready)
    position_of = {x: k for k, x in by_position.items()}
    order: list[Item] = []
    while ready:
        x = by_position[heapq.heappop(ready)]
        order.append(x)
        for f in followers.get(x, ()):
            waiting[f] -= 1
            if not waiting[f]:
                heapq.heappush(ready, position_of[f])
    if len(order) < len(item_positions):
        stuck = next(x for x in item_positions if waiting[x])
        u = stuck if isinstance(stuck, UOp) else stuck.closer
        raise SpecError(f"{u.op.name.lower()} waits for a node that waits for it: its loops cannot be nested (R58)")
    return order


def _number_by_position(items: dict[Item, int]) -> list[tuple[Item, int]]:
    """Return the items by position, numbered from 0."""
    return [(x, k) for k, (x, _) in enumerate(sorted(items.items(), key=lambda pair: pair[1]))]


# ---------------------------------------------------------------------------------------------------------------- a list


def _structure_from_linear(root: UOp, is_leaf: Callable[[UOp], bool]) -> KernelStructure:
    """Return the loop structure of a Linear, by position.

    Nodes that are not listed (constants, shapes and the like) come first; they are the same everywhere.
    """
    nodes = toposort(root, gate=lambda u: not is_leaf(u))
    leaves = tuple(u for u in nodes if is_leaf(u))
    listed, of_bounds = frozenset(root.instructions), _find_nodes_of_launch_bounds_alone(root, nodes)
    outside = listed | of_bounds | set(leaves)
    prelude = [u for u in nodes if u not in outside and u.op not in _STRUCTURE and u.op is not Op.SPECIAL]
    parser = _LinearParser(prelude)
    for u in root.instructions:
        if u not in leaves and u not in of_bounds:
            parser.add_instruction(u)
    return KernelStructure(
        root, leaves, tuple(u for u in nodes if u.op is Op.SPECIAL), parser.finish_or_reject_open_blocks(), parser.path, True
    )


class _LinearParser:
    """The parser of a Linear into nested blocks.

    It keeps the open blocks, outermost first: per block its items, their guards, and the Ifs opened in it.
    """

    def __init__(self, prelude: Sequence[UOp]) -> None:
        self.path: dict[UOp, LoopPath] = dict.fromkeys(prelude, ())
        self.items: list[list[Item]] = [list(prelude)]
        self.guards: list[list[tuple[UOp, ...]]] = [[()] * len(prelude)]
        self.ifs: list[list[UOp]] = [[]]
        self.ranges: list[UOp] = []

    def add_instruction(self, u: UOp) -> None:
        """Add the next instruction. Raises SpecError if it closes a block other than the innermost."""
        if u.op in RANGES:
            self.path[u] = tuple(self.ranges)
            self.ranges.append(u)
            self.items.append([])
            self.guards.append([])
            self.ifs.append([])
            return
        if u.op is Op.ENDIF:
            if not self.ifs[-1] or self.ifs[-1][-1] is not u.if_node:
                raise SpecError("endif does not close the innermost block (R58)")
            self.ifs[-1].pop()
            return
        closed = ranges_closed_by(u)
        if closed:
            self._close_loops(u, closed)
        elif u.op not in _STRUCTURE and u.op is not Op.SPECIAL:
            self._append_item(u)
        self.path[u] = tuple(self.ranges)
        if u.op is Op.IF:
            self.ifs[-1].append(u)

    def _append_item(self, x: Item) -> None:
        self.items[-1].append(x)
        self.guards[-1].append(tuple(self.ifs[-1]))

    def _close_loops(self, u: UOp, closed: Sequence[UOp]) -> None:
        """Close the loops of the ranges that `u` closes. Raises SpecError unless they are the innermost ones."""
        unclosed = set(closed)
        while unclosed:
            if not self.ranges or self.ranges[-1] not in unclosed or self.ifs[-1]:
                raise SpecError(f"{u.op.name.lower()} does not close the innermost block (R58)")
            r = self.ranges.pop()
            innermost = len(unclosed) == len(set(closed))
            unclosed.discard(r)
            block = _make_sequential_block(self.items.pop(), self.guards.pop())
            self.ifs.pop()
            self._append_item(Loop(r, u, not unclosed, innermost, block))

    def finish_or_reject_open_blocks(self) -> ScheduledBlock:
        """Return the outermost block. Raises SpecError if a block is left open."""
        if self.ranges or self.ifs[-1]:
            raise SpecError(f"{len(self.ranges) + len(self.ifs[-1])} blocks are left open at the end of the list (R58)")
        return _make_sequential_block(self.items[0], self.guards[0])


class _PrefixMasks(Sequence[int]):
    """`before` of a list: element k has the k lowest bits set."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, k: int) -> int: ...
    @overload
    def __getitem__(self, k: slice) -> list[int]: ...
    def __getitem__(self, k: int | slice) -> int | list[int]:
        numbers = range(self.length)[k]
        return (1 << numbers) - 1 if isinstance(numbers, int) else [(1 << n) - 1 for n in numbers]


def _make_sequential_block(items: Sequence[Item], guards: Sequence[tuple[UOp, ...]]) -> ScheduledBlock:
    """Return a block whose items run one after the other."""
    waits = ((), *((k,) for k in range(len(items) - 1))) if items else ()
    return ScheduledBlock(tuple(items), waits, _PrefixMasks(len(items)), tuple(guards))
