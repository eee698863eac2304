"""Cells that the suite does not require, and cells that a do-nothing backend may pass: two lists, each entry with its reason.

`EXCLUSIONS` has the pairs of row and dtype without a required cell. Every other pair of `ROWS` and storable dtypes has cells, and a
test checks both directions. `LENIENT` has the cells that a control
(all zeros, all NaN, or its first input) may pass, because its answer is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from uops.backends.conformance.cases.native import WORDS
from uops.spec import wmma
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rows by glob and dtypes by name without required cells; empty `dtypes` means all."""

    rows: str
    dtypes: tuple[str, ...]
    ruling: str
    reason: str

    def covers(self, row: str, dtype: str) -> bool:
        """Return True if row x dtype needs no cell."""
        return fnmatchcase(row, self.rows) and (not self.dtypes or dtype in self.dtypes)


def _dtype_names(*kinds: DType) -> tuple[str, ...]:
    return tuple(d.name for d in kinds)


_FLOATS, _INTS, _BOOL = _dtype_names(*dt.FLOATS), _dtype_names(*dt.INTS), _dtype_names(dt.bool_)
_NOT_UINT64 = _dtype_names(*(d for d in dt.STORABLE if d is not dt.uint64))
_NOT_UINT8 = _dtype_names(*(d for d in dt.STORABLE if d is not dt.uint8))
_NOT_WORDS = _dtype_names(*(d for d in dt.STORABLE if d not in WORDS))
_NOT_MULTIPLIED = _dtype_names(*(d for d in dt.STORABLE if all(x.dtype_in is not d for x in wmma.DESCRIPTORS)))

# fmt: off
EXCLUSIONS: tuple[Exclusion, ...] = (
    *(Exclusion(f"*/{n}", _INTS + _BOOL, "R10", "floats only") for n in ("Recip", "Exp2", "Log2", "Sin", "Sqrt", "Div", "Pow")),
    *(Exclusion(f"*/{n}", _FLOATS + _BOOL, "R10", "integers only") for n in ("Mod", "Idiv", "Shr", "Shl")),
    *(Exclusion(f"*/{n}", _FLOATS, "R10", "not floats") for n in ("Xor", "Or", "And")),
    *(Exclusion(f"*/{n}", _BOOL, "R09", "ill-formed on bool") for n in ("Neg", "Sub")),
    *(Exclusion(f"*/{n}", _BOOL, "R09", "on bool only another name of other rows") for n in ("Trunc", "Mulacc")),
    Exclusion("*/Not", _FLOATS + _INTS, "R09", "bool only"),
    Exclusion("*/Threefry", _NOT_UINT64, "R22", "uint64 only"),
    Exclusion("Source/Binary", _NOT_UINT8, "R77", "uint8 only"),
    Exclusion("Codegen/AtomicAdd", _BOOL, "R56", "ill-formed on bool"),
    Exclusion("Codegen/Ins", _NOT_WORDS, "R168", "the instructions that every target has count or move the bits of words"),
    Exclusion("Codegen/Wmma", _NOT_MULTIPLIED, "R118", "no known instruction multiplies them"),
)
# fmt: on


def find_exclusion(row: str, dtype: str) -> Exclusion | None:
    """Return the exclusion of row x dtype, or None if cells are required."""
    return next((e for e in EXCLUSIONS if e.covers(row, dtype)), None)


@dataclass(frozen=True, slots=True)
class ControlAllowance:
    """Cells, as globs, that the do-nothing backend `control` may pass."""

    control: str
    rows: str
    dtypes: str
    edge: str
    reason: str

    def allows_control_to_pass(self, control: str, row: str, dtype: str, edge: str) -> bool:
        """Return True if the entry allows `control` to pass this cell."""
        return (
            self.control == control
            and fnmatchcase(row, self.rows)
            and fnmatchcase(dtype, self.dtypes)
            and fnmatchcase(edge, self.edge)
        )


# fmt: off
LENIENT: tuple[ControlAllowance, ...] = (
    ControlAllowance("first", "Decomposed/Sqrt", "fp8e5m2", "*", "core: 4 ulp of a two-bit logarithm span the operand (R16, R17)"),
    ControlAllowance("first", "Movement/Bitcast", "*", "*", "the bits stay as they are (R46)"),
    ControlAllowance("first", "Movement/Reshape", "*", "split-merge", "row-major order is the order in memory"),
    ControlAllowance("first", "Movement/Expand", "*", "leading", "the source, over and over"),
    ControlAllowance("first", "Movement/Replicated", "*", "equal-copies", "one copy of the source, which is the first input (R47)"),
    ControlAllowance("first", "Elementwise/Trunc", "*int*", "*", "Trunc of an integer is the identity (R10)"),
    ControlAllowance("first", "Elementwise/Cast", "*int*", "from-[iu]*", "the low bits are the wrapped value (R15)"),
    ControlAllowance("first", "Elementwise/Cast", "*int*", "from-bool", "false and true are 0 and 1 (R15)"),
)
# fmt: on


def find_control_allowance(control: str, row: str, dtype: str, edge: str) -> ControlAllowance | None:
    """Return the entry that allows `control` to pass this cell, or None."""
    return next((x for x in LENIENT if x.allows_control_to_pass(control, row, dtype, edge)), None)
