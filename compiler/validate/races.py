"""Races: two threads of the same kernel that meet in one element, unordered, one of them writing.

Takes: a Body in execution order. Gives: verdicts `no race` per memory that threads or lanes share. Two executions in different
iterations of a GLOBAL or THREAD loop are ordered by nothing; in different lanes of one workgroup, by a Barrier that every way from
one to the other passes. Loops around all of these are done one iteration after the other.
Spec: Barrier; R55 to R57, R60, R61, R128.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from uops.compiler.prove.solver import Worker
from uops.compiler.validate import terms as T
from uops.compiler.validate.decide import POINTS, by_solver, by_sums, facts_of, renamed, tightened
from uops.compiler.validate.model import By, Claim, Counterexample, Kind, Verdict
from uops.compiler.validate.reader import GROUPS, LANES, Body, Site, counter, private, size_of, spelled
from uops.compiler.validate.terms import Cond, Interval, Numbers, Var
from uops.compiler.validate.writes import box, copy, executions, marks, mixed_radix
from uops.spec.args import AddrSpace
from uops.spec.axes import AxisType
from uops.spec.node import UOp
from uops.spec.ops import Op


def races(body: Body, worker: Worker) -> Iterator[Verdict]:
    """The verdicts of a body that has parallel loops; a memory that is only read, or private, has none."""
    for memory, sites, kinds in _shared(body):
        place = f"{spelled(memory)}, {'threads' if kinds is GROUPS else 'lanes'}"
        found = _apart(sites, place) or (_owners(sites, kinds, place) if kinds is GROUPS else None)
        if found is not None:
            yield found
            continue
        done: set[object] = set()
        for c, a, b, same in _claims(sites, kinds, body):
            key = c.given, c.goal
            if key not in done:
                done.add(key)
                if _same_digits(a, b, same) or by_sums(c):
                    yield Verdict(Kind.RACE, place, By.SUMS)
                else:
                    yield _met(a, b, kinds, same, place) or by_solver(c, worker)


def _same_digits(a: Site, b: Site, same: Sequence[Var]) -> bool:
    """Whether two sites touch one element only at the same counters: these are the digits of one number."""
    return a.index == b.index and a.counters == b.counters and mixed_radix(a, same) and mixed_radix(b, same)


def claims(body: Body) -> Iterator[Claim]:
    """What the verdicts are about."""
    for _, sites, kinds in _shared(body):
        for c, _, _, _ in _claims(sites, kinds, body):
            yield c


def _shared(body: Body) -> Iterator[tuple[UOp, list[Site], frozenset[AxisType]]]:
    """(memory, sites, the loops whose iterations are threads of it) where several threads use a memory and one writes it."""
    shared: dict[UOp, list[Site]] = {}
    for s in body.sites:
        if not private(s.memory):
            shared.setdefault(s.memory, []).append(s)
    for memory, sites in shared.items():
        if any(s.writes for s in sites):
            local = memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.LOCAL
            for kinds in (LANES,) if local else (GROUPS, LANES):
                if any(r.arg.type in kinds for s in sites for r in s.loops):
                    yield memory, sites, kinds


def parallel(s: Site, kinds: frozenset[AxisType]) -> tuple[Var, ...]:
    return tuple(counter(r) for r in s.loops if r.arg.type in kinds)


def _claims(sites: Sequence[Site], kinds: frozenset[AxisType], body: Body) -> Iterator[tuple[Claim, Site, Site, tuple[Var, ...]]]:
    """(claim, one, other, counters that are the same in both) for each way in which two sites may meet unordered."""
    for j, b in enumerate(sites):
        for a in sites[: j + 1]:
            conflict = (a.writes or b.writes) and (a.kind, b.kind) != ("atomic", "atomic")
            if conflict and (parallel(a, kinds) or parallel(b, kinds)):
                for same in _unordered(a, b, kinds, body):
                    yield _meeting(a, b, kinds, same), a, b, same


def _meeting(a: Site, b: Site, kinds: frozenset[AxisType], same: tuple[Var, ...]) -> Claim:
    equal = T.TRUE
    for v in same:
        equal = T.both(equal, T.is_zero(T.add(T.of(renamed(v, ".1")), T.of(renamed(v, ".2")), -1)))
    mine, theirs = parallel(a, kinds), parallel(b, kinds)
    both = [v for v in mine if v in theirs]
    differ = [T.negated(T.is_zero(T.add(T.of(renamed(v, ".1")), T.of(renamed(v, ".2")), -1))) for v in both]
    if set(mine) == set(theirs):  # where one is in more loops than the other, they may be two threads whatever their counters are
        equal = T.both(equal, Cond("or", tuple(differ)))
    first, second = copy(a, ".1"), copy(b, ".2")
    given = T.both(T.both(first.condition, second.condition), equal)
    place = f"{a} at {a.at} and {b.kind} at {b.at}"
    return Claim(Kind.RACE, place, given, T.negated(T.is_zero(T.add(first.index, second.index, -1))))


def _unordered(a: Site, b: Site, kinds: frozenset[AxisType], body: Body) -> Iterator[tuple[Var, ...]]:
    """For each way in which an execution of `a` and one of `b`, by different threads, have no order: the counters of the loops of
    which they are in the same iteration."""
    common = [r for r, q in zip(a.loops, b.loops) if r is q]
    if kinds is GROUPS:
        around = [k for k, r in enumerate(common) if r.arg.type in GROUPS]
        yield tuple(counter(r) for r in common[: around[0] if around else len(common)])
        return
    first, last = min(a.at, b.at), max(a.at, b.at)
    bars = [at for at, _ in body.barriers]
    steps = [r for r in common if r.arg.type not in kinds]
    if not any(first < at < last for at in bars):
        yield tuple(counter(r) for r in steps)
    for k, r in enumerate(steps):
        if r.arg.type in GROUPS:
            continue
        begin, end = _extent(body, r)
        if not any(last < at < end or begin < at < first for at in bars) or not any(begin < at < end for at in bars):
            yield tuple(counter(x) for x in steps[:k])


def _extent(body: Body, r: UOp) -> tuple[int, int]:
    """The places of a loop's Range and End in a list."""
    instructions = body.root.src
    begin = instructions.index(r)
    end = next(k for k in range(begin, len(instructions)) if instructions[k].op is Op.END and r in instructions[k].src[1:])
    return begin, end


