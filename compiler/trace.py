"""The trace of one lowering: the graph after every stage, and the links between nodes of neighbouring stages.

Takes: TENSOR. Gives: the graphs of all stages, the parts (kernels) of each, and between two neighbouring stages `PartLinks`.
These link node to node, with the rules and passes that are the cause. A link is *direct* if the node was replaced by that node or
stayed as it was. It is *indirect* if the node was created for a replacement, below what replaced it. Nothing is guessed: where no
pass logged a replacement (`uops.compiler.log`) there is no link. Spec: Lowering Pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.compiler.config import Config
from uops.compiler.log import GraphTransform, LoweringLog, record_transforms
from uops.compiler.pipeline import stages
from uops.compiler.rewrite.rule import RewriteLog, RewriteStep, Rule
from uops.compiler.target import Target
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record
from uops.spec.untrusted import escape_to_one_line

__all__ = ["LinkCause", "NodeLink", "PartLinks", "ProgramPart", "LoweringTrace", "trace_lowering"]


@record(frozen=True, slots=True)
class ProgramPart:
    """A kernel, or the whole program before there are kernels.

    `arguments` are those that a Call passes to `body`. Of a Program, `body` is its instruction list and `code` its source.
    """

    name: str
    body: UOp
    arguments: tuple[UOp, ...] = ()
    code: str | None = None

    def nodes(self) -> list[UOp]:
        """Return every node, arguments first, sources before users."""
        return toposort(*self.arguments, self.body)


@record(frozen=True, slots=True)
class LinkCause:
    """The cause of a change to a node: a pass, and the step of a rule if there is one."""

    by: str
    step: RewriteStep | None = None


@record(frozen=True, slots=True)
class NodeLink:
    """A link: `source` became `target`, or, if it is indirect, `target` was created for what `source` became."""

    source: UOp
    target: UOp
    is_indirect: bool
    causes: tuple[LinkCause, ...]


@record(frozen=True, slots=True)
class PartLinks:
    """The links between one part and a part that was made of it; `decisions` are those about the whole kernel, in order.

    With `has_gap` no pass logged how one became the other, and only nodes of both are linked.
    """

    source: int
    target: int
    links: tuple[NodeLink, ...]
    decisions: tuple[str, ...]
    has_gap: bool


@dataclass(frozen=True, slots=True)
class LoweringTrace:
    """The trace of a lowering. `stages` has the graphs by stage, in order, the input under `tensor`."""

    stages: Mapping[str, UOp]
    log: LoweringLog

    def parts_of_stage(self, stage: str) -> tuple[ProgramPart, ...]:
        """Return the parts of a stage; a kernel keeps the name that it had when it was split off."""
        parts = split_into_kernels_or_program(self.stages[stage])
        if self.stages[stage].op is not Op.LINEAR:
            return parts
        launches = (split_into_kernels_or_program(g) for g in self.stages.values() if g.op is Op.LINEAR)
        first = next((p for p in launches if len(p) == len(parts)), parts)
        return tuple(replace(part, name=named.name) for part, named in zip(parts, first))

    def links_into(self, stage: str) -> Iterator[PartLinks]:
        """Yield the links from the stage before `stage` to it, per part of `stage` and part that it was made of.

        A fused kernel was made of several parts. No links lead into the first stage.
        """
        names = list(self.stages)
        position = names.index(stage)
        return _link_parts_of_stages(self.stages[names[position - 1]], self.stages[stage], self.log) if position else iter(())

    def steps(self) -> Iterator[RewriteStep]:
        """Yield every application of a rule, once, in order per Rewriter."""
        for steps in {id(t.steps): t.steps for t in self.log.transforms}.values():
            yield from steps

    def rules(self) -> dict[str, Rule]:
        """Return every rule that could be applied, by name."""
        return {r.name: r for rules in {id(t.rules): t.rules for t in self.log.transforms}.values() for r in rules}


def trace_lowering(
    graph: UOp, target: Target, config: Config | None = None, on_stage: Callable[[str], None] = lambda stage: None
) -> LoweringTrace:
    """Lower `graph` to the end and record everything.

    `on_stage` is called with the name of each stage. Raises what `lower` raises.
    """
    with record_transforms() as log:
        return LoweringTrace(stages(graph, target, config, on_stage), log)


def split_into_kernels_or_program(root: UOp) -> tuple[ProgramPart, ...]:
    """Return the kernels of a launch, or the one program where there is no launch yet."""
    if root.op is Op.LINEAR and all(c.op is Op.CALL for c in root.src):
        return tuple(_make_kernel_part(k, call.body, call.arguments) for k, call in enumerate(root.instructions))
    return (ProgramPart("program", root.body, root.arguments) if root.op is Op.CALL else ProgramPart("program", root),)


def _make_kernel_part(kernel_number: int, body: UOp, arguments: tuple[UOp, ...]) -> ProgramPart:
    if body.op is Op.PROGRAM:
        linear, source, *_ = body.src
        return ProgramPart(f"kernel {kernel_number}", linear, arguments, str(source.arg.code))
    has_name = body.op is Op.SINK and body.arg is not None
    name = (
        f"{kernel_number}: {escape_to_one_line(body.arg.name)}" if has_name else f"kernel {kernel_number}"
    )  # with its number, as equal kernels have one name
    return ProgramPart(name, body, arguments)


# ------------------------------------------------------------------------------------------------------- part to part

#: graph -> kernel (None: all) -> graph before -> (position in the log, the first transform between the two)
_TransformsInto = Mapping[UOp, Mapping[int | None, Mapping[UOp, tuple[int, GraphTransform]]]]


def _link_parts_of_stages(before: UOp, after: UOp, log: LoweringLog) -> Iterator[PartLinks]:
    """Yield the links between the parts of two neighbouring stages."""
    old, new = split_into_kernels_or_program(before), split_into_kernels_or_program(after)
    tables = _LinkTables(log)
    argument_fates = _ArgumentReplacements(t for _, t in tables.transforms.get(after, ()) if t.before is before)
    starts: dict[int, dict[UOp, int]] = {}
    for j, k in _match_part_positions(before, len(old), len(new), log):
        if j not in starts:
            starts[j] = {u: n for n, u in enumerate(old[j].nodes())}
        nodes = new[k].nodes()
        chains = _find_transform_chains_via_each_merged_graph(old[j].body, new[k].body, k, tables, len(log.transforms))
        links: list[NodeLink] = []
        for chain in chains or [[]]:
            links += _compose_relations(starts[j], [tables.get_relation(t) for t in chain], nodes)
        by_nodes: dict[tuple[UOp, UOp], NodeLink] = {}
        for x in sorted(links, key=lambda x: x.is_indirect) + argument_fates.link_kept_and_replaced_arguments(starts[j], new[k]):
            by_nodes.setdefault((x.source, x.target), x)
        decisions = tables.collect_decisions_along_chain([t for chain in chains for t in chain])
        yield PartLinks(j, k, tuple(by_nodes.values()), decisions, not chains)


def _match_part_positions(before: UOp, old_count: int, new_count: int, log: LoweringLog) -> list[tuple[int, int]]:
    """Return which of `old_count` parts went into which of `new_count` ones, as pairs of positions."""
    if old_count == new_count:
        return [(k, k) for k in range(new_count)]
    launches = (t for t in log.transforms if t.before is before and before.op is t.after.op is Op.LINEAR)
    fusion = next((t for t in launches if t.replacements), None)
    if fusion is None:
        return [(0, k) for k in range(new_count)]
    calls: dict[UOp | tuple[UOp, ...], list[int]] = {}
    for j, call in enumerate(before.instructions):
        calls.setdefault(fusion.replacements.get(call, call), []).append(j)
    return [(j, k) for k, call in enumerate(fusion.after.instructions) for j in calls.get(call, ())]


class _LinkTables:
    """The tables that the links between two stages share: transforms, node relations and decisions, by graph."""

    def __init__(self, log: LoweringLog) -> None:
        self.transforms: dict[UOp, list[tuple[int, GraphTransform]]] = {}
        self.transforms_into: dict[UOp, dict[int | None, dict[UOp, tuple[int, GraphTransform]]]] = {}
        self.shared = _SharedLookups()
        self._relations: dict[int, _NodeRelation] = {}
        self._decisions: dict[UOp, list[tuple[int, str, UOp]]] = {}
        for position, t in enumerate(log.transforms):
            self.transforms.setdefault(t.after, []).append((position, t))
            self.transforms_into.setdefault(t.after, {}).setdefault(t.kernel, {}).setdefault(t.before, (position, t))
        for position, (decision, graph, after) in enumerate(log.decisions):
            self._decisions.setdefault(graph, []).append((position, decision, after))

    def get_relation(self, transform: GraphTransform) -> _NodeRelation:
        """Return the node relation of a transform, made on first use."""
        if id(transform) not in self._relations:
            self._relations[id(transform)] = _NodeRelation(transform, self.shared)
        return self._relations[id(transform)]

    def collect_decisions_along_chain(self, chain: Sequence[GraphTransform]) -> tuple[str, ...]:
        """Return the decisions between graphs of a chain of transforms, in order."""
        graphs = {g for t in chain for g in (t.before, t.after)}
        decisions = [(position, text) for g in graphs for position, text, after in self._decisions.get(g, ()) if after in graphs]
        return tuple(dict.fromkeys(text for _, text in sorted(decisions)))


def _transforms_into_graph(kernel: int, graph: UOp, transforms_into: _TransformsInto) -> list[tuple[int, GraphTransform]]:
    """Return the transforms that gave `graph` for this kernel, or for all kernels, in order."""
    by_kernel = transforms_into.get(graph, {})
    return sorted((*by_kernel.get(None, {}).values(), *by_kernel.get(kernel, {}).values()), key=lambda x: x[0])


def _find_transform_chains_via_each_merged_graph(
    start_graph: UOp, end_graph: UOp, kernel_number: int, tables: _LinkTables, before_log_position: int
) -> list[list[GraphTransform]]:
    """Return the chains of transforms from one graph to the other, all before position `before_log_position` of the log.

    There is one, or where graphs were put together, one through each of them.
    """
    chain = _find_one_transform_chain(start_graph, end_graph, kernel_number, tables.transforms_into, before_log_position)
    last = next((i for i in reversed(range(len(chain or ()))) if chain and chain[i].is_part), None)
    if chain is None or last is None:
        return [] if chain is None else [chain]
    chains = []
    for position, t in tables.transforms[chain[last].after]:
        if t.is_part:
            heads = _find_transform_chains_via_each_merged_graph(start_graph, t.before, kernel_number, tables, position)
            chains += [[*head, t, *chain[last + 1 :]] for head in heads]
    return chains


def _find_one_transform_chain(
    start_graph: UOp, end_graph: UOp, kernel_number: int, transforms_into: _TransformsInto, before_log_position: int
) -> list[GraphTransform] | None:
    """Return the transforms that lead from one graph to the other; None if the log has none."""
    next_transform: dict[UOp, GraphTransform | None] = {end_graph: None}
    pending = [end_graph]
    while pending:
        graph = pending.pop()
        if graph is start_graph:
            break
        for position, t in _transforms_into_graph(kernel_number, graph, transforms_into):
            if t.before not in next_transform and position < before_log_position:
                next_transform[t.before] = t
                pending.append(t.before)
    if start_graph not in next_transform:
        return None
    chain: list[GraphTransform] = []
    graph = start_graph
    while (transform := next_transform[graph]) is not None:
        chain.append(transform)
        graph = transform.after
    return chain


class _ArgumentReplacements:
    """The replacements of kernels' arguments, by the transforms from one whole program to the next."""

    def __init__(self, transforms: Iterable[GraphTransform]) -> None:
        self.replacements = {u: (t.pass_name, targets) for t in transforms for u, targets in t.replacements.items()}
        self.sources: dict[UOp, list[UOp]] = {}
        for u, (_, targets) in self.replacements.items():
            for target in _as_tuple(targets):
                self.sources.setdefault(target, []).append(u)

    def link_kept_and_replaced_arguments(self, old_node_positions: Mapping[UOp, int], new_part: ProgramPart) -> list[NodeLink]:
        """Link the arguments of a part: those that it had before, and those that replaced a value or its memory."""
        argument_nodes = dict.fromkeys(toposort(*new_part.arguments))
        links = [
            NodeLink(a, a, False, ())
            for a in sorted((a for a in argument_nodes if a in old_node_positions), key=old_node_positions.__getitem__)
        ]
        unchanged = {x.target for x in links}
        for a in sorted(
            {a for n in argument_nodes for a in self.sources.get(n, ()) if a in old_node_positions},
            key=old_node_positions.__getitem__,
        ):
            pass_name, targets = self.replacements[a]
            for target in _as_tuple(targets):
                if target in argument_nodes and target is not a:
                    links += [
                        NodeLink(a, n, n is not target or a.op is not Op.BUFFER, (LinkCause(pass_name),))
                        for n in toposort(target)
                        if n is target or n not in unchanged
                    ]
        return links


