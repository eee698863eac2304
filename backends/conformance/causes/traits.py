"""Declared traits as causes: the ways of a backend to differ on purpose, each the causes that it accounts for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from uops.backends.contract import FLUSHES_SUBNORMALS, OTHER_NAN_BITS, SATURATES_FLOATS


class Trait(NamedTuple):
    """A trait: the causes of wrong elements that it accounts for, and what it says, with the ruling that it departs from."""

    causes: frozenset[str]
    text: str


TRAITS_BY_NAME: dict[str, Trait] = {
    FLUSHES_SUBNORMALS: Trait(
        frozenset({"flush-subnormals", "subnormal-result"}), "subnormal operands and results become zero (R19, subnormals)"
    ),
    OTHER_NAN_BITS: Trait(frozenset({"nan-payload"}), "a NaN has other bits than its operand (R28, NaN)"),
    SATURATES_FLOATS: Trait(frozenset({"saturated-float"}), "a result beyond the greatest number becomes that number (R15)"),
}


def describe_traits_of_all_causes(declared: Iterable[str], causes: Collection[str]) -> str | None:
    """Describe the declared traits that account for causes; None if there is no cause, or one that no trait accounts for."""
    traits = [name for name in declared if TRAITS_BY_NAME[name].causes & set(causes)]
    if not causes or not set(causes) <= frozenset[str]().union(*(TRAITS_BY_NAME[name].causes for name in traits)):
        return None
    return "; ".join(f"{name}: {TRAITS_BY_NAME[name].text}" for name in traits)
