"""The budget for deciding the obligations of one kernel, in units that are the same on every machine.

Takes: nothing. Gives: `limit_cost`, in which `pay` raises `Spent` once more was asked for than a kernel has. No unit is a time, so
that a verdict does not depend on the machine. What is not decided by then is not decided: that is never a pass.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum


class BudgetUnit(IntEnum):
    """The units of a budget: terms made or looked at, operations on points (of 8 bytes), and steps of the solver. HELD_STEPS are
    for claims about what memory holds, which are left to the interpreter where the steps are not enough."""

    TERMS = 0
    POINTS = 1
    STEPS = 2
    HELD_STEPS = 3


#: The amount of each unit that one kernel may use.
BUDGET: Mapping[BudgetUnit, int] = {
    BudgetUnit.TERMS: 2_000_000,
    BudgetUnit.POINTS: 1 << 30,
    BudgetUnit.STEPS: 10_000_000,
    BudgetUnit.HELD_STEPS: 4_000_000,
}


class Spent(Exception):
    """A kernel's budget is used up."""

    def __init__(self, cost: BudgetUnit) -> None:
        super().__init__(f"the budget of a kernel is spent: {BUDGET[cost]:,} {_WORDS[cost]}")


_WORDS = {
    BudgetUnit.TERMS: "terms", BudgetUnit.POINTS: "operations on points", BudgetUnit.STEPS: "steps of the solver",
    BudgetUnit.HELD_STEPS: "steps of the solver for what memory holds",
}  # fmt: skip


class _Purse(threading.local):
    """The amounts left to this thread; None where nothing limits it."""

    left: list[int] | None = None


_purse = _Purse()


@contextmanager
def limit_cost() -> Iterator[None]:
    """Limit this thread to the budget of one kernel."""
    outer, _purse.left = _purse.left, [BUDGET[c] for c in BudgetUnit]
    try:
        yield
    finally:
        _purse.left = outer


def pay(cost: BudgetUnit, amount: int) -> None:
    """Take an amount off what is left. Raises Spent where that is more than there is."""
    left = _purse.left
    if left is not None:
        left[cost] -= amount
        if left[cost] < 0:
            raise Spent(cost)


def remaining(cost: BudgetUnit, most: int) -> int:
    """The amount that is left of a unit, but no more than `most`. Raises Spent where nothing is."""
    left = _purse.left
    if left is None:
        return most
    if left[cost] <= 0:
        raise Spent(cost)
    return min(most, left[cost])
