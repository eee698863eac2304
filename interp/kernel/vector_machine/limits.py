"""Where the vectorised machine stops: what it raises, and how large its arrays may become."""

from __future__ import annotations

#: Elements of the largest array that is made; a kernel that needs a larger one is left to the per-lane machine.
LARGEST = 1 << 25


class GiveUp(Exception):
    """The vectorised machine does not apply here, or what it saw might be a fault. Says nothing about the program."""


class TooLarge(GiveUp):
    """An array would be beyond the limit, whichever loops run in order."""


def is_large(size: int) -> bool:
    return size > LARGEST


def within(size: int) -> None:
    if is_large(size):
        raise TooLarge(f"an array of {size} elements")