def _as_tuple(targets: UOp | tuple[UOp, ...]) -> tuple[UOp, ...]:
    return targets if isinstance(targets, tuple) else (targets,)


# ------------------------------------------------------------------------------------------------------- node to node

#: (target, is indirect, causes) of a source
_Arrow = tuple[UOp, bool, tuple[LinkCause, ...]]


class _GraphIndex:
    """A graph that many transforms may begin with: the position of each node in its order, and its users."""

    def __init__(self, root: UOp) -> None:
        self.position = {u: n for n, u in enumerate(toposort(root))}
        self.users: dict[UOp, list[UOp]] = {}
        for u in self.position:
            for s in dict.fromkeys(u.src):
                self.users.setdefault(s, []).append(u)


class _KnownSources:
    """The nodes of a graph before that are known to have become nodes of the graph after."""

    def __init__(self, graph: _GraphIndex, known: Iterable[tuple[UOp, UOp]]) -> None:
        self.graph = graph
        self.image: dict[UOp, UOp] = {}
        self.sources_of: dict[UOp, list[UOp]] = {}
        self.users: dict[UOp, int] = {}  # about how many users all sources of a node have
        for u, v in known:
            self.record_replacement(u, v)

    def record_replacement(self, old_node: UOp, new_node: UOp) -> None:
        """Record that `old_node` became `new_node`."""
        self.image[old_node] = new_node
        self.sources_of.setdefault(new_node, []).append(old_node)
        self.users[new_node] = self.users.get(new_node, 0) + len(self.graph.users.get(old_node, ()))

    def find_candidates_via_least_used_source(self, new_node: UOp) -> list[UOp]:
        """Return nodes that may have become `new_node`: users of the nodes that became one of its sources, the one with fewest
        users."""
        if not new_node.src:
            return [new_node] if new_node in self.graph.position else []
        fewest = min(new_node.src, key=lambda s: self.users.get(s, 0))
        return [u for x in self.sources_of.get(fewest, ()) for u in self.graph.users.get(x, ()) if u.op is new_node.op]

    def sources_match(self, v: UOp, u: UOp) -> bool:
        """Return True if the sources of `u` became those of `v`, and `u` itself is not known to be another node."""
        return u not in self.image and len(u.src) == len(v.src) and all(self.image.get(s) is n for s, n in zip(u.src, v.src))


