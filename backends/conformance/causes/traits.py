"""Declared traits as causes: the ways of a backend to differ on purpose, each the causes that it accounts for.

A trait that the ruling permits at level core is no difference there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from uops.backends.contract import TRAITS


class Trait(NamedTuple):
    """A trait: the causes of wrong elements that it accounts for, and what it says, with the ruling that it departs from.

    `permitted_at_core` says that the ruling lets a backend declare it at level core.
    """

    causes: frozenset[str]
    text: str
    permitted_at_core: bool = False


_TRAITS: dict[str, Trait] = {
    "flushes-subnormals": Trait(
        frozenset({"flush-subnormals", "subnormal-result"}), "subnormal operands and results become zero (R19, subnormals)", True
    ),
    "other-nan-bits": Trait(frozenset({"nan-payload"}), "a NaN has other bits than its operand (R28, NaN)"),
    "saturates-floats": Trait(frozenset({"saturated-float"}), "a result beyond the greatest number becomes that number (R15)"),
}
assert tuple(_TRAITS) == TRAITS


class FoundTraits(NamedTuple):
    """The traits that account for all causes, as text, and whether each is permitted at level core."""

    text: str
    permitted_at_core: bool


def find_traits_of_all_causes(declared: Iterable[str], causes: Collection[str]) -> FoundTraits | None:
    """Return the declared traits that account for causes; None if there is no cause, or one that no trait accounts for."""
    traits = [name for name in declared if _TRAITS[name].causes & set(causes)]
    if not causes or not set(causes) <= frozenset[str]().union(*(_TRAITS[name].causes for name in traits)):
        return None
    text = "; ".join(f"{name}: {_TRAITS[name].text}" for name in traits)
    return FoundTraits(text, all(_TRAITS[name].permitted_at_core for name in traits))
