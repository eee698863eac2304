"""The source of random choices that generators take, whoever drives it."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class ChoiceSource(Protocol):
    """The source of a generator's choices; both drivers implement it."""

    def integer(self, lo: int, hi: int) -> int:
        """Return an integer of [lo, hi]. A driver that shrinks moves toward lo."""
        ...

    def chance(self, percent: int) -> bool:
        """Return True in about `percent` of 100 draws. Shrinks toward False."""
        ...

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        """Return one of `options`. Shrinks toward the first."""
        ...