# By points


def _apart(sites: Sequence[Site], place: str) -> Verdict | None:
    """No element is touched twice at all: by Stores alone, each of which writes none twice, and no two one. None else."""
    size = size_of(sites[0])
    if size is None or any(s.kind != "store" or not mixed_radix(s) for s in sites):
        return None
    found = marks(sites, size, place)
    return None if found is None or isinstance(found, Verdict) else Verdict(Kind.RACE, place, By.POINTS)


def _owners(sites: Sequence[Site], kinds: frozenset[AxisType], place: str) -> Verdict | None:
    """Which thread writes each element: another one neither writes nor reads it. None where that is too much, or sequential loops
    stand around the threads."""
    size = size_of(sites[0])
    if size is None or size > 8 * POINTS or any(s.kind == "atomic" for s in sites):
        return None
    threads = {parallel(s, kinds) for s in sites}
    if len(threads) != 1 or any(s.loops[0].arg.type not in kinds for s in sites):
        return None
    (counters,) = threads
    owner = np.full(size, -1, np.int64)
    for s in sorted(sites, key=lambda s: not s.writes):
        clash = _clash(s, owner, counters)
        if clash is None:
            return None
        if clash:
            words = f"threads {clash[0]} and {clash[1]} meet in an element, one at the {s.kind} at {s.at}"
            return Verdict(Kind.RACE, place, By.POINTS, Counterexample({}, words))
    return Verdict(Kind.RACE, place, By.POINTS)