class _SharedLookups:
    """The graphs and the logs of Rewriters in other forms, shared by several relations and made on first use."""

    def __init__(self) -> None:
        self._graphs: dict[UOp, _GraphIndex] = {}
        self._steps: dict[int, dict[UOp, RewriteStep]] = {}
        self._histories: dict[int, dict[UOp, tuple[RewriteStep, ...]]] = {}

    def get_graph_index(self, root: UOp) -> _GraphIndex:
        """Return the index of a graph."""
        if root not in self._graphs:
            self._graphs[root] = _GraphIndex(root)
        return self._graphs[root]

    def get_steps_by_rewritten_node(self, transform: GraphTransform) -> Mapping[UOp, RewriteStep]:
        """Return the steps of a transform's Rewriter by the node that they rewrote."""
        if id(transform.steps) not in self._steps:
            self._steps[id(transform.steps)] = {s.before: s for s in transform.steps}
        return self._steps[id(transform.steps)]

    def get_steps_by_produced_normal_form(self, rewrite_log: RewriteLog | None) -> Mapping[UOp, tuple[RewriteStep, ...]]:
        """Return the steps of a Rewriter by normal form."""
        if rewrite_log is None:
            return {}
        if id(rewrite_log) not in self._histories:
            self._histories[id(rewrite_log)] = group_steps_by_produced_normal_form(rewrite_log)
        return self._histories[id(rewrite_log)]


