"""The rewrite engine: rules as values, applied bottom-up to a fixpoint.

Termination: every step lowers `cost`, a fixed order on nodes; `Rewriter(check=True)` asserts it at each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from uops.compiler.log import Move, active
from uops.compiler.rewrite.lowering_cache import memory
from uops.compiler.rewrite.matchers import nothing, steps
from uops.compiler.rewrite.rule import Rewrites, Rule, Step
from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, orders, toposort
from uops.spec.ir.ops import Op


class Rewriter(Rewrites):
    """Applies `rules`, the first that fits, until none does. Results are remembered per node for the life of the object (`done`),
    or of the memory in use here (`uops.compiler.rewrite.lowering_cache`), unless the steps are logged or checked."""

    def __init__(self, rules: Sequence[Rule], log: list[Step] | None = None, check: bool = False) -> None:
        self.rules, self.check = rules, check
        self.log = [] if log is None and active() is not None else log
        self.steps = steps(rules)
        self.done: dict[UOp, UOp] = {}
        self.changed: set[UOp] = set()  # the nodes whose normal form is another one
        shared = memory() if self.log is None and not check else None
        if shared is not None:
            _, self.done, self.changed = shared.normal.setdefault((type(self), id(rules)), (rules, {}, set()))

    def __call__(self, root: UOp) -> UOp:
        """The normal form of `root`; iterative."""
        done = self.done
        if root not in done:
            self._normalise(root)
        heard = active()
        if heard is not None:
            heard.moves.append(Move("rules", root, done[root], done, None, self.log or (), self.rules))
        return done[root]

    def _normalise(self, root: UOp) -> None:
        """Fill `done` for everything below `root`. A frame is a graph to normalise: its nodes, sources first, and the nodes that
        will become what its root becomes. A rule that makes a new node opens a frame for it."""
        done, changed, step = self.done, self.changed, self.steps
        frames: list[tuple[UOp, Iterator[UOp], tuple[UOp, ...]]] = [(root, iter(_missing(root, done)), ())]
        while frames:
            goal, order, waiting = frames[-1]
            for u in order:
                if u in done:
                    continue
                if changed.isdisjoint(u.src):
                    v = u
                else:
                    changed.add(u)
                    v = UOp(u.op, tuple([done[s] for s in u.src]), u.arg, u.tag)
                    if v in done:
                        done[u] = done[v]
                        continue
                if step[u.op] is nothing or (next_ := self.applied(v)) is None:
                    done[u] = done[v] = v
                    continue
                changed.update((u, v))
                if next_ not in done:
                    frames.append((next_, iter(_missing(next_, done)), (u, v)))
                    break
                done[u] = done[v] = done[next_]
            else:
                frames.pop()
                for u in waiting:
                    done[u] = done[goal]

    def applied(self, u: UOp) -> UOp | None:
        """What the first rule that fits makes of `u`, whose sources are normal."""
        found = self.steps[u.op](u)
        if found is None:
            return None
        rule, after, binding = found
        if self.check and cost(after) >= cost(u):
            raise Crash(f"{rule} does not descend: cost {cost(u)} became {cost(after)} at {u!r}")
        if self.log is not None:
            self.log.append(Step(rule.name, u, after, binding))
        return after


def _missing(root: UOp, done: Mapping[UOp, object]) -> Iterable[UOp]:
    """The nodes at and below `root` that are not done, sources first; others too, where an order is known, or will be asked for
    again, as that of an effect."""
    if not done or (orders.kept is not None and (root in orders.kept or root.dtype is dt.void)):
        return toposort(root)
    order: dict[UOp, None] = {}
    try:
        _enter(root, done, order)
    except RecursionError:  # too deep for Python's stack
        return toposort(root, gate=lambda u: u not in done)
    return order


def _enter(u: UOp, done: Mapping[UOp, object], order: dict[UOp, None]) -> None:
    for s in u.src:
        if s not in done and s not in order:
            if s.src:
                _enter(s, done, order)
            else:
                order[s] = None
    order[u] = None


#: Weight of an op in the cost order; a leaf weighs 1. Division is dear, and dearer the more it divides, so that terms leave it;
#: a remainder is dearer, so that it is taken last. A float's quotient is dearer than the product with a reciprocal.
# fmt: off
WEIGHT: dict[Op, int] = {
    Op.IDIV: 40, Op.MOD: 41, Op.SUB: 6, Op.NEG: 4, Op.MUL: 4, Op.CAST: 4, Op.NOT: 4, Op.WHERE: 6,
    Op.RECIP: 5, Op.DIV: 10, Op.SQRT: 8, Op.EXP2: 12, Op.LOG2: 12, Op.SIN: 12, Op.POW: 40,
    Op.CMPGT: 5, Op.CMPGE: 5, Op.CMPLE: 5,
}
# fmt: on
_DEFAULT_WEIGHT = 4
_DIVISIONS = frozenset({Op.IDIV, Op.MOD})
_COMMUTES = frozenset({Op.ADD, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.CMPNE, Op.CMPEQ})


def cost(root: UOp) -> int:
    """The cost of a node as a tree: op weights plus sources, a dividend twice, one more for a constant that stands left of a
    variable.

    Strictly monotonic in every source but for that one unit, which is less than any rule that makes a constant saves; so a step
    that lowers the cost of a node lowers that of every node above, and rewriting ends.
    """
    shared = memory()
    found: dict[UOp, int] = {} if shared is None else shared.costs
    if root in found:
        return found[root]
    for u in _missing(root, found):
        if u in found:
            continue
        misplaced = u.op in _COMMUTES and u.src[0].op is Op.CONST and u.src[1].op is not Op.CONST
        found[u] = (WEIGHT.get(u.op, _DEFAULT_WEIGHT) if u.src else 1) + sum(found[s] for s in u.src) + misplaced
        if u.op in _DIVISIONS:
            found[u] += found[u.src[0]]
    return found[root]
