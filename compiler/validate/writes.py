"""What a kernel writes: each element once, and exactly those that the kernel before it wrote; and what it reads.

Takes: two Bodies, of before and after. Gives: verdicts `written once`, `all written` and `reads agree` per memory that callers see.
A kernel may keep values in memory that it writes and that it did not read before (R146): then a later Store may write an element
again. Spec: Store; R45, R52, R146.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from uops.compiler.prove.solver.solver import Worker
from uops.compiler.validate import terms as T
from uops.compiler.validate.budget import BudgetUnit, Spent
from uops.compiler.validate.decide import POINTS, by_solver, exact, facts_of, grid, renamed, tightened
from uops.compiler.validate.digits import decoded
from uops.compiler.validate.model import By, Claim, Counterexample, Kind, Verdict
from uops.compiler.validate.sites import Body, Site, counter, size_of, spelled
from uops.compiler.validate.terms import App, Cond, Interval, Lin, Numbers, Var
from uops.spec.ir.axes import AXIS_TABLE
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Elements of a memory that are looked at one by one.
_MEMORY = 1 << 26


def by_memory(sites: Iterable[Site]) -> dict[UOp, list[Site]]:
    """Sites of memory that callers see, by the slot of its Param."""
    found: dict[UOp, list[Site]] = {}
    for s in sites:
        if s.memory.op is Op.PARAM:
            found.setdefault(s.memory, []).append(s)
    return found


# One Store


def once(s: Site, worker: Worker, again: bool = False) -> Verdict:
    """No two executions of a Store write one element; where the kernel may write it `again`, none in the same iteration of those
    loops that are done in order."""
    fixed = _ordered(s) if again else ()
    c = distinct(s, fixed)
    if mixed_radix(s, fixed):
        return Verdict(c.kind, c.place, By.SUMS)
    return _once_by_points(s, c, fixed) or by_solver(c, worker)


def _ordered(s: Site) -> tuple[Var, ...]:
    """The counters of the loops around that are done in order."""
    return tuple(counter(r) for r in s.loops if AXIS_TABLE[r.arg.type].ordered)


def distinct(s: Site, fixed: Sequence[Var] = ()) -> Claim:
    """That no two executions of `s`, of the same iteration of the loops of `fixed`, meet in an element."""
    first, second = copy(s, ".1"), copy(s, ".2")
    given = T.both(first.condition, second.condition)
    equal = {v: T.is_zero(T.add(T.of(renamed(v, ".1")), T.of(renamed(v, ".2")), -1)) for v in s.counters}
    differ = [T.negated(c) for v, c in equal.items() if v not in fixed]
    for v in fixed:
        given = T.both(given, equal[v])
    given = T.both(given, Cond("or", tuple(differ)) if differ else T.FALSE)
    return Claim(Kind.ONCE, str(s), given, T.negated(T.is_zero(T.add(first.index, second.index, -1))))


def apart(a: Site, b: Site) -> Claim:
    """That no executions of two Stores meet in an element."""
    first, second = copy(a, ".1"), copy(b, ".2")
    given = T.both(first.condition, second.condition)
    place = f"{a} at {a.at} and {b.kind} at {b.at}"
    return Claim(Kind.ONCE, place, given, T.negated(T.is_zero(T.add(first.index, second.index, -1))))


def copy(s: Site, mark: str) -> Site:
    """The site in a world of its own; named variables are the same in all."""
    return s.put(
        {
            v: T.of(renamed(v, mark))
            for v in (*T.unknowns(s.condition, T.unknowns(s.index)), *s.counters)
            if v in s.counters or v.loaded
        }
    )


def mixed_radix(s: Site, fixed: Sequence[Var] = ()) -> bool:
    """Whether the counters, but for `fixed`, are digits of the element's number, each worth more than all the lesser ones."""
    known = tightened(facts_of(s.condition))
    if known is None:
        return True
    digits = dict(s.index.terms)
    if any(not isinstance(v, Var) or v.loaded for v in digits):
        return False
    span = 0
    extents = {v: known.get(v, (v.low, v.high)) for v in s.counters}
    for v in sorted((v for v in s.counters if v not in fixed), key=lambda v: abs(digits.get(v, 0))):
        low, high = extents[v]
        if high > low:
            if abs(digits.get(v, 0)) <= span:
                return False
            span += abs(digits[v]) * (high - low)
    return True


