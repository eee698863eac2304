"""Changed lines, and the statements that record that they ran."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from uops.fuzz.reach.lines import find_changed_lines, insert_before_lines

SOURCE = """\
double = lambda a: (
    a + a)
def choose(a,
           b=2):
    if a > 1 and (
            b):
        total = [i
                 for i in range(a)]
    elif a:
        total = 2
    else:
        try:
            total = int("x")
        except ValueError:
            total = 4
    match a:
        case 3:
            total = 5
    return total
class Holder:
    constant = 1
"""


def lines_run_by(call: str, lines: set[int]) -> set[int]:
    """The lines, of those chosen, whose records a call makes."""
    tree = ast.parse(SOURCE)
    insert_before_lines(tree, frozenset(lines), lambda n: ast.Call(ast.Name("record", ast.Load()), [ast.Constant(n)], []))
    ran: set[int] = set()
    namespace: dict[str, Any] = {"record": ran.add}
    exec(compile(ast.fix_missing_locations(tree), "source", "exec"), namespace)
    assert not ran, "a module-level statement recorded"
    assert eval(call, namespace) == eval(call, plain()), "the code computes something else"
    return ran


def plain() -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(SOURCE, namespace)
    return namespace


@pytest.mark.parametrize(
    ("line", "call", "runs"),
    [
        (2, "double(3)", True),
        (4, "choose(0)", True),  # a function's header belongs to its body
        (6, "choose(0)", True),  # and an If's to the If
        (8, "choose(2)", True),
        (8, "choose(1)", False),
        (10, "choose(1)", True),
        (13, "choose(0)", True),
        (14, "choose(1)", False),  # a handler's header belongs to its try
        (15, "choose(0)", True),
        (15, "choose(1)", False),
        (18, "choose(3)", True),
        (18, "choose(2)", False),
        (21, "choose(2)", False),  # it runs once, at import
    ],
)
def test_a_line_records_that_its_statement_runs(line: int, call: str, runs: bool) -> None:
    assert lines_run_by(call, {line}) == ({line} if runs else set())


def test_several_lines_of_a_statement_record_one() -> None:
    assert lines_run_by("choose(2)", {7, 8}) == {7}


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("a\nb\nc\n", "a\nX\nc\n", {2}),
        ("a\nb\nc\n", "a\nX\nY\nc\n", {2, 3}),
        ("a\nb\nc\n", "a\nc\n", {2}),  # the line after what was removed
        ("a\nb\nc\n", "a\nb\n", {2}),  # the last one, where none is after it
        ("a\n", "a\nb\n", {2}),
        ("a\n", "a\n", set()),
    ],
)
def test_changed_lines(before: str, after: str, lines: set[int]) -> None:
    assert find_changed_lines(before, after) == lines
