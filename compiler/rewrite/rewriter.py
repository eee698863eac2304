"""The rewrite engine: rules as values, applied bottom-up to a fixpoint.

Termination: every step lowers `weighted_tree_cost`, a fixed order on nodes. `Rewriter(check=True)` asserts that at each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from uops.compiler.log import GraphTransform, active_log
from uops.compiler.rewrite.costs import WEIGHT
from uops.compiler.rewrite.lowering_cache import active_cache
from uops.compiler.rewrite.matchers import get_or_make_matcher_table, match_nothing
from uops.compiler.rewrite.pattern import COMMUTATIVE
from uops.compiler.rewrite.rule import RewriteLog, RewriteStep, Rule
from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort, traversals
from uops.spec.ir.ops import DIVISION, Op


class Rewriter(RewriteLog):
    """The repeated application of `rules`, the first that matches, until none does.

    Normal forms are memoized per node for the life of the object (`done`). They are shared through the active cache
    (`uops.compiler.rewrite.lowering_cache`) unless the steps are logged or checked.
    """

    def __init__(self, rules: Sequence[Rule], log: list[RewriteStep] | None = None, check: bool = False) -> None:
        self.rules, self.check = rules, check
        self.log = [] if log is None and active_log() is not None else log
        self.steps = get_or_make_matcher_table(rules)
        self.done: dict[UOp, UOp] = {}
        self.changed_nodes: set[UOp] = set()  # nodes that are not their own normal form
        shared = active_cache() if self.log is None and not check else None
        if shared is not None:
            key = type(self), id(rules)
            _, self.done, self.changed_nodes = shared.normal_forms.setdefault(key, (rules, {}, set()))

    def __call__(self, root: UOp) -> UOp:
        """Return the normal form of `root`; iterative."""
        done = self.done
        if root not in done:
            self._fill_normal_forms(root)
        log = active_log()
        if log is not None:
            log.transforms.append(GraphTransform("rules", root, done[root], done, None, self.log or (), self.rules))
        return done[root]

    def _fill_normal_forms(self, root: UOp) -> None:
        """Fill `done` for every node below `root`.

        A frame is a graph to normalise: its root, its nodes, sources first, and the nodes that have the normal form of its root. A
        rule that builds a new node opens a frame for it.
        """
        done, changed, step = self.done, self.changed_nodes, self.steps
        frames: list[tuple[UOp, Iterator[UOp], tuple[UOp, ...]]] = [
            (root, iter(_toposort_nodes_omitting_done_if_cheap(root, done)), ())
        ]
        while frames:
            goal, order, waiting = frames[-1]
            for u in order:
                if u in done:
                    continue
                if changed.isdisjoint(u.src):
                    if step[u.op] is match_nothing:
                        done[u] = u
                        continue
                    v = u
                else:
                    changed.add(u)
                    v = UOp(u.op, tuple([done[s] for s in u.src]), u.arg, u.tag)
                    if v in done:
                        done[u] = done[v]
                        continue
                if step[u.op] is match_nothing or (next_ := self.apply_first_rule(v)) is None:
                    done[u] = done[v] = v
                    continue
                changed.update((u, v))
                if next_ not in done:
                    frames.append((next_, iter(_toposort_nodes_omitting_done_if_cheap(next_, done)), (u, v)))
                    break
                done[u] = done[v] = done[next_]
            else:
                frames.pop()
                for u in waiting:
                    done[u] = done[goal]

    def apply_first_rule(self, u: UOp) -> UOp | None:
        """Return what the first matching rule replaces `u` by, whose sources are in normal form; None if no rule matches."""
        applied = self.steps[u.op](u)
        if applied is None:
            return None
        rule, after, binding = applied
        if self.check and weighted_tree_cost(after) >= weighted_tree_cost(u):
            raise Crash(f"{rule} does not descend: cost {weighted_tree_cost(u)} became {weighted_tree_cost(after)} at {u!r}")
        if self.log is not None:
            self.log.append(RewriteStep(rule.name, u, after, binding))
        return after


def _toposort_nodes_omitting_done_if_cheap(root: UOp, done: Mapping[UOp, object]) -> Iterable[UOp]:
    """Return the nodes at and below `root` that are not done, sources first.

    Nodes that are done may be among them if the order is memoized, or will be needed again, as that of an effect.
    """
    cache = traversals.cache
    if not done or (cache is not None and (root in cache.orders or root.dtype is dt.void)):
        return toposort(root)
    order: dict[UOp, None] = {}
    try:
        _append_nodes_sources_first(root, done, order)
    except RecursionError:  # too deep for Python's stack
        return toposort(root, gate=lambda u: u not in done)
    return order


def _append_nodes_sources_first(u: UOp, done: Mapping[UOp, object], order: dict[UOp, None]) -> None:
    for s in u.src:
        if s not in done and s not in order:
            if s.src:
                _append_nodes_sources_first(s, done, order)
            else:
                order[s] = None
    order[u] = None


_COMMUTATIVE = frozenset(COMMUTATIVE)


def weighted_tree_cost(root: UOp) -> int:
    """Return the cost of a node as a tree, memoized.

    The cost is the sum of op weights. A dividend counts twice, and a constant left of a non-constant costs one more. The cost is
    strictly monotonic in every source but for that one unit, which is less than any rule that builds a constant saves. So a step
    that lowers the cost of a node lowers that of every node above it, and rewriting terminates.
    """
    shared = active_cache()
    costs: dict[UOp, int] = {} if shared is None else shared.costs
    if root in costs:
        return costs[root]
    for u in _toposort_nodes_omitting_done_if_cheap(root, costs):
        if u in costs:
            continue
        misplaced = u.op in _COMMUTATIVE and u.src[0].op is Op.CONST and u.src[1].op is not Op.CONST  # lhs and rhs
        costs[u] = (WEIGHT[u.op] if u.src else 1) + sum(costs[s] for s in u.src) + misplaced
        if u.op in DIVISION:
            costs[u] += costs[u.src[0]]  # lhs
    return costs[root]
