"""No dead letter: each field of each arg has a consumer, a function that executes its meaning, found by a search of the sources.

A consumer reads `u.arg.field` in the interpreter, the compiler, a backend, a rule of a derived property or the lowering of the
second document. The builder, the printer and the verifier are none. Where classes share the name of a field, the consumer must
also name an op with that arg, or be the entry of one in a table.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from uops.spec.ir import args as A
from uops.spec.ir.args import ARG_TYPE
from uops.spec.ir.node import RULES
from uops.spec.rows.rows import CLAIMS

ROOT = Path(__file__).parents[2]
#: Where fields are given a meaning: not `ir/build`, the text format, the rows with their claims, nor `verify`.
EXECUTES = (
    *("interp", "compiler", "backends/llvm", "backends/cstyle", "backends/c", "backends/opencl", "spec/ir/derive", "spec/wmma"),
    *("spec/bestiary/lower.py", "spec/bestiary/tensor_core.py", "spec/bestiary/removal.py", "spec/ir/scope.py"),
)
#: Fields that wait for gradients. Nothing else waits.
WAITING = {"CallArg.grad_tag", "CallArg.precompile_backward"}
#: Fields that state what another part of the node states, too -> the claim that compares the two (R178).
CLAIMED = {
    "WmmaArg.upcast_a": "WMMA.C9",
    "WmmaArg.upcast_b": "WMMA.C9",
    "WmmaArg.upcast_c": "WMMA.C9",
    "WmmaArg.reduce_axes": "WMMA.C10",
}
CLASSES = {c.__name__: c for c in {*ARG_TYPE.values(), A.CastArg, A.VConstArg}}
FIELDS = sorted(f"{name}.{field.name}" for name, c in CLASSES.items() for field in dataclasses.fields(c))
_NAMES = {f.split(".")[1] for f in FIELDS}
_SHARED = {n for n in _NAMES if sum(f.endswith(f".{n}") for f in FIELDS) > 1}
_OPS = {name: [op.name for op, c in ARG_TYPE.items() if c is CLASSES[name]] for name in CLASSES}


@dataclasses.dataclass(frozen=True)
class Reader:
    """A function, the fields of args that it reads, and the words of its text: ops and classes among them."""

    place: str
    name: str
    fields: frozenset[str]
    words: frozenset[str]


def find_arg_fields_read(function: ast.AST) -> frozenset[str]:
    """Return the fields that a function reads of `x.arg`, of a variable that holds one, or of a parameter of such a class."""
    holders: set[str] = set()
    for n in ast.walk(function):
        if isinstance(n, ast.Assign):
            for target, value in _pair_targets_with_values(n):
                if isinstance(value, ast.Attribute) and value.attr == "arg" and isinstance(target, ast.Name):
                    holders.add(target.id)
        elif isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) and ast.unparse(n.annotation) in CLASSES:
            holders.add(n.target.id)
        elif isinstance(n, ast.arg) and n.annotation is not None and ast.unparse(n.annotation) in CLASSES:
            holders.add(n.arg)
    reads = (n for n in ast.walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and n.attr in _NAMES)
    return frozenset(n.attr for n in reads if _is_arg(n.value, holders))


def _pair_targets_with_values(n: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in n.targets:
        if isinstance(target, ast.Tuple) and isinstance(n.value, ast.Tuple):
            yield from zip(target.elts, n.value.elts)
        else:
            yield target, n.value


def _is_arg(value: ast.expr, holders: set[str]) -> bool:
    return (isinstance(value, ast.Attribute) and value.attr == "arg") or (isinstance(value, ast.Name) and value.id in holders)


@cache
def sources() -> dict[str, str]:
    paths = [p for place in EXECUTES for p in ([ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py")))]
    return {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in paths}


@cache
def readers() -> list[Reader]:
    found = []
    for path, text in sources().items():
        for n in ast.walk(ast.parse(text)):
            if isinstance(n, ast.FunctionDef) and (fields := find_arg_fields_read(n)):
                words = re.findall(r"\b(?:Op\.|_)?([A-Za-z]\w+)", ast.unparse(n))
                found.append(Reader(f"{path}:{n.name}", n.name, fields, frozenset(words)))
    return found


def consumers(field: str, candidates: list[Reader]) -> list[str]:
    """Return the places that execute a field."""
    cls, name = field.split(".")
    matches = [r for r in candidates if name in r.fields]
    return [r.place for r in matches if name not in _SHARED or _is_about(r, cls)]


def _is_about(reader: Reader, cls: str) -> bool:
    """Return True if a function names an op with an arg of the class, or the class, or is such an op's entry in a table."""
    if not reader.words.isdisjoint({cls, *_OPS[cls]}):
        return True
    return not _ops_listed_with().get(reader.name, set()).isdisjoint(_OPS[cls])


@cache
def _ops_listed_with() -> dict[str, set[str]]:
    """Return word -> the ops that some line names beside it, as the entries of tables do."""
    listed: dict[str, set[str]] = {}
    for text in (*sources().values(), (ROOT / "spec/bestiary/legalize.py").read_text(encoding="utf-8")):
        for line in text.splitlines():
            ops = set(re.findall(r"\bOp\.(\w+)", line)) if "Op." in line else set()
            for word in re.findall(r"[A-Za-z_]\w+", line) if ops else ():
                listed.setdefault(word, set()).update(ops)
    for rules in RULES.values():
        for op, rule in rules.items():
            listed.setdefault(rule.__name__, set()).add(op.name)
    return listed


@pytest.mark.parametrize("field", [f for f in FIELDS if f not in WAITING and f not in CLAIMED])
def test_a_field_has_a_consumer(field: str) -> None:
    assert consumers(field, readers()), f"nobody reads {field}: execute it, or compare it by a claim (spec/ir/args.py)"


def test_what_waits_and_what_is_claimed_is_read_by_nobody() -> None:
    """An entry that found a consumer leaves the list."""
    assert {f: c for f in (*WAITING, *CLAIMED) if (c := consumers(f, readers()))} == {}


@pytest.mark.parametrize("field", CLAIMED)
def test_a_claim_compares_a_field(field: str) -> None:
    claim = CLAIMS[CLAIMED[field]]
    path = Path(claim.check.__code__.co_filename)
    function = next(
        n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef) and n.name == claim.check.__name__
    )
    assert field.split(".")[1] in find_arg_fields_read(function)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("def f(u):\n return u.arg.removable", {"removable"}),
        ("def f(u):\n a = u.arg\n return a.removable", {"removable"}),
        ("def f(u):\n a, b = u.arg, 1\n return a.tile_grid", {"tile_grid"}),
        ("def f(u):\n a: WmmaArg = u.arg\n return a.tile_grid", {"tile_grid"}),
        ("def f(a: WmmaArg):\n return a.tile_grid", {"tile_grid"}),
        ("def f(u):\n return u.removable", set()),
        ("def f(u):\n u.arg.removable = 1", set()),
        ("def f(u):\n return replace(u.arg, removable=False)", set()),
    ],
)
def test_reads_are_found(text: str, reads: set[str]) -> None:
    assert find_arg_fields_read(ast.parse(text)) == reads


def test_a_field_without_its_reader_is_seen() -> None:
    for field in ("BufferizeArg.removable", "WmmaArg.tile_grid", "LoadArg.addrspace", "CallArg.precompile"):
        places = set(consumers(field, readers()))
        assert places
        assert consumers(field, [r for r in readers() if r.place not in places]) == []
