"""A tensor-core instruction as data: dims, dtypes, lane maps, accumulator and source (R93, TC; R118 and R119, Wmma).

D = A B + C with A of M x K, B of K x N, C and D of M x N. `dims` is (N, M, K), the order of `WmmaArg`. The maps state which lane
holds which element; `find_operand_map_fault` checks them. `Accumulator` states how the K exact products and C's element become D's;
`uops.interp.ops.wmma.allowed_error` derives its error bound from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from uops.spec.ir.dtypes import DType
from uops.spec.wmma.maps import LaneElement, LaneMap, lane_elements, lane_map_fault

#: The operands; C stands for D too, which has its map.
OPERANDS = ("A", "B", "C")


class LaneMapStatus(Enum):
    """The publisher of the lane maps: the vendor, or only a public secondary source."""

    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"


class AccumulatorBasis(Enum):
    """The origin of an accumulator's numbers."""

    DOCUMENTED = "documented by the vendor"
    MEASURED = "published measurements"
    ASSUMED = "assumed, the loosest plausible"


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation: a document, its section, and its address if it is public."""

    title: str
    section: str
    url: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.title, self.section, self.url) if part)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The summation of the exact products, in steps of `block` products each.

    A step aligns its products and the running sum with the greatest of them and truncates each to `align` fraction bits (None: no
    truncation). It then rounds the sum to `bits` fraction bits, to nearest or, unless `nearest`, in any direction. The order of the
    products is unspecified. With `flushes`, subnormal operands and sums may count as zero. Integers wrap, and have `bits` 0.
    """

    text: str
    basis: AccumulatorBasis
    source: Citation
    bits: int = 0
    nearest: bool = True
    block: int = 1
    align: int | None = None
    flushes: bool = False


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor-core instruction; see the module.

    `threads` is the number of lanes. `copies_a` and `copies_b` are the numbers of lane elements that hold each element of A and of
    B.
    """

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
    source: Citation
    status: LaneMapStatus
    copies_a: int = 1
    copies_b: int = 1
    note: str = ""

    @property
    def key(self) -> Key:
        """The key of the descriptor in the registry."""
        return self.name, self.dims, self.dtype_in, self.dtype_out, self.threads

    def map(self, operand: str) -> LaneMap:
        """Return the lane map of operand "A", "B" or "C"."""
        return {"A": self.a, "B": self.b, "C": self.c}[operand]

    def shape(self, operand: str) -> tuple[int, int]:
        """Return the rows and columns of the operand's matrix."""
        n, m, k = self.dims
        return {"A": (m, k), "B": (k, n), "C": (m, n)}[operand]

    def copies(self, operand: str) -> int:
        """Return the number of lane elements that hold each element of the operand."""
        return {"A": self.copies_a, "B": self.copies_b, "C": 1}[operand]

    def __str__(self) -> str:
        n, m, k = self.dims
        lines = [f"{self.name} ({self.vendor} {self.arch}, {self.status.value}): {m}x{n}x{k} {self.dtype_in} to {self.dtype_out}"]
        for operand in OPERANDS:
            copies = self.copies(operand)
            lines.append(f"  {operand}: {self.map(operand)}" + (f", {copies} copies" if copies > 1 else ""))
        lines.append(f"  sums: {self.accumulator.text} ({self.accumulator.basis.value}: {self.accumulator.source})")
        lines.append(f"  source: {self.source}")
        return "\n".join(lines + ([f"  note: {self.note}"] if self.note else []))


#: The key of the registry: name, dims, dtype_in, dtype_out, threads.
Key = tuple[str, tuple[int, int, int], DType, DType, int]


def find_operand_map_fault(d: Descriptor) -> str | None:
    """Return None if each operand's map holds every element of its matrix as often as the vendor states, else what is wrong."""
    for operand in OPERANDS:
        m, (rows, cols) = d.map(operand), d.shape(operand)
        if m.lanes != d.threads:
            return f"{operand}: the map has {m.lanes} lanes, the instruction {d.threads}"
        fault = lane_map_fault(m, rows, cols, d.copies(operand))
        if fault is not None:
            return f"{operand}: {fault}"
    return None


def find_all_holders_of_element(d: Descriptor, operand: str, holder: LaneElement) -> tuple[LaneElement, ...]:
    """Return every lane element that holds the same matrix element as `holder`, itself included."""
    m = d.map(operand)
    place = m.place(*holder)
    return tuple(h for h, p in lane_elements(m) if p == place)