class _NodeRelation:
    """The effect of one transform: `arrows` from nodes of its graph before to nodes of its graph after."""

    def __init__(self, transform: GraphTransform, shared: _SharedLookups) -> None:
        self.transform, self.shared = transform, shared
        self.order = toposort(transform.after)
        self.nodes_after = set(self.order)
        self.arrows: dict[UOp, list[_Arrow]] = {}
        self.owners: dict[UOp, dict[UOp, None]] = {}
        (self._link_nodes_to_normal_and_inner_nodes if transform.rules else self._link_replaced_and_matched_nodes)()
        for u, nodes in (transform.extra_nodes or {}).items():
            for v in _as_tuple(nodes):
                self._add_new_arrow_if_target_in_graph_after(u, v, True, (LinkCause(transform.pass_name),))
        if transform.is_part:  # a node without a source here has one in another part
            return
        if not self.owners.get(transform.after):
            self._add_new_arrow_if_target_in_graph_after(transform.before, transform.after, True, (LinkCause(transform.pass_name),))
        self._link_created_nodes_via_users(shared.get_steps_by_produced_normal_form(transform.terms))

    def _add_new_arrow_if_target_in_graph_after(self, u: UOp, v: UOp, is_indirect: bool, causes: tuple[LinkCause, ...]) -> None:
        owners = self.owners.setdefault(v, {})
        if v in self.nodes_after and u not in owners:
            owners[u] = None
            self.arrows.setdefault(u, []).append((v, is_indirect, causes))

    def _link_replaced_and_matched_nodes(self) -> None:
        """Link nodes by the pass's own replacements; any other node is the same node on replaced sources."""
        graph, replacements = self.shared.get_graph_index(self.transform.before), self.transform.replacements
        targets = {u: _as_tuple(replacements[u]) for u in replacements if u in graph.position}
        targets.update((u, (v,)) for u, v in self._map_unreplaced_nodes_to_rebuilt_nodes(graph, targets).items())
        cause = (LinkCause(self.transform.pass_name),)
        for u in sorted(targets, key=graph.position.__getitem__):
            for v in targets[u]:
                self._add_new_arrow_if_target_in_graph_after(u, v, False, () if v is u else cause)

    def _map_unreplaced_nodes_to_rebuilt_nodes(self, graph: _GraphIndex, replaced: Mapping[UOp, tuple[UOp, ...]]) -> dict[UOp, UOp]:
        """Map nodes that the pass did not replace to what they became, as far as that is in the graph after.

        A kernel's graph may be a small part of a whole program's, so its nodes are searched for in the program, not the other
        way.
        """
        sources = _KnownSources(graph, ((u, v[0] if v else u) for u, v in replaced.items()))
        images: dict[UOp, UOp] = {}
        for v in self.order:
            for u in sources.find_candidates_via_least_used_source(v):
                if sources.sources_match(v, u) and (u is v or u.replace(src=v.src) is v):
                    images[u] = v
                    sources.record_replacement(u, v)
        return images

    def _link_nodes_to_normal_and_inner_nodes(self) -> None:
        """Link nodes by the steps of a Rewriter."""
        steps = self.shared.get_steps_by_rewritten_node(self.transform)
        memo: dict[UOp, _RewriteOutcome] = {}
        for u in toposort(self.transform.before):
            outcome = _follow_rewrites(u, self.transform, steps, memo)
            self._add_new_arrow_if_target_in_graph_after(u, outcome.final, False, outcome.causes)
            pending = list(outcome.inner_nodes)
            seen = set(pending)
            while pending:
                inner = _follow_rewrites(pending.pop(), self.transform, steps, memo)
                self._add_new_arrow_if_target_in_graph_after(u, inner.final, True, (*outcome.causes, *inner.causes))
                pending += [x for x in inner.inner_nodes if x not in seen]
                seen.update(inner.inner_nodes)

    def _link_created_nodes_via_users(self, steps: Mapping[UOp, tuple[RewriteStep, ...]]) -> None:
        """Link each node without a source indirectly to the sources of its nearest users that have some."""
        users: dict[UOp, list[UOp]] = {}
        for u in self.order:
            for s in u.src:
                users.setdefault(s, []).append(u)
        for v in reversed(self.order):
            if not self.owners.get(v):
                cause = (LinkCause(self.transform.pass_name), *(LinkCause("rules", s) for s in steps.get(v, ())))
                for u in dict.fromkeys(u for w in users.get(v, ()) for u in self.owners.get(w, ())):
                    self._add_new_arrow_if_target_in_graph_after(u, v, True, cause)


