"""Races: two threads of one kernel that access an element unordered, one of them writing.

Takes: a KernelAccesses in execution order. Gives: verdicts `no race` per memory that threads or lanes share, and an undecided one
for each Barrier that not all lanes may reach. Executions in different iterations of a GLOBAL or THREAD loop are unordered.
Executions in different lanes of one workgroup are ordered by a Barrier on every path between them. A Barrier in an If is on paths
inside of the If alone. Loops around all of these run one iteration after the other. A Special is a loop of workgroups or lanes
around the whole body. Spec: Barrier; R55 (races), R56 (AtomicAdd), R57 (Range), R60 (Barrier), R61 (fresh buffers), R114 (If),
R125 (Special), R128 (private memory).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate import terms as T
from uops.compiler.validate.decide import (
    POINTS,
    decide_by_solver,
    derive_condition_bounds_unless_contradictory,
    is_proved_by_linear_arithmetic,
    rename_unknown,
)
from uops.compiler.validate.model import ClaimCounterexample, DecisionMethod, ObligationKind, ValidationClaim, ValidationVerdict
from uops.compiler.validate.sites import (
    GROUPS,
    LANES,
    AccessSite,
    BarrierSite,
    KernelAccesses,
    describe_memory,
    is_private,
    loop_counter,
    loop_type,
    size_of,
)
from uops.compiler.validate.terms import Atom, Condition, Interval, PointValues, Unknown
from uops.compiler.validate.writes import (
    is_index_injective_by_mixed_radix,
    mark_elements_or_refute_overlap,
    rename_counters_and_loads_apart,
    tabulate_elements_and_execution_mask,
    view_elements_of_box_shaped_gate,
)
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def decide_races(body: KernelAccesses, worker: SolverWorker) -> Iterator[ValidationVerdict]:
    """Decide the races of a body's parallel loops. Memory that is private or only read has no verdict."""
    for bar in body.barriers:
        if not bar.is_uniform:
            yield ValidationVerdict(ObligationKind.RACE, _describe_barrier(bar), None, why=_DIVERGENT)
    for memory, sites, axis_types in _find_written_memories_shared_by_threads(body):
        place = f"{describe_memory(memory)}, {'threads' if axis_types is GROUPS else 'lanes'}"
        verdict = _prove_by_marking_disjoint_stores(sites, place) or (
            _decide_that_only_writer_thread_accesses_element(sites, axis_types, place)
            if axis_types is GROUPS
            else _decide_pairs_by_points_if_same_counters(sites, axis_types, body, place)
        )
        if verdict is not None:
            yield verdict
            continue
        decided: set[object] = set()
        for c, a, b, same in _generate_no_race_claim_per_pair(sites, axis_types, body):
            key = c.given, c.goal
            if key not in decided:
                decided.add(key)
                if _have_same_injective_index(a, b, same) or is_proved_by_linear_arithmetic(c):
                    yield ValidationVerdict(ObligationKind.RACE, place, DecisionMethod.SUMS)
                else:
                    yield _decide_lane_conflicts_by_points([a], [b], axis_types, same, place) or decide_by_solver(c, worker)


#: The reason why a Barrier in an If is not taken for one.
_DIVERGENT = "it is in an If whose condition may differ between the lanes of a workgroup (R60: Barrier)"


def _describe_barrier(bar: BarrierSite) -> str:
    return f"barrier at {bar.at}"


def _have_same_injective_index(a: AccessSite, b: AccessSite, fixed_counters: Sequence[Unknown]) -> bool:
    """Return True if two sites touch one element only at equal counters, as digits of one number."""
    return a.index == b.index and a.counters == b.counters and is_index_injective_by_mixed_radix(a, fixed_counters, b)


def generate_race_claims(body: KernelAccesses) -> Iterator[ValidationClaim]:
    """Yield the claims that `decide_races` decides; one that does not hold for each Barrier that it does not take for one."""
    for bar in body.barriers:
        if not bar.is_uniform:
            yield ValidationClaim(ObligationKind.RACE, _describe_barrier(bar), T.TRUE, T.FALSE)
    for _, sites, axis_types in _find_written_memories_shared_by_threads(body):
        for c, _, _, _ in _generate_no_race_claim_per_pair(sites, axis_types, body):
            yield c


