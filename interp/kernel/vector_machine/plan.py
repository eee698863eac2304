"""The plan of a vector run: which loops become axes, which memory is private to an iteration, and what the run must check.

Takes a `KernelStructure` whose Specials are loops (`launch`). Gives a `VectorPlan`, or raises GiveUp where no run could be
checked.

A loop is an axis unless its iterations must run one after another. LOOP and REDUCE are ordered (R57). They run in order where
an iteration may use what an earlier one left in a memory, or where lanes wait at a barrier in each of them. At `CAREFUL` this
holds of every ordered loop that writes to an argument. At `EAGER` the checks decide, except where the target is the same
element in every iteration.

A LOCAL or REG memory is private to an iteration of a loop around all of its uses in two cases. The loop has a memory of its own
per iteration (R61), or it is an ordered one whose iterations pass nothing on. That they pass nothing on shows when no element
is read before it is written. Between the lanes of a workgroup an ordered loop orders nothing, so LOCAL memory is private to an
iteration of an ordered loop only around them.

A `ConflictCheck` looks at two accesses to one element, one of them a write, and walks down the loops around both. Different
iterations of an axis are unordered, or ordered against the order of the vector run, and refute it. There are two exceptions.
The axis is a lane's and a barrier was passed in between, or the loops further out were in another iteration of a loop in order.
In the same iteration of all of them two nodes are ordered if the block says so. If not, their elements must differ
(R55, R59).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from uops.interp.kernel.structure.blocks import KernelStructure, LoopPath, ScheduledBlock
from uops.interp.kernel.vector_machine.limits import GiveUp
from uops.interp.kernel.vector_machine.loop_nest import LoopKind, LoopNest, common_loops
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import KERNEL_ACCESSES, WRITES, Op
from uops.spec.ir.scope import RANGES

#: Ops of which two accesses never conflict (R55, R56).
_HARMLESS = frozenset({Op.LOAD, Op.ATOMICADD})
#: The greatest number of accesses to one written memory; all pairs of them are compared.
_MOST_SITES = 256


class VectorizationLevel(Enum):
    """The ordered loops that become axes although they write to arguments: those that might, or none."""

    EAGER = auto()
    CAREFUL = auto()


@dataclass(eq=False, slots=True)
class ConflictCheck:
    """A condition on the accesses to a memory.

    Accesses by `sites` to one element agree on `axes`, within one iteration of `loops`, and with `splits_at_barriers` between
    two barriers. The nodes of each pair in `unordered_pairs` touch no common element there.
    """

    axes: tuple[int, ...]
    loops: LoopPath
    splits_at_barriers: bool
    sites: dict[UOp, None] = field(default_factory=dict)
    unordered_pairs: list[tuple[UOp, UOp]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class MemoryPlan:
    """The plan of one memory.

    `node` is a leaf or a Buffer. `axes` are those that have a copy each per iteration. The memory is new whenever the loop of
    `home` starts or, run in order, goes on. `is_single_write`: one node writes it, at one time, and none reads it.
    """

    node: UOp
    space: AddrSpace
    sites: tuple[UOp, ...]
    written: bool
    home: UOp | None
    axes: tuple[int, ...]
    checks: tuple[ConflictCheck, ...]
    is_single_write: bool


@dataclass(eq=False, slots=True)
class VectorPlan:
    """The plan of a kernel.

    `sequential` are the ranges that run in order. `resets` has the memories that are new when a loop starts or goes on.
    `fused_products` maps a Reduce to the Mul below it that nothing else uses. `skipped_nodes` are not evaluated where they
    stand.
    """

    kernel: KernelStructure
    block: ScheduledBlock
    loop_nest: LoopNest
    sequential: frozenset[UOp]
    memories: dict[UOp, MemoryPlan]
    resets: dict[UOp | None, list[MemoryPlan]]
    fused_products: dict[UOp, UOp]
    skipped_nodes: frozenset[UOp]


def plan_vectorization_or_give_up(
    kernel: KernelStructure, block: ScheduledBlock, supported_ops: frozenset[Op], level: VectorizationLevel
) -> VectorPlan:
    """Return the plan of a kernel whose outermost block is `block`. Raises GiveUp.

    `supported_ops` are those that a run can evaluate.
    """
    loop_nest = LoopNest(kernel, block)
    for u in loop_nest.items:
        if u.op not in supported_ops:
            raise GiveUp(f"{u.op.name} is not vectorised")
    _give_up_on_values_used_outside_their_if(loop_nest)
    _give_up_on_workgroup_loops_inside_lane_loops(loop_nest)
    for loop in loop_nest.loops.values():
        if loop.closer.op is Op.REDUCE and (loop_nest.guards.get(loop.range) or loop_nest.guards.get(loop.closer.operand)):
            raise GiveUp("a Reduce of values that an If leaves out")
    sites = _collect_access_sites(loop_nest)
    sequential = _find_sequential_loops(loop_nest, sites, level)
    _give_up_on_barriers_under_if_or_free_loop(loop_nest)
    memories = {memory_node: _plan_memory(loop_nest, memory_node, tuple(s), sequential) for memory_node, s in sites.items()}
    resets: dict[UOp | None, list[MemoryPlan]] = {}
    for memory_plan in memories.values():
        if memory_plan.space is not AddrSpace.GLOBAL:
            resets.setdefault(memory_plan.home, []).append(memory_plan)
    fused_products = _map_float_sums_to_fusable_muls(loop_nest)
    return VectorPlan(kernel, block, loop_nest, sequential, memories, resets, fused_products, frozenset(fused_products.values()))


def _give_up_on_values_used_outside_their_if(loop_nest: LoopNest) -> None:
    """Raise GiveUp for a value that is used outside of its If (R114)."""
    guarded = {
        u: {*loop_nest.guards.get(u, ()), *(g for r in loop_nest.path[u] for g in loop_nest.guards.get(r, ()))}
        for u in loop_nest.items
    }
    for u in loop_nest.items:
        if any(s.dtype is not dt.void and not guarded.get(s, set()) <= guarded[u] for s in u.src):
            raise GiveUp("a value that is used outside of its If")
    if guarded.get(loop_nest.root):
        raise GiveUp("a value that is used outside of its If")


def _give_up_on_workgroup_loops_inside_lane_loops(loop_nest: LoopNest) -> None:
    """Raise GiveUp for a loop over workgroups inside of one over lanes (R60)."""
    for path in loop_nest.blocks:
        kinds = [loop_nest.kinds[r] for r in path]
        if LoopKind.LANE in kinds and LoopKind.GROUP in kinds[kinds.index(LoopKind.LANE) :]:
            raise GiveUp("workgroups inside of a loop over lanes")


def _collect_access_sites(loop_nest: LoopNest) -> dict[UOp, list[UOp]]:
    """Return the nodes that access each memory."""
    sites: dict[UOp, list[UOp]] = {}
    for u in loop_nest.items:
        if u.op in KERNEL_ACCESSES:
            m = loop_nest.memory_base_of(u.src[0])  # buffer or index
            if m is not None:
                sites.setdefault(m, []).append(u)
    return sites


def _common_loop_path(loop_nest: LoopNest, sites: Sequence[UOp]) -> LoopPath:
    """Return the loops around all of `sites`."""
    path = loop_nest.path[sites[0]]
    for s in sites[1:]:
        path = common_loops(path, loop_nest.path[s])
    return path


def _find_privatizing_loops(loop_nest: LoopNest, memory_node: UOp, sites: Sequence[UOp]) -> list[UOp]:
    """Return the loops of which each iteration has a memory of its own."""
    space, loops, in_lanes = loop_nest.address_space_of(memory_node), [], False
    if space is AddrSpace.GLOBAL:
        return []
    for r in _common_loop_path(loop_nest, sites):
        kind = loop_nest.kinds[r]
        in_lanes |= kind is LoopKind.LANE
        if space is AddrSpace.REG:
            is_private = kind is not LoopKind.FREE
        else:
            is_private = kind is LoopKind.GROUP or (kind is LoopKind.ORDERED and not in_lanes)
        if is_private:
            loops.append(r)
    return loops


# -------------------------------------------------------------------------------------------------------- order of iterations


def _find_sequential_loops(loop_nest: LoopNest, sites: dict[UOp, list[UOp]], level: VectorizationLevel) -> frozenset[UOp]:
    """Return the ranges that run in order."""
    sequential = {
        r for r in loop_nest.loops if loop_nest.kinds[r] is LoopKind.ORDERED and _contains_barrier_of_outer_lanes(loop_nest, r)
    }
    ranges_of = _RangeDependence(loop_nest)
    for m, accesses in sites.items():
        private = _find_privatizing_loops(loop_nest, m, accesses)
        for s in accesses:
            if s.op is not Op.STORE:
                continue
            for r in loop_nest.path[s]:
                if loop_nest.kinds[r] is not LoopKind.ORDERED or r in private:
                    continue
                conditions = [g for g in (s.gate, *loop_nest.guards.get(s, ())) if g is not None]
                varies = r in ranges_of(s.buffer) or any(r in ranges_of(g) for g in conditions)
                if loop_nest.address_space_of(m) is not AddrSpace.GLOBAL or level is VectorizationLevel.CAREFUL or not varies:
                    sequential.add(r)
    return frozenset(sequential)


def _contains_barrier_of_outer_lanes(loop_nest: LoopNest, r: UOp) -> bool:
    """Return True if lanes wait at a barrier in each iteration of `r`."""
    for b in loop_nest.items:
        if b.op is Op.BARRIER and r in loop_nest.path[b]:
            outer_loops = loop_nest.path[b][: loop_nest.path[b].index(r)]
            if any(loop_nest.kinds[x] is LoopKind.LANE for x in outer_loops):
                return True
    return False


class _RangeDependence:
    """A function from a node to the ranges on which its value or address depends; memoized."""

    def __init__(self, loop_nest: LoopNest) -> None:
        self.leaves = loop_nest.leaves
        self.ranges_of: dict[UOp, frozenset[UOp]] = {}

    def __call__(self, root: UOp) -> frozenset[UOp]:
        stack = [root]
        while stack:
            u = stack[-1]
            if u in self.ranges_of:
                stack.pop()
                continue
            sources = () if u in self.leaves else (u.buffer,) if u.op is Op.AFTER else u.src
            missing = [s for s in sources if s not in self.ranges_of]
            if missing:
                stack += missing
                continue
            own_range = frozenset({u}) if u.op in RANGES or u.op is Op.SPECIAL else frozenset()
            self.ranges_of[u] = own_range.union(*(self.ranges_of[s] for s in sources))
            stack.pop()
        return self.ranges_of[root]


def _give_up_on_barriers_under_if_or_free_loop(loop_nest: LoopNest) -> None:
    """Raise GiveUp unless every lane comes to every barrier: no If and no loop of a lane's own iterations is around it (R60)."""
    for b in loop_nest.items:
        if b.op is not Op.BARRIER:
            continue
        path = loop_nest.path[b]
        if loop_nest.guards.get(b) or any(loop_nest.guards.get(r) for r in path):
            raise GiveUp("a Barrier under an If")
        if any(loop_nest.kinds[r] is LoopKind.FREE for r in path):
            raise GiveUp("a Barrier in an unordered loop of one lane")


