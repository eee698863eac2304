"""The rewrite engine: rules as values, applied bottom-up to a fixpoint.

A `Rule` says: a node of the form `lhs` may be replaced by `rhs` where `when` holds. All three are patterns, so that the same
object is matched here, checked on all small values by the tests, proved and printed. Where only code can find the right side,
`witness` proposes values for further variables and `when` judges them: an untrusted finder, a checked rule (STYLE 7). Each rule
is sound alone. Termination: every step lowers `cost`, a fixed order on nodes; `Rewriter(check=True)` asserts it at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from uops.compiler.linear import same_sum
from uops.compiler.log import Move, active
from uops.compiler.pattern import Binding, Pattern, instantiate, match, spell
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.errors import Crash
from uops.spec.node import UOp
from uops.spec.ops import Op
from uops.spec.record import dataclass as record

#: Proposes values for the variables of rhs that lhs does not bind, or None.
Witness = Callable[[Binding], "Mapping[str, UOp] | None"]
#: A condition on the type variables of a rule: a finite relation, checked for every tuple of dtypes.
TypeRelation = Callable[[Mapping[str, DType]], bool]


@record(frozen=True, slots=True)
class Rule:
    """`lhs` -> `rhs` where `when` is proved by the nodes' min_max, or, for an equality of index sums, by their canonical form."""

    name: str
    lhs: Pattern
    rhs: Pattern
    when: Pattern | None = None
    witness: Witness | None = None
    types: TypeRelation | None = None

    def __str__(self) -> str:
        condition = "" if self.when is None else f" when {spell(self.when)}"
        return f"{self.name}: {spell(self.lhs)} -> {spell(self.rhs)}{condition}"

    def apply(self, u: UOp) -> tuple[UOp, Binding] | None:
        """The replacement of `u` with the binding that justifies it, or None."""
        found: Binding = {}
        if not match(self.lhs, u, found):
            return None
        if self.types is not None and not self.types(_types(found)):
            return None
        if self.witness is not None:
            proposed = self.witness(found)
            if proposed is None:
                return None
            found.update(proposed)
        if self.when is not None and not holds(self.when, found):
            return None
        return instantiate(self.rhs, found, u.dtype), found


def _types(found: Binding) -> dict[str, DType]:
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
    if bounds is not None and bounds[0]:
        return True
    return node.op is Op.CMPEQ and node.src[0].dtype is dt.index and same_sum(node.src[0], node.src[1])


@record(frozen=True, slots=True)
class Step:
    """One application of a rule."""

    rule: str
    before: UOp
    after: UOp
    binding: Binding


@dataclass(slots=True)
class Rewriter:
    """Applies `rules`, the first that fits, until none does. Results are remembered per node for the life of the object."""

    rules: Sequence[Rule]
    log: list[Step] | None = None
    check: bool = False
    done: dict[UOp, UOp] = field(default_factory=dict)
    table: dict[Op, tuple[Rule, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.table = index_by_op(self.rules)
        if self.log is None and active() is not None:
            self.log = []

    def __call__(self, root: UOp) -> UOp:
        """The normal form of `root`; iterative."""
        done, stack = self.done, [root]
        waiting: dict[UOp, UOp] = {}  # node -> what it was replaced by
        while stack:
            u = stack[-1]
            if u in done:
                stack.pop()
                continue
            next_ = waiting.get(u)
            if next_ is None:
                missing = [s for s in u.src if s not in done]
                if missing:
                    stack.extend(missing)
                    continue
                next_ = self._step(u)
                if next_ is u:
                    done[u] = u
                    stack.pop()
                    continue
                waiting[u] = next_
            if next_ in done:
                done[u] = done[next_]
                stack.pop()
            else:
                stack.append(next_)
        heard = active()
        if heard is not None:
            heard.moves.append(Move("rules", root, done[root], done, None, self.log or (), self.rules))
        return done[root]

    def _step(self, u: UOp) -> UOp:
        """`u` on normal sources, or one rule applied to it, or `u` itself when it is normal."""
        src = tuple(self.done[s] for s in u.src)
        if any(a is not b for a, b in zip(src, u.src)):
            return u.replace(src=src)
        for rule in self.table.get(u.op, ()):
            applied = rule.apply(u)
            if applied is not None:
                self._record(rule, u, *applied)
                return applied[0]
        return u

    def _record(self, rule: Rule, before: UOp, after: UOp, binding: Binding) -> None:
        if self.check and cost(after) >= cost(before):
            raise Crash(f"{rule} does not descend: cost {cost(before)} became {cost(after)} at {before!r}")
        if self.log is not None:
            self.log.append(Step(rule.name, before, after, binding))


def index_by_op(rules: Iterable[Rule]) -> dict[Op, tuple[Rule, ...]]:
    """The rules that can apply to a node of each op, in order."""
    table: dict[Op, tuple[Rule, ...]] = {}
    for rule in rules:
        if rule.lhs.op is None:
            raise Crash(f"{rule} matches every node")
        table[rule.lhs.op] = (*table.get(rule.lhs.op, ()), rule)
    return table


#: Weight of an op in the cost order; a leaf weighs 1. Division is dear, and dearer the more it divides, so that terms leave it.
# fmt: off
WEIGHT: dict[Op, int] = {
    Op.IDIV: 40, Op.MOD: 40, Op.SUB: 6, Op.NEG: 4, Op.MUL: 4, Op.CAST: 4, Op.NOT: 4, Op.WHERE: 6,
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
    found: dict[UOp, int] = {}
    stack = [root]
    while stack:
        u = stack[-1]
        missing = [s for s in u.src if s not in found]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        misplaced = u.op in _COMMUTES and u.src[0].op is Op.CONST and u.src[1].op is not Op.CONST
        found[u] = (WEIGHT.get(u.op, _DEFAULT_WEIGHT) if u.src else 1) + sum(found[s] for s in u.src) + misplaced
        if u.op in _DIVISIONS:
            found[u] += found[u.src[0]]
    return found[root]
