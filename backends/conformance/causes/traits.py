"""Declared traits as causes: the ways of a backend to differ on purpose, each the causes that it accounts for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from uops.backends.contract import TRAITS


class Trait(NamedTuple):
    """A trait: the causes of wrong elements that it accounts for, and what it says, with the ruling that it departs from."""

    causes: frozenset[str]
    text: str


_TRAITS: dict[str, Trait] = {
    "flushes-subnormals": Trait(
        frozenset({"flush-subnormals", "subnormal-result"}), "subnormal operands and results become zero (R19, subnormals)"
    ),
    "other-nan-bits": Trait(frozenset({"nan-payload"}), "a NaN has other bits than its operand (R28, NaN)"),
    "saturates-floats": Trait(frozenset({"saturated-float"}), "a result beyond the greatest number becomes that number (R15)"),
}
assert tuple(_TRAITS) == TRAITS


def find_traits_of_all_causes(declared: Iterable[str], causes: Collection[str]) -> str | None:
    """Return the declared traits that account for causes, as text; None if there is no cause, or one that no trait accounts for."""
    traits = [name for name in declared if _TRAITS[name].causes & set(causes)]
    if not causes or not set(causes) <= frozenset[str]().union(*(_TRAITS[name].causes for name in traits)):
        return None
    return "; ".join(f"{name}: {_TRAITS[name].text}" for name in traits)
