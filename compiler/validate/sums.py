"""Claims about AtomicAdds: each element is added to as often as before, and only to what is there as before.

Takes: the AccessSites of one memory that callers see, before and after. Gives: verdicts `all written`. If the body before adds,
each element gets as many additions after. If it does not, each addition after is to an element that an earlier Store of the kernel
writes. In both cases the Stores alone write the same elements as before, and the Stores and additions of one element have the
same order. What is added is a value, which is not decided here.

A target without atomic sums of small floats stores them instead, in one loop. Such a Store counts as an addition, unless the body
before has such Stores of its own.
Spec: AtomicAdd; R56 (AtomicAdd), R57 (Range), R129 (order of AtomicAdds).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate import terms as T
from uops.compiler.validate.decide import POINTS, decide_claim, rename_unknown
from uops.compiler.validate.model import ClaimCounterexample, DecisionMethod, ObligationKind, ValidationClaim, ValidationVerdict
from uops.compiler.validate.sites import AccessSite, KernelAccesses, describe_memory, is_ordered, loop_counter, size_of
from uops.compiler.validate.terms import Condition, PointValues
from uops.compiler.validate.writes import (
    BY_VALUE,
    MAX_MARKS,
    decide_mutual_coverage,
    decide_same_elements_marked,
    make_coverage_claim,
    make_disjoint_stores_claim,
    mark_elements_or_refute_overlap,
    prove_coverage_or_leave_to_interpreter_or_open,
    restrict_to_common_ordered_iteration_if_needed,
    tabulate_elements_and_execution_mask,
)
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


class _Writes(NamedTuple):
    """The writes of one memory before and after: plain Stores, and additions."""

    stores_before: list[AccessSite]
    stores_after: list[AccessSite]
    sums_before: list[AccessSite]
    sums_after: list[AccessSite]


def _separate_additions_from_stores_if_any(before: Sequence[AccessSite], after: Sequence[AccessSite]) -> _Writes | None:
    """Return the writes of one memory by kind; None if neither body adds."""
    sums = [s for s in before if s.kind == "atomic"]
    if not any(s.kind == "atomic" for s in (*before, *after)):
        return None
    may_store_sums = any(_is_small_float(s.node.value.dtype) for s in sums) and not any(map(_stores_sum, before))
    added = [s for s in after if s.kind == "atomic" or (may_store_sums and _stores_sum(s))]
    return _Writes([s for s in before if s.kind == "store"], [s for s in after if s.writes and s not in added], sums, added)


def _is_small_float(d: DType) -> bool:
    return d.is_float and d.wide is not d


def _stores_sum(s: AccessSite) -> bool:
    """Return True for a Store that depends on what its address held."""
    return s.kind == "store" and any(u.op is Op.LOAD and u.buffer is s.node.buffer for u in toposort(s.node.value))


def decide_writes_of_memory_with_atomics(
    memory: UOp, before: Sequence[AccessSite], after: Sequence[AccessSite], worker: SolverWorker
) -> Iterator[ValidationVerdict]:
    """Decide that AtomicAdds to one memory, and Stores beside them, do what they did before."""
    writes = _separate_additions_from_stores_if_any(before, after)
    if writes is None:
        return
    place = f"stores beside sums of {describe_memory(memory)}"
    yield from _decide_same_elements_stored(place, writes.stores_before, writes.stores_after, worker)
    for c in _generate_order_claims(before, after):
        yield _prove_order_or_leave_open(c, worker)
    if writes.sums_before:
        yield _decide_same_additions(f"sums of {describe_memory(memory)}", writes.sums_before, writes.sums_after)
        return
    for s in writes.sums_after:
        yield prove_coverage_or_leave_to_interpreter_or_open(_make_initialized_claim(s, writes.stores_after), worker)


def generate_claims_for_memory_with_atomics(before: KernelAccesses, after: KernelAccesses) -> Iterator[ValidationClaim]:
    """Yield claims that show what `decide_writes_of_memory_with_atomics` decides.

    No claim shows that different loops add equally often. If the additions are not the same sites, the claim is false.
    """
    slots = sorted({s.memory.arg.slot for b in (before, after) for s in b.sites if s.memory.op is Op.PARAM and s.kind == "atomic"})
    for slot in slots:
        old, new = (
            [s for s in b.sites if s.writes and s.memory.op is Op.PARAM and s.memory.arg.slot == slot] for b in (before, after)
        )
        writes = _separate_additions_from_stores_if_any(old, new)
        if writes is None:
            continue
        plain, listed = restrict_to_common_ordered_iteration_if_needed(writes.stores_before, writes.stores_after)
        for some, others, words in ((plain, listed, "before"), (listed, plain, "after")):
            yield from (make_coverage_claim(s, others, ObligationKind.COVER, f"{s} beside sums {words}") for s in some)
        yield from _generate_order_claims(old, new)
        if writes.sums_before:
            same = _are_equal_sites_free_of_memory_values(writes.sums_before, writes.sums_after)
            yield ValidationClaim(ObligationKind.COVER, f"sums of argument {slot}", T.TRUE, T.TRUE if same else T.FALSE)
        else:
            yield from (_make_initialized_claim(s, writes.stores_after) for s in writes.sums_after)


def _make_initialized_claim(site: AccessSite, stores: Sequence[AccessSite]) -> ValidationClaim:
    """Claim that each element that an AtomicAdd adds to is written by a Store that stands before it."""
    earlier = [s for s in stores if s.at < site.at]
    return make_coverage_claim(site, earlier, ObligationKind.COVER, f"{site} to what is stored before")


def _decide_same_elements_stored(
    place: str, before: Sequence[AccessSite], after: Sequence[AccessSite], worker: SolverWorker
) -> Iterator[ValidationVerdict]:
    """Decide that the Stores beside AtomicAdds write the same elements."""
    before, after = restrict_to_common_ordered_iteration_if_needed(before, after)
    size = size_of((*before, *after)[0]) if before or after else None
    marks = [mark_elements_or_refute_overlap(sites, size, None) for sites in (before, after)] if size is not None else []
    if marks and all(isinstance(m, np.ndarray) for m in marks):
        yield decide_same_elements_marked(ObligationKind.COVER, place, marks[0], marks[1])
    else:
        yield from decide_mutual_coverage(before, after, worker)


# Order


def _generate_order_claims(before: Sequence[AccessSite], after: Sequence[AccessSite]) -> Iterator[ValidationClaim]:
    """Yield claims that each element has its Stores and additions in the same order before and after.

    In both bodies all Stores to an element come first, or all additions, as in the text of the body before. If neither do there,
    they touch no common element. A body that does not add has its Stores first. Equal lists of sites need no claim.
    """
    writes = _separate_additions_from_stores_if_any(before, after)
    if writes is None or not writes.stores_after or not writes.sums_after or _are_equal_lists_of_sites(before, after):
        return
    stores, sums = writes.stores_before, writes.sums_before
    are_stores_first = all(s.at < a.at for s in stores for a in sums)
    are_sums_first = not are_stores_first and all(a.at < s.at for s in stores for a in sums)
    for words, body_stores, body_sums in (("before", stores, sums), ("after", writes.stores_after, writes.sums_after)):
        for s in body_stores:
            for a in body_sums:
                is_in_order = are_stores_first if s.at < a.at else are_sums_first
                claim = _make_disjoint_unless_in_same_iteration_claim(s, a) if is_in_order else make_disjoint_stores_claim(s, a)
                yield replace(claim, kind=ObligationKind.COVER, place=f"order of {claim.place} {words}")


def _make_disjoint_unless_in_same_iteration_claim(a: AccessSite, b: AccessSite) -> ValidationClaim:
    """Claim that two sites touch a common element only in the same iteration of the ordered loops around both."""
    claim = make_disjoint_stores_claim(a, b)
    common = [loop_counter(r) for r in a.loops if r in b.loops and is_ordered(r)]
    ends = ((T.as_sum(rename_unknown(v, ".1")), T.as_sum(rename_unknown(v, ".2"))) for v in common)
    differ = [T.negate(T.is_zero(T.add(first, second, -1))) for first, second in ends]
    return replace(claim, given=T.conjoin(claim.given, Condition("or", tuple(differ)) if differ else T.FALSE))


def _are_equal_lists_of_sites(before: Sequence[AccessSite], after: Sequence[AccessSite]) -> bool:
    """Return True if both have the same kinds of sites, elements, conditions and loops, in the same order."""
    if any(map(_depends_on_memory, (*before, *after))):
        return False
    keys = [
        [
            (s.kind, s.index, frozenset(T.conjuncts(s.condition)), s.counters, sum(r in previous.loops for r in s.loops))
            for previous, s in zip((*x[:1], *x), x)
        ]
        for x in (before, after)
    ]
    return keys[0] == keys[1]


def _prove_order_or_leave_open(claim: ValidationClaim, worker: SolverWorker) -> ValidationVerdict:
    """Decide a claim of `_generate_order_claims`. There may be other orders that are right, so nothing is refuted."""
    if any(T.has_memory_value(c) or any(v.loaded for v in T.collect_unknowns(c)) for c in (claim.given, claim.goal)):
        return prove_coverage_or_leave_to_interpreter_or_open(claim, worker)
    v = decide_claim(claim, worker)
    words = v.why if v.counterexample is None else f"a Store and an addition may change places, {v.counterexample.words}"
    return v if v.is_proved else ValidationVerdict(claim.kind, claim.place, None, why=words)


# Additions


def _decide_same_additions(place: str, before: Sequence[AccessSite], after: Sequence[AccessSite]) -> ValidationVerdict:
    """Decide that each element is added to as often as before."""
    if _are_equal_sites_free_of_memory_values(before, after):
        return ValidationVerdict(ObligationKind.COVER, place, DecisionMethod.STRUCTURE)
    size = size_of(before[0])
    counts = [None if size is None else _count_additions(sites, size) for sites in (before, after)]
    old, new = counts
    if old is not None and new is not None:
        if np.array_equal(old, new):
            return ValidationVerdict(ObligationKind.COVER, place, DecisionMethod.POINTS)
        k = int(np.flatnonzero(old != new)[0])
        return _refute_additions(place, f"element {k} is added to {new[k]} times, and was {old[k]} times")
    if not any(map(_depends_on_memory, (*before, *after))):
        return ValidationVerdict(
            ObligationKind.COVER, place, None, why="the additions per element are unknown or too many to count"
        )
    totals = [_count_executions(sites) for sites in (before, after)]
    if None not in totals and totals[0] != totals[1]:
        return _refute_additions(place, f"elements are added to {totals[1]} times, and were {totals[0]} times")
    return ValidationVerdict(ObligationKind.COVER, place, DecisionMethod.INTERPRETER, why=BY_VALUE)


def _refute_additions(place: str, words: str) -> ValidationVerdict:
    return ValidationVerdict(ObligationKind.COVER, place, DecisionMethod.POINTS, ClaimCounterexample({}, words))


def _are_equal_sites_free_of_memory_values(before: Sequence[AccessSite], after: Sequence[AccessSite]) -> bool:
    """Return True if both have the same elements and conditions over the same counters, site by site."""
    if any(v.loaded for s in (*before, *after) for v in T.collect_unknowns(s.condition, T.collect_unknowns(s.index))):
        return False  # such a name is of one body alone
    keys = [Counter((s.index, frozenset(T.conjuncts(s.condition)), frozenset(s.counters)) for s in x) for x in (before, after)]
    return keys[0] == keys[1]


def _depends_on_memory(s: AccessSite) -> bool:
    """Return True if the element or the condition of a site is a value of memory."""
    is_held = T.has_memory_value(s.index) or T.has_memory_value(s.condition)
    return is_held or any(v.loaded for v in T.collect_unknowns(s.condition, T.collect_unknowns(s.index)))


def _count_additions(sites: Sequence[AccessSite], size: int) -> PointValues | None:
    """Return how often each element is added to; None if that is unknown or too much work, or depends on a named variable."""
    if size > MAX_MARKS:
        return None
    counts = np.zeros(size, np.int64)
    left = 4 * POINTS
    for s in sites:
        executions = (
            None if _depends_on_memory(s) or s.named_argument_variables else tabulate_elements_and_execution_mask(s, (), left)
        )
        if executions is None:
            return None
        at, elements, is_executed = executions
        left -= is_executed.size
        numbers = np.broadcast_to(elements, is_executed.shape)[is_executed]
        if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
            return None
        counts += np.bincount(numbers, minlength=size) * math.prod(v.high - v.low + 1 for v in s.counters if v not in at)
    return counts


def _count_executions(sites: Sequence[AccessSite]) -> int | None:
    """Return how often some sites execute; None if that is unknown or too much work, or depends on a named variable."""
    total = 0
    for s in (replace(s, index=T.ZERO) for s in sites):
        executions = None if _depends_on_memory(s) or s.named_argument_variables else tabulate_elements_and_execution_mask(s)
        if executions is None:
            return None
        others = math.prod(v.high - v.low + 1 for v in s.counters if v not in executions.points)
        total += int(np.count_nonzero(executions.is_executed)) * others
    return total
