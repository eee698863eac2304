"""What can be said about a kernel before it runs: which loops become axes, whose memory is whose, and what the run must check.

Takes a `Kernel` whose Specials are loops (`launch`). Gives a `Plan`, or raises GiveUp where no run could be judged.

A loop is an axis unless its iterations must run one after another: LOOP and REDUCE are ordered (R57), and are run in order where
an iteration may use what an earlier one left in a memory, or where lanes meet at a barrier in each of them. At `CAREFUL` that also
holds of every ordered loop that writes to an argument; at `EAGER` the checks decide, except where the target is the same element
in every iteration.

A LOCAL or REG memory is private to an iteration of a loop around all of its uses if the loop is one that has a memory of its own
per iteration (R61), or an ordered one whose iterations pass nothing on: that they do not is seen when no element is read before it
is written. Between the lanes of a workgroup an ordered loop does not order anything, so that LOCAL memory is private to an
iteration of an ordered loop only around them.

What a `Check` asks of a memory: of two accesses to one element, one of them a write, walk down the loops around both. Different
iterations of an axis are unordered, or ordered against the order of the vectorised run, and refute it; unless the axis is a lane's
and a barrier was passed in between, or the loops further out were in another iteration of a loop that runs in order. In the same
iteration of all of them two nodes are ordered if the block says so; if not, their elements must differ (R55, R59).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from uops.interp.kernel.structure.blocks import Block, Kernel
from uops.interp.kernel.vector_machine.layout import ACCESSES, WRITES, Kind, Layout, Path, shared
from uops.interp.kernel.vector_machine.limits import GiveUp
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import RANGES

#: Two accesses of one of these kinds do not conflict (R55, R56).
_HARMLESS = frozenset({Op.LOAD, Op.ATOMICADD})
#: Accesses to one written memory; their pairs are compared.
_MOST_SITES = 256


class Level(Enum):
    """Which ordered loops that write to arguments become axes: those that might, or none."""

    EAGER = auto()
    CAREFUL = auto()


@dataclass(eq=False, slots=True)
class Check:
    """Accesses by `sites` to one element agree on `axes`, within one iteration of `loops` and, if `phased`, between two barriers;
    and the nodes of a pair in `apart` touch no common element there."""

    axes: tuple[int, ...]
    loops: Path
    phased: bool
    sites: dict[UOp, None] = field(default_factory=dict)
    apart: list[tuple[UOp, UOp]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class MemoryPlan:
    """`node` is a leaf or a Buffer. `axes` are those that have a copy each per iteration; the memory is new whenever the loop of
    `home` starts or, run in order, goes on. `alone`: one node writes it, at one time, and none reads it."""

    node: UOp
    space: AddrSpace
    sites: tuple[UOp, ...]
    written: bool
    home: UOp | None
    axes: tuple[int, ...]
    checks: tuple[Check, ...]
    alone: bool


@dataclass(eq=False, slots=True)
class Plan:
    """`sequential`: the ranges that run in order. `resets`: what is new when a loop starts or goes on. `fused`: Reduce -> the Mul
    below it that nothing else uses. `skipped`: nodes that are not evaluated where they stand."""

    kernel: Kernel
    block: Block
    layout: Layout
    sequential: frozenset[UOp]
    memories: dict[UOp, MemoryPlan]
    resets: dict[UOp | None, list[MemoryPlan]]
    fused: dict[UOp, UOp]
    skipped: frozenset[UOp]


def plan(kernel: Kernel, block: Block, known: frozenset[Op], level: Level) -> Plan:
    """The plan of a kernel whose outermost block is `block`; `known` are the ops that a run can evaluate."""
    layout = Layout(kernel, block)
    for u in layout.items:
        if u.op not in known:
            raise GiveUp(f"{u.op.name} is not vectorised")
    _judge_guards(layout)
    for loop in layout.loops.values():
        if loop.closer.op is Op.REDUCE and (layout.guards.get(loop.range) or layout.guards.get(loop.closer.src[0])):
            raise GiveUp("a Reduce of values that an If leaves out")
    sites = _sites(layout)
    sequential = _sequential(layout, sites, level)
    _judge_barriers(layout)
    memories = {m: _memory(layout, m, tuple(s), sequential) for m, s in sites.items()}
    resets: dict[UOp | None, list[MemoryPlan]] = {}
    for m in memories.values():
        if m.space is not AddrSpace.GLOBAL:
            resets.setdefault(m.home, []).append(m)
    fused = _fused(layout)
    return Plan(kernel, block, layout, sequential, memories, resets, fused, frozenset(fused.values()))


def _judge_guards(layout: Layout) -> None:
    """No value of an If's block is used outside of it (R114), and no loop over workgroups stands in one over lanes (R60)."""
    guarded = {u: {*layout.guards.get(u, ()), *(g for r in layout.path[u] for g in layout.guards.get(r, ()))} for u in layout.items}
    for u in layout.items:
        if any(s.dtype is not dt.void and not guarded.get(s, set()) <= guarded[u] for s in u.src):
            raise GiveUp("a value that is used outside of its If")
    if guarded.get(layout.root):
        raise GiveUp("a value that is used outside of its If")
    for path in layout.blocks:
        kinds = [layout.kinds[r] for r in path]
        if Kind.LANE in kinds and Kind.GROUP in kinds[kinds.index(Kind.LANE) :]:
            raise GiveUp("workgroups inside of a loop over lanes")


