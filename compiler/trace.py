"""The record of one lowering: the graph after every stage, and what became of each node on the way.

Takes: TENSOR. Gives: the graphs of all stages, the parts (kernels) of each, and between two neighbouring stages `Links`: node to
node, with the rules and passes that made the one of the other. A link is *direct* where the node was replaced by that node or
stayed as it was, and *made* where the node came into being for a replacement, below what replaced it. Nothing is guessed from
looks: where no pass told (`uops.compiler.log`) there is no link. Spec: Lowering Pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.compiler.config import Config
from uops.compiler.log import Log, Move, recording
from uops.compiler.pipeline import stages
from uops.compiler.rewrite.rule import Rewrites, Rule, Step
from uops.compiler.target import Target
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record
from uops.spec.untrusted import quote_name

__all__ = ["Cause", "Link", "Links", "Part", "Trace", "trace"]


@record(frozen=True, slots=True)
class Part:
    """A kernel, or the whole program before there are kernels. `arguments` are what a Call passes to `body`; of a Program, `body`
    is its instruction list and `code` its source."""

    name: str
    body: UOp
    arguments: tuple[UOp, ...] = ()
    code: str | None = None

    def nodes(self) -> list[UOp]:
        """Every node, arguments first, sources before users."""
        return toposort(*self.arguments, self.body)


@record(frozen=True, slots=True)
class Cause:
    """What changed a node: a pass, and the step of a rule where one did it."""

    by: str
    step: Step | None = None


@record(frozen=True, slots=True)
class Link:
    """`source` became `target`; `made`: `target` was made for what `source` became."""

    source: UOp
    target: UOp
    made: bool
    causes: tuple[Cause, ...]


@record(frozen=True, slots=True)
class Links:
    """Between one part and the part that was made of it; `decisions` are those about the whole kernel, in order.

    With `gap` no pass told how one came from the other: only nodes that both have are linked."""

    source: int
    target: int
    links: tuple[Link, ...]
    decisions: tuple[str, ...]
    gap: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """`stages`: graphs by stage, in order, the input under `tensor`."""

    stages: Mapping[str, UOp]
    log: Log

    def parts(self, stage: str) -> tuple[Part, ...]:
        """The parts of a stage; a kernel keeps the name that it had when it was split off."""
        found = parts(self.stages[stage])
        if self.stages[stage].op is not Op.LINEAR:
            return found
        first = next((p for g in self.stages.values() if g.op is Op.LINEAR and len(p := parts(g)) == len(found)), found)
        return tuple(replace(part, name=named.name) for part, named in zip(found, first))

    def links(self, stage: str) -> Iterator[Links]:
        """From the stage before `stage` to it, an entry per part of `stage` and part that it was made of: a joined kernel was made
        of several."""
        names = list(self.stages)
        before, after = self.stages[names[names.index(stage) - 1]], self.stages[stage]
        return _links(before, after, self.log)

    def steps(self) -> Iterator[Step]:
        """Every application of a rule, once, in order per Rewriter."""
        for steps in {id(m.steps): m.steps for m in self.log.moves}.values():
            yield from steps

    def rules(self) -> dict[str, Rule]:
        """Every rule that was at hand, by name."""
        return {r.name: r for rules in {id(m.rules): m.rules for m in self.log.moves}.values() for r in rules}


def trace(graph: UOp, target: Target, config: Config | None = None, reached: Callable[[str], None] = lambda stage: None) -> Trace:
    """Lower `graph` to the end and keep everything; `reached` hears of each stage. Raises as `lower` does."""
    with recording() as log:
        return Trace(stages(graph, target, config, reached), log)


def parts(root: UOp) -> tuple[Part, ...]:
    """The kernels of a launch; the one program where there is no launch yet."""
    if root.op is Op.LINEAR and all(c.op is Op.CALL for c in root.src):
        return tuple(_kernel(k, c.src[0], c.src[1:]) for k, c in enumerate(root.src))
    return (Part("program", root.src[0], root.src[1:]) if root.op is Op.CALL else Part("program", root),)


def _kernel(k: int, body: UOp, arguments: tuple[UOp, ...]) -> Part:
    if body.op is Op.PROGRAM:
        return Part(f"kernel {k}", body.src[0], arguments, str(body.src[1].arg.code))
    named = body.op is Op.SINK and body.arg is not None
    return Part(f"{k}: {quote_name(body.arg.name)}" if named else f"kernel {k}", body, arguments)  # equal kernels have one name


# ------------------------------------------------------------------------------------------------------- part to part

#: The first of them from each graph before, by the kernel that it is about (None: all).
_Ways = Mapping[UOp, Mapping[int | None, Mapping[UOp, tuple[int, Move]]]]


def _links(before: UOp, after: UOp, log: Log) -> Iterator[Links]:
    old, new = parts(before), parts(after)
    known = _Known(log)
    passed = _Passed(m for _, m in known.moves.get(after, ()) if m.before is before)
    starts: dict[int, dict[UOp, int]] = {}
    for j, k in _made_of(before, len(old), len(new), log):
        if j not in starts:
            starts[j] = {u: n for n, u in enumerate(old[j].nodes())}
        nodes = new[k].nodes()
        chains = _chains(old[j].body, new[k].body, k, known, len(log.moves))
        links = [x for chain in chains or [[]] for x in _compose(starts[j], [known.relation(m) for m in chain], nodes)]
        pairs: dict[tuple[UOp, UOp], Link] = {}
        for x in sorted(links, key=lambda x: x.made) + passed.links(starts[j], new[k]):
            pairs.setdefault((x.source, x.target), x)
        yield Links(j, k, tuple(pairs.values()), known.decisions([m for chain in chains for m in chain]), not chains)


def _made_of(before: UOp, old: int, new: int, log: Log) -> list[tuple[int, int]]:
    """Which of the old parts went into which of the new ones."""
    if old == new:
        return [(k, k) for k in range(new)]
    join = next((m for m in log.moves if m.before is before and before.op is m.after.op is Op.LINEAR and m.put), None)
    if join is None:
        return [(0, k) for k in range(new)]
    calls: dict[UOp | tuple[UOp, ...], list[int]] = {}
    for j, o in enumerate(before.src):
        calls.setdefault(join.put.get(o, o), []).append(j)
    return [(j, k) for k, c in enumerate(join.after.src) for j in calls.get(c, ())]


class _Known:
    """The tables that links between two stages share: moves by the graph that they gave, relations, decisions by their graph."""

    def __init__(self, log: Log) -> None:
        self.moves: dict[UOp, list[tuple[int, Move]]] = {}
        self.ways: dict[UOp, dict[int | None, dict[UOp, tuple[int, Move]]]] = {}
        self.shared = _Shared()
        self._relations: dict[int, _Relation] = {}
        self._decided: dict[UOp, list[tuple[int, str, UOp]]] = {}
        for at, m in enumerate(log.moves):
            self.moves.setdefault(m.after, []).append((at, m))
            self.ways.setdefault(m.after, {}).setdefault(m.kernel, {}).setdefault(m.before, (at, m))
        for at, (what, graph, after) in enumerate(log.decisions):
            self._decided.setdefault(graph, []).append((at, what, after))

    def relation(self, move: Move) -> _Relation:
        if id(move) not in self._relations:
            self._relations[id(move)] = _Relation(move, self.shared)
        return self._relations[id(move)]

    def decisions(self, chain: Sequence[Move]) -> tuple[str, ...]:
        graphs = {g for m in chain for g in (m.before, m.after)}
        heard = [(at, what) for g in graphs for at, what, after in self._decided.get(g, ()) if after in graphs]
        return tuple(dict.fromkeys(what for _, what in sorted(heard)))


def _ways_for(kernel: int, graph: UOp, ways: _Ways) -> list[tuple[int, Move]]:
    """The ways to `graph` that are about the kernel, or about all, in order."""
    found = ways.get(graph, {})
    return sorted((*found.get(None, {}).values(), *found.get(kernel, {}).values()), key=lambda x: x[0])


def _chains(before: UOp, after: UOp, kernel: int, known: _Known, end: int) -> list[list[Move]]:
    """The ways from one graph to the other by moves before `end`: one, or where graphs were put together, one through each."""
    chain = _chain(before, after, kernel, known.ways, end)
    last = next((i for i in reversed(range(len(chain or ()))) if chain and chain[i].part), None)
    if chain is None or last is None:
        return [] if chain is None else [chain]
    parts = [(at, m) for at, m in known.moves[chain[last].after] if m.part]
    return [[*head, m, *chain[last + 1 :]] for at, m in parts for head in _chains(before, m.before, kernel, known, at)]


def _chain(before: UOp, after: UOp, kernel: int, ways: _Ways, end: int) -> list[Move] | None:
    """The moves that lead from one graph to the other, None if none are known to."""
    came: dict[UOp, Move | None] = {after: None}
    pending = [after]
    while pending:
        u = pending.pop()
        if u is before:
            break
        for position, m in _ways_for(kernel, u, ways):
            if m.before not in came and position < end:
                came[m.before] = m
                pending.append(m.before)
    if before not in came:
        return None
    chain: list[Move] = []
    at = before
    while (step := came[at]) is not None:
        chain.append(step)
        at = step.after
    return chain


class _Passed:
    """The fate of the arguments of kernels, by the moves from one whole program to the next."""

    def __init__(self, moves: Iterable[Move]) -> None:
        self.put = {u: (m.by, t) for m in moves for u, t in m.put.items()}
        self.sources: dict[UOp, list[UOp]] = {}
        for u, (_, put) in self.put.items():
            for t in _targets(put):
                self.sources.setdefault(t, []).append(u)

    def links(self, old: Mapping[UOp, int], new: Part) -> list[Link]:
        """What is passed to a kernel is passed on, was given to a value, or is what the memory plan put in its place."""
        there = dict.fromkeys(toposort(*new.arguments))
        found = [Link(a, a, False, ()) for a in sorted((a for a in there if a in old), key=old.__getitem__)]
        kept = {x.target for x in found}
        for a in sorted({a for t in there for a in self.sources.get(t, ()) if a in old}, key=old.__getitem__):
            by, put = self.put[a]
            for t in _targets(put):
                if t in there and t is not a:
                    found += [
                        Link(a, n, n is not t or a.op is not Op.BUFFER, (Cause(by),))
                        for n in toposort(t)
                        if n is t or n not in kept
                    ]
        return found


def _targets(put: UOp | tuple[UOp, ...]) -> tuple[UOp, ...]:
    return put if isinstance(put, tuple) else (put,)


# ------------------------------------------------------------------------------------------------------- node to node

#: (target, made, causes) of a source.
_Arrow = tuple[UOp, bool, tuple[Cause, ...]]


class _Graph:
    """A graph that many moves may begin with: the place of each node in its order, and its users."""

    def __init__(self, root: UOp) -> None:
        self.place = {u: n for n, u in enumerate(toposort(root))}
        self.users: dict[UOp, list[UOp]] = {}
        for u in self.place:
            for s in dict.fromkeys(u.src):
                self.users.setdefault(s, []).append(u)


class _Sources:
    """The nodes of a graph of which those of the next one are known to have come."""

    def __init__(self, graph: _Graph, known: Iterable[tuple[UOp, UOp]]) -> None:
        self.graph = graph
        self.image: dict[UOp, UOp] = {}
        self.of: dict[UOp, list[UOp]] = {}
        self.users: dict[UOp, int] = {}  # how many users all `of` a node have, more or less
        for u, v in known:
            self.add(u, v)

    def add(self, u: UOp, v: UOp) -> None:
        """Note that `u` became `v`."""
        self.image[u] = v
        self.of.setdefault(v, []).append(u)
        self.users[v] = self.users.get(v, 0) + len(self.graph.users.get(u, ()))

    def candidates(self, v: UOp) -> list[UOp]:
        """The nodes that may have become `v`: users of what became one of its sources, of the one that has the fewest."""
        if not v.src:
            return [v] if v in self.graph.place else []
        fewest = min(v.src, key=lambda s: self.users.get(s, 0))
        return [u for x in self.of.get(fewest, ()) for u in self.graph.users.get(x, ()) if u.op is v.op]

    def are_those_of(self, v: UOp, u: UOp) -> bool:
        """Return True if the sources of `v` are what those of `u` became, and `u` itself is not known to be another node."""
        return u not in self.image and len(u.src) == len(v.src) and all(self.image.get(s) is n for s, n in zip(u.src, v.src))


class _Shared:
    """The graphs, and the logs of Rewriters in other forms, that several relations need; made on first use."""

    def __init__(self) -> None:
        self._graphs: dict[UOp, _Graph] = {}
        self._steps: dict[int, dict[UOp, Step]] = {}
        self._histories: dict[int, dict[UOp, tuple[Step, ...]]] = {}

    def graph(self, root: UOp) -> _Graph:
        if root not in self._graphs:
            self._graphs[root] = _Graph(root)
        return self._graphs[root]

    def steps(self, move: Move) -> Mapping[UOp, Step]:
        if id(move.steps) not in self._steps:
            self._steps[id(move.steps)] = {s.before: s for s in move.steps}
        return self._steps[id(move.steps)]

    def history(self, terms: Rewrites | None) -> Mapping[UOp, tuple[Step, ...]]:
        if terms is None:
            return {}
        if id(terms) not in self._histories:
            self._histories[id(terms)] = history(terms)
        return self._histories[id(terms)]


class _Relation:
    """What one Move did to each node: `arrows` from nodes of its graph before to nodes of its graph after."""

    def __init__(self, move: Move, shared: _Shared) -> None:
        self.move, self.shared = move, shared
        self.order = toposort(move.after)
        self.there = set(self.order)
        self.arrows: dict[UOp, list[_Arrow]] = {}
        self.owners: dict[UOp, dict[UOp, None]] = {}
        (self._rewritten if move.rules else self._replaced)()
        for u, nodes in (move.made or {}).items():
            for v in _targets(nodes):
                self._add(u, v, True, (Cause(move.by),))
        if move.part:  # what has no source here has one in another part
            return
        if not self.owners.get(move.after):
            self._add(move.before, move.after, True, (Cause(move.by),))
        self._made(shared.history(move.terms))

    def _add(self, u: UOp, v: UOp, made: bool, causes: tuple[Cause, ...]) -> None:
        owners = self.owners.setdefault(v, {})
        if v in self.there and u not in owners:
            owners[u] = None
            self.arrows.setdefault(u, []).append((v, made, causes))

    def _replaced(self) -> None:
        """By the pass's own replacements; any other node is the same node on replaced sources."""
        graph, put = self.shared.graph(self.move.before), self.move.put
        targets = {u: _targets(put[u]) for u in put if u in graph.place}
        targets.update((u, (v,)) for u, v in self._carry_over(graph, targets).items())
        cause = (Cause(self.move.by),)
        for u in sorted(targets, key=graph.place.__getitem__):
            for v in targets[u]:
                self._add(u, v, False, () if v is u else cause)

    def _carry_over(self, graph: _Graph, put: Mapping[UOp, tuple[UOp, ...]]) -> dict[UOp, UOp]:
        """Map nodes that the pass did not replace to what they became, as far as that is in the graph after.

        A kernel's graph may be a small part of a whole program's, so its nodes are looked for in the program, not the other way.
        """
        sources = _Sources(graph, ((u, v[0] if v else u) for u, v in put.items()))
        found: dict[UOp, UOp] = {}
        for v in self.order:
            for u in sources.candidates(v):
                if sources.are_those_of(v, u) and (u is v or u.replace(src=v.src) is v):
                    found[u] = v
                    sources.add(u, v)
        return found

    def _rewritten(self) -> None:
        steps = self.shared.steps(self.move)
        known: dict[UOp, _Fate] = {}
        for u in toposort(self.move.before):
            fate = _fate(u, self.move, steps, known)
            self._add(u, fate.final, False, fate.causes)
            pending = list(fate.parts)
            seen = set(pending)
            while pending:
                i = pending.pop()
                part = _fate(i, self.move, steps, known)
                self._add(u, part.final, True, (*fate.causes, *part.causes))
                pending += [x for x in part.parts if x not in seen]
                seen.update(part.parts)

    def _made(self, terms: Mapping[UOp, tuple[Step, ...]]) -> None:
        """A node without a source was made for what its nearest users with one are made of, perhaps by rules."""
        users: dict[UOp, list[UOp]] = {}
        for u in self.order:
            for s in u.src:
                users.setdefault(s, []).append(u)
        for v in reversed(self.order):
            if not self.owners.get(v):
                cause = (Cause(self.move.by), *(Cause("rules", s) for s in terms.get(v, ())))
                for u in dict.fromkeys(u for w in users.get(v, ()) for u in self.owners.get(w, ())):
                    self._add(u, v, True, cause)


