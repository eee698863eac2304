"""Limits of the vector machine: what it raises where it stops, and how large its arrays may become."""

from __future__ import annotations

#: Elements of the largest array that is made. A kernel that needs a larger one is left to the lane machine.
LARGEST = 1 << 25


class GiveUp(Exception):
    """Raised where the vector machine does not apply, or what it saw might be a fault; says nothing about the program."""


class TooLarge(GiveUp):
    """Raised where an array would be beyond the limit, whichever loops run in order."""


def is_too_large(size: int) -> bool:
    """Return True if an array of this many elements is beyond the limit."""
    return size > LARGEST


def check_array_size(size: int) -> None:
    """Raise TooLarge if an array of this many elements is beyond the limit."""
    if is_too_large(size):
        raise TooLarge(f"an array of {size} elements")
