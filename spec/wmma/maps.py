"""Lane maps: which element of a matrix a lane holds as its element e (R118).

`affine("16:row 2:copy", "8:col*2")` reads: the lane number splits, least significant part first, into a part of 16 values and one
of 2; the first adds itself to the row, the second changes nothing (those lanes hold copies); the element number has one part of 8
values, and each adds 2 to the column. `Table` lists the places one by one, for a map that is no such sum. Both give
`place(lane, element)`, and print as formulas or as places.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

#: An element of a matrix: (row, column).
Place = tuple[int, int]


class Holder(NamedTuple):
    """A lane and the number of one of its elements."""

    lane: int
    element: int

    def __str__(self) -> str:
        return f"lane {self.lane} element {self.element}"


class Digit(NamedTuple):
    """One part of a number: how many values it has, and what one step adds to the row and to the column."""

    size: int
    row: int
    col: int


@dataclass(frozen=True)
class Affine:
    """Row and column are sums over the digits of the lane number and of the element number, least significant digit first."""

    lane: tuple[Digit, ...]
    element: tuple[Digit, ...]

    @cached_property
    def lanes(self) -> int:
        return math.prod(d.size for d in self.lane)

    @cached_property
    def elements(self) -> int:
        return math.prod(d.size for d in self.element)

    def place(self, lane: int, element: int) -> Place:
        row = col = 0
        for number, digits in ((lane, self.lane), (element, self.element)):
            for d in digits:
                number, value = divmod(number, d.size)
                row, col = row + value * d.row, col + value * d.col
        return row, col

    def __str__(self) -> str:
        return f"row = {self._sum(1)}, col = {self._sum(2)}"

    def _sum(self, axis: int) -> str:
        terms = []
        for name, digits, count in (("lane", self.lane, self.lanes), ("element", self.element, self.elements)):
            below = 1
            for d in digits:
                value = name + (f"/{below}" if below > 1 else "") + (f"%{d.size}" if below * d.size < count else "")
                if d[axis]:
                    terms.append(value if d[axis] == 1 else f"{d[axis]}*{value}" if value == name else f"{d[axis]}*({value})")
                below *= d.size
        return " + ".join(terms) or "0"


@dataclass(frozen=True)
class Table:
    """`places[lane][element]`."""

    places: tuple[tuple[Place, ...], ...]

    @property
    def lanes(self) -> int:
        return len(self.places)

    @property
    def elements(self) -> int:
        return len(self.places[0]) if self.places else 0

    def place(self, lane: int, element: int) -> Place:
        return self.places[lane][element]

    def __str__(self) -> str:
        return "; ".join(f"lane {t}: " + " ".join(f"({r},{c})" for r, c in row) for t, row in enumerate(self.places))


LaneMap = Affine | Table

_DIGIT = re.compile(r"(\d+):(?:(row|col)(?:\*(\d+))?|copy)")


def _digits(text: str) -> tuple[Digit, ...]:
    found = []
    for token in text.split():
        m = _DIGIT.fullmatch(token)
        if m is None or int(m[1]) < 1:
            raise ValueError(f"{token!r} is no digit of a lane map; it reads size:row*step, size:col*step or size:copy")
        step = int(m[3] or 1)
        found.append(Digit(int(m[1]), step if m[2] == "row" else 0, step if m[2] == "col" else 0))
    return tuple(found)


def affine(lane: str, element: str) -> Affine:
    """The map of two rows of digits, as in this module's example; ValueError for a digit that cannot be read."""
    return Affine(_digits(lane), _digits(element))


def holders(m: LaneMap) -> Iterator[tuple[Holder, Place]]:
    """Every lane and element with its place, lanes first."""
    return ((Holder(t, e), m.place(t, e)) for t in range(m.lanes) for e in range(m.elements))


def map_fault(m: LaneMap, rows: int, cols: int, copies: int = 1) -> str | None:
    """None if each element of a rows x cols matrix is held exactly `copies` times, else the first fault and its places."""
    found: dict[Place, list[Holder]] = {(r, c): [] for r in range(rows) for c in range(cols)}
    for holder, place in holders(m):
        if place not in found:
            return f"{holder} holds {place}, outside of {rows}x{cols}"
        found[place].append(holder)
    lost = next((p for p, by in found.items() if not by), None)
    missing = "" if lost is None else f"; {lost} is held by none"
    for place, by in found.items():
        if len(by) > copies:
            wanted = "" if copies == 1 else f", {copies} copies are stated"
            return f"{' and '.join(map(str, by))} hold {place}{wanted}{missing}"
    for place, by in found.items():
        if len(by) < copies:
            return f"{place} is held by {' and '.join(map(str, by)) or 'none'}, {copies} needed"
    return None


def map_difference(m: LaneMap, other: LaneMap) -> str | None:
    """None if both maps hold the same, else the first holder that they place differently, with both places and who holds them."""
    if (m.lanes, m.elements) != (other.lanes, other.elements):
        return f"{m.lanes} lanes of {m.elements} elements, not {other.lanes} of {other.elements}"
    for (holder, place), (_, wanted) in zip(holders(m), holders(other)):
        if place != wanted:
            instead = next((h for h, p in holders(m) if p == wanted), None)
            where = "none" if instead is None else str(instead)
            return f"{holder} holds {place}, not {wanted}, which {where} holds"
    return None
