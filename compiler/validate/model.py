"""What validation speaks of: obligations, how each was decided, and what refutes one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from uops.compiler.validate.terms import Cond
from uops.spec.errors import Unsound
from uops.spec.ir.node import UOp
from uops.spec.ir.record import dataclass


class Kind(Enum):
    """The obligations of a kernel, and of a launch."""

    BOUNDS = "in bounds"
    WIDTH = "width"
    ONCE = "written once"
    COVER = "all written"
    READS = "reads agree"
    RACE = "no race"
    PLAN = "plan"
    VALUE = "values"

    __hash__ = object.__hash__  # members are unique


class By(Enum):
    """What decided: intervals and sums, every point tried, the solver, proved rules, equal structure, or the interpreter."""

    SUMS = "sums"
    POINTS = "points"
    SOLVER = "solver"
    RULES = "rules"
    STRUCTURE = "structure"
    INTERPRETER = "interpreter"

    __hash__ = object.__hash__  # members are unique


@dataclass(frozen=True, slots=True)
class Claim:
    """For all values of the unknowns within their bounds: where `given` holds, `goal` does. `place` says of what."""

    kind: Kind
    place: str
    given: Cond
    goal: Cond


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Why an obligation does not hold: `values` of the unknowns of the claim, or of loops; `graphs` are index expressions and gates
    closed over these values, with what each of them is, which anybody can evaluate; `before` and `after` are the bodies."""

    values: Mapping[str, int]
    words: str
    graphs: tuple[tuple[str, UOp, int], ...] = ()
    before: UOp | None = None
    after: UOp | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`counterexample` is there where the obligation is refuted; `by` is None where nothing decided it, `why` says why. By the
    interpreter nothing is proved: `why` names the check that covers it."""

    kind: Kind
    place: str
    by: By | None
    counterexample: Counterexample | None = None
    why: str = ""

    @property
    def proved(self) -> bool:
        return self.by is not None and self.counterexample is None

    def __str__(self) -> str:
        if self.by is By.INTERPRETER and self.proved:
            return f"{self.kind.value}: {self.place}: not proved, but covered by the interpreter: {self.why}"
        if self.proved:
            return f"{self.kind.value}: {self.place}: proved by {'' if self.by is None else self.by.value}"
        if self.counterexample is not None:
            return f"{self.kind.value}: {self.place}: refuted: {self.counterexample.words}"
        return f"{self.kind.value}: {self.place}: not decided: {self.why}"


class Invalid(Unsound):
    """A kernel of which an obligation is refuted or not decided."""

    def __init__(self, kernel: str, verdicts: tuple[Verdict, ...]) -> None:
        self.kernel, self.verdicts = kernel, verdicts
        super().__init__(f"{kernel} is not validated: " + "; ".join(map(str, verdicts[:3])))