def _clash(s: Site, owner: Numbers, counters: tuple[Var, ...]) -> tuple[int, ...] | None:
    """Two threads that meet in an element, none, or None where that is too much to find; a Store becomes the owner."""
    view = box(s, owner)
    if view is not None and not view.size:
        return ()
    axes = [v for v, _ in s.index.terms]
    if view is not None and view.ndim == len(axes) and all(v in axes for v in counters):
        known = tightened(facts_of(s.condition)) or {}
        who = _numbered(counters, {v: _along(v, known, axes) for v in counters})  # type: ignore[arg-type]
        now = view
    else:
        points = executions(s, counters, 4 * POINTS)
        if points is None:
            return None
        at, index, keep = points
        elements, who = (np.broadcast_to(x, keep.shape)[keep] for x in (index, _numbered(counters, at)))
        if elements.size and (elements.min() < 0 or elements.max() >= owner.size):
            return None
        if s.writes:
            free = owner[elements] < 0
            owner[elements[free]] = who[free]
        now = owner[elements]
    if s.writes and now is view:
        np.copyto(view, np.broadcast_to(who, view.shape), where=view < 0)
    bad = (now != who) & (now >= 0)
    if not bad.any():
        return ()
    k = int(np.argmax(bad))
    return int(now.reshape(-1)[k]), int(np.broadcast_to(who, now.shape).reshape(-1)[k])


def _numbered(counters: tuple[Var, ...], at: Mapping[Var, Numbers]) -> Numbers:
    """The number of a thread."""
    number: Numbers = np.int64(0)
    for v in counters:
        number = number * (v.high - v.low + 1) + at[v] - v.low
    return number


def _along(v: Var, known: Mapping[Var, Interval], axes: Sequence[Var]) -> Numbers:
    """The values of an unknown along its axis."""
    low, high = known.get(v, (v.low, v.high))
    k = axes.index(v)
    return np.arange(low, high + 1, dtype=np.int64).reshape([-1 if j == k else 1 for j in range(len(axes))])


def _met(a: Site, b: Site, kinds: frozenset[AxisType], same: tuple[Var, ...], place: str) -> Verdict | None:
    """Whether two sites meet in an element at the same values of `same`, in different lanes; None where that is too much, or the
    two are in different loops of lanes."""
    size = size_of(a)
    mine = parallel(a, kinds)
    if size is None or mine != parallel(b, kinds):
        return None
    tables = []
    for s in (a, b):
        points = executions(s, tuple(dict.fromkeys((*same, *mine))))
        if points is None:
            return None
        at, index, keep = points
        key, who = np.int64(0), np.int64(0)
        for v in same:
            key = key * (v.high - v.low + 1) + at[v] - v.low
        for v in mine:
            who = who * (v.high - v.low + 1) + at[v] - v.low
        key = key * size + index
        tables.append((np.broadcast_to(key, keep.shape)[keep], np.broadcast_to(who, keep.shape)[keep]))
    (keys, lanes), (other, others) = tables
    order = np.argsort(keys, kind="stable")
    keys, lanes = keys[order], lanes[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if not keys.size or not other.size:
        return Verdict(Kind.RACE, place, By.POINTS)
    least, most = np.minimum.reduceat(lanes, starts), np.maximum.reduceat(lanes, starts)
    at_ = np.searchsorted(keys[starts], other)
    there = at_ < starts.size
    at_ = np.where(there, at_, 0)
    there &= keys[starts][at_] == other
    bad = np.flatnonzero(there & ((least[at_] != others) | (most[at_] != others)))
    if not bad.size:
        return Verdict(Kind.RACE, place, By.POINTS)
    k = int(other[bad[0]] % size)
    lane = int(least[at_[bad[0]]] if least[at_[bad[0]]] != others[bad[0]] else most[at_[bad[0]]])
    words = f"lanes {lane} and {int(others[bad[0]])} meet in element {k}: {a.kind} at {a.at}, {b.kind} at {b.at}"
    return Verdict(Kind.RACE, place, By.POINTS, Counterexample({"element": k}, words))
