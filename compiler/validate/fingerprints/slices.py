"""Loops whose iterations share no memory, so that one iteration can stand for all of them.

Takes: the accesses of a kernel's memory, with positions as sums over loop counters. Gives: groups of loops of one extent. In every
memory, iteration q of any loop of a group accesses slice q alone: elements that no other iteration accesses. So a kernel that is
restricted to iteration q of all loops of a group stores the same in slice q.
Spec: R57 (Range), R128 (private memory).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from uops.compiler.validate.fingerprints.integers import Counter, Integer
from uops.spec.ir.node import UOp


class Slicing(NamedTuple):
    """The division of a memory by a group of loops: iteration q accesses positions p of which (p // stride) % extent is q.

    `depth` is the number of groups with a greater stride. In iteration 0 of these and of this group, positions are below `size`.
    """

    stride: int
    size: int
    depth: int


class IndependentLoops(NamedTuple):
    """Loops of one extent, and the memories that they divide into slices.

    Other memory that they store has a copy for each iteration, but for what is `shared`. With `shared` memory, iterations exchange
    values only by adding to it. Loop r runs `steps[r]` iterations per slice, 1 if it is not there. Other loops come before one with
    steps, which only loads slices.
    """

    loops: tuple[UOp, ...]
    extent: int
    slicings: Mapping[UOp, Slicing] = {}
    shared: frozenset[UOp] = frozenset()
    steps: Mapping[UOp, int] = {}


class MemoryAccess(NamedTuple):
    """A Load or Store: the loops around it, and its position, a sum over their counters; None if it is no such sum."""

    loops: frozenset[UOp]
    position: Integer | None
    is_store: bool


def spread_as_counters(
    extents: Mapping[UOp, int], first_number: int = 0
) -> tuple[dict[UOp, Counter], list[tuple[IndependentLoops, Integer]]]:
    """Return a counter for each loop, numbered from `first_number`, and the one iteration of each that it stands for."""
    counters = {r: Counter(first_number + k, 0, n - 1) for k, (r, n) in enumerate(extents.items())}
    one = np.ones(1, np.int64)
    return counters, [(IndependentLoops((r,), extents[r]), Integer(one - 1, {c: one})) for r, c in counters.items()]


def find_independent_loops(
    extents: Mapping[UOp, int],
    counters: Mapping[UOp, Counter],
    accesses: Mapping[UOp, Sequence[MemoryAccess]],
    private: Mapping[UOp, Collection[UOp]],
    with_steps: bool = False,
) -> Iterator[IndependentLoops]:
    """Yield groups of the loops of `extents`; loops with steps are in them if `with_steps` is true.

    `accesses` has every access to the memories that are loaded and stored. A memory has a copy for each iteration of the loops that
    `private` gives.
    """
    slices: dict[frozenset[UOp], dict[UOp, Slicing]] = {}
    all_steps: dict[UOp, set[int]] = {r: set() for r in extents}
    for m, of_memory in accesses.items():
        for slicing, steps in _list_slicings(of_memory, extents.keys() - set(private[m]), extents, counters, with_steps):
            slices.setdefault(frozenset(steps), {})[m] = slicing
            for r, step in steps.items():
                all_steps[r].add(step)
    around = {a.loops for of_memory in accesses.values() for a in of_memory}
    for loops in _merge_overlapping([*slices, *(frozenset([r]) for r in extents)]):
        steps = {r: max(all_steps[r], default=1) for r in extents if r in loops}
        slicings = {m: s for some, of_memory in slices.items() if some <= loops for m, s in of_memory.items()}
        stored = [m for m, of_memory in accesses.items() if any(a.is_store and loops & a.loops for a in of_memory)]
        if (
            all(len(all_steps[r]) <= 1 for r in loops)
            and len({extents[r] // step for r, step in steps.items()}) == 1
            and all(len(loops & a) <= 1 for a in around)
            and all(len(loops & a.loops) == 1 for m in slicings for a in accesses[m])
        ):
            yield IndependentLoops(
                (*(r for r in steps if steps[r] == 1), *(r for r in steps if steps[r] > 1)),
                min(extents[r] for r in loops),
                slicings,
                frozenset(m for m in stored if m not in slicings and loops.isdisjoint(private[m])),
                {r: step for r, step in steps.items() if step > 1},
            )


def _list_slicings(
    accesses: Sequence[MemoryAccess],
    loops: Collection[UOp],
    extents: Mapping[UOp, int],
    counters: Mapping[UOp, Counter],
    with_steps: bool,
) -> Iterator[tuple[Slicing, dict[UOp, int]]]:
    """Yield the slicings of a memory, that of greatest stride first.

    Each comes with the loops whose iterations, or groups of as many iterations as the loop's step, access one slice.
    """
    found: list[dict[tuple[int, int], UOp]] = []
    for a in accesses:
        if a.position is None:
            return
        of_access: dict[tuple[int, int], UOp] = {}
        for r in a.loops.intersection(loops):
            factor = a.position.factors.get(counters[r])
            if factor is not None and factor.min() == factor.max() > 0:
                of_access[int(factor.max()), extents[r]] = r
        found.append(of_access)
    depth = 0
    rests = [a.position for a in accesses if a.position is not None]
    for stride, extent in sorted(set().union(*found), reverse=True):
        chosen = [
            _find_loop_and_step(f, stride, extent, with_steps and not a.is_store) for f, a in zip(found, accesses, strict=True)
        ]
        steps = {c[0]: c[1] for c in chosen if c is not None}
        if None in chosen or len({(r, step) for r, step in filter(None, chosen)}) > len(steps):
            continue
        inner = [_restrict_to_slice(p, counters[r], step) for p, (r, step) in zip(rests, filter(None, chosen), strict=True)]
        low, high = min(int(p.bounds()[0].min()) for p in inner), max(int(p.bounds()[1].max()) for p in inner)
        if low >= 0 and all(_lies_in_first_slice(p, stride, extent) for p in inner):
            yield Slicing(stride, high + 1, depth), steps
            rests, depth = inner, depth + 1


def _find_loop_and_step(
    loop_of: Mapping[tuple[int, int], UOp], stride: int, extent: int, with_steps: bool
) -> tuple[UOp, int] | None:
    """Return a loop whose iterations move by a stride as often as the extent says, or steps of whose iterations do."""
    if (stride, extent) in loop_of:
        return loop_of[stride, extent], 1
    for (inner, whole), r in loop_of.items() if with_steps else ():
        if inner * (whole // extent) == stride and whole % extent == 0:
            return r, whole // extent
    return None


def _lies_in_first_slice(x: Integer, stride: int, extent: int) -> bool:
    """Return True if (x // stride) % extent is surely 0."""
    period = np.int64(stride * extent)
    low, high = Integer(x.numbers % period, {c: f for c, f in x.factors.items() if (f % period).any()}).bounds()
    return bool((low >= 0).all() and (high < stride).all())


def _restrict_to_slice(x: Integer, counter: Counter, step: int) -> Integer:
    """Return a sum with a counter from 0 to below a step."""
    factors = {c: f for c, f in x.factors.items() if c != counter}
    inner = {Counter(counter.number, 0, step - 1): x.factors[counter]} if step > 1 else {}
    return Integer(x.numbers, {**factors, **inner})


def _merge_overlapping(sets: Iterable[frozenset[UOp]]) -> list[frozenset[UOp]]:
    """Return the unions of sets that are connected by common elements."""
    merged: list[frozenset[UOp]] = []
    for s in sets:
        overlapping = [x for x in merged if not x.isdisjoint(s)]
        merged = [x for x in merged if x.isdisjoint(s)] + [s.union(*overlapping)]
    return merged