def _find_written_memories_shared_by_threads(body: KernelAccesses) -> Iterator[tuple[UOp, list[AccessSite], frozenset[AxisType]]]:
    """Yield (memory, sites, types of the loops that share it) for each memory that several threads use and one writes."""
    shared: dict[UOp, list[AccessSite]] = {}
    for s in body.sites:
        if not is_private(s.memory):
            shared.setdefault(s.memory, []).append(s)
    for memory, sites in shared.items():
        if any(s.writes for s in sites):
            local = memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.LOCAL
            for axis_types in (LANES,) if local else (GROUPS, LANES):
                if any(loop_type(r) in axis_types for s in sites for r in s.loops):
                    yield memory, sites, axis_types


def parallel_counters(s: AccessSite, axis_types: frozenset[AxisType]) -> tuple[Unknown, ...]:
    """Return the counters of the loops of these types around a site."""
    return tuple(loop_counter(r) for r in s.loops if loop_type(r) in axis_types)


class _UnorderedPair(NamedTuple):
    """The positions of two sites with unordered executions, and the counters that are equal in both."""

    left: int
    right: int
    same_counters: tuple[Unknown, ...]


def _find_unordered_conflicting_pairs(
    sites: Sequence[AccessSite], axis_types: frozenset[AxisType], body: KernelAccesses
) -> Iterator[_UnorderedPair]:
    """Yield each pair of sites with unordered executions, one of them writing."""
    loop_positions = _find_range_and_end_positions(body)
    for j, b in enumerate(sites):
        for k, a in enumerate(sites[: j + 1]):
            conflict = (a.writes or b.writes) and (a.kind, b.kind) != ("atomic", "atomic")
            if conflict and (parallel_counters(a, axis_types) or parallel_counters(b, axis_types)):
                same = _find_counters_equal_if_unordered(a, b, axis_types, body, loop_positions)
                if same is not None:
                    yield _UnorderedPair(k, j, same)


class _PairClaim(NamedTuple):
    """The claim that two sites do not race, and the counters that are equal in both."""

    claim: ValidationClaim
    left: AccessSite
    right: AccessSite
    same_counters: tuple[Unknown, ...]


def _generate_no_race_claim_per_pair(
    sites: Sequence[AccessSite], axis_types: frozenset[AxisType], body: KernelAccesses
) -> Iterator[_PairClaim]:
    """Yield the claim for each pair of sites with unordered executions."""
    firsts, seconds = ([rename_counters_and_loads_apart(s, mark) for s in sites] for mark in (".1", ".2"))
    for k, j, same in _find_unordered_conflicting_pairs(sites, axis_types, body):
        claim = _make_no_race_claim((sites[k], firsts[k]), (sites[j], seconds[j]), axis_types, same)
        yield _PairClaim(claim, sites[k], sites[j], same)


def _make_no_race_claim(
    left_and_renamed_copy: tuple[AccessSite, AccessSite],
    right_and_renamed_copy: tuple[AccessSite, AccessSite],
    axis_types: frozenset[AxisType],
    same_counters: tuple[Unknown, ...],
) -> ValidationClaim:
    """Claim that two sites, each given with its copy, touch no common element at equal `same_counters` in different threads."""
    (a, first), (b, second) = left_and_renamed_copy, right_and_renamed_copy
    equal = T.TRUE
    for v in same_counters:
        equal = T.conjoin(equal, T.is_zero(T.add(T.as_sum(rename_unknown(v, ".1")), T.as_sum(rename_unknown(v, ".2")), -1)))
    mine, theirs = parallel_counters(a, axis_types), parallel_counters(b, axis_types)
    both = [v for v in mine if v in theirs]
    differ = [T.negate(T.is_zero(T.add(T.as_sum(rename_unknown(v, ".1")), T.as_sum(rename_unknown(v, ".2")), -1))) for v in both]
    if set(mine) == set(theirs):  # in different loops they may be two threads at any counters
        equal = T.conjoin(equal, Condition("or", tuple(differ)))
    given = T.conjoin(T.conjoin(first.condition, second.condition), equal)
    place = f"{a} at {a.at} and {b.kind} at {b.at}"
    return ValidationClaim(ObligationKind.RACE, place, given, T.negate(T.is_zero(T.add(first.index, second.index, -1))))


