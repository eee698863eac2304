"""The loops of a kernel, read off its graph or its instruction list: what runs in which loop, when, and under which conditions.

Takes the root of a body - a Sink, End, Reduce over ranges or any other node; a Linear; a Program, which stands for the Linear it
carries - and says which nodes its caller supplies (`leaf`). Gives a `Kernel`: blocks of items in an order that runs, each with what
happens before it. A graph leaves the order of unrelated effects open (R55, R59), a Linear does not; `before` is all that may be
relied on.

In a graph, a node runs once per iteration of the ranges it depends on and that nothing closed below it (R127); a loop stands in the
loops that are open at the node that closes it (R58); several ranges closed by one node nest by the priority of their types, then by
axis id (R109). A node stands inside of an If that it depends on through values or as a dependency of an After; what only waits for
a node inside (an End, Group, Sink, or the other dependencies of an After) does not. In a Linear, position alone decides.

Raises SpecError for a Range that nothing closes, for open ranges of which neither loop encloses the other, for blocks of a Linear
that do not nest, and for items that wait for each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

from uops.spec.errors import SpecError
from uops.spec.ir.axes import AXIS_TABLE, AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import RANGES, VIEWS, closed_by

#: Ranges whose iterations are the lanes of one workgroup, and those that number the workgroups (R60, R61).
LANES = frozenset({AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE})
GROUPS = frozenset({AxisType.GLOBAL, AxisType.THREAD})
#: Specials with these names number workgroups, all others lanes (R125).
GROUP_NAMES = ("gidx", "blockIdx", "tidx", "threadpool")

#: No items: they have no value and no effect of their own.
_STRUCTURE = frozenset({Op.SINK, Op.GROUP, Op.LINEAR, Op.PROGRAM, Op.SOURCE, Op.ENDIF})
#: These have their values from the loops around.
_COUNTERS = RANGES | {Op.SPECIAL}
#: Waiting for a node inside of an If does not put these inside.
_OUTSIDE = frozenset({Op.END, Op.GROUP, Op.SINK, Op.ENDIF})


@dataclass(eq=False, slots=True)
class Block:
    """Items in an order that runs. `waits[j]`: the items that item j itself waits for. Bit k of `before[j]`: item k happens before
    item j, for the items k that are loops or barriers or may access memory. `guards[j]`: the Ifs around item j alone."""

    items: tuple[Item, ...] = ()
    waits: tuple[tuple[int, ...], ...] = ()
    before: Sequence[int] = ()
    guards: tuple[tuple[UOp, ...], ...] = ()


@dataclass(eq=False, slots=True)
class Loop:
    """The iterations of `range`. `closer` is the End or Reduce; of several ranges closed by it, this is the outermost or innermost.
    A Special is the range and the closer of its own loop (`launch`).

    A Reduce takes its operand's value in each iteration of the innermost loop, and has its own value after the outermost.
    """

    range: UOp
    closer: UOp
    outermost: bool = True
    innermost: bool = True
    block: Block = field(default_factory=Block)

    @property
    def type(self) -> AxisType:
        arg = self.range.arg
        if self.range.op is Op.SPECIAL:
            return AxisType.GLOBAL if arg.name.startswith(GROUP_NAMES) else AxisType.LOCAL
        kind: AxisType = arg.type
        return kind

    @property
    def ordered(self) -> bool:
        """Whether an iteration happens before the next one (R57)."""
        return AXIS_TABLE[self.type].ordered


Item = UOp | Loop
Path = tuple[UOp, ...]


@dataclass(eq=False, slots=True)
class Kernel:
    """`specials` are the dimensions of the launch (R125): every lane runs the whole block. `path` gives the ranges around each
    node, outermost first. `root` is the node whose value, if any, is the kernel's. `listed`: the order is that of a Linear."""

    root: UOp
    leaves: tuple[UOp, ...]
    specials: tuple[UOp, ...]
    block: Block
    path: dict[UOp, Path]
    listed: bool


