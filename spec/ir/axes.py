"""Axis types of Ranges, with the columns of both documents: tinyspec's OptOps table and the bestiary's RANGE table (R109)."""

from __future__ import annotations

from enum import Enum

from uops.spec.ir.members import fast_enum
from uops.spec.ir.record import dataclass


@fast_enum
class AxisType(Enum):
    """The way a Range is scheduled; the value is tinyspec's letter (`p` for the bestiary's Placeholder)."""

    PLACEHOLDER = "p"
    LOOP = "L"
    GLOBAL = "g"
    THREAD = "t"
    WARP = "w"
    LOCAL = "l"
    GROUP_REDUCE = "G"
    UPCAST = "u"
    REDUCE = "R"
    UNROLL = "r"

    def __repr__(self) -> str:
        return f"AxisType.{self.name}"

    @property
    def letter(self) -> str:
        """The letter of the type in tinyspec."""
        return self.value

    @property
    def priority(self) -> int:
        """The loop nesting order, outermost first; equal priorities are ordered by axis id (R109)."""
        return AXIS_TABLE[self].priority


class Direction(Enum):
    """The half of a Split that may get the new type: `inner` is the default, `outer` needs `top` (R90, Split)."""

    INNER = "inner"
    OUTER = "outer"
    EITHER = "inner/outer"


@dataclass(frozen=True, slots=True)
class AxisRow:
    """A row of the AxisType table; `split_from` is empty if no Split produces this type."""

    priority: int
    split_from: frozenset[AxisType]
    direction: Direction | None
    semantics: str
    ordered: bool  # LOOP and REDUCE iterate in order (R57, Range)


def _axis_row(priority: int, split_from: str, direction: Direction | None, semantics: str, *, ordered: bool = False) -> AxisRow:
    return AxisRow(priority, frozenset(AxisType(c) for c in split_from), direction, semantics, ordered)


# fmt: off
AXIS_TABLE: dict[AxisType, AxisRow] = {
    AxisType.PLACEHOLDER:  _axis_row(-3, "",    None,             "transient range while a Reshape is resolved"),
    AxisType.LOOP:         _axis_row(-1, "",    None,             "sequential loop (initial state)", ordered=True),
    AxisType.GLOBAL:       _axis_row(0,  "",    None,             "workgroup dimension of the grid"),
    AxisType.THREAD:       _axis_row(0,  "g",   Direction.OUTER,  "CPU thread parallelism"),
    AxisType.WARP:         _axis_row(1,  "",    None,             "warp lanes of a tensor core; made by TC only"),
    AxisType.LOCAL:        _axis_row(2,  "gL",  Direction.INNER,  "lane dimension of the workgroup"),
    AxisType.GROUP_REDUCE: _axis_row(2,  "R",   Direction.EITHER, "group reduction through shared memory"),
    AxisType.UPCAST:       _axis_row(3,  "glL", Direction.INNER,  "register-level vector"),
    AxisType.REDUCE:       _axis_row(4,  "",    None,             "reduction axis", ordered=True),
    AxisType.UNROLL:       _axis_row(5,  "RG",  Direction.INNER,  "fully unrolled loop"),
}
# fmt: on

#: Types of which every iteration becomes code of its own: expand removes them.
UNROLLED = frozenset({AxisType.UPCAST, AxisType.UNROLL})
#: Types that are dimensions of a workgroup (R96, Swap and Nolocals).
WORKGROUP = frozenset({AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE})
#: Types that are dimensions of the grid: workgroups, or threads of a CPU.
GRID = frozenset({AxisType.GLOBAL, AxisType.THREAD})
#: Types of output loops before the first OptOp (R94, first types).
OUTPUT_LOOPS = frozenset({AxisType.LOOP, AxisType.GLOBAL})
#: Types that iterate in order (R57, Range).
SEQUENTIAL = frozenset(t for t, row in AXIS_TABLE.items() if row.ordered)
