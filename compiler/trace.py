"""The record of one lowering: the graph after every stage, and what became of each node on the way.

Takes: TENSOR. Gives: the graphs of all stages, the parts (kernels) of each, and between two neighbouring stages `Links`: node to
node, with the rules and passes that made the one of the other. A link is *direct* where the node was replaced by that node or
stayed as it was, and *made* where the node came into being for a replacement, below what replaced it. Nothing is guessed from
looks: where no pass told (`uops.compiler.log`) there is no link. Spec: Lowering Pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.compiler.config import Config
from uops.compiler.log import Log, Move, recording
from uops.compiler.pipeline import stages
from uops.compiler.rewrite import Rewriter, Rule, Step
from uops.compiler.target import Target
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op
from uops.spec.record import dataclass as record

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

    def links(self, stage: str) -> tuple[Links, ...]:
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


def trace(graph: UOp, target: Target, config: Config | None = None) -> Trace:
    """Lower `graph` to the end and keep everything. Raises SpecError, CompileError or Unsupported as `lower` does."""
    with recording() as log:
        return Trace(stages(graph, target, config), log)


def parts(root: UOp) -> tuple[Part, ...]:
    """The kernels of a launch; the one program where there is no launch yet."""
    if root.op is Op.LINEAR and all(c.op is Op.CALL for c in root.src):
        return tuple(_kernel(k, c.src[0], c.src[1:]) for k, c in enumerate(root.src))
    return (Part("program", root.src[0], root.src[1:]) if root.op is Op.CALL else Part("program", root),)


def _kernel(k: int, body: UOp, arguments: tuple[UOp, ...]) -> Part:
    if body.op is Op.PROGRAM:
        return Part(f"kernel {k}", body.src[0], arguments, str(body.src[1].arg.code))
    named = body.op is Op.SINK and body.arg is not None
    return Part(f"{k}: {body.arg.name}" if named else f"kernel {k}", body, arguments)  # equal kernels have one name


# ------------------------------------------------------------------------------------------------------- part to part

#: The moves to each graph, with their places in the log.
_Moves = dict[UOp, list[tuple[int, Move]]]


def _links(before: UOp, after: UOp, log: Log) -> tuple[Links, ...]:
    old, new = parts(before), parts(after)
    by_after: _Moves = {}
    for at, m in enumerate(log.moves):
        by_after.setdefault(m.after, []).append((at, m))
    relations: dict[int, _Relation] = {}
    passed = {u: (m.by, t) for _, m in by_after.get(after, ()) if m.before is before for u, t in m.put.items()}
    found = []
    for j, k in _made_of(before, len(old), len(new), log):
        chains = _chains(old[j].body, new[k].body, k, by_after, len(log.moves))
        links = [
            x for chain in chains or [[]] for x in _Composition(old[j].nodes(), _along(chain, relations)).links(new[k].nodes())
        ]
        pairs: dict[tuple[UOp, UOp], Link] = {}
        for x in sorted(links, key=lambda x: x.made) + _arguments(old[j], new[k], passed):
            pairs.setdefault((x.source, x.target), x)
        moves = [m for chain in chains for m in chain]
        found.append(Links(j, k, tuple(pairs.values()), _decisions(moves, log), not chains))
    return tuple(found)


def _made_of(before: UOp, old: int, new: int, log: Log) -> list[tuple[int, int]]:
    """Which of the old parts went into which of the new ones."""
    if old == new:
        return [(k, k) for k in range(new)]
    join = next((m for m in log.moves if m.before is before and before.op is m.after.op is Op.LINEAR and m.put), None)
    if join is None:
        return [(0, k) for k in range(new)]
    return [(j, k) for k, c in enumerate(join.after.src) for j, o in enumerate(before.src) if join.put.get(o, o) is c]


def _chains(before: UOp, after: UOp, kernel: int, moves: _Moves, end: int) -> list[list[Move]]:
    """The ways from one graph to the other by moves before `end`: one, or where graphs were put together, one through each."""
    chain = _chain(before, after, kernel, moves, end)
    last = next((i for i in reversed(range(len(chain or ()))) if chain and chain[i].part), None)
    if chain is None or last is None:
        return [] if chain is None else [chain]
    parts = [(at, m) for at, m in moves[chain[last].after] if m.part]
    return [[*head, m, *chain[last + 1 :]] for at, m in parts for head in _chains(before, m.before, kernel, moves, at)]


def _chain(before: UOp, after: UOp, kernel: int, moves: _Moves, end: int) -> list[Move] | None:
    """The moves that lead from one graph to the other, None if none are known to."""
    came: dict[UOp, Move | None] = {after: None}
    pending = [after]
    while pending:
        u = pending.pop()
        if u is before:
            break
        for position, m in moves.get(u, ()):
            if m.before not in came and m.kernel in (None, kernel) and position < end:
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


def _along(chain: Iterable[Move], known: dict[int, _Relation]) -> list[_Relation]:
    for m in chain:
        if id(m) not in known:
            known[id(m)] = _Relation(m)
    return [known[id(m)] for m in chain]


def _decisions(chain: Sequence[Move], log: Log) -> tuple[str, ...]:
    graphs = {g for m in chain for g in (m.before, m.after)}
    return tuple(dict.fromkeys(what for what, before, after in log.decisions if before in graphs and after in graphs))


def _arguments(old: Part, new: Part, passed: Mapping[UOp, tuple[str, UOp | tuple[UOp, ...]]]) -> list[Link]:
    """What is passed to a kernel is passed on, was given to a value, or is what the memory plan put in its place."""
    there = set(toposort(*new.arguments))
    found = [Link(a, a, False, ()) for a in old.nodes() if a in there]
    kept = {x.target for x in found}
    for a in old.nodes():
        by, put = passed.get(a, ("", ()))
        for t in _targets(put):
            if t in there and t is not a:
                found += [
                    Link(a, n, n is not t or a.op is not Op.BUFFER, (Cause(by),)) for n in toposort(t) if n is t or n not in kept
                ]
    return found


def _targets(put: UOp | tuple[UOp, ...]) -> tuple[UOp, ...]:
    return put if isinstance(put, tuple) else (put,)


# ------------------------------------------------------------------------------------------------------- node to node

#: (target, made, causes) of a source.
_Arrow = tuple[UOp, bool, tuple[Cause, ...]]


class _Relation:
    """What one Move did to each node: `arrows` from nodes of its graph before to nodes of its graph after."""

    def __init__(self, move: Move) -> None:
        self.move = move
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
        self._made(history(move.terms) if move.terms is not None else {})

    def _add(self, u: UOp, v: UOp, made: bool, causes: tuple[Cause, ...]) -> None:
        owners = self.owners.setdefault(v, {})
        if v in self.there and u not in owners:
            owners[u] = None
            self.arrows.setdefault(u, []).append((v, made, causes))

    def _replaced(self) -> None:
        """By the pass's own replacements; any other node is the same node on replaced sources."""
        put, same = self.move.put, dict[UOp, UOp]()
        cause = (Cause(self.move.by),)
        for u in toposort(self.move.before):
            if u in put:
                targets = _targets(put[u])
                same[u] = targets[0] if targets else u
            else:
                src = tuple([same[s] for s in u.src])
                same[u] = u if src == u.src else u.replace(src=src)
                targets = (same[u],)
            for v in targets:
                self._add(u, v, False, () if v is u else cause)

    def _rewritten(self) -> None:
        steps = {s.before: s for s in self.move.steps}
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