def structure(root: UOp, leaf: Callable[[UOp], bool]) -> Kernel:
    """The structure of a body. A leaf's sources are not looked at."""
    while root.op is Op.PROGRAM:
        root = root.src[0]
    return _of_list(root, leaf) if root.op is Op.LINEAR else _of_graph(root, leaf)


# --------------------------------------------------------------------------------------------------------------- a graph


def _of_graph(root: UOp, leaf: Callable[[UOp], bool]) -> Kernel:
    nodes = toposort(root, gate=lambda u: not leaf(u))
    leaves = tuple(u for u in nodes if leaf(u))
    path = _paths(nodes, frozenset(leaves))
    block = _blocks(nodes, frozenset(leaves), path)
    return Kernel(root, leaves, tuple(u for u in nodes if u.op is Op.SPECIAL), block, path, False)


_NONE: frozenset[UOp] = frozenset()


def _live(nodes: Sequence[UOp], leaves: frozenset[UOp]) -> dict[UOp, frozenset[UOp]]:
    """The ranges that each node depends on and that are not closed below it; equal sets are mostly one object."""
    found: dict[UOp, frozenset[UOp]] = {}
    for u in nodes:
        live = _NONE
        if u not in leaves:
            for s in u.src:
                below = found[s]
                if below is not live and not below <= live:
                    live = live | below if live else below
            closed = closed_by(u)
            if closed and not live.isdisjoint(closed):
                live = live.difference(closed)
        found[u] = live | {u} if u.op in RANGES else live
    return found


def closing_order(u: UOp) -> tuple[UOp, ...]:
    """The ranges that a node closes, outermost first (R109)."""
    closed = closed_by(u)
    return tuple(sorted(dict.fromkeys(closed), key=lambda r: (r.arg.type.priority, r.arg.axis_id))) if closed else ()


def _paths(nodes: Sequence[UOp], leaves: frozenset[UOp]) -> dict[UOp, Path]:
    live = _live(nodes, leaves)
    parents: dict[UOp, frozenset[UOp]] = {}  # range -> the ranges open around its loop
    for u in nodes:
        around = live[u]
        for r in closing_order(u) if u not in leaves else ():
            if r in parents:
                raise SpecError(f"axis {r.arg.axis_id} is closed more than once (R88)")
            parents[r] = around
            around = around | {r}
    known: dict[UOp, Path] = {}
    places: dict[frozenset[UOp], Path] = {_NONE: ()}
    for u in nodes:
        if live[u] not in places:
            places[live[u]] = _place(u, live[u], parents, known)
    return {u: _around(u, live, parents, known) if u.op in RANGES else places[live[u]] for u in nodes}


def _place(u: UOp, ranges: frozenset[UOp], parents: dict[UOp, frozenset[UOp]], known: dict[UOp, Path]) -> Path:
    for r in sorted(ranges, key=_axis):
        if r not in parents:
            raise SpecError(f"axis {r.arg.axis_id} is used by {u.op.name.lower()} and never closed (R58)")
    return _path(ranges, parents, known)


def _axis(r: UOp) -> int:
    axis: int = r.arg.axis_id
    return axis


def _around(r: UOp, live: dict[UOp, frozenset[UOp]], parents: dict[UOp, frozenset[UOp]], known: dict[UOp, Path]) -> Path:
    """The loops around a Range's own, which must have what its bound depends on."""
    place = _chain(r, parents, known)[:-1]
    outside = next((x for x in live[r] if x is not r and x not in place), None)
    if outside is not None:
        raise SpecError(
            f"the bound of axis {r.arg.axis_id} depends on axis {outside.arg.axis_id}, whose loop does not enclose it (R58)"
        )
    return place


def _path(ranges: Iterable[UOp], parents: dict[UOp, frozenset[UOp]], known: dict[UOp, Path]) -> Path:
    """The chain of loops that has all of `ranges`, outermost first."""
    ranges = sorted(ranges, key=_axis)  # a set has no order, and messages should have one
    chains = [_chain(r, parents, known) for r in ranges]
    longest = max(chains, key=len, default=())
    enclosed = set(longest)
    for r in ranges:
        if r not in enclosed:
            both = f"axes {longest[-1].arg.axis_id} and {r.arg.axis_id}"
            raise SpecError(f"{both} are open at one node, and neither loop encloses the other (R58)")
    return longest


