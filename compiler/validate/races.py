"""Races: two threads of the same kernel that meet in one element, unordered, one of them writing.

Takes: a Body in execution order. Gives: verdicts `no race` per memory that threads or lanes share. Two executions in different
iterations of a GLOBAL or THREAD loop are ordered by nothing; in different lanes of one workgroup, by a Barrier that every way from
one to the other passes. Loops around all of these are done one iteration after the other.
Spec: Barrier; R55 to R57, R60, R61, R128.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from uops.compiler.prove.solver.solver import Worker
from uops.compiler.validate import terms as T
from uops.compiler.validate.decide import POINTS, by_solver, by_sums, facts_of, renamed, tightened
from uops.compiler.validate.model import By, Claim, Counterexample, Kind, Verdict
from uops.compiler.validate.sites import GROUPS, LANES, Body, Site, counter, private, size_of, spelled
from uops.compiler.validate.terms import Atom, Cond, Interval, Numbers, Var
from uops.compiler.validate.writes import box, copy, executions, marks, mixed_radix
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def races(body: Body, worker: Worker) -> Iterator[Verdict]:
    """The verdicts of a body that has parallel loops; a memory that is only read, or private, has none."""
    for memory, sites, kinds in _shared(body):
        place = f"{spelled(memory)}, {'threads' if kinds is GROUPS else 'lanes'}"
        found = _apart(sites, place) or (_owners(sites, kinds, place) if kinds is GROUPS else _together(sites, kinds, body, place))
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
                    yield _met([a], [b], kinds, same, place) or by_solver(c, worker)


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


def _pairs(sites: Sequence[Site], kinds: frozenset[AxisType], body: Body) -> Iterator[tuple[int, int, tuple[Var, ...]]]:
    """(one, other, counters that are the same in both), where executions of two sites may meet unordered."""
    extents = _extents(body)
    for j, b in enumerate(sites):
        for k, a in enumerate(sites[: j + 1]):
            conflict = (a.writes or b.writes) and (a.kind, b.kind) != ("atomic", "atomic")
            if conflict and (parallel(a, kinds) or parallel(b, kinds)):
                same = _unordered(a, b, kinds, body, extents)
                if same is not None:
                    yield k, j, same


def _claims(sites: Sequence[Site], kinds: frozenset[AxisType], body: Body) -> Iterator[tuple[Claim, Site, Site, tuple[Var, ...]]]:
    """(claim, one, other, counters that are the same in both) for each pair that may meet unordered."""
    firsts, seconds = ([copy(s, mark) for s in sites] for mark in (".1", ".2"))
    for k, j, same in _pairs(sites, kinds, body):
        yield _meeting((sites[k], firsts[k]), (sites[j], seconds[j]), kinds, same), sites[k], sites[j], same


def _meeting(one: tuple[Site, Site], other: tuple[Site, Site], kinds: frozenset[AxisType], same: tuple[Var, ...]) -> Claim:
    """That two sites, each with its copy, do not meet in an element at the same values of `same`, in different threads."""
    (a, first), (b, second) = one, other
    equal = T.TRUE
    for v in same:
        equal = T.both(equal, T.is_zero(T.add(T.of(renamed(v, ".1")), T.of(renamed(v, ".2")), -1)))
    mine, theirs = parallel(a, kinds), parallel(b, kinds)
    both = [v for v in mine if v in theirs]
    differ = [T.negated(T.is_zero(T.add(T.of(renamed(v, ".1")), T.of(renamed(v, ".2")), -1))) for v in both]
    if set(mine) == set(theirs):  # where one is in more loops than the other, they may be two threads whatever their counters are
        equal = T.both(equal, Cond("or", tuple(differ)))
    given = T.both(T.both(first.condition, second.condition), equal)
    place = f"{a} at {a.at} and {b.kind} at {b.at}"
    return Claim(Kind.RACE, place, given, T.negated(T.is_zero(T.add(first.index, second.index, -1))))


def _unordered(
    a: Site, b: Site, kinds: frozenset[AxisType], body: Body, extents: Mapping[UOp, tuple[int, int]]
) -> tuple[Var, ...] | None:  # fmt: skip
    """The counters of the loops of which an execution of `a` and one of `b`, by different threads, have to be in the same iteration
    to have no order: as few as there are. None where they always have one."""
    common = [r for r, q in zip(a.loops, b.loops) if r is q]
    if kinds is GROUPS:
        around = [k for k, r in enumerate(common) if r.arg.type in GROUPS]
        return tuple(counter(r) for r in common[: around[0] if around else len(common)])
    first, last = min(a.at, b.at), max(a.at, b.at)
    bars = [at for at, loops in body.barriers if all(r in a.loops or r in b.loops or _runs(r) for r in loops)]
    steps = [r for r in common if r.arg.type not in kinds]
    for k, r in enumerate(steps):
        begin, end = extents[r]
        between = any(last < at < end or begin < at < first for at in bars)  # from one iteration to the next
        if r.arg.type not in GROUPS and not (between and any(begin < at < end for at in bars)):
            return tuple(counter(x) for x in steps[:k])
    return None if any(first < at < last for at in bars) else tuple(counter(r) for r in steps)


def _runs(r: UOp) -> bool:
    """Whether a loop has an iteration, whatever the values of variables."""
    bounds = r.src[0].min_max
    return bounds is not None and bounds[0] > 0


def _extents(body: Body) -> dict[UOp, tuple[int, int]]:
    """The places of each loop's Range and End in a list."""
    begins = {u: k for k, u in enumerate(body.root.src) if u.op is Op.RANGE}
    ends = {r: k for k, u in enumerate(body.root.src) if u.op is Op.END for r in u.src[1:]}
    return {r: (k, ends[r]) for r, k in begins.items()}


