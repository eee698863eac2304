"""The fast seeded driver: choices from one 64-bit seed, for campaigns and benchmarks."""

from __future__ import annotations

import random
from typing import TypeVar

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
