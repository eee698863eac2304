"""Declared traits as causes of wrong elements."""

from __future__ import annotations

from uops.backends.conformance.causes.traits import TRAITS_BY_NAME, describe_traits_of_all_causes
from uops.backends.contract import FLUSHES_SUBNORMALS, OTHER_NAN_BITS, TRAITS


def test_each_trait_of_the_contract_accounts_for_causes() -> None:
    assert set(TRAITS_BY_NAME) == set(TRAITS) and all(trait.causes for trait in TRAITS_BY_NAME.values())


def test_only_traits_that_account_for_every_cause_excuse_a_cell() -> None:
    declared = (FLUSHES_SUBNORMALS, OTHER_NAN_BITS)
    assert describe_traits_of_all_causes(declared, {"flush-subnormals"}) == (
        "flushes-subnormals: subnormal operands and results become zero (R19, subnormals)"
    )
    assert str(describe_traits_of_all_causes(declared, {"flush-subnormals", "nan-payload"})).count(": ") == 2
    assert describe_traits_of_all_causes(declared, {"flush-subnormals", "saturated-float"}) is None
    assert describe_traits_of_all_causes((), {"flush-subnormals"}) is None
    assert describe_traits_of_all_causes(declared, ()) is None