# --------------------------------------------------------------------------------------------------------------- memories


def _plan_memory(loop_nest: LoopNest, memory_node: UOp, sites: tuple[UOp, ...], sequential: frozenset[UOp]) -> MemoryPlan:
    """Return the plan of a memory that `sites` access."""
    space, path = loop_nest.address_space_of(memory_node), _common_loop_path(loop_nest, sites)
    is_written = any(s.op in WRITES for s in sites)
    privatizing_loops = _find_privatizing_loops(loop_nest, memory_node, sites)
    _give_up_unless_uses_share_owner_loops(loop_nest, space, sites)
    axes = tuple(_axis_position(r, path, sequential) for r in privatizing_loops if r not in sequential)
    checks = tuple(_plan_conflict_checks(loop_nest, sites, set(privatizing_loops), sequential)) if is_written else ()
    is_single_write = len(sites) == 1 and not any(r in sequential for r in loop_nest.path[sites[0]])
    return MemoryPlan(memory_node, space, sites, is_written, path[-1] if path else None, axes, checks, is_single_write)


def _give_up_unless_uses_share_owner_loops(loop_nest: LoopNest, space: AddrSpace, sites: Sequence[UOp]) -> None:
    """Raise GiveUp unless all uses stand in the same workgroup loops, of a REG memory in the same lane loops too (R61)."""
    owners = {AddrSpace.LOCAL: {LoopKind.GROUP}, AddrSpace.REG: {LoopKind.GROUP, LoopKind.LANE}}.get(space)
    if owners and len({tuple(r for r in loop_nest.path[s] if loop_nest.kinds[r] in owners) for s in sites}) > 1:
        raise GiveUp(f"{space.value} memory that is used in different workgroups' or lanes' loops")


