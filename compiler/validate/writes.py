"""Claims about writes and reads of a kernel: each element is written once, the same elements are written, and reads agree.

Takes: the KernelAccesses before and after. Gives: verdicts `written once`, `all written` and `reads agree` per memory that callers
see. A kernel may keep values in memory that it writes and that the kernel before does not read (R146); then a later Store may
write an element again. Spec: Store; R45 (Index), R52 (Load), R146 (values kept in memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate import terms as T
from uops.compiler.validate.budget import BudgetExhausted, BudgetUnit
from uops.compiler.validate.decide import (
    POINTS,
    build_open_grid_unless_large_or_loaded,
    decide_by_solver,
    decide_by_trying_every_point,
    derive_condition_bounds_unless_contradictory,
    extract_nonnegative_sums,
    has_known_int64_values,
    rename_unknown,
)
from uops.compiler.validate.digits import find_sufficient_touch_conditions
from uops.compiler.validate.model import ClaimCounterexample, DecisionMethod, ObligationKind, ValidationClaim, ValidationVerdict
from uops.compiler.validate.sites import AccessSite, KernelAccesses, describe_memory, is_ordered, loop_counter, size_of
from uops.compiler.validate.terms import Condition, Interval, LinearSum, Operation, PointValues, Unknown
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Greatest size of a memory with a mark per element, in elements.
MAX_MARKS = 1 << 26


def group_sites_by_param(sites: Iterable[AccessSite]) -> dict[UOp, list[AccessSite]]:
    """Return the sites of memory that callers see, by Param."""
    groups: dict[UOp, list[AccessSite]] = {}
    for s in sites:
        if s.memory.op is Op.PARAM:
            groups.setdefault(s.memory, []).append(s)
    return groups


# One Store


def decide_written_once(store: AccessSite, worker: SolverWorker, within_ordered_iteration: bool = False) -> ValidationVerdict:
    """Decide that no two executions of a Store write one element.

    If `within_ordered_iteration`, only executions in the same iteration of the surrounding ordered loops count.
    """
    fixed = _ordered_counters(store) if within_ordered_iteration else ()
    c = make_written_once_claim(store, fixed)
    if is_index_injective_by_mixed_radix(store, fixed):
        return ValidationVerdict(c.kind, c.place, DecisionMethod.SUMS)
    return _decide_written_once_by_points(store, c, fixed) or decide_by_solver(c, worker)


def _ordered_counters(s: AccessSite) -> tuple[Unknown, ...]:
    """Return the counters of the surrounding loops with ordered iterations."""
    return tuple(loop_counter(r) for r in s.loops if is_ordered(r))


def make_written_once_claim(store: AccessSite, equal_counters: Sequence[Unknown] = ()) -> ValidationClaim:
    """Claim that no two executions of `store` in the same iteration of the loops of `equal_counters` write one element."""
    first, second = rename_counters_and_loads_apart(store, ".1"), rename_counters_and_loads_apart(store, ".2")
    given = T.conjoin(first.condition, second.condition)
    equal = {v: T.is_zero(T.add(T.as_sum(rename_unknown(v, ".1")), T.as_sum(rename_unknown(v, ".2")), -1)) for v in store.counters}
    differ = [T.negate(c) for v, c in equal.items() if v not in equal_counters]
    for v in equal_counters:
        given = T.conjoin(given, equal[v])
    given = T.conjoin(given, Condition("or", tuple(differ)) if differ else T.FALSE)
    return ValidationClaim(ObligationKind.ONCE, str(store), given, T.negate(T.is_zero(T.add(first.index, second.index, -1))))


def make_disjoint_stores_claim(a: AccessSite, b: AccessSite) -> ValidationClaim:
    """Claim that no executions of two Stores write one element."""
    first, second = rename_counters_and_loads_apart(a, ".1"), rename_counters_and_loads_apart(b, ".2")
    given = T.conjoin(first.condition, second.condition)
    place = f"{a} at {a.at} and {b.kind} at {b.at}"
    return ValidationClaim(ObligationKind.ONCE, place, given, T.negate(T.is_zero(T.add(first.index, second.index, -1))))


def make_rewrite_claim_if_known(stores: Sequence[AccessSite]) -> ValidationClaim | None:
    """Claim that two executions of Stores write one element, at iterations that points find.

    Returns None if points find none. The claim is for all values of named variables.
    """
    for j, b in enumerate(stores):
        single = make_written_once_claim(b)
        found = [(single, None if is_index_injective_by_mixed_radix(b) else _decide_written_once_by_points(b, single, ()))]
        found += [(c, decide_by_trying_every_point(c)) for c in (make_disjoint_stores_claim(a, b) for a in stores[:j])]
        for claim, verdict in found:
            if verdict is not None and verdict.counterexample is not None:
                names = {f"{v.name}{suffix}" for s in stores for v in s.counters for suffix in (".1", ".2")}
                given = T.TRUE
                for v in T.collect_unknowns(claim.goal, T.collect_unknowns(claim.given)):
                    if v.name in names:
                        value = LinearSum(verdict.counterexample.values.get(v.name, v.low))
                        given = T.conjoin(given, T.is_zero(T.add(T.as_sum(v), value, -1)))
                goal = T.conjoin(claim.given, T.negate(claim.goal))
                return ValidationClaim(ObligationKind.ONCE, f"{claim.place} before, which writes an element twice", given, goal)
    return None


def rename_counters_and_loads_apart(site: AccessSite, suffix: str) -> AccessSite:
    """Return a copy of a site with counters and memory values of its own; named variables are shared."""
    return site.substitute(
        {
            v: T.as_sum(rename_unknown(v, suffix))
            for v in (*T.collect_unknowns(site.condition, T.collect_unknowns(site.index)), *site.counters)
            if v in site.counters or v.loaded
        }
    )


def is_index_injective_by_mixed_radix(
    site: AccessSite, fixed_counters: Sequence[Unknown] = (), other: AccessSite | None = None
) -> bool:
    """Return True if the counters except `fixed_counters` are digits of the element's number: each step exceeds all lesser
    digits.

    With `other`, a site of the same index and counters, this holds for the iterations of both together.
    """
    bounds_of_sites = []
    for s in (site,) if other is None else (site, other):
        bounds = derive_condition_bounds_unless_contradictory(s.condition)
        if bounds is None:
            return True
        bounds_of_sites.append(bounds)
    digits = dict(site.index.terms)
    if any(not isinstance(v, Unknown) or v.loaded for v in digits):
        return False
    span = 0
    for v in sorted((v for v in site.counters if v not in fixed_counters), key=lambda v: abs(digits.get(v, 0))):
        extents = [bounds.get(v, (v.low, v.high)) for bounds in bounds_of_sites]
        low, high = min(low for low, _ in extents), max(high for _, high in extents)
        if high > low:
            if abs(digits.get(v, 0)) <= span:
                return False
            span += abs(digits[v]) * (high - low)
    return True


def _decide_written_once_by_points(
    store: AccessSite, claim: ValidationClaim, fixed_counters: Sequence[Unknown]
) -> ValidationVerdict | None:
    """Compare the elements of all executions of a Store; None if they are unknown or too many."""
    executions = tabulate_elements_and_execution_mask(store, store.counters)
    if executions is None or any(v.loaded for v in executions.points):  # a value of memory may differ between two executions
        return None
    points, index, keep = executions
    key = index
    for v in (*fixed_counters, *(v for v in points if v not in store.counters)):  # a named variable has one value in all executions
        key = key * (v.high - v.low + 1) + points[v]
    numbers = np.broadcast_to(key, keep.shape)[keep]
    order = np.argsort(numbers, kind="stable")
    twice = np.flatnonzero(np.diff(numbers[order]) == 0)
    if not twice.size:
        return ValidationVerdict(claim.kind, claim.place, DecisionMethod.POINTS)
    k = int(twice[0])
    flat = np.flatnonzero(keep)
    values: dict[str, int] = {}
    for mark, j in ((".1", k), (".2", k + 1)):
        where = np.unravel_index(flat[order[j]], keep.shape)
        values |= {f"{v.name}{mark}": int(at.reshape(-1)[i]) for (v, at), i in zip(points.items(), where)}
    words = f"element {int(np.broadcast_to(index, keep.shape)[keep][order[k]])} is written twice"
    return ValidationVerdict(claim.kind, claim.place, DecisionMethod.POINTS, ClaimCounterexample(values, words))


class SiteExecutions(NamedTuple):
    """All executions of a site: its unknowns along axes, the element of each point, and whether the point executes."""

    points: dict[Unknown, PointValues]
    elements: PointValues
    is_executed: PointValues


def tabulate_elements_and_execution_mask(
    site: AccessSite, extra_axes: Sequence[Unknown] = (), max_points: int = POINTS
) -> SiteExecutions | None:
    """Return all executions of a site.

    Executions are told apart by the element, the gate and `extra_axes`. Returns None if they are unknown or too many.
    """
    if not has_known_int64_values(site.index, site.condition):
        return None
    unknowns = list(T.collect_unknowns(site.condition, T.collect_unknowns(site.index, dict.fromkeys(extra_axes))))
    at = build_open_grid_unless_large_or_loaded(unknowns, max_points)
    if at is None:
        return None
    index, keep = T.evaluate_at_points(site.index, at), T.evaluate_at_points(site.condition, at)
    shape = tuple(v.high - v.low + 1 for v in unknowns)
    return SiteExecutions(at, index, np.broadcast_to(keep, shape))


# All Stores of a memory


def is_known_to_write_element_twice(stores: Sequence[AccessSite], worker: SolverWorker) -> bool:
    """Return True if Stores to one memory are known to write an element more than once."""
    size = size_of(stores[0]) if stores else None
    several = (
        len(stores) > 1
        and size is not None
        and isinstance(mark_elements_or_refute_overlap(stores, size, describe_memory(stores[0].memory)), ValidationVerdict)
    )
    return several or any(decide_written_once(s, worker).counterexample is not None for s in stores if s.kind != "atomic")


def decide_written_once_and_same_elements(
    memory: UOp, before: Sequence[AccessSite], after: Sequence[AccessSite], may_rewrite: bool, worker: SolverWorker
) -> Iterator[ValidationVerdict]:
    """Decide the obligations of all Stores to one memory, in order.

    If `may_rewrite`, the kernel after may write an element again, as it keeps values in this memory, or as the kernel before
    does too.
    """
    before, after = restrict_to_common_ordered_iteration_if_needed(before, after)
    for s in after:
        if s.kind != "atomic":
            yield decide_written_once(s, worker, may_rewrite)
    place = describe_memory(memory)
    size = size_of(after[0])
    marked = None if size is None else mark_elements_or_refute_overlap(after, size, None if may_rewrite else place)
    if isinstance(marked, ValidationVerdict):
        yield marked
        return
    expected = None if size is None else mark_elements_or_refute_overlap(before, size, None)
    if marked is not None and expected is not None and not isinstance(expected, ValidationVerdict):
        if not may_rewrite:
            yield ValidationVerdict(ObligationKind.ONCE, f"stores of {place}", DecisionMethod.POINTS)
        yield decide_same_elements_marked(ObligationKind.COVER, place, expected, marked)
        return
    if not may_rewrite:
        for j, a in enumerate(after):
            for b in after[:j]:
                if "atomic" not in (a.kind, b.kind):
                    yield decide_by_solver(make_disjoint_stores_claim(b, a), worker)
    yield from decide_mutual_coverage(before, after, worker)


def decide_same_elements_marked(kind: ObligationKind, place: str, expected: PointValues, actual: PointValues) -> ValidationVerdict:
    """Decide that the same elements are marked."""
    if np.array_equal(expected, actual):
        return ValidationVerdict(kind, place, DecisionMethod.POINTS)
    k = int(np.flatnonzero(expected != actual)[0])
    words = f"element {k} is " + ("not written" if expected[k] else "written, and was not before")
    return ValidationVerdict(kind, place, DecisionMethod.POINTS, ClaimCounterexample({"element": k}, words))


def restrict_to_common_ordered_iteration_if_needed(
    before: Sequence[AccessSite], after: Sequence[AccessSite]
) -> tuple[Sequence[AccessSite], Sequence[AccessSite]]:
    """Restrict Stores to one memory to one iteration of their common outer ordered loops, if they may write an element twice.

    This applies if an index is a value of memory, or if the counters before are no digits, so that the last Store counts. The
    loops are ordered before and after (R57: Range, R158, R164).
    """
    sites = (*before, *after)
    is_held = any(not has_known_int64_values(s.index) or any(v.loaded for v in T.collect_unknowns(s.index)) for s in sites)
    if not before or not after or not (is_held or any(not is_index_injective_by_mixed_radix(s) for s in before)):
        return before, after
    n, has_other_loops = 0, {len(s.loops) for s in before} != {len(s.loops) for s in after}
    while all(len(s.loops) > n and is_ordered(s.loops[n]) for s in sites):
        same = all(s.loops[n] is x[0].loops[n] for x in (before, after) for s in x)
        counter = loop_counter(before[0].loops[n])
        if not same or counter != loop_counter(after[0].loops[n]):
            break
        if has_other_loops and _hull_of_counter(counter, before) != _hull_of_counter(counter, after):
            break  # it is a part of a loop that was split
        n += 1
    return [_restrict_to_iteration_of_outer_loops(s, n) for s in before], [
        _restrict_to_iteration_of_outer_loops(s, n) for s in after
    ]


def _hull_of_counter(counter: Unknown, sites: Sequence[AccessSite]) -> Interval:
    """Return the least interval that holds the counter wherever one of the sites is executed."""
    bounds = [derive_condition_bounds_unless_contradictory(s.condition) or {} for s in sites]
    ranges = [b.get(counter, (counter.low, counter.high)) for b in bounds]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _restrict_to_iteration_of_outer_loops(s: AccessSite, outer_loop_count: int) -> AccessSite:
    """Return a site within one iteration of its outermost loops; their counters become named variables."""
    return AccessSite(
        s.kind,
        s.node,
        s.memory,
        s.index,
        s.gate,
        s.loops[outer_loop_count:],
        s.lane,
        s.loop_condition,
        s.at,
        s.size,
        s.tile_counters,
        s.ifs,
    )


def mark_elements_or_refute_overlap(
    sites: Sequence[AccessSite], size: int, refute_overlap_in: str | None
) -> PointValues | ValidationVerdict | None:
    """Return a mask of the elements that the sites touch.

    Returns None if they are unknown, too many, or depend on a named variable. If `refute_overlap_in` names a memory, an
    element that two sites touch, neither of them an AtomicAdd, returns a refuted verdict.
    """
    if size > MAX_MARKS or any(s.named_argument_variables for s in sites):
        return None
    marks = np.zeros(size, np.bool_)
    left = 4 * POINTS
    for s in sorted(sites, key=lambda s: s.kind == "atomic"):
        view = view_elements_of_box_shaped_gate(s, marks)
        if view is None:
            points = tabulate_elements_and_execution_mask(s, (), left)
            if points is None:
                return None
            _, index, keep = points
            left -= keep.size
            numbers = index if keep.all() else np.broadcast_to(index, keep.shape)[keep]
            if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
                return None
            earlier = marks[numbers]
        else:
            earlier = view
        if refute_overlap_in is not None and s.kind != "atomic" and earlier.any():
            return _refute_double_write(s, refute_overlap_in)
        if view is None:
            marks[numbers] = True
        else:
            view[...] = True
    return marks


def _refute_double_write(s: AccessSite, place: str) -> ValidationVerdict:
    """Build the verdict that refutes `written once`."""
    why = ClaimCounterexample({}, f"the {s.kind} at {s.at} writes an element that another one writes")
    return ValidationVerdict(ObligationKind.ONCE, f"stores of {place}", DecisionMethod.POINTS, why)


def view_elements_of_box_shaped_gate(site: AccessSite, flat_array: PointValues) -> PointValues | None:
    """Return the elements that a site touches as a view of the memory; an element may occur more than once.

    Returns None unless the index is a sum of unknowns that the gate bounds one by one, and all elements are inside.
    """
    bounds = _single_unknown_bounds(site.condition)
    if bounds is None or any(not isinstance(v, Unknown) for v, _ in site.index.terms):
        return None
    if any(v.loaded for v in T.collect_unknowns(site.condition, T.collect_unknowns(site.index))):
        return None
    offset, shape, strides = site.index.const, list[int](), list[int]()
    for v, c in site.index.terms:
        assert isinstance(v, Unknown)
        low, high = bounds.get(v, (v.low, v.high))
        offset += c * low
        shape.append(high - low + 1)
        strides.append(c * flat_array.itemsize)
    if any(low > high for low, high in bounds.values()) or not all(n > 0 for n in shape):
        return flat_array[:0]
    ends = [(n - 1) * c // flat_array.itemsize for n, c in zip(shape, strides)]
    if offset + sum(e for e in ends if e < 0) < 0 or offset + sum(e for e in ends if e > 0) >= flat_array.size:
        return None
    return np.lib.stride_tricks.as_strided(flat_array[offset:], shape, strides)


def _single_unknown_bounds(condition: Condition) -> dict[Unknown, Interval] | None:
    """Return the bounds that a condition sets to single unknowns; None if it sets any other."""
    bounds: dict[Unknown, Interval] = {}
    for x in T.conjuncts(condition):
        for f in extract_nonnegative_sums(x):
            if len(f.terms) > 1 or (f.terms and not isinstance(f.terms[0][0], Unknown)):
                return None
            if not f.terms:
                if f.const < 0:
                    bounds[_NEVER] = (0, -1)
                continue
            ((v, c),) = f.terms
            assert isinstance(v, Unknown)
            low, high = bounds.get(v, (v.low, v.high))
            bounds[v] = (max(low, -(f.const // c)), high) if c > 0 else (low, min(high, f.const // -c))
        if not extract_nonnegative_sums(x):
            return None
    return bounds


_NEVER = Unknown("never", 0, 0)


# By the solver: each element of the one is an element of the other


def decide_mutual_coverage(
    before: Sequence[AccessSite], after: Sequence[AccessSite], worker: SolverWorker
) -> Iterator[ValidationVerdict]:
    """Decide that each element written before is written after, and the other way around."""
    for some, others, words in ((before, after, "before"), (after, before, "after")):
        for s in some:
            if has_equal_site(s, others):
                yield ValidationVerdict(ObligationKind.COVER, f"{s} {words}", DecisionMethod.STRUCTURE)
            else:
                yield prove_coverage_or_leave_to_interpreter_or_open(
                    make_coverage_claim(s, others, ObligationKind.COVER, f"{s} {words}"), worker
                )


def has_equal_site(s: AccessSite, others: Iterable[AccessSite]) -> bool:
    """Return True if another site has an equal element and condition over the same unknowns, so it touches the same."""
    if any(v.loaded for v in T.collect_unknowns(s.condition, T.collect_unknowns(s.index))):  # such a name is of one body alone
        return False
    return any(o.index is s.index and set(T.conjuncts(o.condition)) == set(T.conjuncts(s.condition)) for o in others)


#: The check that covers an access whose index or gate is a value of memory that the kernel stores.
BY_VALUE = "what the index or the gate is, is a value: stages"


def prove_coverage_or_leave_to_interpreter_or_open(claim: ValidationClaim, worker: SolverWorker) -> ValidationVerdict:
    """Ask the solver whether the iterations that `find_sufficient_touch_conditions` proposes are right.

    If not, there may be others, so nothing is refuted. A claim about values of memory is left to the check of values.
    """
    if (
        T.has_memory_value(claim.given)
        or T.has_memory_value(claim.goal)
        or any(u.loaded for u in T.collect_unknowns(claim.goal, T.collect_unknowns(claim.given)))
    ):
        with suppress(BudgetExhausted):
            if (v := decide_by_solver(claim, worker, BudgetUnit.HELD_STEPS)).is_proved:
                return v
        return ValidationVerdict(claim.kind, claim.place, DecisionMethod.INTERPRETER, why=BY_VALUE)
    v = decide_by_solver(claim, worker)
    if v.is_proved:
        return v
    words = v.why if v.counterexample is None else f"no iteration was found, {v.counterexample.words}"
    return ValidationVerdict(claim.kind, claim.place, None, why=words)


def make_coverage_claim(site: AccessSite, others: Sequence[AccessSite], kind: ObligationKind, place: str) -> ValidationClaim:
    """Claim that each element that `site` touches is touched by one of the others, at the iteration of
    `find_sufficient_touch_conditions`."""
    mine = rename_counters_and_loads_apart(site, ".1")
    goals = [
        g
        for o in merge_sites_at_constant_offsets(x for o in others for x in split_index_by_where_and_add_window_end(o))
        for g in find_sufficient_touch_conditions(o, mine.index)
    ]
    goal = goals[0] if len(goals) == 1 else Condition("or", tuple(goals)) if goals else T.FALSE
    return ValidationClaim(kind, place, mine.condition, goal)


def split_index_by_where_and_add_window_end(site: AccessSite) -> Iterator[AccessSite]:
    """Yield one site per branch of an index that is a choice, each with the branch's condition.

    After each comes the end of its window, if it begins before its memory (`_generate_window_end_if_index_negative`).
    """
    for t, k in site.index.terms:
        if isinstance(t, Operation) and t.op == "where":
            c, *both = t.args
            assert isinstance(c, Condition)
            rest = T.add(site.index, T.as_sum(t), -k)
            for given, x in zip((c, T.negate(c)), both):
                branch = replace(site, index=T.add(rest, x, k), gate=T.conjoin(site.gate, given))  # type: ignore[arg-type]
                yield from split_index_by_where_and_add_window_end(branch)
            return
    yield site
    yield from _generate_window_end_if_index_negative(site)


def _generate_window_end_if_index_negative(site: AccessSite) -> Iterator[AccessSite]:
    """Yield the last position of a window that begins before its memory.

    Of counters with equal steps, all but one get their greatest values. The digits of an element find the window's first
    elements; this site finds the others.
    """
    if T.bounds(site.index)[0] >= 0:
        return
    met: set[int] = set()
    put: dict[Unknown, LinearSum] = {}
    for v, c in site.index.terms:
        if isinstance(v, Unknown) and v in site.counters:
            if abs(c) in met:
                put[v] = LinearSum(v.high)
            met.add(abs(c))
    if put:
        yield site.substitute(put)


def merge_sites_at_constant_offsets(sites: Iterable[AccessSite]) -> Iterator[AccessSite]:
    """Merge sites that differ by constants alone, as in a register tile, into one with more counters."""
    alike: dict[object, list[AccessSite]] = {}
    for s in sites:
        alike.setdefault((s.index.terms, s.condition, s.counters), []).append(s)
    for same in alike.values():
        first = min(same, key=lambda s: s.index.const)
        steps = _factor_into_steps_and_counts(sorted({s.index.const - first.index.const for s in same}))
        if steps is None or not steps:
            yield from same
            continue
        also = tuple(Unknown(f"tile{k}", 0, n - 1) for k, (_, n) in enumerate(steps))
        index = LinearSum(first.index.const, (*first.index.terms, *((v, step) for v, (step, _) in zip(also, steps))))
        yield replace(first, index=index, tile_counters=also)


def _factor_into_steps_and_counts(offsets: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return (step, count) per digit if the offsets are all sums of digits times steps; None otherwise."""
    if len(offsets) == 1:
        return []
    n = next((k for k, x in enumerate(offsets) if x != k * offsets[1]), len(offsets))
    blocks = offsets[::n]
    if [b + x for b in blocks for x in offsets[:n]] != list(offsets):
        return None
    rest = _factor_into_steps_and_counts(blocks)
    return None if rest is None else [(offsets[1], n), *rest]