def _sites(layout: Layout) -> dict[UOp, list[UOp]]:
    """The nodes that access each memory."""
    sites: dict[UOp, list[UOp]] = {}
    for u in layout.items:
        if u.op in ACCESSES:
            m = layout.base(u.src[0])
            if m is not None:
                sites.setdefault(m, []).append(u)
    return sites


def _home(layout: Layout, sites: Sequence[UOp]) -> Path:
    path = layout.path[sites[0]]
    for s in sites[1:]:
        path = shared(path, layout.path[s])
    return path


def _private(layout: Layout, m: UOp, sites: Sequence[UOp]) -> list[UOp]:
    """The loops of which each iteration has a memory of its own."""
    space, found, in_lanes = layout.space(m), [], False
    if space is AddrSpace.GLOBAL:
        return []
    for r in _home(layout, sites):
        kind = layout.kinds[r]
        in_lanes |= kind is Kind.LANE
        if space is AddrSpace.REG:
            own = kind is not Kind.FREE
        else:
            own = kind is Kind.GROUP or (kind is Kind.ORDERED and not in_lanes)
        if own:
            found.append(r)
    return found


# -------------------------------------------------------------------------------------------------------- order of iterations


def _sequential(layout: Layout, sites: dict[UOp, list[UOp]], level: Level) -> frozenset[UOp]:
    found = {r for r in layout.loops if layout.kinds[r] is Kind.ORDERED and _meets(layout, r)}
    depends = _dependence(layout)
    for m, accesses in sites.items():
        private = _private(layout, m, accesses)
        for s in accesses:
            if s.op is not Op.STORE:
                continue
            for r in layout.path[s]:
                if layout.kinds[r] is not Kind.ORDERED or r in private:
                    continue
                moving = r in depends(s.src[0]) or any(r in depends(g) for g in (*s.src[2:], *layout.guards.get(s, ())))
                if layout.space(m) is not AddrSpace.GLOBAL or level is Level.CAREFUL or not moving:
                    found.add(r)
    return frozenset(found)


def _meets(layout: Layout, r: UOp) -> bool:
    """Whether lanes meet at a barrier in each iteration of `r`."""
    for b in layout.items:
        if b.op is Op.BARRIER and r in layout.path[b]:
            around = layout.path[b][: layout.path[b].index(r)]
            if any(layout.kinds[x] is Kind.LANE for x in around):
                return True
    return False


class _dependence:
    """The ranges on which a value or an address depends."""

    def __init__(self, layout: Layout) -> None:
        self.leaves = layout.leaves
        self.known: dict[UOp, frozenset[UOp]] = {}

    def __call__(self, root: UOp) -> frozenset[UOp]:
        stack = [root]
        while stack:
            u = stack[-1]
            if u in self.known:
                stack.pop()
                continue
            sources = () if u in self.leaves else u.src[:1] if u.op is Op.AFTER else u.src
            missing = [s for s in sources if s not in self.known]
            if missing:
                stack += missing
                continue
            own = frozenset({u}) if u.op in RANGES or u.op is Op.SPECIAL else frozenset()
            self.known[u] = own.union(*(self.known[s] for s in sources))
            stack.pop()
        return self.known[root]


def _judge_barriers(layout: Layout) -> None:
    """Every lane comes to every barrier: no If and no loop of a lane's own iterations is around it (R60)."""
    for b in layout.items:
        if b.op is not Op.BARRIER:
            continue
        path = layout.path[b]
        if layout.guards.get(b) or any(layout.guards.get(r) for r in path):
            raise GiveUp("a Barrier under an If")
        if any(layout.kinds[r] is Kind.FREE for r in path):
            raise GiveUp("a Barrier in an unordered loop of one lane")


# --------------------------------------------------------------------------------------------------------------- memories


