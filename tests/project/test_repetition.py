"""No two backends have the same code under other names: what the second needs, the first shares."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

#: The equal lines, names aside, from which code counts as repeated.
MOST_EQUAL_LINES = 10


class CodeLine(NamedTuple):
    """A line of code without comments, with every identifier replaced by one letter."""

    text: str
    place: str


def read_code_lines(path: Path) -> Iterator[CodeLine]:
    """Yield the lines of a module that are neither imports, docstrings nor comments.

    Rows of a table, which only names distinguish, are one line.
    """
    source = path.read_text()
    left_out = set[int]()
    for node in ast.walk(ast.parse(source)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_docstring:
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    words: dict[int, list[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.start[0] in left_out or token.type in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
            continue
        is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        words.setdefault(token.start[0], []).append("n" if is_name else token.string.strip())
    previous = ""
    for number, row in sorted(words.items()):
        if (text := " ".join(filter(None, row))) and text != previous:
            yield CodeLine(text, f"{path}:{number}")
            previous = text


def find_equal_runs(first: list[CodeLine], second: list[CodeLine], length: int) -> list[str]:
    """Return where a run of `length` lines of one list occurs in the other."""
    runs = {tuple(line.text for line in first[k : k + length]): first[k].place for k in range(len(first) - length + 1)}
    keys = [(tuple(line.text for line in second[k : k + length]), second[k].place) for k in range(len(second) - length + 1)]
    return [f"{runs[key]} and {place}" for key, place in keys if key in runs]


@pytest.fixture(scope="module")
def lines_of_backends(modules: dict[str, Path]) -> dict[str, list[list[CodeLine]]]:
    """Backend -> its modules' lines. The command line of conformance and the tools of tests are no backends."""
    found: dict[str, list[list[CodeLine]]] = {}
    for name, path in modules.items():
        parts = name.split(".")
        if parts[1] == "backends" and len(parts) > 3 and parts[2] not in ("conformance", "testing"):
            found.setdefault(parts[2], []).append(list(read_code_lines(path)))
    return found


def test_two_backends_share_what_is_equal(lines_of_backends: dict[str, list[list[CodeLine]]]) -> None:
    assert len(lines_of_backends) >= 8
    repeated = [
        run
        for (_, ours), (_, theirs) in combinations(lines_of_backends.items(), 2)
        for one in ours
        for other in theirs
        for run in find_equal_runs(one, other, MOST_EQUAL_LINES)
    ]
    assert not repeated, "\n".join(repeated)


def test_renamed_code_is_found(tmp_path: Path) -> None:
    body = "\n".join(f"    {{}} = {{}} + {k}  # a comment" for k in range(MOST_EQUAL_LINES - 1))
    for name, words in (("a", ("x", "y")), ("b", ("left", "right"))):
        text = f'def f_{name}(v):\n    """A docstring of {name}."""\n' + body.format(*words * (MOST_EQUAL_LINES - 1)) + "\n"
        (tmp_path / f"{name}.py").write_text(text)
    one, other = (list(read_code_lines(tmp_path / f"{name}.py")) for name in "ab")
    assert find_equal_runs(one, other, MOST_EQUAL_LINES) == [f"{tmp_path}/a.py:1 and {tmp_path}/b.py:1"]
    assert not find_equal_runs(one, other, MOST_EQUAL_LINES + 1)
