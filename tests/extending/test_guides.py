"""Every guide of docs/extending is a checklist: steps in order, whose files and checks exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "extending").glob("add-*.md"))
_HEADING = re.compile(r"^## (\d+)\. .+$", re.MULTILINE)
_CHECK = re.compile(r"^Check: `pytest ([^`]+)`$")
_PATH = re.compile(r"`((?:spec|interp|compiler|backends|fuzz|tests|docs|src|bench)/[\w./-]+)`")


def steps(text: str) -> list[str]:
    """The text of each step."""
    heads = [*_HEADING.finditer(text)]
    ends = [*(h.start() for h in heads[1:]), len(text)]
    return [text[h.end() : end].strip() for h, end in zip(heads, ends)]


def has_node(check: str) -> bool:
    """Whether there is the file of a pytest node, and a test of that name in it."""
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


@pytest.mark.parametrize("guide", GUIDES, ids=lambda g: g.stem)
def test_a_guide_numbers_its_steps_and_ends_each_in_a_check_that_exists(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    assert [int(n) for n in _HEADING.findall(text)] == list(range(1, len(steps(text)) + 1)) != []
    for step in steps(text):
        check = _CHECK.match(step.splitlines()[-1])
        assert check is not None, f"{guide.name}: a step ends in no check: {step.splitlines()[-1]!r}"
        missing = [c for c in check[1].split() if not has_node(c)]
        assert not missing, f"{guide.name}: no such test: {missing}"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda g: g.stem)
def test_every_file_that_a_guide_names_exists(guide: Path) -> None:
    missing = [p for p in _PATH.findall(guide.read_text(encoding="utf-8")) if not (ROOT / p).exists()]
    assert not missing, f"{guide.name}: no such file: {missing}"


def test_a_check_that_does_not_exist_is_seen() -> None:
    assert has_node("tests/extending/test_guides.py::test_a_check_that_does_not_exist_is_seen")
    assert not has_node("tests/extending/test_guides.py::test_nothing") and not has_node("tests/extending/test_nothing.py")
