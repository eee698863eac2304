"""What the suite does not ask, and what it cannot refuse: two committed lists, each entry with its reason.

`EXCLUSIONS`: rows (or row x dtype) without a required cell. Everything else of ROWS x storable dtypes has cells; a test holds
both to it. `LENIENT`: cells that a do-nothing backend may pass (all zeros, all NaN, or its first input), because that is the
right answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import Dialect, dialects_of


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rows by glob, dtypes by name; empty `dtypes` means all."""

    rows: str
    dtypes: tuple[str, ...]
    ruling: str
    reason: str

    def covers(self, row: str, dtype: str) -> bool:
        return fnmatchcase(row, self.rows) and (not self.dtypes or dtype in self.dtypes)


def _names(*kinds: DType) -> tuple[str, ...]:
    return tuple(d.name for d in kinds)


_FLOATS, _INTS, _BOOL = _names(*dt.FLOATS), _names(*dt.INTS), _names(dt.bool_)
_NOT_UINT64 = _names(*(d for d in dt.STORABLE if d is not dt.uint64))
_NOT_UINT8 = _names(*(d for d in dt.STORABLE if d is not dt.uint8))

# fmt: off
EXCLUSIONS: tuple[Exclusion, ...] = (
    *(Exclusion(f"*/{n}", _INTS + _BOOL, "R10", "floats only") for n in ("Recip", "Exp2", "Log2", "Sin", "Sqrt", "Div", "Pow")),
    *(Exclusion(f"*/{n}", _FLOATS + _BOOL, "R10", "integers only") for n in ("Mod", "Idiv", "Shr", "Shl")),
    *(Exclusion(f"*/{n}", _FLOATS, "R10", "not floats") for n in ("Xor", "Or", "And")),
    *(Exclusion(f"*/{n}", _BOOL, "R09", "ill-formed on bool") for n in ("Neg", "Sub", "Trunc", "Mulacc")),
    Exclusion("*/Not", _FLOATS + _INTS, "R09", "bool only"),
    Exclusion("*/Threefry", _NOT_UINT64, "R22", "uint64 only"),
    Exclusion("Source/Binary", _NOT_UINT8, "R77", "uint8 only"),
)
# fmt: on


def outside(row: str) -> str | None:
    """Why a row has no cell at all: no TENSOR graph can hold its op."""
    spec = next(r for r in ROWS.values() if r.id == row)
    return None if Dialect.TENSOR in dialects_of(spec.op) else "not an op of the TENSOR dialect, which a backend is given"


def excluded(row: str, dtype: str) -> Exclusion | None:
    """The exclusion of row x dtype, or None if cells are required."""
    return next((e for e in EXCLUSIONS if e.covers(row, dtype)), None)


@dataclass(frozen=True, slots=True)
class Lenient:
    """Cells that `control` may pass; globs."""

    control: str
    rows: str
    dtypes: str
    edge: str
    reason: str

    def covers(self, control: str, row: str, dtype: str, edge: str) -> bool:
        return (
            self.control == control
            and fnmatchcase(row, self.rows)
            and fnmatchcase(dtype, self.dtypes)
            and fnmatchcase(edge, self.edge)
        )


# fmt: off
LENIENT: tuple[Lenient, ...] = (
    Lenient("first", "Decomposed/Sqrt", "fp8e5m2", "*", "core: four ulp of a two-bit logarithm span the operand (R16, R17)"),
    Lenient("first", "Movement/Bitcast", "*", "*", "the bits stay as they are (R46)"),
    Lenient("first", "Movement/Reshape", "*", "split-merge", "row-major order is the order in memory"),
    Lenient("first", "Movement/Expand", "*", "leading", "the source, over and over"),
    Lenient("first", "Movement/Replicated", "*", "equal-copies", "one copy of the source, which is the first input (R47)"),
    Lenient("first", "Elementwise/Trunc", "*int*", "*", "Trunc of an integer is the identity (R10)"),
    Lenient("first", "Elementwise/Cast", "*int*", "from-[iu]*", "the low bits are the wrapped value (R15)"),
    Lenient("first", "Elementwise/Cast", "*int*", "from-bool", "false and true are 0 and 1 (R15)"),
)
# fmt: on


def lenient(control: str, row: str, dtype: str, edge: str) -> Lenient | None:
    """The entry that allows `control` to pass this cell, or None."""
    return next((x for x in LENIENT if x.covers(control, row, dtype, edge)), None)