def _find_counters_equal_if_unordered(
    a: AccessSite,
    b: AccessSite,
    axis_types: frozenset[AxisType],
    body: KernelAccesses,
    loop_positions: Mapping[UOp, tuple[int, int]],
) -> tuple[Unknown, ...] | None:
    """Return the counters that must be equal for executions of `a` and `b` by different threads to be unordered.

    Returns as few counters as there are, and None if such executions are always ordered.
    """
    common = [r for r, q in zip(a.loops, b.loops) if r is q]
    if axis_types is GROUPS:
        unordered = next((k for k, r in enumerate(common) if loop_type(r) in GROUPS), len(common))
        return tuple(loop_counter(r) for r in common[:unordered] if loop_type(r) not in LANES)
    first, last = min(a.at, b.at), max(a.at, b.at)
    bars = [
        bar.at
        for bar in body.barriers
        if all(r in a.loops or r in b.loops or _always_iterates(r) for r in bar.loops)
        and all(f in a.ifs and f in b.ifs for f in bar.ifs)
    ]
    steps = [r for r in common if loop_type(r) not in axis_types]
    outermost_lanes = next((k for k, r in enumerate(common) if loop_type(r) in axis_types), len(common))
    for k, r in enumerate(steps):
        begin, end = loop_positions[r]
        between = any(last < at < end or begin < at < first for at in bars)  # from one iteration to the next
        is_repeated_by_lanes = r in common[outermost_lanes:] and loop_type(r) not in GROUPS and _may_iterate_twice(r)
        if is_repeated_by_lanes and not (between and any(begin < at < end for at in bars)):
            return tuple(loop_counter(x) for x in steps[:k])
    return None if any(first < at < last for at in bars) else tuple(loop_counter(r) for r in steps)


def _always_iterates(r: UOp) -> bool:
    """Return True if a loop has at least one iteration, for all values of variables."""
    bounds = r.bound.min_max
    return bounds is not None and bounds[0] > 0


def _may_iterate_twice(r: UOp) -> bool:
    """Return True unless a loop has at most one iteration, for all values of variables."""
    bounds = r.bound.min_max
    return bounds is None or bounds[1] > 1


def _find_range_and_end_positions(body: KernelAccesses) -> dict[UOp, tuple[int, int]]:
    """Return the positions of each loop's Range and End in a list; those around all of it for a Special."""
    begins = {u: k for k, u in enumerate(body.root.src) if u.op is Op.RANGE}
    ends = {r: k for k, u in enumerate(body.root.src) if u.op is Op.END for r in u.ranges}
    around = {u: (-1, len(body.root.src)) for s in body.sites for u in s.loops if u.op is Op.SPECIAL}
    return around | {r: (k, ends[r]) for r, k in begins.items()}


# By points


def _prove_by_marking_disjoint_stores(sites: Sequence[AccessSite], place: str) -> ValidationVerdict | None:
    """Prove that no element is touched twice at all; None if that fails.

    It holds if there are only Stores, each writes distinct elements, and no two write a common one.
    """
    size = size_of(sites[0])
    if size is None or any(s.kind != "store" or not is_index_injective_by_mixed_radix(s) for s in sites):
        return None
    marks = mark_elements_or_refute_overlap(sites, size, place)
    return (
        None
        if marks is None or isinstance(marks, ValidationVerdict)
        else ValidationVerdict(ObligationKind.RACE, place, DecisionMethod.POINTS)
    )