def _once_by_points(s: Site, c: Claim, fixed: Sequence[Var]) -> Verdict | None:
    found = executions(s, s.counters)
    if found is None or any(v.loaded for v in found[0]):  # what memory holds may differ between two executions
        return None
    points, index, keep = found
    key = index
    for v in (*fixed, *(v for v in points if v not in s.counters)):  # a named variable has one value in all executions
        key = key * (v.high - v.low + 1) + points[v]
    numbers = np.broadcast_to(key, keep.shape)[keep]
    order = np.argsort(numbers, kind="stable")
    twice = np.flatnonzero(np.diff(numbers[order]) == 0)
    if not twice.size:
        return Verdict(c.kind, c.place, By.POINTS)
    k = int(twice[0])
    flat = np.flatnonzero(keep)
    values: dict[str, int] = {}
    for mark, j in ((".1", k), (".2", k + 1)):
        where = np.unravel_index(flat[order[j]], keep.shape)
        values |= {f"{v.name}{mark}": int(at.reshape(-1)[i]) for (v, at), i in zip(points.items(), where)}
    words = f"element {int(np.broadcast_to(index, keep.shape)[keep][order[k]])} is written twice"
    return Verdict(c.kind, c.place, By.POINTS, Counterexample(values, words))


def executions(s: Site, also: Sequence[Var] = (), limit: int = POINTS) -> tuple[dict[Var, Numbers], Numbers, Numbers] | None:
    """(unknowns along axes, elements, where it happens) for all executions of a site, as far as the element, the gate and `also`
    tell them apart; None where that is not known, or they are too many."""
    if not exact(s.index, s.condition):
        return None
    unknowns = list(T.unknowns(s.condition, T.unknowns(s.index, dict.fromkeys(also))))
    at = grid(unknowns, limit)
    if at is None:
        return None
    index, keep = T.values(s.index, at), T.values(s.condition, at)
    shape = tuple(v.high - v.low + 1 for v in unknowns)
    return at, index, np.broadcast_to(keep, shape)


# All Stores of a memory


def meet(stores: Sequence[Site], worker: Worker) -> bool:
    """Whether Stores to one memory are known to write an element more than once."""
    size = size_of(stores[0]) if stores else None
    several = len(stores) > 1 and size is not None and isinstance(marks(stores, size, spelled(stores[0].memory)), Verdict)
    return several or any(once(s, worker).counterexample is not None for s in stores if s.kind != "atomic")


def written(memory: UOp, before: Sequence[Site], after: Sequence[Site], again: bool, worker: Worker) -> Iterator[Verdict]:
    """Verdicts of what Stores to one memory do, in order. `again`: the kernel after may write an element more than once, as it
    keeps values in this memory, or as the kernel before does."""
    before, after = in_order(before, after)
    for s in after:
        if s.kind != "atomic":
            yield once(s, worker, again)
    place = spelled(memory)
    size = size_of(after[0])
    marked = None if size is None else marks(after, size, None if again else place)
    if isinstance(marked, Verdict):
        yield marked
        return
    wanted = None if size is None else marks(before, size, None)
    if marked is not None and wanted is not None and not isinstance(wanted, Verdict):
        yield Verdict(Kind.ONCE, f"stores of {place}", By.POINTS)
        yield _compared(Kind.COVER, place, wanted, marked)
        return
    if not again:
        for j, a in enumerate(after):
            for b in after[:j]:
                if "atomic" not in (a.kind, b.kind):
                    yield by_solver(apart(b, a), worker)
    yield from covers(before, after, worker)


def _compared(kind: Kind, place: str, wanted: Numbers, found: Numbers) -> Verdict:
    if np.array_equal(wanted, found):
        return Verdict(kind, place, By.POINTS)
    k = int(np.flatnonzero(wanted != found)[0])
    words = f"element {k} is " + ("not written" if wanted[k] else "written, and was not before")
    return Verdict(kind, place, By.POINTS, Counterexample({"element": k}, words))