def _chain(r: UOp, parents: dict[UOp, frozenset[UOp]], known: dict[UOp, Path]) -> Path:
    """The loops around a range and its own, iteratively: innermost ranges wait for their parents."""
    stack: list[UOp] = [r]
    entered: set[UOp] = set()  # loops whose own parents lie above them on the stack
    while stack:
        top = stack[-1]
        if top in known:
            stack.pop()
            continue
        if top not in parents:
            raise SpecError(f"axis {top.arg.axis_id} is used by a loop's bound or body and never closed (R58)")
        missing = [p for p in parents[top] if p not in known]
        if any(p in entered for p in missing):
            raise SpecError(f"axis {top.arg.axis_id} stands inside of its own loop (R58)")
        entered.add(top)
        if missing:
            stack += missing
            continue
        stack.pop()
        known[top] = (*_path(parents[top], parents, known), top)
    return known[r]


def _blocks(nodes: Sequence[UOp], leaves: frozenset[UOp], path: dict[UOp, Path]) -> Block:
    loops = {r: loop for u in nodes if u not in leaves for r, loop in _loops(u)}
    inside, events = _inside(nodes, leaves), _events(nodes, leaves)
    items: dict[Path, dict[Item, int]] = {(): {}}  # per block: item -> position of its first node
    edges: dict[Path, dict[Item, set[Item]]] = {(): {}}
    for position, u in enumerate(nodes):
        if u in leaves or u.op in _COUNTERS or u.op in _STRUCTURE:
            continue
        closed = closing_order(u)
        place = path[u]
        for r in closed:
            items.setdefault(place, {}).setdefault(loops[r], position)
            place = (*place, r)
            items.setdefault(place, {})
        if not closed:
            items.setdefault(place, {}).setdefault(u, position)
    for u in nodes:
        if u not in leaves and u.op not in _STRUCTURE and u.op is not Op.SPECIAL:
            for s in _waits(u):
                edge = None if s in leaves or s.op in _COUNTERS else _edge(s, u, path, loops)
                if edge is not None:
                    edges.setdefault(path[s], {}).setdefault(edge[1], set()).add(edge[0])
    return _assembled(items, edges, loops, inside, events)


def _loops(u: UOp) -> list[tuple[UOp, Loop]]:
    ranges = closing_order(u)
    return [(r, Loop(r, u, k == 0, k == len(ranges) - 1)) for k, r in enumerate(ranges)]


def _waits(u: UOp) -> list[UOp]:
    """The items, closers and ranges that `u` waits for; what holds no item stands for what it waits for itself."""
    found: dict[UOp, None] = {}
    seen: set[UOp] = set()
    stack = list(u.src)
    while stack:
        s = stack.pop()
        if s.op not in _STRUCTURE:
            found[s] = None
        elif s not in seen:
            seen.add(s)
            stack += s.src
    return list(found)


#: These access memory, or order accesses.
_EVENTS = frozenset({Op.LOAD, Op.STORE, Op.ATOMICADD, Op.BARRIER, Op.INS, Op.CUSTOM, Op.CUSTOMI})


def _events(nodes: Sequence[UOp], leaves: frozenset[UOp]) -> frozenset[UOp]:
    """The nodes that may access memory or order accesses: those above, and any that uses a reference as a value (R51)."""
    references: set[UOp] = set()
    found: set[UOp] = set()
    for u in nodes:
        if u in leaves:
            if u.op is not Op.CONST:
                references.add(u)
            continue
        view = u.op in VIEWS
        if u.op is Op.BUFFER or (view and u.src and u.src[0] in references):
            references.add(u)
        used = () if u.op is Op.AFTER else u.src[1:] if view else u.src
        if u.op in _EVENTS or any(s in references for s in used):
            found.add(u)
    return frozenset(found)


