"""The terms of validation: obligations, decisions and counterexamples."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from uops.compiler.validate.terms import Condition
from uops.spec.errors import Unsound
from uops.spec.ir.node import UOp
from uops.spec.ir.record import dataclass


class ObligationKind(Enum):
    """The obligations of a kernel, and of a launch."""

    BOUNDS = "in bounds"
    WIDTH = "width"
    ONCE = "written once"
    COVER = "all written"
    READS = "reads agree"
    RACE = "no race"
    PLAN = "plan"
    DEVICES = "devices"
    VALUE = "values"

    __hash__ = object.__hash__  # members are unique


class DecisionMethod(Enum):
    """The method of a decision: intervals and sums, every point tried, the solver, proved rules, equal structure, fingerprints of
    terms, or the interpreter."""

    SUMS = "sums"
    POINTS = "points"
    SOLVER = "solver"
    RULES = "rules"
    STRUCTURE = "structure"
    FINGERPRINTS = "fingerprints"
    INTERPRETER = "interpreter"

    __hash__ = object.__hash__  # members are unique


@dataclass(frozen=True, slots=True)
class ValidationClaim:
    """A claim for all values of the unknowns within their bounds: `given` implies `goal`. `place` names its subject."""

    kind: ObligationKind
    place: str
    given: Condition
    goal: Condition


@dataclass(frozen=True, slots=True)
class ClaimCounterexample:
    """The refutation of an obligation.

    `values` are those of the claim's unknowns, or of loops. `graphs` are index expressions with these values inserted, each with
    its value, for anybody to evaluate. `before` and `after` are the bodies.
    """

    values: Mapping[str, int]
    words: str
    graphs: tuple[tuple[str, UOp, int], ...] = ()
    before: UOp | None = None
    after: UOp | None = None


@dataclass(frozen=True, slots=True)
class ValidationVerdict:
    """The decision of an obligation.

    A refuted one has a `counterexample`. `by` is None if it is undecided, and `why` is the reason. The interpreter proves
    nothing: then `why` names the check that covers the obligation.
    """

    kind: ObligationKind
    place: str
    by: DecisionMethod | None
    counterexample: ClaimCounterexample | None = None
    why: str = ""

    @property
    def is_proved(self) -> bool:
        """True if the obligation is decided, and not refuted."""
        return self.by is not None and self.counterexample is None

    def __str__(self) -> str:
        if self.by is DecisionMethod.INTERPRETER and self.is_proved:
            return f"{self.kind.value}: {self.place}: not proved, but covered by the interpreter: {self.why}"
        if self.is_proved:
            return f"{self.kind.value}: {self.place}: proved by {'' if self.by is None else self.by.value}"
        if self.counterexample is not None:
            return f"{self.kind.value}: {self.place}: refuted: {self.counterexample.words}"
        return f"{self.kind.value}: {self.place}: not decided: {self.why}"


class Invalid(Unsound):
    """A kernel with an obligation that is refuted or undecided."""

    def __init__(self, kernel: str, verdicts: tuple[ValidationVerdict, ...]) -> None:
        self.kernel, self.verdicts = kernel, verdicts
        super().__init__(f"{kernel} is not validated: " + "; ".join(map(str, verdicts[:3])))