def _decide_that_only_writer_thread_accesses_element(
    sites: Sequence[AccessSite], axis_types: frozenset[AxisType], place: str
) -> ValidationVerdict | None:
    """Decide that only the thread that writes an element accesses it, with one owner per element.

    Returns None if that is too much work, depends on a named variable, or if sequential loops surround the threads.
    """
    size = size_of(sites[0])
    if size is None or size > 8 * POINTS or any(s.kind == "atomic" or s.named_argument_variables for s in sites):
        return None
    threads = {parallel_counters(s, axis_types) for s in sites}
    if len(threads) != 1 or any(loop_type(s.loops[0]) not in axis_types for s in sites):
        return None
    (counters,) = threads
    owner = np.full(size, -1, np.int64)
    for s in sorted(sites, key=lambda s: not s.writes):
        clash = _claim_stores_and_find_two_clashing_threads(s, owner, counters)
        if clash is None:
            return None
        if clash:
            words = f"threads {clash[0]} and {clash[1]} meet in an element, one at the {s.kind} at {s.at}"
            return ValidationVerdict(ObligationKind.RACE, place, DecisionMethod.POINTS, ClaimCounterexample({}, words))
    return ValidationVerdict(ObligationKind.RACE, place, DecisionMethod.POINTS)


def _claim_stores_and_find_two_clashing_threads(
    site: AccessSite, owner_by_element: PointValues, thread_counters: tuple[Unknown, ...]
) -> tuple[int, ...] | None:
    """Return two threads that access one element; an empty tuple if there are none; None if the search costs too much.

    A Store makes its thread the owner of its elements.
    """
    view = view_elements_of_box_shaped_gate(site, owner_by_element)
    if view is not None and not view.size:
        return ()
    axes = [v for v, _ in site.index.terms]
    if view is not None and view.ndim == len(axes) and all(v in axes for v in thread_counters):
        bounds = derive_condition_bounds_unless_contradictory(site.condition) or {}
        values = {v: _values_of_unknown_along_its_axis(v, bounds, axes) for v in thread_counters}  # type: ignore[arg-type]
        threads = _linearize_counters(thread_counters, values)
        owners = view
    else:
        points = tabulate_elements_and_execution_mask(site, thread_counters, 4 * POINTS)
        if points is None:
            return None
        at, index, keep = points
        elements, threads = (np.broadcast_to(x, keep.shape)[keep] for x in (index, _linearize_counters(thread_counters, at)))
        if elements.size and (elements.min() < 0 or elements.max() >= owner_by_element.size):
            return None
        if site.writes:
            free = owner_by_element[elements] < 0
            owner_by_element[elements[free]] = threads[free]
        owners = owner_by_element[elements]
    if site.writes and owners is view:
        np.copyto(view, np.broadcast_to(threads, view.shape), where=view < 0)
    clashes = (owners != threads) & (owners >= 0)
    if not clashes.any():
        return ()
    k = int(np.argmax(clashes))
    return int(owners.reshape(-1)[k]), int(np.broadcast_to(threads, owners.shape).reshape(-1)[k])


def _linearize_counters(counters: Sequence[Unknown], values_by_counter: Mapping[Unknown, PointValues]) -> PointValues:
    """Return the position of a combination of counters in row-major order."""
    number: PointValues = np.int64(0)
    for v in counters:
        number = number * (v.high - v.low + 1) + values_by_counter[v] - v.low
    return number


def _values_of_unknown_along_its_axis(v: Unknown, bounds: Mapping[Atom, Interval], axes: Sequence[Unknown]) -> PointValues:
    """Return the values of an unknown along its axis."""
    low, high = bounds.get(v, (v.low, v.high))
    k = axes.index(v)
    return np.arange(low, high + 1, dtype=np.int64).reshape([-1 if j == k else 1 for j in range(len(axes))])