def history(terms: Rewriter) -> dict[UOp, tuple[Step, ...]]:
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


class _Composition:
    """Relations one after another, from the nodes of a graph."""

    def __init__(self, start: Iterable[UOp], relations: Sequence[_Relation]) -> None:
        self.now: dict[UOp, dict[UOp, tuple[bool, tuple[Cause, ...]]]] = {u: {u: (False, ())} for u in start}
        for r in relations:
            self.now = {u: self._step(reached, r) for u, reached in self.now.items()}

    @staticmethod
    def _step(reached: Mapping[UOp, tuple[bool, tuple[Cause, ...]]], r: _Relation) -> dict[UOp, tuple[bool, tuple[Cause, ...]]]:
        found: dict[UOp, tuple[bool, tuple[Cause, ...]]] = {}
        for middle, (made, causes) in reached.items():
            for v, also, more in r.arrows.get(middle, ()):
                if v not in found or (found[v][0] and not (made or also)):
                    found[v] = made or also, (*causes, *more) if more else causes
        return found

    def links(self, nodes: Iterable[UOp]) -> list[Link]:
        there = set(nodes)
        return [
            Link(u, v, made, tuple({(c.by, id(c.step)): c for c in causes}.values()))
            for u, reached in self.now.items()
            for v, (made, causes) in reached.items()
            if v in there
        ]