def _axis_position(r: UOp, path: LoopPath, sequential: frozenset[UOp]) -> int:
    """Return the number of the axis of `r` among those on the path."""
    return sum(x not in sequential for x in path[: path.index(r)])


def _plan_conflict_checks(
    loop_nest: LoopNest, sites: tuple[UOp, ...], privatizing_loops: set[UOp], sequential: frozenset[UOp]
) -> Iterator[ConflictCheck]:
    """Yield the checks of a memory that is written."""
    if len(sites) > _MOST_SITES:
        raise GiveUp(f"{len(sites)} accesses to one memory that is written")
    checks: dict[LoopPath, ConflictCheck] = {}
    barriers = [u for u in loop_nest.items if u.op is Op.BARRIER]
    for i, a in enumerate(sites):
        for b in sites[i:]:
            if a.op is b.op and a.op in _HARMLESS:
                continue
            shared_path = common_loops(loop_nest.path[a], loop_nest.path[b])
            are_unordered = a is not b and not loop_nest.are_ordered(a, b)
            for prefix in _prefixes_at_sequential_or_lane_boundaries(loop_nest, shared_path, sequential):
                check = checks.get(prefix) or checks.setdefault(
                    prefix, _make_empty_conflict_check(loop_nest, prefix, privatizing_loops, sequential, bool(barriers))
                )
                if (check.axes and prefix[-1] not in sequential) or (are_unordered and prefix == shared_path):
                    check.sites.update({a: None, b: None})
                if are_unordered and prefix == shared_path:
                    check.unordered_pairs.append((a, b))
    for check in checks.values():
        if check.sites:
            if check.splits_at_barriers:
                _give_up_unless_accesses_ordered_with_barriers(loop_nest, check, barriers)
            yield check


