"""A target declares the abilities whose methods it overrides, and no others."""

import pytest

from uops.backends import registry
from uops.backends.contract import CompilerBackend
from uops.compiler.target import Ability, Target
from uops.spec.errors import Unsupported


@pytest.mark.parametrize("ability", Ability, ids=lambda a: a.name)
def test_a_method_without_its_declaration_is_refused(ability: Ability) -> None:
    with pytest.raises(TypeError, match=rf"Mine overrides {ability.value}\(\), and does not declare Ability.{ability.name}"):
        type("Mine", (Target,), {ability.value: lambda self, *arguments: None})


@pytest.mark.parametrize("ability", Ability, ids=lambda a: a.name)
def test_a_declaration_without_its_method_is_refused(ability: Ability) -> None:
    with pytest.raises(TypeError, match=rf"Mine does not override {ability.value}\(\), and declares Ability.{ability.name}"):
        type("Mine", (Target,), {"abilities": frozenset({ability})})


def test_a_declared_method_is_accepted() -> None:
    for ability in Ability:
        type("Mine", (Target,), {"abilities": frozenset({ability}), ability.value: lambda self, *arguments: None})


@pytest.mark.parametrize("name", [n for n in registry.BUILT_IN if not registry.is_foreign(n)])
def test_a_built_in_target_declares_what_it_does(name: str) -> None:
    try:
        backend = registry.create_backend(name)
    except Unsupported as e:
        pytest.skip(str(e))
    if isinstance(backend, CompilerBackend):
        assert type(backend.target).abilities == backend.target.abilities
