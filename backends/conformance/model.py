"""The data model of the conformance suite: cells, cases, verdicts.

A *cell* is (row of the specification, dtype, edge class). A *case* is one graph with inputs; its outputs are divided into
*segments*, each of which tests one cell. A cell's status is the worst of its segments'.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from uops.backends.contract import KERNEL_SURFACE, NATIVE_SURFACE, TENSOR_SURFACE
from uops.backends.testing.calls import InvocationMode
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

#: The reason of a failing cell that the backend declares but refuses at run time.
REFUSED = "refused"


class CellStatus(Enum):
    """The status of a cell. Only PASS counts as passed; UNSUPPORTED and NOT_RUN stay in the denominator of coverage.

    BY_TRAIT is a cell all of whose wrong elements are what a declared trait of the backend gives.
    NOT_ASKABLE is a cell of a surface that the backend does not declare. It is counted apart, and in neither denominator.
    """

    PASS = "pass"
    FAIL = "fail"
    BY_TRAIT = "by trait"
    XFAIL = "expected failure"
    UNSUPPORTED = "unsupported"
    NOT_ASKABLE = "not askable"
    NOT_RUN = "not run"


class ConformanceLevel(Enum):
    """The two conformance levels of P3 (conformance): `strict` and `core`."""

    STRICT = "strict"
    CORE = "core"


class ConformanceTier(Enum):
    """The extent of a run: smoke is a sample for every change, full is every required cell."""

    SMOKE = "smoke"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class SampleOrigin:
    """The origin of a sample: the seed, the number of cases that it was drawn from, and the rows of their cells."""

    seed: int
    cases: int
    rows: frozenset[str]


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """The policy that schedules compiled kernels.

    `kind` is `heuristics`, `none` (initial loops), `forced` (random, drawn from `seed`) or `search` (timed, keeping the `beam`
    best).
    """

    kind: str = "heuristics"
    seed: int = 0
    beam: int = 2

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that select the policy in the compiler of a worker process."""
        variables = {
            "none": {"UOPS_OPTIMIZE": "0"},
            "forced": {"UOPS_FORCED": str(self.seed)},
            "search": {"UOPS_BEAM": str(self.beam)},
        }
        return variables.get(self.kind, {})


@dataclass(frozen=True, slots=True, order=True)
class ConformanceCell:
    """A cell: `row` is a row id such as `Elementwise/Add`, `dtype` a dtype's name, `edge` the edge class."""

    row: str
    dtype: str
    edge: str

    def __str__(self) -> str:
        return f"{self.row} x {self.dtype} x {self.edge}"


@dataclass(frozen=True, slots=True)
class Segment:
    """Elements [start, stop) of flattened output `output`; a key `b<unique>` denotes a buffer's final contents instead."""

    edge: str
    output: int | str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One graph of the suite; `name` is unique within its row and dtype. `surface` is what a backend needs to be asked it.

    `meaning` is the graph that says what is expected, where that is another one: the one before a rewrite that changes nothing.
    `call` is the way in which the backend is called, which changes nothing either.
    """

    row: str
    dtype: DType
    name: str
    graph: UOp
    inputs: dict[str, Any]
    segments: tuple[Segment, ...]
    surface: str = TENSOR_SURFACE
    meaning: UOp | None = None
    call: InvocationMode = InvocationMode.PLAIN

    @property
    def is_exact(self) -> bool:
        """True if the case has one result, whose bits are compared (R173): one of kernels, or of the second document."""
        return (
            self.surface in (KERNEL_SURFACE, NATIVE_SURFACE)
            or infer_tensor_kernel_or_bestiary_dialect(self.graph) is Dialect.BESTIARY
        )

    @property
    def id(self) -> str:
        """The id of the case, unique in the suite."""
        return f"{self.row}/{self.dtype.name}/{self.name}"

    def cell(self, segment: Segment) -> ConformanceCell:
        """Return the cell that a segment tests."""
        return ConformanceCell(self.row, self.dtype.name, segment.edge)

    def cells(self) -> list[ConformanceCell]:
        """Return the cells that the segments test, each once."""
        return list(dict.fromkeys(self.cell(s) for s in self.segments))


@dataclass(frozen=True, slots=True)
class Failure:
    """One wrong element, or a failed run if `element` is None: its place, its value and the allowed values, with their bits."""

    case: str
    message: str
    output: int | str | None = None
    element: int | None = None
    operands: tuple[str, ...] = ()
    got: str | None = None
    allowed: str | None = None
    reproducer: str | None = None
    cause: str | None = None


@dataclass(slots=True)
class CellResult:
    """A cell's verdict at one level; `max_ulp` is the largest distance from the reference value among accepted elements.

    `surface` is what a backend needs to be asked the cell.
    """

    cell: ConformanceCell
    status: CellStatus
    elements: int = 0
    failed: int = 0
    max_ulp: float = 0.0
    reason: str | None = None
    failures: list[Failure] = field(default_factory=list)
    sets: dict[str, int] = field(default_factory=dict)  # R31 (allowed sets): number of elements by kind of set
    surface: str = TENSOR_SURFACE
    causes: dict[str, int] = field(default_factory=dict)  # number of wrong elements by cause

    @property
    def is_refusal(self) -> bool:
        """True if the backend refused a program of the cell, which it had declared: the cell fails."""
        return self.status is CellStatus.FAIL and self.reason == REFUSED

    @property
    def run(self) -> bool:
        """True if something of the cell was judged: it passed or failed, and not by a refusal alone."""
        return self.status in RAN and (self.elements > 0 or not self.is_refusal)


#: Statuses of cells whose program ran.
RAN = frozenset({CellStatus.PASS, CellStatus.FAIL, CellStatus.BY_TRAIT, CellStatus.XFAIL})
