"""Results of nodes: arrays of answers, storage in bytes, and references into it (R24, R46, R51, R61)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uops.interp.exact.answers import AnswerSet, anything
from uops.interp.exact.numbers.formats import FORMATS, python_number
from uops.spec.errors import Trap
from uops.spec.ir.dtypes import DType, DTypeKind, bool_

Shape = tuple[int, ...]

#: The most points of an element made from the bytes of inexact ones; more become *any* (R30).
MAX_POINTS = 8


class Array(NamedTuple):
    """A value: its elements in row-major order.

    Only the contents of a buffer may hold None, for an element that was never written (R61).
    """

    dtype: DType
    shape: Shape
    elements: tuple[AnswerSet | None, ...]

    @property
    def bits(self) -> tuple[int | None, ...]:
        """The canonical bit patterns."""
        return tuple(None if a is None else a.best for a in self.elements)

    @property
    def numbers(self) -> tuple[bool | int | float | None, ...]:
        """The canonical values as Python numbers."""
        return tuple(None if a is None else python_number(self.dtype, a.best) for a in self.elements)

    def contains(self, bits: Sequence[int]) -> list[bool]:
        """Return per element whether these bit patterns are right results; an element that was never written accepts anything."""
        return [a is None or a.contains(b) for a, b in zip(self.elements, bits, strict=True)]


def elements_of(array: Array) -> list[AnswerSet]:
    """Return the elements of a value, which never holds None."""
    return [a for a in array.elements if a is not None]


def make_array(dtype: DType, shape: Shape, elements: Iterable[AnswerSet]) -> Array:
    """Return a value with these elements."""
    return Array(dtype, shape, tuple(elements))


def make_scalar(dtype: DType, bits: int) -> Array:
    """Return a value of shape () with these canonical bits."""
    return Array(dtype, (), (AnswerSet(dtype, bits),))


#: One byte of storage: the answer that was written there and which of its bytes this is.
ByteCell = tuple[AnswerSet, int]


class ExactStorage:
    """The bytes of one Buffer or free Param, and the accesses to them."""

    __slots__ = ("accesses", "cells", "dtype", "name", "size", "written")

    def __init__(self, name: str, dtype: DType, size: int) -> None:
        self.name = name
        self.dtype = dtype
        self.size = size
        self.cells: list[ByteCell | None] = [None] * (size * dtype.itemsize)
        self.accesses: list[ExactAccess] = []
        self.written = False

    def write_element(self, addresses: Sequence[int], answer: AnswerSet) -> None:
        """Write an element's bytes to these addresses."""
        for k, address in enumerate(addresses):
            self.cells[address] = (answer, k)

    def read_element_or_trap_if_unwritten(self, addresses: Sequence[int], dtype: DType) -> AnswerSet:
        """Return the element of `dtype` in the bytes at these addresses. Raises Trap if one was never written (R61)."""
        cells = [cell for address in addresses if (cell := self.cells[address]) is not None]
        if len(cells) < len(addresses):
            raise Trap(f"R61: read of an unwritten element of {self.name}")
        return join_cells_enumerating_few_patterns(dtype, cells)

    def contents_or_none_where_unwritten(self) -> Array:
        """Return all elements, None where an element was never written."""
        width = self.dtype.itemsize
        places = [range(k * width, k * width + width) for k in range(self.size)]
        is_written = (all(self.cells[address] is not None for address in p) for p in places)
        elements = (
            self.read_element_or_trap_if_unwritten(p, self.dtype) if w else None for p, w in zip(places, is_written, strict=True)
        )
        return Array(self.dtype, (self.size,), tuple(elements))


class ExactAccess(NamedTuple):
    """A read or write that happened: its number, kind and bytes."""

    number: int
    write: bool
    touched: frozenset[int]


class ExactRef:
    """A view of storage: per element the addresses of its bytes, or None for an element out of bounds (R45).

    `happened_before` has bit k set if access k happened before the node. `value` is the result of its one implicit Load (R27,
    R51).
    """

    __slots__ = ("access", "dtype", "happened_before", "places", "shape", "storage", "value")

    def __init__(
        self, storage: ExactStorage, dtype: DType, shape: Shape, places: list[tuple[int, ...] | None], happened_before: int
    ) -> None:
        self.storage = storage
        self.dtype = dtype
        self.shape = shape
        self.places = places
        self.happened_before = happened_before
        self.value: Array | None = None
        self.access = 0


def reference_to_storage(storage: ExactStorage, shape: Shape, happened_before: int) -> ExactRef:
    """Return the reference to all elements of a storage."""
    width = storage.dtype.itemsize
    places: list[tuple[int, ...] | None] = [tuple(range(k * width, k * width + width)) for k in range(storage.size)]
    return ExactRef(storage, storage.dtype, shape, places, happened_before)


def split_into_cells(elements: Iterable[AnswerSet]) -> list[ByteCell]:
    """Return the bytes of some elements in storage order."""
    return [(a, k) for a in elements for k in range(a.dtype.itemsize)]


def join_cells_enumerating_few_patterns(dtype: DType, cells: Sequence[ByteCell]) -> AnswerSet:
    """Return the element of `dtype` with these bytes, little-endian (R46).

    Its set has every combination of the sets behind the bytes, if they are few and none holds every NaN; else *any* (R30).
    Raises Trap for a bool byte other than 0 and 1.
    """
    first, _ = cells[0]
    is_whole = all(a is first and k == i for i, (a, k) in enumerate(cells))
    if is_whole and first.dtype is dtype:
        return first
    best = _join_bytes([_byte(a.best, k) for a, k in cells])
    if dtype is bool_ and best > 1:
        raise Trap(f"R24: a bool byte holds {best}")
    sources = list({id(a): a for a, _ in cells}.values())
    choices = [enumerate_patterns_if_few(a) for a in sources]
    if any(c is None for c in choices) or _count_combinations(choices) > MAX_POINTS:
        return anything(dtype, best)
    points = set()
    for patterns in itertools.product(*(c for c in choices if c is not None)):
        bits = dict(zip(map(id, sources), patterns, strict=True))
        points.add(_join_bytes([_byte(bits[id(a)], k) for a, k in cells]))
    return AnswerSet(dtype, best, tuple(sorted(points - {best})))


def _count_combinations(choices: list[list[int] | None]) -> int:
    return math.prod(len(c or ()) for c in choices)


def _byte(bits: int, k: int) -> int:
    return bits >> 8 * k & 0xFF


def _join_bytes(parts: Sequence[int]) -> int:
    return sum(b << 8 * k for k, b in enumerate(parts))


def enumerate_patterns_if_few(a: AnswerSet) -> list[int] | None:
    """Return every bit pattern that an answer allows; None if they are more than `MAX_POINTS`, or if every NaN is among them."""
    patterns = {a.best, *a.points}
    if a.anything:
        return None
    if a.dtype.kind is DTypeKind.FLOAT:
        fmt = FORMATS[a.dtype]
        if a.nan:
            return None
        if a.span is not None:
            low, high = a.span
            if high - low >= MAX_POINTS:
                return None
            patterns.update(fmt.from_key(k) for k in range(low, high + 1))
            if low <= 0 <= high:
                patterns.add(fmt.sign_bit)
    return sorted(patterns) if len(patterns) <= MAX_POINTS else None