def generate_once_coverage_and_read_claims(before: KernelAccesses, after: KernelAccesses) -> Iterator[ValidationClaim]:
    """Yield the claims about writes and reads that the verdicts decide.

    A kernel that alone reads an argument may write an element again. Any other may only where a claim shows that the body before
    does.
    """
    slots = sorted({s.memory.arg.slot for b in (before, after) for s in b.sites if s.memory.op is Op.PARAM})
    for slot in slots:
        old, new = ([s for s in b.sites if s.memory.op is Op.PARAM and s.memory.arg.slot == slot] for b in (before, after))
        stores = restrict_to_common_ordered_iteration_if_needed(*([s for s in sites if s.writes] for sites in (old, new)))
        loads = [[s for s in sites if not s.writes] for sites in (old, new)]
        earlier = [s for s in stores[0] if s.kind == "store"]
        rewrite = make_rewrite_claim_if_known(earlier) if stores[1] else None
        may_rewrite = rewrite is not None or [bool(x) for x in loads] == [False, True]
        if rewrite is not None:
            yield rewrite
        plain = [s for s in stores[1] if s.kind == "store"]
        yield from (make_written_once_claim(s, _ordered_counters(s) if may_rewrite else ()) for s in plain)
        if not may_rewrite:
            yield from (make_disjoint_stores_claim(a, b) for j, b in enumerate(plain) for a in plain[:j])
        yield from (make_coverage_claim(s, stores[1], ObligationKind.COVER, f"{s} before") for s in stores[0])
        yield from (make_coverage_claim(s, stores[0], ObligationKind.COVER, f"{s} after") for s in stores[1])
        yield from (make_coverage_claim(s, (*loads[0], *stores[1]), ObligationKind.READS, f"{s} after") for s in loads[1])
        if not stores[1]:
            yield from (make_coverage_claim(s, loads[1], ObligationKind.READS, f"{s} before") for s in loads[0])