def in_order(before: Sequence[Site], after: Sequence[Site]) -> tuple[Sequence[Site], Sequence[Site]]:
    """The Stores to one memory, where their executions may meet, as memory holds an index of them, or the counters before are no
    digits: the last one stays. Then they are those of one iteration of the outer loops that all of them have, which are done in
    order before and after (R57, R158, R164)."""
    sites = (*before, *after)
    is_held = any(not exact(s.index) or any(v.loaded for v in T.unknowns(s.index)) for s in sites)
    if not before or not after or not (is_held or any(not mixed_radix(s) for s in before)):
        return before, after
    n = 0
    while all(len(s.loops) > n and AXIS_TABLE[s.loops[n].arg.type].ordered for s in sites):
        same = all(s.loops[n] is x[0].loops[n] for x in (before, after) for s in x)
        if not same or counter(before[0].loops[n]) != counter(after[0].loops[n]):
            break
        n += 1
    return [_inside(s, n) for s in before], [_inside(s, n) for s in after]


def _inside(s: Site, n: int) -> Site:
    """A site in one iteration of its outermost n loops; their counters are as named variables."""
    return Site(s.kind, s.node, s.memory, s.index, s.gate, s.loops[n:], s.lane, s.within, s.at, s.size, s.also)


def marks(sites: Sequence[Site], size: int, once_only: str | None) -> Numbers | Verdict | None:
    """Which elements the sites touch, None where that is not known, or too much, or depends on a named variable; a refuted verdict
    where `once_only` names a memory of which two sites touch one element."""
    if size > _MEMORY or any(s.variables for s in sites):
        return None
    found = np.zeros(size, np.bool_)
    left = 4 * POINTS
    for s in sites:
        view = box(s, found)
        if view is None:
            points = executions(s, (), left)
            if points is None:
                return None
            _, index, keep = points
            left -= keep.size
            numbers = index if keep.all() else np.broadcast_to(index, keep.shape)[keep]
            if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
                return None
            again = found[numbers]
        else:
            again = view
        if once_only is not None and s.kind != "atomic" and again.any():
            return _twice(s, once_only)
        if view is None:
            found[numbers] = True
        else:
            view[...] = True
    return found


def _twice(s: Site, place: str) -> Verdict:
    why = Counterexample({}, f"the {s.kind} at {s.at} writes an element that another one writes")
    return Verdict(Kind.ONCE, f"stores of {place}", By.POINTS, why)


