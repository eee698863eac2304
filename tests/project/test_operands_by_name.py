"""Sources are read by the names of their rows. A bare index stays in a hot loop, with the name beside it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from uops.spec.ir.operands import OPERANDS

#: Bare indices in the whole package, at most.
MOST = 300
NAMES = frozenset(word.rstrip("?+.") for names in OPERANDS.values() for word in names.split())
#: What an unpacking may call a source beside the names of `OPERANDS`: the row's own letters, and one of several.
LETTERS = frozenset({"a", "b", "c", "p", "t", "x", "y", "acc"})
SINGULAR = frozenset(name.removesuffix("s") for name in NAMES)


def is_constant(index: ast.expr) -> bool:
    """Return True for a number, or a slice between numbers that is not the whole."""
    if isinstance(index, ast.Slice):
        ends = [end for end in (index.lower, index.upper) if end is not None]
        return bool(ends) and all(is_constant(end) for end in ends)
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    return isinstance(index, ast.Constant) and isinstance(index.value, int)


def is_sources(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "src"


def aliases_of_sources(function: ast.FunctionDef) -> set[str]:
    """Return the local names that hold the sources of a node."""
    names = set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                targets, values = ([target], [node.value]) if isinstance(target, ast.Name) else ([], [])
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    targets, values = target.elts, node.value.elts
                names |= {t.id for t, v in zip(targets, values) if isinstance(t, ast.Name) and is_sources(v)}
    return names


def bare_indices(text: str) -> Iterator[int]:
    """Yield the line of every constant index into sources, and of every unpacking that ignores the row's names."""
    lines = set[int]()
    tree = ast.parse(text)
    for scope in ast.walk(tree):
        if scope is not tree and not isinstance(scope, ast.FunctionDef):
            continue
        aliases = aliases_of_sources(scope) if isinstance(scope, ast.FunctionDef) else set[str]()
        for node in ast.walk(scope):
            if isinstance(node, ast.Subscript) and is_constant(node.slice):
                held = isinstance(node.value, ast.Name) and node.value.id in aliases
                if held or is_sources(node.value):
                    lines.add(node.lineno)
            elif isinstance(node, ast.Assign) and is_sources(node.value) and isinstance(node.targets[0], ast.Tuple):
                targets = [t.value if isinstance(t, ast.Starred) else t for t in node.targets[0].elts]
                words = {t.id.strip("_") for t in targets if isinstance(t, ast.Name)} - {""}
                if words - NAMES - SINGULAR - LETTERS:
                    lines.add(node.lineno)
    yield from sorted(lines)


@pytest.fixture(scope="module")
def indices(modules: dict[str, Path]) -> dict[str, str]:
    """place -> the line with a bare index, for the whole package."""
    texts = {name: path.read_text() for name, path in modules.items()}
    return {f"{name}:{n}": text.splitlines()[n - 1] for name, text in texts.items() for n in bare_indices(text)}


def test_few_sources_are_read_by_index(indices: dict[str, str]) -> None:
    assert len(indices) <= MOST


def test_an_index_has_the_name_beside_it(indices: dict[str, str]) -> None:
    assert {place: line.strip() for place, line in indices.items() if "#" not in line} == {}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = u.src[0]", 1),
        ("x = u.src[1:]", 1),
        ("def f(u):\n    s = u.src\n    return s[-1]", 1),
        ("def f(u):\n    first, second = u.src", 1),
        ("def f(u):\n    lhs, rhs = u.src", 0),
        ("def f(u):\n    buffer, *positions = u.src", 0),
        ("def f(u, k):\n    return u.src[k]", 0),
        ("def f(u):\n    return u.src[:]", 0),
    ],
)
def test_a_bare_index_is_seen(text: str, lines: int) -> None:
    assert len(list(bare_indices(text))) == lines
