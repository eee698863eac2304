"""A rewrite rule as a value, its application to one node, and the record of it.

A `Rule` says: a node of the form `lhs` may be replaced by `rhs` where `when` holds. All three are patterns, so that the same
object is matched, checked on all small values by the tests, proved and printed. Where only code can find the right side,
`witness` proposes values for further variables and `when` judges them: an untrusted finder, a checked rule (STYLE 7). Each rule
is sound alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from uops.compiler.ir.affine import same_sum
from uops.compiler.rewrite.pattern import Binding, Pattern, instantiate, match, spell
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record

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
    rule that `assumes` something is proved over the reals (`uops.compiler.rewrite.rules.fast_math`)."""

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
    """Return True if a condition is proved for every value of the bound nodes."""
    if condition.op is Op.AND:
        return all(holds(c, found) for c in condition.src)
    node = instantiate(condition, found)
    bounds = node.min_max
    if (bounds is not None and bounds[0]) or is_inside(node):
        return True
    return node.op is Op.CMPEQ and node.src[0].dtype is dt.index and same_sum(node.src[0], node.src[1])


def is_inside(u: UOp) -> bool:
    """Return True if `u` says that a loop is below its bound."""
    return u.op is Op.CMPLT and u.src[0].op is Op.RANGE and u.src[0].src[0] is u.src[1]


@record(frozen=True, slots=True)
class Step:
    """One application of a rule."""

    rule: str
    before: UOp
    after: UOp
    binding: Binding


class Rewrites:
    """What a Rewriter did: the normal form of each node, and the steps that it took if somebody records them, else None."""

    log: list[Step] | None
    done: dict[UOp, UOp]