def _decide_pairs_by_points_if_same_counters(
    sites: Sequence[AccessSite], axis_types: frozenset[AxisType], body: KernelAccesses, place: str
) -> ValidationVerdict | None:
    """Decide all sites of a memory at once, if all pairs have the same unsynchronized counters; None otherwise."""
    pairs = list(_find_unordered_conflicting_pairs(sites, axis_types, body))
    ways = {same for _, _, same in pairs}
    writers = [s for s in sites if s.writes]
    count = len(writers) * (len(writers) + 1) // 2 + len(writers) * (len(sites) - len(writers))
    return (
        _decide_lane_conflicts_by_points(writers, sites, axis_types, ways.pop(), place)
        if len(ways) == 1 and len(pairs) == count
        else None
    )


def _decide_lane_conflicts_by_points(
    left: Sequence[AccessSite],
    right: Sequence[AccessSite],
    axis_types: frozenset[AxisType],
    same_counters: tuple[Unknown, ...],
    place: str,
) -> ValidationVerdict | None:
    """Decide that no left site touches an element of a right site at equal `same_counters` in another lane.

    Returns None if that is too much work, depends on a named variable, or if the sites are in different loops of lanes.
    """
    size, thread_counters = size_of(left[0]), parallel_counters(left[0], axis_types)
    sites = (*left, *right)
    if size is None or any(s.named_argument_variables or parallel_counters(s, axis_types) != thread_counters for s in sites):
        return None
    tables = {}
    for s in {id(s): s for s in sites}.values():
        table = _tabulate_element_keys_and_lanes(s, same_counters, thread_counters, size, min(POINTS, 4 * POINTS // len(sites)))
        if table is None:
            return None
        tables[id(s)] = table
    keys, lanes, sites_of_keys = _concatenate_tables([tables[id(s)] for s in left])
    theirs, their_lanes, sites_of_theirs = _concatenate_tables([tables[id(s)] for s in right])
    order = np.argsort(keys, kind="stable")
    keys, lanes, sites_of_keys = keys[order], lanes[order], sites_of_keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if not keys.size or not theirs.size:
        return ValidationVerdict(ObligationKind.RACE, place, DecisionMethod.POINTS)
    least, most = np.minimum.reduceat(lanes, starts), np.maximum.reduceat(lanes, starts)
    at: PointValues = np.searchsorted(keys[starts], theirs)
    inside = at < starts.size
    at = np.where(inside, at, 0)
    meetings = np.flatnonzero(inside & (keys[starts][at] == theirs) & ((least[at] != their_lanes) | (most[at] != their_lanes)))
    if not meetings.size:
        return ValidationVerdict(ObligationKind.RACE, place, DecisionMethod.POINTS)
    j = int(meetings[0])
    k = int(np.flatnonzero((keys == theirs[j]) & (lanes != their_lanes[j]))[0])
    a, b = left[int(sites_of_keys[k])], right[int(sites_of_theirs[j])]
    element = int(theirs[j] % size)
    words = f"lanes {lanes[k]} and {their_lanes[j]} meet in element {element}: {a.kind} at {a.at}, {b.kind} at {b.at}"
    return ValidationVerdict(ObligationKind.RACE, place, DecisionMethod.POINTS, ClaimCounterexample({"element": element}, words))


def _tabulate_element_keys_and_lanes(
    site: AccessSite, same_counters: Sequence[Unknown], thread_counters: Sequence[Unknown], size: int, limit: int
) -> tuple[PointValues, PointValues] | None:
    """Return the key and the lane of each execution of a site; None if they are unknown or too many.

    The key numbers the element together with the values of `same_counters`.
    """
    points = tabulate_elements_and_execution_mask(site, tuple(dict.fromkeys((*same_counters, *thread_counters))), limit)
    if points is None:
        return None
    at, index, keep = points
    key = _linearize_counters(same_counters, at) * size + index
    keys, lanes = (np.broadcast_to(x, keep.shape)[keep] for x in (key, _linearize_counters(thread_counters, at)))
    return keys, lanes


def _concatenate_tables(tables: Sequence[tuple[PointValues, PointValues]]) -> tuple[PointValues, PointValues, PointValues]:
    """Return keys and lanes of all tables, and the table that each comes from."""
    keys, lanes = (np.concatenate(x) for x in zip(*tables))
    return keys, lanes, np.repeat(np.arange(len(tables)), [t[0].size for t in tables])
