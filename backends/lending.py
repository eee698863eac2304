"""Memory that a program lends to the kernels of a device for some launches (`Ability.LENDING`).

Takes: host arrays. Gives: for each run of bytes that they cover, an object of the device, found by any host address in it.
Arrays that overlap share one object, so kernels see the aliases that the host has.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar


class LentSpan:
    """The host addresses [start, stop) while they are lent. A device adds what it has for them."""

    __slots__ = ("start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop


S = TypeVar("S", bound=LentSpan)


class MemoryLender(ABC, Generic[S]):
    """The spans that are lent at present. Each thread has its own."""

    def __init__(self) -> None:
        self._lent = threading.local()

    @abstractmethod
    def open_span(self, start: int, stop: int) -> S:
        """Make host memory reachable for kernels."""

    @abstractmethod
    def return_spans(self, spans: Sequence[S]) -> None:
        """Wait for the kernels, and make the host memory current."""

    @abstractmethod
    def close_span(self, span: S) -> None:
        """Release what the device has for a span."""

    @contextmanager
    def lend_arrays(self, arrays: Sequence[Any]) -> Iterator[None]:
        """Lend arrays for the launches within the context; on exit they hold what kernels wrote."""
        before = self._spans()
        self._lent.spans = spans = list[S]()
        try:
            for start, stop in merge_overlapping_address_ranges(arrays):
                spans.append(self.open_span(start, stop))
            yield
            self.return_spans(spans)
        finally:
            self._lent.spans = before
            for s in spans:
                self.close_span(s)

    def find_span(self, address: int) -> S | None:
        """Return the span that holds an address; None for the address of an empty array, which may be any."""
        return next((s for s in self._spans() if s.start <= address < s.stop), None)

    def _spans(self) -> list[S]:
        spans: list[S] = getattr(self._lent, "spans", [])
        return spans


def merge_overlapping_address_ranges(arrays: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the bytes of the arrays as disjoint address ranges, in ascending order."""
    ranges = sorted((int(a.__array_interface__["data"][0]), a.nbytes) for a in arrays if a.nbytes)
    merged: list[tuple[int, int]] = []
    for start, size in ranges:
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], start + size)
        else:
            merged.append((start, start + size))
    return merged
