"""Every guide of docs/extending is a checklist: steps in order, whose files and checks exist."""

from __future__ import annotations

import ast
import re

import pytest
from planting import GUIDES, ROOT, read_steps

_PATH = re.compile(r"`((?:spec|interp|compiler|backends|fuzz|tests|docs|src|bench)/[\w./-]+)`")
NAMES = sorted(path.stem for path in GUIDES.glob("add-*.md"))


def has_node(check: str) -> bool:
    """Return True if the file of a pytest node exists, with a test of that name in it."""
    file, *names = check.split("::")
    if not (ROOT / file).exists() or not names:
        return (ROOT / file).exists()
    body: list[ast.stmt] = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    for name in names:
        found = next((n for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == name.partition("[")[0]), None)
        if found is None:
            return False
        body = found.body
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_guide_numbers_its_steps_and_has_a_check_for_each(name: str) -> None:
    steps = read_steps(name)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1)) != []
    missing = [check for step in steps for check in step.check.split() if not has_node(check)]
    assert not missing, f"{name}.md: no such test: {missing}"


@pytest.mark.parametrize("name", NAMES)
def test_every_file_that_a_guide_names_exists(name: str) -> None:
    missing = [p for p in _PATH.findall((GUIDES / f"{name}.md").read_text(encoding="utf-8")) if not (ROOT / p).exists()]
    assert not missing, f"{name}.md: no such file: {missing}"


def test_a_check_that_does_not_exist_is_seen() -> None:
    assert has_node("tests/extending/test_guides.py::test_a_check_that_does_not_exist_is_seen")
    assert not has_node("tests/extending/test_guides.py::test_nothing") and not has_node("tests/extending/test_nothing.py")