def history(terms: Rewrites) -> dict[UOp, tuple[Step, ...]]:
    """For each normal form of a Rewriter the steps that ended in it, or made it beside what they ended in."""
    found: dict[UOp, dict[int, Step]] = {}
    for s in terms.log or ():
        for n in (s.before, *_inside(s)):
            found.setdefault(terms.done.get(n, n), {})[id(s)] = s
    return {u: tuple(steps.values()) for u, steps in found.items()}


@record(frozen=True, slots=True)
class _Fate:
    """What a Rewriter made of a node: the normal form, why, and the nodes that its rules made beside it."""

    final: UOp
    causes: tuple[Cause, ...]
    parts: tuple[UOp, ...]


def _fate(u: UOp, move: Move, steps: Mapping[UOp, Step], known: dict[UOp, _Fate]) -> _Fate:
    if u in known:
        return known[u]
    causes: list[Cause] = []
    inner: list[UOp] = []
    at, seen = u, {u}
    while True:
        src = tuple([move.put.get(s, s) for s in at.src])
        new = at if src == at.src else at.replace(src=src)  # type: ignore[arg-type] # a Rewriter's memory has single nodes
        if new is at and at in steps:
            step = steps[at]
            causes.append(Cause(move.by, step))
            inner += _inside(step)
            new = step.after
        if new is at or new in seen:
            break
        seen.add(new)
        at = new
    final = _targets(move.put.get(u, at))[0]
    known[u] = _Fate(final, tuple(causes) or (() if final is u else (Cause("rules on its sources"),)), tuple(inner))
    return known[u]