def _memory(layout: Layout, m: UOp, sites: tuple[UOp, ...], sequential: frozenset[UOp]) -> MemoryPlan:
    space, home = layout.space(m), _home(layout, sites)
    written = any(s.op in WRITES for s in sites)
    private = _private(layout, m, sites)
    _judge_owners(layout, space, sites)
    axes = tuple(_axis(r, home, sequential) for r in private if r not in sequential)
    checks = tuple(_checks(layout, sites, set(private), sequential)) if written else ()
    alone = len(sites) == 1 and not any(r in sequential for r in layout.path[sites[0]])
    return MemoryPlan(m, space, sites, written, home[-1] if home else None, axes, checks, alone)


def _judge_owners(layout: Layout, space: AddrSpace, sites: Sequence[UOp]) -> None:
    """All uses of a LOCAL memory stand in the same workgroup loops, all of a REG memory in the same lane loops too (R61)."""
    owners = {AddrSpace.LOCAL: {Kind.GROUP}, AddrSpace.REG: {Kind.GROUP, Kind.LANE}}.get(space)
    if owners and len({tuple(r for r in layout.path[s] if layout.kinds[r] in owners) for s in sites}) > 1:
        raise GiveUp(f"{space.value} memory that is used in different workgroups' or lanes' loops")


def _axis(r: UOp, path: Path, sequential: frozenset[UOp]) -> int:
    return sum(x not in sequential for x in path[: path.index(r)])


def _checks(layout: Layout, sites: tuple[UOp, ...], private: set[UOp], sequential: frozenset[UOp]) -> Iterator[Check]:
    if len(sites) > _MOST_SITES:
        raise GiveUp(f"{len(sites)} accesses to one memory that is written")
    found: dict[Path, Check] = {}
    barriers = [u for u in layout.items if u.op is Op.BARRIER]
    for i, a in enumerate(sites):
        for b in sites[i:]:
            if a.op is b.op and a.op in _HARMLESS:
                continue
            around = shared(layout.path[a], layout.path[b])
            apart = a is not b and not layout.ordered(a, b)
            for cut in _cuts(layout, around, sequential):
                check = found.get(cut) or found.setdefault(cut, _check(layout, cut, private, sequential, bool(barriers)))
                if (check.axes and cut[-1] not in sequential) or (apart and cut == around):
                    check.sites.update({a: None, b: None})
                if apart and cut == around:
                    check.apart.append((a, b))
    for check in found.values():
        if check.sites:
            if check.phased:
                _judge_phases(layout, check, barriers)
            yield check


def _cuts(layout: Layout, path: Path, sequential: frozenset[UOp]) -> Iterator[Path]:
    """The beginnings of `path` whose axes must agree on their own: up to a loop that runs in order, or to where lanes begin or
    end."""
    for k in range(1, len(path)):
        lanes_begin_or_end = (layout.kinds[path[k]] is Kind.LANE) is not (layout.kinds[path[k - 1]] is Kind.LANE)
        if path[k] in sequential or lanes_begin_or_end:
            yield path[:k]
    yield path


def _check(layout: Layout, path: Path, private: set[UOp], sequential: frozenset[UOp], barriers: bool) -> Check:
    axes = tuple(_axis(r, path, sequential) for r in path if r not in sequential and r not in private)
    phased = barriers and any(layout.kinds[r] is Kind.LANE for r in path)
    return Check(axes, tuple(r for r in path if r in sequential), phased)


def _judge_phases(layout: Layout, check: Check, barriers: Sequence[UOp]) -> None:
    """Every access is before or after each barrier that its lanes meet at, whatever the order of the items."""
    for b in barriers:
        meeting = [r for r in layout.path[b] if layout.kinds[r] is Kind.LANE]
        for s in check.sites:
            lanes = [r for r in layout.path[s] if layout.kinds[r] is Kind.LANE]
            if not meeting or not lanes or meeting[0] is not lanes[0]:
                continue
            if meeting != lanes:
                raise GiveUp("lanes that meet at a Barrier in part of their loops")
            if not layout.ordered(s, b):
                raise GiveUp("an access that is not ordered with a Barrier")


# ---------------------------------------------------------------------------------------------------------- sums of products


def _fused(layout: Layout) -> dict[UOp, UOp]:
    """Reduce -> its operand, where that is a product of floats that nothing else uses: R32 lets the products go unrounded."""
    uses: dict[UOp, int] = {}
    closers = {loop.closer for loop in layout.loops.values()}
    for u in (*layout.items, *closers):
        for s in u.src:
            uses[s] = uses.get(s, 0) + 1
    found = {}
    for loop in layout.loops.values():
        u = loop.closer
        if u.op is Op.REDUCE and u.arg.op is Op.ADD and loop.innermost:
            product = u.src[0]
            inside = layout.path.get(product, ())[-1:] == (loop.range,)
            plain = product.op is Op.MUL and product.dtype in dt.FLOATS and product.shape == ()
            if plain and inside and uses[product] == 1 and not layout.guards.get(product):
                found[u] = product
    return found
