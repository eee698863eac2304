"""Rewrite rules as values, their application to one node, and the record of it.

A `Rule` says that a node of the form `lhs` may be replaced by `rhs` where `when` holds. All three are patterns, so that the same
object is matched, checked on all small values by the tests, proved and printed. Where only code can find the right side, `witness`
proposes values for further variables and `when` checks them: an untrusted finder and a checked rule (STYLE 7). Each rule is sound
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from uops.compiler.ir.affine import are_equal_sums
from uops.compiler.rewrite.pattern import Binding, Pattern, format_pattern, instantiate, match_pattern_and_bind
from uops.compiler.rewrite.witness import EvaluationWitness
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record

#: A function that proposes values for the variables of `rhs` that `lhs` does not bind, or None.
Witness = Callable[[Binding], "Mapping[str, UOp] | None"]


#: A condition on the type variables of a rule: a finite relation, checked for every tuple of dtypes.
TypeRelation = Callable[[Mapping[str, DType]], bool]


class Flaw(Enum):
    """A property of floats that real numbers do not have."""

    NAN = "no NaN"
    INFINITY = "no infinity"
    ZERO = "no signed zero"
    ROUNDING = "no rounding"


@record(frozen=True, slots=True)
class Assumptions:
    """The assumptions of a value-changing rule, which nothing checks.

    None of `flaws` occurs in operands, intermediate values or results, and the condition `values` holds for the variables.
    """

    flaws: tuple[Flaw, ...]
    values: Pattern | None = None

    def __str__(self) -> str:
        return (
            ", ".join([f.value for f in self.flaws] + ([] if self.values is None else [format_pattern(self.values)])) or "nothing"
        )


@record(frozen=True, slots=True)
class Rule:
    """A rule `lhs` -> `rhs`, which applies where `when` is proved.

    The nodes' min_max proves a condition; for an equality of index sums, so does their canonical form. A rule that `assumes`
    something is proved over the reals (`uops.compiler.rewrite.rules.fast_math`).
    """

    name: str
    lhs: Pattern
    rhs: Pattern
    when: Pattern | None = None
    witness: Witness | None = None
    types: TypeRelation | None = None
    assumes: Assumptions | None = None

    @property
    def evaluated_pattern(self) -> Pattern | None:
        """The pattern whose value the constant folder gives the variable `k`, or None."""
        witness = self.witness
        return witness.evaluates if type(witness) is EvaluationWitness else None

    def __str__(self) -> str:
        condition = "" if self.when is None else f" when {format_pattern(self.when)}"
        assumed = "" if self.assumes is None else f" assuming {self.assumes}"
        return f"{self.name}: {format_pattern(self.lhs)} -> {format_pattern(self.rhs)}{condition}{assumed}"

    def apply(self, u: UOp) -> tuple[UOp, Binding] | None:
        """Return the replacement of `u` and the binding that justifies it, or None if the rule does not apply."""
        binding: Binding = {}
        if not (match_pattern_and_bind(self.lhs, u, binding) and self.complete_binding(binding)):
            return None
        if self.when is not None and not is_condition_proved(self.when, binding):
            return None
        return instantiate(self.rhs, binding, u.dtype), binding

    def complete_binding(self, binding: Binding) -> bool:
        """Add what the witness proposes to the binding of a match; return False if that is nothing, or if `types` does not hold."""
        if self.types is not None and not self.types(collect_type_variables_and_first_dtype_as_s(binding)):
            return False
        if self.witness is not None:
            proposed = self.witness(binding)
            if proposed is None:
                return False
            binding.update(proposed)
        return True


def collect_type_variables_and_first_dtype_as_s(binding: Binding) -> dict[str, DType]:
    """Return the bound type variables, and as `S` the dtype of the first bound node.

    Rules of Casts use it: no type variable names the dtype of the value that is cast.
    """
    types = {name: d for name, d in binding.items() if isinstance(d, DType)}
    source = next((n.dtype for n in binding.values() if isinstance(n, UOp)), None)
    return types if source is None else {**types, "S": source}


def is_condition_proved(condition: Pattern, binding: Binding) -> bool:
    """Return True if a condition is proved for every value of the bound nodes."""
    if condition.op is Op.AND:
        return all(is_condition_proved(c, binding) for c in condition.src)
    node = instantiate(condition, binding)
    bounds = node.min_max
    if (bounds is not None and bounds[0]) or is_below_loop_bound(node):
        return True
    return node.op is Op.CMPEQ and node.lhs.dtype is dt.index and are_equal_sums(node.lhs, node.rhs)


def is_below_loop_bound(u: UOp) -> bool:
    """Return True if `u` compares a loop counter with the loop's bound: counter < bound."""
    return u.op is Op.CMPLT and u.lhs.op is Op.RANGE and u.lhs.bound is u.rhs


@record(frozen=True, slots=True)
class RewriteStep:
    """One application of a rule."""

    rule: str
    before: UOp
    after: UOp
    binding: Binding


class RewriteLog:
    """The record of a Rewriter: the normal form of each node, and its steps (None if they are not recorded)."""

    log: list[RewriteStep] | None
    done: dict[UOp, UOp]