def group_steps_by_produced_normal_form(rewrite_log: RewriteLog) -> dict[UOp, tuple[RewriteStep, ...]]:
    """Return for each normal form of a Rewriter the steps that ended in it, or created it below their result."""
    by_form: dict[UOp, dict[int, RewriteStep]] = {}
    for s in rewrite_log.log or ():
        for n in (s.before, *_nodes_inside_step(s)):
            by_form.setdefault(rewrite_log.done.get(n, n), {})[id(s)] = s
    return {u: tuple(steps.values()) for u, steps in by_form.items()}


@record(frozen=True, slots=True)
class _RewriteOutcome:
    """The result of a Rewriter for a node: its normal form, the causes, and the nodes that rules created below it."""

    final: UOp
    causes: tuple[LinkCause, ...]
    inner_nodes: tuple[UOp, ...]


def _follow_rewrites(
    start_node: UOp, transform: GraphTransform, steps: Mapping[UOp, RewriteStep], memo: dict[UOp, _RewriteOutcome]
) -> _RewriteOutcome:
    """Return the result of a Rewriter for `start_node`, by its steps one after another. Memoized per node."""
    if start_node in memo:
        return memo[start_node]
    causes: list[LinkCause] = []
    inner_nodes: list[UOp] = []
    current, seen = start_node, {start_node}
    while True:
        src = tuple([transform.replacements.get(s, s) for s in current.src])
        new = current if src == current.src else current.replace(src=src)  # type: ignore[arg-type] # a Rewriter gives single nodes
        if new is current and current in steps:
            step = steps[current]
            causes.append(LinkCause(transform.pass_name, step))
            inner_nodes += _nodes_inside_step(step)
            new = step.after
        if new is current or new in seen:
            break
        seen.add(new)
        current = new
    final, *_ = _as_tuple(transform.replacements.get(start_node, current))
    if not causes and final is not start_node:
        causes = [LinkCause("rules on its sources")]
    memo[start_node] = _RewriteOutcome(final, tuple(causes), tuple(inner_nodes))
    return memo[start_node]


