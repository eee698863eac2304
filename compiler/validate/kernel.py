"""The obligations of one kernel: its instructions against its body before it was scheduled.

Takes: the KERNEL body, and the LINEAR (or PROGRAM) that the passes made of it. Gives: a verdict per obligation.
Spec: Lowering Pipeline; R08, R45, R52, R55, R60, R61, R146.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.solver import Worker
from uops.compiler.validate import terms as T
from uops.compiler.validate.budget import Spent, limit_cost
from uops.compiler.validate.decide import decide
from uops.compiler.validate.model import Claim, Counterexample, Kind, Verdict
from uops.compiler.validate.races import races
from uops.compiler.validate.reader import read
from uops.compiler.validate.sites import Body, Site, counter, variable
from uops.compiler.validate.terms import App, Cond, Lin, Var
from uops.compiler.validate.writes import by_memory, meet, reads, written
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import is_variable

#: Values of the named variables together, up to which each is looked at by itself.
WORLDS = 128


def kernel(before: UOp, after: UOp, worker: Worker) -> list[Verdict]:
    """Every obligation of a kernel, decided; those of the same form once. Where its budget is spent, the rest is one verdict that
    is not decided."""
    found: list[Verdict] = []
    try:
        with limit_cost():
            _decide(before, after, worker, found)
    except Spent as e:
        found.append(Verdict(found[-1].kind if found else Kind.BOUNDS, "the rest of the kernel", None, why=str(e)))
    finally:
        smt.forget()
    return found


def _decide(before: UOp, after: UOp, worker: Worker, found: list[Verdict]) -> None:
    """Put the verdicts of a kernel into `found`. Raises Spent."""
    old, new = read(before), read(after)
    done: set[object] = set()
    for s in new.sites:
        for c in (bounds(s), *widths(s)):
            key = c.given, c.goal
            if key not in done:
                done.add(key)
                found.append(_shown(decide(c, worker), s))
    if all(v.proved for v in found if v.kind is Kind.BOUNDS):
        found += _together(old, new, worker)


def _together(old: Body, new: Body, worker: Worker) -> Sequence[Verdict]:
    """What several accesses have to keep: for each value of the named variables, where these are few. Raises Spent."""
    found: dict[tuple[Kind, str], Verdict] = {}
    for values in worlds(old, new):
        put = {v: Lin(n) for v, n in values.items()}
        a, b = old.put(put), new.put(put)
        verdicts = [*_agreement(a, b, worker), *races(b, worker)]
        if not values:
            return verdicts
        for v in verdicts:
            found.setdefault((v.kind, v.place), v)
            if not v.proved:
                return [*(w for w in found.values() if w.proved), _where(v, values)]
    return list(found.values())


def worlds(*bodies: Body) -> list[dict[Var, int]]:
    """All values of the named variables; one world without any, where there are none or too many."""
    names = list(dict.fromkeys(v for b in bodies for s in b.sites for v in s.variables))
    if not names or math.prod(v.high - v.low + 1 for v in names) > WORLDS:
        return [{}]
    return [dict(zip(names, values)) for values in itertools.product(*(range(v.low, v.high + 1) for v in names))]


def _where(v: Verdict, values: Mapping[Var, int]) -> Verdict:
    """A verdict that speaks of some values of the named variables."""
    named = {n.name: x for n, x in values.items()}
    words = ", ".join(f"{k} = {x}" for k, x in named.items())
    if v.counterexample is None:
        return replace(v, why=f"{v.why}, where {words}")
    why = v.counterexample
    return replace(v, counterexample=replace(why, values={**named, **why.values}, words=f"{why.words}, where {words}"))


def _agreement(old: Body, new: Body, worker: Worker) -> Iterator[Verdict]:
    before = {m.arg.slot: s for m, s in by_memory(s for s in old.sites if s.writes).items()}
    after = by_memory(s for s in new.sites if s.writes)
    loaded = [{m.arg.slot for m in by_memory(s for s in b.sites if s.kind == "load")} for b in (old, new)]
    for m, sites in after.items():
        earlier = before.pop(m.arg.slot, [])
        own = m.arg.slot in loaded[1] and (m.arg.slot not in loaded[0] or meet(earlier, worker))
        yield from written(m, earlier, sites, own, worker)
    for slot, sites in before.items():
        yield Verdict(Kind.COVER, f"argument {slot}", None, None, f"{sites[0]} has no Store after")
    for m in by_memory(s for s in new.sites if not s.writes):
        yield from reads(m.arg.slot, old, new, worker)


def bounds(s: Site) -> Claim:
    """An access whose gate holds is inside of its memory (R45)."""
    goal = T.both(T.at_least(s.index), T.at_least(T.add(T.add(s.size, T.ONE, -1), s.index, -1)))
    return Claim(Kind.BOUNDS, str(s), s.condition, goal)


def widths(s: Site) -> Iterator[Claim]:
    """Index arithmetic does not wrap where the access happens (R08). Arithmetic on what memory holds may (R05)."""
    parts = T.conjuncts(s.gate)
    for w in wraps(s.index):
        yield _fits(w, s.condition, s)
    for k, g in enumerate(parts):
        for w in wraps(g):
            given = s.within
            for earlier in parts[:k]:
                given = T.both(given, earlier)
            yield _fits(w, given, s)


def _fits(w: App, given: Cond, s: Site) -> Claim:
    low, high = T.storage(w.op)
    (a,) = w.args
    assert isinstance(a, Lin)
    goal = T.both(T.at_least(T.add(a, Lin(low), -1)), T.at_least(T.add(Lin(high), a, -1)))
    return Claim(Kind.WIDTH, f"{w.op[5:]} in the index of {s}", given, goal)


def wraps(x: Lin | Cond) -> Iterator[App]:
    """The numbers that a dtype may not hold, of loops and variables alone."""
    for t in T.subterms(x):
        if isinstance(t, App) and t.op.startswith("wrap-") and not T.has_held(t) and not any(v.loaded for v in T.unknowns(t)):
            yield t


def _shown(v: Verdict, s: Site) -> Verdict:
    """A refutation with the index and the gate that show it."""
    why = v.counterexample
    if why is None:
        return v
    return replace(v, counterexample=replace(why, graphs=tuple(closed(s, why))))


def closed(s: Site, why: Counterexample) -> Iterator[tuple[str, UOp, int]]:
    """The index and the gate of an access at the iteration of a counterexample, and what they are there."""
    put: dict[UOp, UOp] = {}
    values = {v: Lin(why.values.get(v.name, v.low)) for v in T.unknowns(s.condition, T.unknowns(s.index))}
    if any(v.loaded for v in values) or T.has_held(s.condition):
        return
    for u in toposort(s.node):
        if u.op is Op.RANGE:
            put[u] = B.index(why.values.get(counter(u).name, 0))
        elif is_variable(u):
            v = variable(u)
            put[u] = B.index(why.values.get(v.name, v.low))
    address = s.node.src[0]
    index = address.src[1] if address.op is Op.INDEX else None
    lane = why.values.get(s.lane.name, 0) if s.lane is not None else 0
    if index is not None and index.shape in ((), (1,)):
        yield "index", _with(index, put), _number(T.substituted(s.index, values))
    elif index is not None and index.op is Op.STACK:
        yield "index", _with(index.src[lane], put), _number(T.substituted(s.index, values))


def _with(u: UOp, put: dict[UOp, UOp]) -> UOp:
    done: dict[UOp, UOp] = {}
    for x in toposort(u):
        src = tuple(done[s] for s in x.src)
        done[x] = put[x] if x in put else x if src == x.src else x.replace(src=src)
    return done[u]


def _number(a: Lin) -> int:
    from uops.compiler.validate.terms import values

    return int(values(a, {}))