def _inside(step: Step) -> list[UOp]:
    """The nodes that a step made beside its result: those between it and what the rule had bound."""
    bound = {n for n in step.binding.values() if isinstance(n, UOp)}
    return [n for n in toposort(step.after, gate=lambda n: n not in bound) if n is not step.after and n not in bound and n.src]


#: What a node became so far: made or not, and why.
_Reached = dict[UOp, tuple[bool, tuple[Cause, ...]]]


def _compose(start: Mapping[UOp, int], relations: Sequence[_Relation], nodes: Iterable[UOp]) -> list[Link]:
    """From the nodes of a graph to `nodes`, through relations one after another; only what leads there is followed."""
    wanted = [set(nodes)]
    for r in reversed(relations):
        wanted.append({u for v in wanted[-1] for u in r.owners.get(v, ())})
    begin, *there = reversed(wanted)
    now: dict[UOp, _Reached] = {u: {u: (False, ())} for u in sorted((u for u in begin if u in start), key=start.__getitem__)}
    for r, kept in zip(relations, there, strict=True):
        now = {u: _step(reached, r, kept) for u, reached in now.items()}
    return [
        Link(u, v, made, tuple({(c.by, id(c.step)): c for c in causes}.values()))
        for u, reached in now.items()
        for v, (made, causes) in reached.items()
    ]


def _step(reached: _Reached, r: _Relation, kept: Collection[UOp]) -> _Reached:
    found: _Reached = {}
    for middle, (made, causes) in reached.items():
        for v, also, more in r.arrows.get(middle, ()):
            if v in kept and (v not in found or (found[v][0] and not (made or also))):
                found[v] = made or also, (*causes, *more) if more else causes
    return found