def _nodes_inside_step(step: RewriteStep) -> list[UOp]:
    """Return the nodes that a step created below its result: those between it and what the rule had bound."""
    bound = {n for n in step.binding.values() if isinstance(n, UOp)}
    return [n for n in toposort(step.after, gate=lambda n: n not in bound) if n is not step.after and n not in bound and n.src]


#: node that a node became so far -> (is indirect, causes)
_Reached = dict[UOp, tuple[bool, tuple[LinkCause, ...]]]


def _compose_relations(
    start_node_positions: Mapping[UOp, int], relations: Sequence[_NodeRelation], end_nodes: Iterable[UOp]
) -> list[NodeLink]:
    """Return the links from the nodes of a graph to `end_nodes`, through relations one after another.

    Only paths that lead to `end_nodes` are followed.
    """
    useful = [set(end_nodes)]  # per graph, last one first, the nodes from which `end_nodes` are reached
    for r in reversed(relations):
        useful.append({u for v in useful[-1] for u in r.owners.get(v, ())})
    first, *later = reversed(useful)
    begin = sorted((u for u in first if u in start_node_positions), key=start_node_positions.__getitem__)
    reached_from: dict[UOp, _Reached] = {u: {u: (False, ())} for u in begin}
    for r, targets in zip(relations, later, strict=True):
        reached_from = {u: _follow_arrows_preferring_direct(reached, r, targets) for u, reached in reached_from.items()}
    return [
        NodeLink(u, v, is_indirect, tuple({(c.by, id(c.step)): c for c in causes}.values()))
        for u, reached in reached_from.items()
        for v, (is_indirect, causes) in reached.items()
    ]


def _follow_arrows_preferring_direct(
    reached_so_far: _Reached, relation: _NodeRelation, allowed_targets: Collection[UOp]
) -> _Reached:
    """Return the targets that one more relation reaches, with a direct link where there is one."""
    following: _Reached = {}
    for middle, (is_indirect, causes) in reached_so_far.items():
        for v, arrow_is_indirect, arrow_causes in relation.arrows.get(middle, ()):
            indirect = is_indirect or arrow_is_indirect
            if v in allowed_targets and (v not in following or (following[v][0] and not indirect)):
                following[v] = indirect, (*causes, *arrow_causes) if arrow_causes else causes
    return following