def box(s: Site, memory: Numbers) -> Numbers | None:
    """The elements that a site touches as a view of the memory, where its index is a sum of unknowns and its gate bounds each of
    them alone; an element may be there more than once. None else, or where some are outside."""
    known = _alone(s.condition)
    if known is None or any(not isinstance(v, Var) or v.loaded for v, _ in s.index.terms):
        return None
    offset, shape, strides = s.index.const, list[int](), list[int]()
    for v, c in s.index.terms:
        assert isinstance(v, Var)
        low, high = known.get(v, (v.low, v.high))
        offset += c * low
        shape.append(high - low + 1)
        strides.append(c * memory.itemsize)
    if any(low > high for low, high in known.values()) or not all(n > 0 for n in shape):
        return memory[:0]
    ends = [(n - 1) * c // memory.itemsize for n, c in zip(shape, strides)]
    if offset + sum(e for e in ends if e < 0) < 0 or offset + sum(e for e in ends if e > 0) >= memory.size:
        return None
    return np.lib.stride_tricks.as_strided(memory[offset:], shape, strides)


def _alone(condition: Cond) -> dict[Var, Interval] | None:
    """The bounds that a condition sets to single unknowns; None where it says anything else."""
    known: dict[Var, Interval] = {}
    for x in T.conjuncts(condition):
        for f in facts_of(x):
            if len(f.terms) > 1 or (f.terms and not isinstance(f.terms[0][0], Var)):
                return None
            if not f.terms:
                known[_NEVER] = (0, 0 if f.const >= 0 else -1)
                continue
            ((v, c),) = f.terms
            assert isinstance(v, Var)
            low, high = known.get(v, (v.low, v.high))
            known[v] = (max(low, -(f.const // c)), high) if c > 0 else (low, min(high, f.const // -c))
        if not facts_of(x):
            return None
    return known


_NEVER = Var("never", 0, 0)


# By the solver: each element of the one is an element of the other


def covers(before: Sequence[Site], after: Sequence[Site], worker: Worker) -> Iterator[Verdict]:
    """Each element that is written before is written after, and the other way around."""
    for some, others, words in ((before, after, "before"), (after, before, "after")):
        for s in some:
            if is_same(s, others):
                yield Verdict(Kind.COVER, f"{s} {words}", By.STRUCTURE)
            else:
                yield _found(among(s, others, Kind.COVER, f"{s} {words}"), worker)


def is_same(s: Site, others: Iterable[Site]) -> bool:
    """Return True if one of the others has the same element and condition in terms of the same unknowns: it touches the same."""
    if any(v.loaded for v in T.unknowns(s.condition, T.unknowns(s.index))):  # such a name is of one body alone
        return False
    return any(o.index is s.index and set(T.conjuncts(o.condition)) == set(T.conjuncts(s.condition)) for o in others)


#: What covers an access whose place, or gate, is a value of memory, where that went through memory of the kernel.
BY_VALUE = "what the index or the gate is, is a value: stages"


def _found(c: Claim, worker: Worker) -> Verdict:
    """Whether the solver finds the iterations that `decoded` proposes right. If not, there may be others: nothing is refuted, and
    what depends on values of memory is left to the check of values."""
    if T.has_held(c.given) or T.has_held(c.goal) or any(u.loaded for u in T.unknowns(c.goal, T.unknowns(c.given))):
        with suppress(Spent):
            if (v := by_solver(c, worker, BudgetUnit.HELD_STEPS)).proved:
                return v
        return Verdict(c.kind, c.place, By.INTERPRETER, why=BY_VALUE)
    v = by_solver(c, worker)
    if v.proved:
        return v
    words = v.why if v.counterexample is None else f"no iteration was found, {v.counterexample.words}"
    return Verdict(c.kind, c.place, None, why=words)


def among(s: Site, others: Sequence[Site], kind: Kind, place: str) -> Claim:
    """Each element that `s` touches is touched by one of the others, at the iteration that `decoded` finds."""
    mine = copy(s, ".1")
    goals = [g for o in merged(x for o in others for x in branches(o)) if (g := decoded(o, mine.index)) is not None]
    goal = goals[0] if len(goals) == 1 else Cond("or", tuple(goals)) if goals else T.FALSE
    return Claim(kind, place, mine.condition, goal)


def branches(s: Site) -> Iterator[Site]:
    """The sites that a site is whose index chooses between two: one for each, where it is chosen."""
    for t, k in s.index.terms:
        if isinstance(t, App) and t.op == "where":
            c, *both = t.args
            assert isinstance(c, Cond)
            rest = T.add(s.index, T.of(t), -k)
            for given, x in zip((c, T.negated(c)), both):
                yield from branches(replace(s, index=T.add(rest, x, k), gate=T.both(s.gate, given)))  # type: ignore[arg-type]
            return
    yield s
    yield from _last(s)


def _last(s: Site) -> Iterator[Site]:
    """A window that begins before the memory does, at its last place: of counters that count alike, but for one, the greatest
    values. Its first elements are where the digits of an element say, its others also here."""
    if T.bounds(s.index)[0] >= 0:
        return
    met: set[int] = set()
    put: dict[Var, Lin] = {}
    for v, c in s.index.terms:
        if isinstance(v, Var) and v in s.counters:
            if abs(c) in met:
                put[v] = Lin(v.high)
            met.add(abs(c))
    if put:
        yield s.put(put)


def merged(sites: Iterable[Site]) -> Iterator[Site]:
    """The sites, of which those that differ by constants alone, as in a register tile, are one with more counters."""
    alike: dict[object, list[Site]] = {}
    for s in sites:
        alike.setdefault((s.index.terms, s.condition, s.counters), []).append(s)
    for same in alike.values():
        first = min(same, key=lambda s: s.index.const)
        steps = _grid(sorted({s.index.const - first.index.const for s in same}))
        if steps is None or not steps:
            yield from same
            continue
        also = tuple(Var(f"tile{k}", 0, n - 1) for k, (_, n) in enumerate(steps))
        index = Lin(first.index.const, (*first.index.terms, *((v, step) for v, (step, _) in zip(also, steps))))
        yield replace(first, index=index, also=also)


def _grid(offsets: Sequence[int]) -> list[tuple[int, int]] | None:
    """(step, count) of each digit, where numbers from 0 on are all sums of digits times steps; None else."""
    if len(offsets) == 1:
        return []
    n = next((k for k, x in enumerate(offsets) if x != k * offsets[1]), len(offsets))
    blocks = offsets[::n]
    if [b + x for b in blocks for x in offsets[:n]] != list(offsets):
        return None
    rest = _grid(blocks)
    return None if rest is None else [(offsets[1], n), *rest]


def agreement_claims(before: Body, after: Body) -> Iterator[Claim]:
    """What the verdicts on writes and reads are about."""
    slots = sorted({s.memory.arg.slot for b in (before, after) for s in b.sites if s.memory.op is Op.PARAM})
    for slot in slots:
        old, new = ([s for s in b.sites if s.memory.op is Op.PARAM and s.memory.arg.slot == slot] for b in (before, after))
        stores = in_order(*([s for s in sites if s.writes] for sites in (old, new)))
        loads = [[s for s in sites if not s.writes] for sites in (old, new)]
        again = bool(loads[1]) and bool(stores[1])
        plain = [s for s in stores[1] if s.kind == "store"]
        yield from (distinct(s, _ordered(s) if again else ()) for s in plain)
        if not again:
            yield from (apart(a, b) for j, b in enumerate(plain) for a in plain[:j])
        yield from (among(s, stores[1], Kind.COVER, f"{s} before") for s in stores[0])
        yield from (among(s, stores[0], Kind.COVER, f"{s} after") for s in stores[1])
        yield from (among(s, (*loads[0], *stores[1]), Kind.READS, f"{s} after") for s in loads[1])
        if not stores[1]:
            yield from (among(s, loads[1], Kind.READS, f"{s} before") for s in loads[0])


# Reads


def reads(slot: int, before: Body, after: Body, worker: Worker) -> Iterator[Verdict]:
    """What is read of an argument after was read before, or is written by the kernel itself."""
    old, new = ([s for s in b.sites if s.memory.op is Op.PARAM and s.memory.arg.slot == slot] for b in (before, after))
    loads = [s for s in new if not s.writes]
    if loads:
        others = (*(s for s in old if not s.writes), *(s for s in new if s.writes))
        yield from _reads(f"loads of argument {slot}", loads, others, worker)


def _reads(place: str, some: Sequence[Site], others: Sequence[Site], worker: Worker) -> Iterator[Verdict]:
    size = size_of(some[0])
    allowed = None if size is None else marks(others, size, None)
    for s in some:
        found = None if allowed is None or isinstance(allowed, Verdict) else _among_marks(s, allowed, place)
        if found is None and is_same(s, others):
            found = Verdict(Kind.READS, place, By.STRUCTURE)
        yield found or _found(among(s, others, Kind.READS, str(s)), worker)


def _among_marks(s: Site, allowed: Numbers, place: str) -> Verdict | None:
    """Whether a site touches only marked elements; None where that is too much."""
    low, high = T.bounds(s.index, tightened(facts_of(s.condition)) or {})
    if low >= 0 and allowed[low : high + 1].all():
        return Verdict(Kind.READS, place, By.SUMS)
    points = executions(s)
    if points is None:
        return None
    _, index, keep = points
    numbers = np.broadcast_to(index, keep.shape)[keep]
    extra = numbers[np.logical_not(allowed[numbers])]
    if not extra.size:
        return Verdict(Kind.READS, place, By.POINTS)
    why = Counterexample({"element": int(extra[0])}, f"element {int(extra[0])} is read, and was not before")
    return Verdict(Kind.READS, place, By.POINTS, why)
