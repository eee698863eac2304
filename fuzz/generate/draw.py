"""The fast seeded driver: choices from one 64-bit seed, for campaigns and benchmarks; and choices recorded and replayed.

A case is a function of its choices, so that a list of them carries it from one driver to the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from uops.backends.testing.values import Draw

T = TypeVar("T")


class SeededDraw:
    """A `Draw` whose choices are a pure function of `seed`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def integer(self, lo: int, hi: int) -> int:
        return lo + int(self._random() * (hi - lo + 1))

    def chance(self, percent: int) -> bool:
        return self._random() * 100 < percent

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        return options[int(self._random() * len(options))]


class Recording:
    """A `Draw` that passes another one's choices on and keeps them."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.choices: list[int] = []

    def integer(self, lo: int, hi: int) -> int:
        self.choices.append(self._draw.integer(lo, hi))
        return self.choices[-1]

    def chance(self, percent: int) -> bool:
        self.choices.append(int(self._draw.chance(percent)))
        return bool(self.choices[-1])

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        return options[self.integer(0, len(options) - 1)]


class Replay:
    """A `Draw` of recorded choices; ValueError where they are not those of what is being made."""

    def __init__(self, choices: Iterable[int]) -> None:
        self._left = iter(choices)

    def integer(self, lo: int, hi: int) -> int:
        found = next(self._left, None)
        if found is None or not lo <= found <= hi:
            raise ValueError(f"the recorded choice is {found}, asked for one of {lo} to {hi}")
        return found

    def chance(self, percent: int) -> bool:
        return bool(self.integer(0, 1))

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        return options[self.integer(0, len(options) - 1)]
