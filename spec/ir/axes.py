"""AxisType: the kinds of a Range, with the columns of both documents (tinyspec OptOps table; bestiary RANGE table; R109)."""

from __future__ import annotations

from enum import Enum

from uops.spec.ir.members import quick
from uops.spec.ir.record import dataclass


@quick
class AxisType(Enum):
    """How a Range is scheduled; the value is tinyspec's letter (`p` for the bestiary's Placeholder)."""

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
        return self.value

    @property
    def priority(self) -> int:
        """Loop nesting order, outermost first; equal priorities are ordered by axis id (R109)."""
        return AXIS_TABLE[self].priority


class Direction(Enum):
    """Which half of a split may take the new type: `inner` is Split's default, `outer` needs top (R90)."""

    INNER = "inner"
    OUTER = "outer"
    EITHER = "inner/outer"


@dataclass(frozen=True, slots=True)
class AxisRow:
    """One row of the AxisType table; `split_from` is empty where no Split makes this type."""

    priority: int
    split_from: frozenset[AxisType]
    direction: Direction | None
    semantics: str
    ordered: bool  # R57: LOOP and REDUCE iterate in order


def _row(priority: int, split_from: str, direction: Direction | None, semantics: str, *, ordered: bool = False) -> AxisRow:
    return AxisRow(priority, frozenset(AxisType(c) for c in split_from), direction, semantics, ordered)


# fmt: off
AXIS_TABLE: dict[AxisType, AxisRow] = {
    AxisType.PLACEHOLDER:  _row(-3, "",    None,             "transient range while a Reshape is resolved"),
    AxisType.LOOP:         _row(-1, "",    None,             "sequential loop (initial state)", ordered=True),
    AxisType.GLOBAL:       _row(0,  "",    None,             "workgroup dimension of the grid"),
    AxisType.THREAD:       _row(0,  "g",   Direction.OUTER,  "CPU thread parallelism"),
    AxisType.WARP:         _row(1,  "",    None,             "warp lanes of a tensor core; made by TC only"),
    AxisType.LOCAL:        _row(2,  "gL",  Direction.INNER,  "lane dimension of the workgroup"),
    AxisType.GROUP_REDUCE: _row(2,  "R",   Direction.EITHER, "group reduction through shared memory"),
    AxisType.UPCAST:       _row(3,  "glL", Direction.INNER,  "register-level vector"),
    AxisType.REDUCE:       _row(4,  "",    None,             "reduction axis", ordered=True),
    AxisType.UNROLL:       _row(5,  "RG",  Direction.INNER,  "fully unrolled loop"),
}
# fmt: on