# Reads


def decide_reads_within_old_reads_or_own_writes(
    argument_slot: int, before: KernelAccesses, after: KernelAccesses, worker: SolverWorker
) -> Iterator[ValidationVerdict]:
    """Decide that the kernel reads only elements of an argument that the body reads, or that it writes itself."""
    old, new = ([s for s in b.sites if s.memory.op is Op.PARAM and s.memory.arg.slot == argument_slot] for b in (before, after))
    loads = [s for s in new if not s.writes]
    if loads:
        others = (*(s for s in old if not s.writes), *(s for s in new if s.writes))
        yield from _decide_loads_within_sites(f"loads of argument {argument_slot}", loads, others, worker)


def _decide_loads_within_sites(
    place: str, loads: Sequence[AccessSite], allowed_sites: Sequence[AccessSite], worker: SolverWorker
) -> Iterator[ValidationVerdict]:
    """Decide that each Load reads only elements of the other sites."""
    size = size_of(loads[0])
    allowed = None if size is None else mark_elements_or_refute_overlap(allowed_sites, size, None)
    for s in loads:
        verdict = (
            None if allowed is None or isinstance(allowed, ValidationVerdict) else _decide_reads_only_marked(s, allowed, place)
        )
        if verdict is None and has_equal_site(s, allowed_sites):
            verdict = ValidationVerdict(ObligationKind.READS, place, DecisionMethod.STRUCTURE)
        yield verdict or prove_coverage_or_leave_to_interpreter_or_open(
            make_coverage_claim(s, allowed_sites, ObligationKind.READS, str(s)), worker
        )


def _decide_reads_only_marked(site: AccessSite, allowed_mask: PointValues, place: str) -> ValidationVerdict | None:
    """Decide that a site touches only marked elements; None if there are too many."""
    low, high = T.bounds(site.index, derive_condition_bounds_unless_contradictory(site.condition) or {})
    if low >= 0 and allowed_mask[low : high + 1].all():
        return ValidationVerdict(ObligationKind.READS, place, DecisionMethod.SUMS)
    points = tabulate_elements_and_execution_mask(site)
    if points is None:
        return None
    _, index, keep = points
    numbers = np.broadcast_to(index, keep.shape)[keep]
    extra = numbers[np.logical_not(allowed_mask[numbers])]
    if not extra.size:
        return ValidationVerdict(ObligationKind.READS, place, DecisionMethod.POINTS)
    why = ClaimCounterexample({"element": int(extra[0])}, f"element {int(extra[0])} is read, and was not before")
    return ValidationVerdict(ObligationKind.READS, place, DecisionMethod.POINTS, why)
