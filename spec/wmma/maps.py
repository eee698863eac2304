"""Lane maps: the element of a matrix that a lane holds as its element e (R118, Wmma's fragments).

`affine_map("16:row 2:copy", "8:col*2")` splits the lane number, least significant digit first, into a digit of 16 values and one of
2. The first adds itself to the row, the second changes nothing: those lanes hold copies. The element number has one digit of 8
values, each of which adds 2 to the column. `TableLaneMap` lists the places one by one, for a map that is no such sum. Both have
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


class LaneElement(NamedTuple):
    """An element of a lane: the lane's number and the element's number."""

    lane: int
    element: int

    def __str__(self) -> str:
        return f"lane {self.lane} element {self.element}"


class MapDigit(NamedTuple):
    """A digit of a lane or element number: its number of values, and what a step adds to the row and to the column."""

    size: int
    row: int
    col: int


@dataclass(frozen=True)
class AffineLaneMap:
    """A lane map in which row and column are sums over the digits of the lane number and of the element number.

    The digits are in order, the least significant first.
    """

    lane: tuple[MapDigit, ...]
    element: tuple[MapDigit, ...]

    @cached_property
    def lanes(self) -> int:
        """The number of lanes."""
        return math.prod(d.size for d in self.lane)

    @cached_property
    def elements(self) -> int:
        """The number of elements per lane."""
        return math.prod(d.size for d in self.element)

    def place(self, lane: int, element: int) -> Place:
        """Return the row and column of a lane's element."""
        row = col = 0
        for number, digits in ((lane, self.lane), (element, self.element)):
            for d in digits:
                number, value = divmod(number, d.size)
                row, col = row + value * d.row, col + value * d.col
        return row, col

    def __str__(self) -> str:
        return f"row = {self._format_row_or_col_formula(1)}, col = {self._format_row_or_col_formula(2)}"

    def _format_row_or_col_formula(self, digit_field: int) -> str:
        """Return the formula of the row (axis 1) or the column (axis 2)."""
        terms = []
        for name, digits, count in (("lane", self.lane, self.lanes), ("element", self.element, self.elements)):
            below = 1
            for d in digits:
                value = name + (f"/{below}" if below > 1 else "") + (f"%{d.size}" if below * d.size < count else "")
                if d[digit_field]:
                    terms.append(
                        value
                        if d[digit_field] == 1
                        else f"{d[digit_field]}*{value}"
                        if value == name
                        else f"{d[digit_field]}*({value})"
                    )
                below *= d.size
        return " + ".join(terms) or "0"


@dataclass(frozen=True)
class TableLaneMap:
    """A lane map as a table: `places[lane][element]`."""

    places: tuple[tuple[Place, ...], ...]

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return len(self.places)

    @property
    def elements(self) -> int:
        """The number of elements per lane."""
        return len(self.places[0]) if self.places else 0

    def place(self, lane: int, element: int) -> Place:
        """Return the row and column of a lane's element."""
        return self.places[lane][element]

    def __str__(self) -> str:
        return "; ".join(f"lane {t}: " + " ".join(f"({r},{c})" for r, c in row) for t, row in enumerate(self.places))


LaneMap = AffineLaneMap | TableLaneMap

_DIGIT = re.compile(r"(\d+):(?:(row|col)(?:\*(\d+))?|copy)")


def _parse_digits(text: str) -> tuple[MapDigit, ...]:
    digits = []
    for token in text.split():
        m = _DIGIT.fullmatch(token)
        if m is None or int(m[1]) < 1:
            raise ValueError(f"{token!r} is no digit of a lane map; it reads size:row*step, size:col*step or size:copy")
        step = int(m[3] or 1)
        digits.append(MapDigit(int(m[1]), step if m[2] == "row" else 0, step if m[2] == "col" else 0))
    return tuple(digits)


def affine_map(lane_digits: str, element_digits: str) -> AffineLaneMap:
    """Parse a lane map from the digits of the lane and of the element, as in this module's example.

    Raises ValueError for a digit that cannot be read.
    """
    return AffineLaneMap(_parse_digits(lane_digits), _parse_digits(element_digits))


def lane_elements(m: LaneMap) -> Iterator[tuple[LaneElement, Place]]:
    """Yield every element of every lane with its place in the matrix, lane by lane."""
    return ((LaneElement(t, e), m.place(t, e)) for t in range(m.lanes) for e in range(m.elements))


def lane_map_fault(m: LaneMap, rows: int, cols: int, copies: int = 1) -> str | None:
    """Return None if lanes hold each element of a rows x cols matrix exactly `copies` times, else the first fault."""
    holders: dict[Place, list[LaneElement]] = {(r, c): [] for r in range(rows) for c in range(cols)}
    for holder, place in lane_elements(m):
        if place not in holders:
            return f"{holder} holds {place}, outside of {rows}x{cols}"
        holders[place].append(holder)
    unheld = next((p for p, by in holders.items() if not by), None)
    missing = "" if unheld is None else f"; {unheld} is held by none"
    for place, by in holders.items():
        if len(by) > copies:
            expected = "" if copies == 1 else f", {copies} copies are stated"
            return f"{' and '.join(map(str, by))} hold {place}{expected}{missing}"
    for place, by in holders.items():
        if len(by) < copies:
            return f"{place} is held by {' and '.join(map(str, by)) or 'none'}, {copies} needed"
    return None


def lane_map_difference(m: LaneMap, other: LaneMap) -> str | None:
    """Return None if two maps are equal, else the first lane element with different places, and the holders of both."""
    if (m.lanes, m.elements) != (other.lanes, other.elements):
        return f"{m.lanes} lanes of {m.elements} elements, not {other.lanes} of {other.elements}"
    for (holder, place), (_, expected) in zip(lane_elements(m), lane_elements(other)):
        if place != expected:
            other_holder = next((h for h, p in lane_elements(m) if p == expected), None)
            return f"{holder} holds {place}, not {expected}, which {'none' if other_holder is None else other_holder} holds"
    return None
