"""What deciding the obligations of one kernel may cost, in units that are the same on every machine.

Takes: nothing. Gives: `limit_cost`, in which `pay` raises `Spent` once more was asked for than a kernel has. No unit is a time, so
that a verdict does not depend on the machine. What is not decided by then is not decided: that is never a pass.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum


class Cost(IntEnum):
    """Terms that are made or looked at, operations on points (of 8 bytes), and steps of the solver; apart from these, steps for
    claims about what memory holds, which are left to the interpreter where they are not enough."""

    TERMS = 0
    POINTS = 1
    STEPS = 2
    HELD_STEPS = 3


#: What one kernel may cost of each.
BUDGET: Mapping[Cost, int] = {Cost.TERMS: 2_000_000, Cost.POINTS: 1 << 30, Cost.STEPS: 10_000_000, Cost.HELD_STEPS: 4_000_000}


class Spent(Exception):
    """A kernel's budget is used up."""

    def __init__(self, cost: Cost) -> None:
        super().__init__(f"the budget of a kernel is spent: {BUDGET[cost]:,} {_WORDS[cost]}")


_WORDS = {
    Cost.TERMS: "terms", Cost.POINTS: "operations on points", Cost.STEPS: "steps of the solver",
    Cost.HELD_STEPS: "steps of the solver for what memory holds",
}  # fmt: skip


class _Purse(threading.local):
    """What is left to this thread; None where nothing limits it."""

    left: list[int] | None = None


_purse = _Purse()


@contextmanager
def limit_cost() -> Iterator[None]:
    """The budget of one kernel, for this thread."""
    outer, _purse.left = _purse.left, [BUDGET[c] for c in Cost]
    try:
        yield
    finally:
        _purse.left = outer


def pay(cost: Cost, amount: int) -> None:
    """Take an amount off. Raises Spent where that is more than there is."""
    left = _purse.left
    if left is not None:
        left[cost] -= amount
        if left[cost] < 0:
            raise Spent(cost)


def remaining(cost: Cost, most: int) -> int:
    """What is left of a cost, but no more than `most`. Raises Spent where that is nothing."""
    left = _purse.left
    if left is None:
        return most
    if left[cost] <= 0:
        raise Spent(cost)
    return min(most, left[cost])