def _edge(s: UOp, u: UOp, path: dict[UOp, Path], loops: dict[UOp, Loop]) -> tuple[Item, Item] | None:
    """`s` happens before `u`, as two items of the innermost block that has both."""
    place = path[s]
    closed = closing_order(u)
    if closed and len(place) > len(path[u]):  # inside of a loop that `u` closes
        around = (*path[u], *closed)
        if u.op is Op.END or len(place) == len(around):
            return None
        return s, loops[around[len(place)]]  # a Reduce takes the value in loops further in
    first, then = _item(s, place, path, loops), _item(u, place, path, loops)
    return None if first is then else (first, then)


def _item(u: UOp, place: Path, path: dict[UOp, Path], loops: dict[UOp, Loop]) -> Item:
    """The item of the block at `place` that is or holds `u`: a Range stands for its loop, and so does what closes it."""
    around = path[u]
    if len(around) > len(place):
        return loops[around[len(place)]]
    if u.op in RANGES:
        return loops[u]
    closed = closing_order(u)
    return loops[closed[0]] if closed else u


def _inside(nodes: Sequence[UOp], leaves: frozenset[UOp]) -> dict[UOp, tuple[UOp, ...]]:
    """The Ifs around each node that has some."""
    found: dict[UOp, tuple[UOp, ...]] = {}
    for u in nodes:
        if u in leaves or u.op in _OUTSIDE:
            continue
        waits = u.src[1:] if u.op is Op.AFTER else ()
        sources = u.src[:1] if u.op is Op.AFTER else u.src
        around = dict.fromkeys(f for s in sources for f in found.get(s, ()))
        around.update((s, None) for s in (*waits, *sources) if s.op is Op.IF)
        around.update((f, None) for s in waits if s.op is Op.IF for f in found.get(s, ()))
        if around:
            found[u] = tuple(around)
    return found


def _assembled(
    items: dict[Path, dict[Item, int]],
    edges: dict[Path, dict[Item, set[Item]]],
    loops: dict[UOp, Loop],
    inside: dict[UOp, tuple[UOp, ...]],
    events: frozenset[UOp],
) -> Block:
    """The outermost block, with all those inside of it."""
    outermost = Block()
    for p in items:
        links = edges.get(p, {})
        order = _sorted(items[p], links)
        number = {x: k for k, x in enumerate(order)}
        waits = tuple(tuple(sorted(number[s] for s in links.get(x, ()))) for x in order)
        bits = [1 << k if isinstance(x, Loop) or x in events else 0 for k, x in enumerate(order)]
        guards = tuple(inside.get(x, ()) if isinstance(x, UOp) else () for x in order)
        block = Block(tuple(order), waits, closure(waits, bits), guards)
        if p:
            loops[p[-1]].block = block
        else:
            outermost = block
    return outermost


def closure(waits: Sequence[tuple[int, ...]], bits: Sequence[int]) -> tuple[int, ...]:
    """What happens before each item, as a set of those that have a bit; equal sets are mostly one object."""
    before: list[int] = []
    for sources in waits:
        mask = 0
        for k in sources:
            more = before[k] | bits[k] if bits[k] else before[k]
            if more | mask != mask:
                mask = mask | more if mask else more
        before.append(mask)
    return tuple(before)


def _sorted(items: dict[Item, int], edges: dict[Item, set[Item]]) -> list[Item]:
    """By dependency, and by the order of the graph where that leaves a choice."""
    waiting = {x: len(edges.get(x, ())) for x in items}
    followers: dict[Item, list[Item]] = {}
    for x, sources in edges.items():
        for s in sources:
            followers.setdefault(s, []).append(x)
    by_position = {k: x for x, k in _distinct(items)}
    ready = [k for k, x in by_position.items() if not waiting[x]]
    heapq.heapify(ready)
    number = {x: k for k, x in by_position.items()}
    order: list[Item] = []
    while ready:
        x = by_position[heapq.heappop(ready)]
        order.append(x)
        for f in followers.get(x, ()):
            waiting[f] -= 1
            if not waiting[f]:
                heapq.heappush(ready, number[f])
    if len(order) < len(items):
        stuck = next(x for x in items if waiting[x])
        u = stuck if isinstance(stuck, UOp) else stuck.closer
        raise SpecError(f"{u.op.name.lower()} waits for what waits for it: its loops cannot be nested (R58)")
    return order


