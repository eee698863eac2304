"""One tensor-core instruction as data: dims, dtypes, lane maps, accumulator, source (R93, R118, R119).

D = A B + C with A of M x K, B of K x N, C and D of M x N. `dims` is (N, M, K), the order of `WmmaArg`. The maps say who holds which
element; `bijection_fault` checks them. `Accumulator` says how the K exact products and C's element become D's: it is what
`uops.interp.ops.wmma.allowed_error` derives its bound from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from uops.spec.ir.dtypes import DType
from uops.spec.wmma.maps import Holder, LaneMap, holders, map_fault

#: The operands; C stands for D too, which has its map.
OPERANDS = ("A", "B", "C")


class Status(Enum):
    """Whether the vendor's own publication states the lane maps, or only a public secondary source."""

    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"


class Basis(Enum):
    """Where the numbers of an accumulator come from."""

    DOCUMENTED = "documented by the vendor"
    MEASURED = "published measurements"
    ASSUMED = "assumed, the loosest plausible"


@dataclass(frozen=True, slots=True)
class Source:
    """A citation: the document, its section, and its address where it is public."""

    title: str
    section: str
    url: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.title, self.section, self.url) if part)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How the exact products are summed, in steps of `block` products each.

    A step aligns its products and the running sum with the greatest of them and cuts each to `align` fraction bits (None: nothing
    is cut), then rounds the sum to `bits` fraction bits, to nearest or, unless `nearest`, in any direction. The order of the
    products is unspecified. `flushes`: subnormal operands and sums may count as zero. Integers wrap, and have `bits` 0.
    """

    text: str
    basis: Basis
    source: Source
    bits: int = 0
    nearest: bool = True
    block: int = 1
    align: int | None = None
    flushes: bool = False


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor-core instruction; see the module. `copies_a` and `copies_b` count who holds each element of A and of B."""

    name: str
    vendor: str
    arch: str
    dims: tuple[int, int, int]
    dtype_in: DType
    dtype_out: DType
    threads: int
    a: LaneMap
    b: LaneMap
    c: LaneMap
    accumulator: Accumulator
    source: Source
    status: Status
    copies_a: int = 1
    copies_b: int = 1
    note: str = ""

    @property
    def key(self) -> Key:
        return self.name, self.dims, self.dtype_in, self.dtype_out, self.threads

    def map(self, operand: str) -> LaneMap:
        return {"A": self.a, "B": self.b, "C": self.c}[operand]

    def shape(self, operand: str) -> tuple[int, int]:
        """Rows and columns of the operand's matrix."""
        n, m, k = self.dims
        return {"A": (m, k), "B": (k, n), "C": (m, n)}[operand]

    def copies(self, operand: str) -> int:
        return {"A": self.copies_a, "B": self.copies_b, "C": 1}[operand]

    def __str__(self) -> str:
        n, m, k = self.dims
        lines = [f"{self.name} ({self.vendor} {self.arch}, {self.status.value}): {m}x{n}x{k} {self.dtype_in} to {self.dtype_out}"]
        for operand in OPERANDS:
            many = self.copies(operand)
            lines.append(f"  {operand}: {self.map(operand)}" + (f", {many} copies" if many > 1 else ""))
        lines.append(f"  sums: {self.accumulator.text} ({self.accumulator.basis.value}: {self.accumulator.source})")
        lines.append(f"  source: {self.source}")
        return "\n".join(lines + ([f"  note: {self.note}"] if self.note else []))


#: What `find` goes by: name, dims, dtype_in, dtype_out, threads.
Key = tuple[str, tuple[int, int, int], DType, DType, int]


def bijection_fault(d: Descriptor) -> str | None:
    """None if every operand's map holds each element of its matrix once, or as often as the vendor states; else what is wrong."""
    for operand in OPERANDS:
        m, (rows, cols) = d.map(operand), d.shape(operand)
        if m.lanes != d.threads:
            return f"{operand}: the map has {m.lanes} lanes, the instruction {d.threads}"
        fault = map_fault(m, rows, cols, d.copies(operand))
        if fault is not None:
            return f"{operand}: {fault}"
    return None


def copies_of(d: Descriptor, operand: str, holder: Holder) -> tuple[Holder, ...]:
    """Every lane and element that holds what `holder` holds, itself included."""
    m = d.map(operand)
    place = m.place(*holder)
    return tuple(h for h, p in holders(m) if p == place)
