"""The budget for deciding the obligations of one kernel, in machine-independent units.

Takes: nothing. Gives: `limit_kernel_budget`, within which `charge_budget_if_limited` raises `BudgetExhausted` once a unit is used
up. No unit is a time, so verdicts do not depend on the machine. An obligation that is undecided by then never passes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum


class BudgetUnit(IntEnum):
    """The units of a budget: terms built or visited, operations on points (of 8 bytes), steps of the solver, and fingerprints.

    HELD_STEPS are for claims about values of memory, which are left to the interpreter if the steps do not suffice.
    """

    TERMS = 0
    POINTS = 1
    STEPS = 2
    HELD_STEPS = 3
    FINGERPRINTS = 4


#: Amount of each unit that one kernel may use.
BUDGET: Mapping[BudgetUnit, int] = {
    BudgetUnit.TERMS: 2_000_000,
    BudgetUnit.POINTS: 1 << 30,
    BudgetUnit.STEPS: 10_000_000,
    BudgetUnit.HELD_STEPS: 4_000_000,
    BudgetUnit.FINGERPRINTS: 1 << 26,
}


class BudgetExhausted(Exception):
    """A kernel's budget is used up."""

    def __init__(self, unit: BudgetUnit) -> None:
        super().__init__(f"the budget of a kernel is spent: {BUDGET[unit]:,} {_WORDS[unit]}")


_WORDS = {
    BudgetUnit.TERMS: "terms", BudgetUnit.POINTS: "operations on points", BudgetUnit.STEPS: "steps of the solver",
    BudgetUnit.HELD_STEPS: "steps of the solver for what memory holds", BudgetUnit.FINGERPRINTS: "fingerprints",
}  # fmt: skip


class _RemainingBudget(threading.local):
    """The amounts left to this thread; None without a limit."""

    left: list[int] | None = None


_budget = _RemainingBudget()


@contextmanager
def limit_kernel_budget() -> Iterator[None]:
    """Limit this thread to the budget of one kernel."""
    outer, _budget.left = _budget.left, [BUDGET[c] for c in BudgetUnit]
    try:
        yield
    finally:
        _budget.left = outer


def charge_budget_if_limited(unit: BudgetUnit, amount: int) -> None:
    """Subtract an amount from what is left of a unit. Raises BudgetExhausted if it exceeds that."""
    left = _budget.left
    if left is not None:
        left[unit] -= amount
        if left[unit] < 0:
            raise BudgetExhausted(unit)


def require_remaining_budget(unit: BudgetUnit, max_amount: int) -> int:
    """Return what is left of a unit, at most `max_amount`. Raises BudgetExhausted if nothing is."""
    left = _budget.left
    if left is None:
        return max_amount
    if left[unit] <= 0:
        raise BudgetExhausted(unit)
    return min(max_amount, left[unit])
