"""What nodes evaluate to: arrays of answers, storage in bytes, and references into it (R24, R46, R51, R61)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uops.interp.exact.answers import Answer, anything
from uops.interp.exact.numbers.formats import FORMATS, number
from uops.spec.errors import Trap
from uops.spec.ir.dtypes import DType, Kind, bool_

Shape = tuple[int, ...]

#: An inexact value whose bits are looked at gives at most this many points, else *any* (R30).
MOST_POINTS = 8


class Array(NamedTuple):
    """A value: its elements in row-major order. Only a finished buffer may hold None, an element never written (R61)."""

    dtype: DType
    shape: Shape
    elements: tuple[Answer | None, ...]

    @property
    def bits(self) -> tuple[int | None, ...]:
        """Canonical bit patterns."""
        return tuple(None if a is None else a.best for a in self.elements)

    @property
    def numbers(self) -> tuple[bool | int | float | None, ...]:
        """Canonical values as Python numbers."""
        return tuple(None if a is None else number(self.dtype, a.best) for a in self.elements)

    def contains(self, bits: Sequence[int]) -> list[bool]:
        """Per element whether these bit patterns are right results; an element never written accepts anything."""
        return [a is None or a.contains(b) for a, b in zip(self.elements, bits, strict=True)]


def answers(array: Array) -> list[Answer]:
    """The elements of a value; a value never holds None."""
    return [a for a in array.elements if a is not None]


def array(dtype: DType, shape: Shape, elements: Iterable[Answer]) -> Array:
    return Array(dtype, shape, tuple(elements))


def scalar(dtype: DType, bits: int) -> Array:
    return Array(dtype, (), (Answer(dtype, bits),))


#: One byte of storage: the answer that was written there and which of its bytes this is.
Cell = tuple[Answer, int]


class Storage:
    """The bytes of one Buffer or free Param, and the accesses made to them."""

    __slots__ = ("accesses", "cells", "dtype", "name", "size", "written")

    def __init__(self, name: str, dtype: DType, size: int) -> None:
        self.name = name
        self.dtype = dtype
        self.size = size
        self.cells: list[Cell | None] = [None] * (size * dtype.itemsize)
        self.accesses: list[Access] = []
        self.written = False

    def put(self, at: Sequence[int], answer: Answer) -> None:
        for k, address in enumerate(at):
            self.cells[address] = (answer, k)

    def get(self, at: Sequence[int], dtype: DType) -> Answer:
        """The element of `dtype` in the bytes at these addresses; Trap where one was never written (R61)."""
        cells = [self.cells[address] for address in at]
        found = [c for c in cells if c is not None]
        if len(found) < len(cells):
            raise Trap(f"R61: read of an unwritten element of {self.name}")
        return from_cells(dtype, found)

    def contents(self) -> Array:
        """All of it, None where nothing was written."""
        w = self.dtype.itemsize
        places = [range(k * w, k * w + w) for k in range(self.size)]
        elements = (self.get(p, self.dtype) if all(self.cells[b] is not None for b in p) else None for p in places)
        return Array(self.dtype, (self.size,), tuple(elements))


class Access(NamedTuple):
    """A read or write that happened: its number, kind and bytes."""

    number: int
    write: bool
    touched: frozenset[int]


class Ref:
    """A view of storage: per element the addresses of its bytes, or None where an index left the bounds (R45).

    `mask` says which accesses happened before (bit k: access number k). `value` is what the one implicit Load of this node gave.
    """

    __slots__ = ("access", "dtype", "mask", "places", "shape", "storage", "value")

    def __init__(self, storage: Storage, dtype: DType, shape: Shape, places: list[tuple[int, ...] | None], mask: int) -> None:
        self.storage = storage
        self.dtype = dtype
        self.shape = shape
        self.places = places
        self.mask = mask
        self.value: Array | None = None
        self.access = 0


def whole(storage: Storage, shape: Shape, mask: int) -> Ref:
    """The reference to all of a storage."""
    w = storage.dtype.itemsize
    places: list[tuple[int, ...] | None] = [tuple(range(k * w, k * w + w)) for k in range(storage.size)]
    return Ref(storage, storage.dtype, shape, places, mask)


def to_cells(elements: Iterable[Answer]) -> list[Cell]:
    """The bytes of a sequence of elements, in storage order."""
    return [(a, k) for a in elements for k in range(a.dtype.itemsize)]


def from_cells(dtype: DType, cells: Sequence[Cell]) -> Answer:
    """One element of `dtype` from its bytes, little-endian (R46); its set follows the sets behind the bytes (R30)."""
    first = cells[0][0]
    same = all(a is first and k == i for i, (a, k) in enumerate(cells))
    if same and first.dtype is dtype:
        return first
    best = _join([_byte(a.best, k) for a, k in cells])
    if dtype is bool_ and best > 1:
        raise Trap(f"R24: a bool byte holds {best}")
    sources = list({id(a): a for a, _ in cells}.values())
    choices = [patterns(a) for a in sources]
    if any(c is None for c in choices) or _product(choices) > MOST_POINTS:
        return anything(dtype, best)
    points = set()
    for chosen in itertools.product(*(c for c in choices if c is not None)):
        bits = dict(zip(map(id, sources), chosen, strict=True))
        points.add(_join([_byte(bits[id(a)], k) for a, k in cells]))
    return Answer(dtype, best, tuple(sorted(points - {best})))


def _product(choices: list[list[int] | None]) -> int:
    n = 1
    for c in choices:
        n *= len(c or ())
    return n


def _byte(bits: int, k: int) -> int:
    return bits >> 8 * k & 0xFF


def _join(parts: Sequence[int]) -> int:
    return sum(b << 8 * k for k, b in enumerate(parts))


def patterns(a: Answer) -> list[int] | None:
    """Every bit pattern an answer allows, None if they are more than `MOST_POINTS`."""
    found = {a.best, *a.points}
    if a.anything:
        return None
    if a.dtype.kind is Kind.FLOAT:
        fmt = FORMATS[a.dtype]
        if a.nan:
            return None
        if a.span is not None:
            low, high = a.span
            if high - low >= MOST_POINTS:
                return None
            found.update(fmt.from_key(k) for k in range(low, high + 1))
            if low <= 0 <= high:
                found.add(fmt.sign_bit)
    return sorted(found) if len(found) <= MOST_POINTS else None
