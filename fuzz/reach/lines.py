"""Changed lines of a Python file, and the statements that contain them.

A line belongs to the innermost statement around it. The header of a compound statement belongs to that statement, and the header
of a function to the function's body.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

#: Makes the expression to evaluate before the statement of a line.
_MakeCall = Callable[[int], ast.Call]


def find_changed_lines(before: str, after: str) -> frozenset[int]:
    """Return the lines of `after`, from 1 on, between the first and the last that differ from `before`.

    Where lines were only removed, it is the next line. The texts differ in one place: lines in between count, too.
    """
    old, new = before.splitlines(), after.splitlines()
    most = min(len(old), len(new))
    start = next((k for k in range(most) if old[k] != new[k]), most)
    equal_at_end = next((k for k in range(most - start) if old[-1 - k] != new[-1 - k]), most - start)
    lines = range(start, len(new) - equal_at_end) or range(start, start + 1)
    return frozenset(min(line, len(new) - 1) + 1 for line in lines if old != new)


def insert_before_lines(tree: ast.AST, lines: frozenset[int], make_call: _MakeCall) -> None:
    """Evaluate a call before each statement of a function, and in each lambda, that has one of these lines."""
    _wrap_lambdas(tree, lines, make_call)
    _insert_in_statements(tree, lines, make_call, in_function=False)


def _wrap_lambdas(tree: ast.AST, lines: frozenset[int], make_call: _MakeCall) -> None:
    """Make the body of each such lambda `(call, body)[1]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and (of_lambda := lines & _lines_of(node)):
            pair = ast.Tuple([make_call(min(of_lambda)), node.body], ast.Load())
            node.body = ast.copy_location(ast.Subscript(pair, ast.Constant(1), ast.Load()), node.body)


def _insert_in_statements(node: ast.AST, lines: frozenset[int], make_call: _MakeCall, in_function: bool) -> None:
    inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for block in _list_blocks(node):
        statements = list(block)
        block.clear()
        for statement in statements:
            own = lines & (_lines_of(statement) - {line for s in _nested_statements(statement) for line in _lines_of(s)})
            call = ast.copy_location(ast.Expr(make_call(min(own))), statement) if own else None
            _insert_in_statements(statement, lines, make_call, inside)
            if call is not None and isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                statement.body.insert(0, call)
            elif call is not None and inside:
                block.append(call)
            block.append(statement)


def _list_blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements in a node, those of its handlers and cases among them."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
            for part in value:
                yield from _list_blocks(part)


def _nested_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    for block in _list_blocks(statement):
        yield from block


def _lines_of(node: ast.stmt | ast.Lambda) -> frozenset[int]:
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))


__all__ = ["find_changed_lines", "insert_before_lines"]
