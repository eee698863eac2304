"""Drivers of choices: one that draws from a 64-bit seed, one that records choices, and one that replays them.

Campaigns and benchmarks use the seeded driver. A case is a function of its choices, so a list of choices carries it from one
driver to another.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeVar

from uops.spec.choices import ChoiceSource

T = TypeVar("T")


def draw_permutation(draw: ChoiceSource, n: int) -> list[int]:
    """Draw a permutation of the first `n` numbers."""
    order = list(range(n))
    for k in range(n - 1, 0, -1):
        j = draw.integer(0, k)
        order[k], order[j] = order[j], order[k]
    return order


class SeededDraw:
    """A `ChoiceSource` whose choices are a pure function of `seed`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def integer(self, lo: int, hi: int) -> int:
        """Draw an integer from `lo` to `hi`, both included."""
        return lo + int(self._random() * (hi - lo + 1))

    def chance(self, percent: int) -> bool:
        """Return True with a probability of `percent` in 100."""
        return self._random() * 100 < percent

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        """Draw one of the options."""
        return options[int(self._random() * len(options))]


class RecordingDraw:
    """A `ChoiceSource` that forwards to another one and records its choices."""

    def __init__(self, draw: ChoiceSource) -> None:
        self._draw = draw
        self.choices: list[int] = []

    def integer(self, lo: int, hi: int) -> int:
        """Draw an integer from `lo` to `hi` and record it."""
        self.choices.append(self._draw.integer(lo, hi))
        return self.choices[-1]

    def chance(self, percent: int) -> bool:
        """Draw a bool and record it as 0 or 1."""
        self.choices.append(int(self._draw.chance(percent)))
        return bool(self.choices[-1])

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        """Draw one of the options and record its index."""
        return options[self.integer(0, len(options) - 1)]


class CheckedReplayDraw:
    """A `ChoiceSource` of recorded choices.

    Every method raises ValueError if the next recorded choice is missing or out of the range asked for.
    """

    def __init__(self, choices: Iterable[int]) -> None:
        self._left = iter(choices)

    def integer(self, lo: int, hi: int) -> int:
        """Return the next recorded choice, which must be from `lo` to `hi`."""
        recorded = next(self._left, None)
        if recorded is None or not lo <= recorded <= hi:
            raise ValueError(f"expected a recorded choice from {lo} to {hi}, got {recorded}: record the choices again")
        return recorded

    def chance(self, percent: int) -> bool:
        """Return the next recorded choice as a bool."""
        return bool(self.integer(0, 1))

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        """Return the option at the next recorded index."""
        return options[self.integer(0, len(options) - 1)]
