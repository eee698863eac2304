"""Sets of ops and axis types have one name: a set that the specification names, or that occurs often, is written once."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

from uops.spec.ir import axes, ops, scope

Members = frozenset[str]

#: Places that may spell a set without a name, at most.
MOST_PLACES = 2


def named_sets() -> dict[Members, str]:
    """Return the sets of ops and axis types that the specification names, by their members as source text."""
    return {
        frozenset(f"{type(x).__name__}.{x.name}" for x in value): f"{module.__name__.removeprefix('uops.')}.{name}"
        for module in (scope, axes, ops)  # what scope imports is named where it is defined
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, frozenset) and all(isinstance(x, Enum) for x in value)
    }


def members_of(node: ast.expr) -> Members | None:
    """Return the members of a literal set, tuple or list of at least two ops or axis types, None for anything else."""
    if not isinstance(node, ast.Set | ast.Tuple | ast.List) or len(node.elts) < 2:
        return None
    pure = all(
        isinstance(e, ast.Attribute) and isinstance(e.value, ast.Name) and e.value.id in ("Op", "AxisType") for e in node.elts
    )
    return frozenset(map(ast.unparse, node.elts)) if pure else None


def operands_of(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the sets that an expression combines: operands of a union, and what `frozenset` is given."""
    if isinstance(node, ast.BinOp):
        yield from operands_of(node.left)
        yield from operands_of(node.right)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("frozenset", "set") and node.args:
        yield from operands_of(node.args[0])
    else:
        yield node


def is_sequence(node: ast.Assign | ast.AnnAssign, tree: ast.Module) -> bool:
    """Return True for a constant tuple or list that no membership test of its module asks: its order matters."""
    targets = {ast.unparse(t) for t in (node.targets if isinstance(node, ast.Assign) else [node.target])}
    tests = (x for x in ast.walk(tree) if isinstance(x, ast.Compare) and isinstance(x.ops[0], ast.In | ast.NotIn))
    asked = any(ast.unparse(x.comparators[0]) in targets for x in tests)
    return isinstance(node.value, ast.Tuple | ast.List) and not asked


def literal_sets(text: str) -> Iterator[tuple[int, Members]]:
    """Yield line and members of each set display, and of each tuple or list that a membership test asks."""
    tree = ast.parse(text)
    places: dict[ast.expr, None] = {node: None for node in ast.walk(tree) if isinstance(node, ast.Set)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            places |= dict.fromkeys(x for c in node.comparators for x in operands_of(c))
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and not is_sequence(node, tree):
            places |= dict.fromkeys(operands_of(node.value))
    yield from ((node.lineno, members) for node in places if (members := members_of(node)) is not None)


@pytest.fixture(scope="module")
def places(modules: dict[str, Path]) -> dict[Members, list[str]]:
    """Members of each literal set -> the places where it is written."""
    found = defaultdict(list)
    for name, path in modules.items():
        for line, members in literal_sets(path.read_text(encoding="utf-8")):
            found[members].append(f"{name}:{line}")
    return found


def test_a_named_set_is_written_once(places: dict[Members, list[str]]) -> None:
    named = named_sets()
    copies = [
        f"{place}: use {named[members]}"
        for members, where in places.items()
        if members in named
        for place in where
        if not place.startswith(f"uops.{named[members].rpartition('.')[0]}:")
    ]
    assert not copies, "\n".join(copies)


def test_a_set_that_occurs_often_has_a_name(places: dict[Members, list[str]]) -> None:
    named = named_sets()
    often = {members: where for members, where in places.items() if len(where) > MOST_PLACES and members not in named}
    assert not often, "\n".join(f"{', '.join(where)}: name {{{', '.join(sorted(m))}}} in spec.ir.ops" for m, where in often.items())


@pytest.mark.parametrize(
    "text",
    [
        "u.op in {Op.IDIV, Op.MOD}", "u.op not in (Op.MOD, Op.IDIV)", "DIVIDES = (Op.IDIV, Op.MOD)\nu.op in DIVIDES",
        "_D: X = frozenset({Op.MOD, Op.IDIV})", "x = [u for u in us if u.op in REST | {Op.IDIV, Op.MOD}]",
        "def f(ops=frozenset({Op.MOD, Op.IDIV})): ...",
    ],
)  # fmt: skip
def test_a_planted_copy_is_found(text: str) -> None:
    assert [named_sets()[members] for _, members in literal_sets(text)] == ["spec.ir.ops.DIVISION"]


@pytest.mark.parametrize(
    "text", ["draw.choice((Op.IDIV, Op.MOD))", "ORDER = (Op.MOD, Op.IDIV)", "u.op in {Op.IDIV}", "u.op in (Op.IDIV, other)"]
)
def test_a_choice_or_an_order_is_no_set(text: str) -> None:
    assert list(literal_sets(text)) == []
