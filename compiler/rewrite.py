"""The rewrite engine: rules as values, applied bottom-up to a fixpoint.

A `Rule` says: a node of the form `lhs` may be replaced by `rhs` where `when` holds. All three are patterns, so that the same
object is matched here, checked on all small values by the tests, proved and printed. Where only code can find the right side,
`witness` proposes values for further variables and `when` judges them: an untrusted finder, a checked rule (STYLE 7). Each rule
is sound alone. Termination: every step lowers `cost`, a fixed order on nodes; `Rewriter(check=True)` asserts it at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum

from uops.compiler.compiled import nothing, steps
from uops.compiler.linear import same_sum
from uops.compiler.log import Move, active
from uops.compiler.memory import memory
from uops.compiler.pattern import Binding, Pattern, instantiate, match, spell
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.errors import Crash
from uops.spec.node import UOp, orders, toposort
from uops.spec.ops import Op
from uops.spec.record import dataclass as record

#: Proposes values for the variables of rhs that lhs does not bind, or None.
Witness = Callable[[Binding], "Mapping[str, UOp] | None"]
#: A condition on the type variables of a rule: a finite relation, checked for every tuple of dtypes.
TypeRelation = Callable[[Mapping[str, DType]], bool]


class Flaw(Enum):
    """What floats have and the real numbers do not."""

    NAN = "no NaN"
    INFINITY = "no infinity"
    ZERO = "no signed zero"
    ROUNDING = "no rounding"


@record(frozen=True, slots=True)
class Assumed:
    """What a value-changing rule takes for granted and nothing checks: that none of `flaws` is met in its operands, in between or
    in its results, and the condition `values` on its variables."""

    flaws: tuple[Flaw, ...]
    values: Pattern | None = None

    def __str__(self) -> str:
        return ", ".join([f.value for f in self.flaws] + ([] if self.values is None else [spell(self.values)])) or "nothing"


@record(frozen=True, slots=True)
class Rule:
    """`lhs` -> `rhs` where `when` is proved by the nodes' min_max, or, for an equality of index sums, by their canonical form. A
    rule that `assumes` something is proved over the reals (`uops.compiler.rules.fast_math`)."""

    name: str
    lhs: Pattern
    rhs: Pattern
    when: Pattern | None = None
    witness: Witness | None = None
    types: TypeRelation | None = None
    assumes: Assumed | None = None

    def __str__(self) -> str:
        condition = "" if self.when is None else f" when {spell(self.when)}"
        assumed = "" if self.assumes is None else f" assuming {self.assumes}"
        return f"{self.name}: {spell(self.lhs)} -> {spell(self.rhs)}{condition}{assumed}"

    def apply(self, u: UOp) -> tuple[UOp, Binding] | None:
        """The replacement of `u` with the binding that justifies it, or None."""
        found: Binding = {}
        if not match(self.lhs, u, found):
            return None
        if self.types is not None and not self.types(bound_types(found)):
            return None
        if self.witness is not None:
            proposed = self.witness(found)
            if proposed is None:
                return None
            found.update(proposed)
        if self.when is not None and not holds(self.when, found):
            return None
        return instantiate(self.rhs, found, u.dtype), found


def bound_types(found: Binding) -> dict[str, DType]:
    """The bound type variables, and under `S` the dtype of the cast value, which no type variable names."""
    types = {name: d for name, d in found.items() if isinstance(d, DType)}
    source = next((n.dtype for n in found.values() if isinstance(n, UOp)), None)
    return types if source is None else {**types, "S": source}


def holds(condition: Pattern, found: Binding) -> bool:
    """Whether a condition is proved for every value of the bound nodes."""
    if condition.op is Op.AND:
        return all(holds(c, found) for c in condition.src)
    node = instantiate(condition, found)
    bounds = node.min_max
    if (bounds is not None and bounds[0]) or is_inside(node):
        return True
    return node.op is Op.CMPEQ and node.src[0].dtype is dt.index and same_sum(node.src[0], node.src[1])


def is_inside(u: UOp) -> bool:
    """Whether `u` says that a loop is below its bound."""
    return u.op is Op.CMPLT and u.src[0].op is Op.RANGE and u.src[0].src[0] is u.src[1]


@record(frozen=True, slots=True)
class Step:
    """One application of a rule."""

    rule: str
    before: UOp
    after: UOp
    binding: Binding


class Rewriter:
    """Applies `rules`, the first that fits, until none does. Results are remembered per node for the life of the object (`done`),
    or of the memory in use here (`uops.compiler.memory`), unless the steps are logged or checked."""

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