def _distinct(items: dict[Item, int]) -> list[tuple[Item, int]]:
    return [(x, k) for k, (x, _) in enumerate(sorted(items.items(), key=lambda pair: pair[1]))]


# ---------------------------------------------------------------------------------------------------------------- a list


def _of_list(root: UOp, leaf: Callable[[UOp], bool]) -> Kernel:
    """Blocks by position. Constants, shapes and the like that are not listed come first; they are the same everywhere."""
    nodes = toposort(root, gate=lambda u: not leaf(u))
    leaves = tuple(u for u in nodes if leaf(u))
    listed = frozenset(root.src)
    prelude = [u for u in nodes if u not in listed and u not in leaves and u.op not in _STRUCTURE and u.op is not Op.SPECIAL]
    reader = _Reader(prelude)
    for u in root.src:
        if u not in leaves:
            reader.read(u)
    return Kernel(root, leaves, tuple(u for u in nodes if u.op is Op.SPECIAL), reader.finished(), reader.path, True)


class _Reader:
    """The blocks opened so far: per block its items, its guards, and the Ifs opened in it."""

    def __init__(self, prelude: Sequence[UOp]) -> None:
        self.path: dict[UOp, Path] = dict.fromkeys(prelude, ())
        self.items: list[list[Item]] = [list(prelude)]
        self.guards: list[list[tuple[UOp, ...]]] = [[()] * len(prelude)]
        self.ifs: list[list[UOp]] = [[]]
        self.ranges: list[UOp] = []

    def read(self, u: UOp) -> None:
        if u.op in RANGES:
            self.path[u] = tuple(self.ranges)
            self.ranges.append(u)
            self.items.append([])
            self.guards.append([])
            self.ifs.append([])
            return
        if u.op is Op.ENDIF:
            if not self.ifs[-1] or self.ifs[-1][-1] is not u.src[0]:
                raise SpecError("endif does not close the innermost block (R58)")
            self.ifs[-1].pop()
            return
        closed = closed_by(u)
        if closed:
            self._close(u, closed)
        elif u.op not in _STRUCTURE and u.op is not Op.SPECIAL:
            self._add(u)
        self.path[u] = tuple(self.ranges)
        if u.op is Op.IF:
            self.ifs[-1].append(u)

    def _add(self, x: Item) -> None:
        self.items[-1].append(x)
        self.guards[-1].append(tuple(self.ifs[-1]))

    def _close(self, u: UOp, closed: Sequence[UOp]) -> None:
        """The innermost block must be one of those that `u` closes."""
        left = set(closed)
        while left:
            if not self.ranges or self.ranges[-1] not in left or self.ifs[-1]:
                raise SpecError(f"{u.op.name.lower()} does not close the innermost block (R58)")
            r = self.ranges.pop()
            innermost = len(left) == len(set(closed))
            left.discard(r)
            block = _in_sequence(self.items.pop(), self.guards.pop())
            self.ifs.pop()
            self._add(Loop(r, u, not left, innermost, block))

    def finished(self) -> Block:
        if self.ranges or self.ifs[-1]:
            raise SpecError(f"{len(self.ranges) + len(self.ifs[-1])} blocks are left open at the end of the list (R58)")
        return _in_sequence(self.items[0], self.guards[0])


class _Earlier(Sequence[int]):
    """`before` of a list: all that stands earlier."""

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


def _in_sequence(items: Sequence[Item], guards: Sequence[tuple[UOp, ...]]) -> Block:
    waits = ((), *((k,) for k in range(len(items) - 1))) if items else ()
    return Block(tuple(items), waits, _Earlier(len(items)), tuple(guards))