def _prefixes_at_sequential_or_lane_boundaries(
    loop_nest: LoopNest, path: LoopPath, sequential: frozenset[UOp]
) -> Iterator[LoopPath]:
    """Yield the prefixes of `path` that get a conflict check of their own.

    They end before a loop that runs in order, or where loops of lanes begin or end. The last one is the path itself.
    """
    for k in range(1, len(path)):
        lanes_begin_or_end = (loop_nest.kinds[path[k]] is LoopKind.LANE) is not (loop_nest.kinds[path[k - 1]] is LoopKind.LANE)
        if path[k] in sequential or lanes_begin_or_end:
            yield path[:k]
    yield path


def _make_empty_conflict_check(
    loop_nest: LoopNest, path: LoopPath, privatizing_loops: set[UOp], sequential: frozenset[UOp], has_barriers: bool
) -> ConflictCheck:
    """Return the check of accesses in the loops of `path`, so far without sites."""
    axes = tuple(_axis_position(r, path, sequential) for r in path if r not in sequential and r not in privatizing_loops)
    splits_at_barriers = has_barriers and any(loop_nest.kinds[r] is LoopKind.LANE for r in path)
    return ConflictCheck(axes, tuple(r for r in path if r in sequential), splits_at_barriers)


def _give_up_unless_accesses_ordered_with_barriers(loop_nest: LoopNest, check: ConflictCheck, barriers: Sequence[UOp]) -> None:
    """Raise GiveUp unless every access is before or after each barrier of its lanes, whatever the order of the items."""
    for b in barriers:
        meeting = [r for r in loop_nest.path[b] if loop_nest.kinds[r] is LoopKind.LANE]
        for s in check.sites:
            lanes = [r for r in loop_nest.path[s] if loop_nest.kinds[r] is LoopKind.LANE]
            if not meeting or not lanes or meeting[0] is not lanes[0]:
                continue
            if meeting != lanes:
                raise GiveUp("lanes that meet at a Barrier in part of their loops")
            if not loop_nest.are_ordered(s, b):
                raise GiveUp("an access that is not ordered with a Barrier")


# ---------------------------------------------------------------------------------------------------------- sums of products


def _map_float_sums_to_fusable_muls(loop_nest: LoopNest) -> dict[UOp, UOp]:
    """Return the Reduces whose operand is a product of floats that nothing else uses; R32 lets the products go unrounded."""
    uses: dict[UOp, int] = {}
    closers = {loop.closer for loop in loop_nest.loops.values()}
    for u in (*loop_nest.items, *closers):
        for s in u.src:
            uses[s] = uses.get(s, 0) + 1
    products = {}
    for loop in loop_nest.loops.values():
        u = loop.closer
        if u.op is Op.REDUCE and u.arg.op is Op.ADD and loop.innermost:
            product = u.operand
            is_inside = loop_nest.path.get(product, ())[-1:] == (loop.range,)
            is_float_product = product.op is Op.MUL and product.dtype in dt.FLOATS and product.shape == ()
            if is_float_product and is_inside and uses[product] == 1 and not loop_nest.guards.get(product):
                products[u] = product
    return products