# By points


def _apart(sites: Sequence[Site], place: str) -> Verdict | None:
    """No element is touched twice at all: by Stores alone, each of which writes none twice, and no two one. None else."""
    size = size_of(sites[0])
    if size is None or any(s.kind != "store" or not mixed_radix(s) for s in sites):
        return None
    found = marks(sites, size, place)
    return None if found is None or isinstance(found, Verdict) else Verdict(Kind.RACE, place, By.POINTS)


def _owners(sites: Sequence[Site], kinds: frozenset[AxisType], place: str) -> Verdict | None:
    """Which thread writes each element: another one neither writes nor reads it. None where that is too much, depends on a named
    variable, or sequential loops stand around the threads."""
    size = size_of(sites[0])
    if size is None or size > 8 * POINTS or any(s.kind == "atomic" or s.variables for s in sites):
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


def _numbered(counters: Sequence[Var], at: Mapping[Var, Numbers]) -> Numbers:
    """The number of a thread, or of other values of counters."""
    number: Numbers = np.int64(0)
    for v in counters:
        number = number * (v.high - v.low + 1) + at[v] - v.low
    return number


def _along(v: Var, known: Mapping[Atom, Interval], axes: Sequence[Var]) -> Numbers:
    """The values of an unknown along its axis."""
    low, high = known.get(v, (v.low, v.high))
    k = axes.index(v)
    return np.arange(low, high + 1, dtype=np.int64).reshape([-1 if j == k else 1 for j in range(len(axes))])


def _together(sites: Sequence[Site], kinds: frozenset[AxisType], body: Body, place: str) -> Verdict | None:
    """All sites of a memory at once, where each two of them may meet, in the same way."""
    pairs = list(_pairs(sites, kinds, body))
    ways = {same for _, _, same in pairs}
    writers = [s for s in sites if s.writes]
    count = len(writers) * (len(writers) + 1) // 2 + len(writers) * (len(sites) - len(writers))
    return _met(writers, sites, kinds, ways.pop(), place) if len(ways) == 1 and len(pairs) == count else None


def _met(
    some: Sequence[Site], others: Sequence[Site], kinds: frozenset[AxisType], same: tuple[Var, ...], place: str
) -> Verdict | None:
    """Whether one of some sites meets one of the others in an element at the same values of `same`, in different lanes; None where
    that is too much or depends on a named variable, or the sites are in different loops of lanes."""
    size, mine = size_of(some[0]), parallel(some[0], kinds)
    sites = (*some, *others)
    if size is None or any(s.variables or parallel(s, kinds) != mine for s in sites):
        return None
    tables = {}
    for s in {id(s): s for s in sites}.values():
        table = _table(s, same, mine, size, min(POINTS, 4 * POINTS // len(sites)))
        if table is None:
            return None
        tables[id(s)] = table
    keys, lanes, who = _joined([tables[id(s)] for s in some])
    theirs, their_lanes, whose = _joined([tables[id(s)] for s in others])
    order = np.argsort(keys, kind="stable")
    keys, lanes, who = keys[order], lanes[order], who[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if not keys.size or not theirs.size:
        return Verdict(Kind.RACE, place, By.POINTS)
    least, most = np.minimum.reduceat(lanes, starts), np.maximum.reduceat(lanes, starts)
    at: Numbers = np.searchsorted(keys[starts], theirs)
    there = at < starts.size
    at = np.where(there, at, 0)
    bad = np.flatnonzero(there & (keys[starts][at] == theirs) & ((least[at] != their_lanes) | (most[at] != their_lanes)))
    if not bad.size:
        return Verdict(Kind.RACE, place, By.POINTS)
    j = int(bad[0])
    k = int(np.flatnonzero((keys == theirs[j]) & (lanes != their_lanes[j]))[0])
    a, b = some[int(who[k])], others[int(whose[j])]
    element = int(theirs[j] % size)
    words = f"lanes {lanes[k]} and {their_lanes[j]} meet in element {element}: {a.kind} at {a.at}, {b.kind} at {b.at}"
    return Verdict(Kind.RACE, place, By.POINTS, Counterexample({"element": element}, words))


def _table(s: Site, same: Sequence[Var], mine: Sequence[Var], size: int, limit: int) -> tuple[Numbers, Numbers] | None:
    """(number of the element and of the values of `same`, number of the lane) for each execution of a site; None where they are
    too many, or not known."""
    points = executions(s, tuple(dict.fromkeys((*same, *mine))), limit)
    if points is None:
        return None
    at, index, keep = points
    key = _numbered(same, at) * size + index
    keys, lanes = (np.broadcast_to(x, keep.shape)[keep] for x in (key, _numbered(mine, at)))
    return keys, lanes


def _joined(tables: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers, Numbers]:
    """Keys and lanes of all tables, and of which table each is."""
    keys, lanes = (np.concatenate(x) for x in zip(*tables))
    return keys, lanes, np.repeat(np.arange(len(tables)), [t[0].size for t in tables])
