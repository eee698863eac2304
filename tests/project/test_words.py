"""Names and docstrings speak the field's language: one meaning per class name, verbs for functions, documented public names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

#: Words in a sentence of a docstring, at most.
MOST_WORDS = 25
#: First words of a docstring that make a riddle of what a noun phrase or an imperative says.
RIDDLES = re.compile(r"(What|Whether|How|Which|Where|And|The same)\b")
#: First words of functions that look like participles and are none: verbs, nouns, and names of the specification and of libraries.
VERBS = frozenset({
    "read", "need", "needs", "feed", "embed", "seed", "exceed", "proceed", "shed", "spread", "split", "put", "set", "open",
    "flatten",
    "unflatten", "widen", "shorten", "tighten", "happen", "listen", "len", "then", "when", "gen", "cut", "hit", "let", "quit",
    "shut", "sit", "token", "children", "kind", "send", "speed",
})  # fmt: skip
#: Names of the specification, whose hash covers those of its rules, and of methods of PyTorch's Tensors.
OF_THE_SPECIFICATION = frozenset({"replicated", "absorbed", "masked_fill", "scaled_dot_product_attention"})
IRREGULAR = frozenset({
    "made", "found", "done", "held", "kept", "known", "drawn", "given", "taken", "written", "seen", "shown", "built", "spelt",
    "sent", "lent", "left", "lost", "told", "heard", "begun", "broken", "chosen", "hidden", "thrown", "grown",
})  # fmt: skip


class Definition(NamedTuple):
    """A function or class, nested ones too; it is public if neither it nor a class or function around it is private."""

    place: str
    node: ast.FunctionDef | ast.ClassDef
    public: bool

    @property
    def text(self) -> str:
        """The docstring; empty if there is none."""
        return ast.get_docstring(self.node) or ""


def find_definitions(node: ast.AST, place: str, public: bool = True) -> Iterator[Definition]:
    """Yield every definition below a node. What a function defines is not public."""
    for child in ast.iter_child_nodes(node):
        inside = public
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            found = Definition(f"{place}:{child.lineno} {child.name}", child, public and not child.name.startswith("_"))
            yield found
            inside = found.public and isinstance(child, ast.ClassDef)
        yield from find_definitions(child, place, inside)


def is_participle(name: str) -> bool:
    """Return True if the whole of a name is one participle, or a participle with adverbs and prepositions behind it."""
    first, *rest = name.strip("_").split("_")
    looks = first in IRREGULAR or (len(first) > 3 and first.endswith(("ed", "en")))
    return looks and first not in VERBS and name.strip("_") not in OF_THE_SPECIFICATION and not (set(rest) - PARTICLES)


#: What may follow a participle without making a noun phrase of it, as in `stored_as` and `moved_to`.
PARTICLES = frozenset(
    {"as", "at", "by", "for", "from", "in", "into", "of", "on", "out", "to", "up", "with", "alone", "again", "here", "twice"}
)


@pytest.fixture(scope="module")
def definitions(modules: dict[str, Path]) -> list[Definition]:
    return [d for name, path in modules.items() for d in find_definitions(ast.parse(path.read_text()), name)]


def test_a_class_name_has_one_meaning(definitions: list[Definition]) -> None:
    """Private classes count: an underscore is no name."""
    places: dict[str, list[str]] = {}
    for d in definitions:
        if isinstance(d.node, ast.ClassDef):
            places.setdefault(d.node.name.strip("_"), []).append(d.place)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_function_is_named_by_a_participle(definitions: list[Definition]) -> None:
    assert [d.place for d in definitions if isinstance(d.node, ast.FunctionDef) and is_participle(d.node.name)] == []


def test_every_public_function_and_class_is_documented(definitions: list[Definition]) -> None:
    """Methods of public classes too, but for those with a name of Python's own."""
    assert [d.place for d in definitions if d.public and not d.text] == []


def test_a_docstring_begins_with_a_verb_or_a_noun(definitions: list[Definition]) -> None:
    assert [(d.place, d.text[:40]) for d in definitions if RIDDLES.match(d.text)] == []


def test_sentences_of_docstrings_are_short(definitions: list[Definition]) -> None:
    long = [(d.place, s) for d in definitions if d.public for s in sentences(d.text) if len(s.split()) > MOST_WORDS]
    assert long == []


def sentences(text: str) -> list[str]:
    """Split prose at full stops, colons, semicolons and empty lines; a code span is one word."""
    return re.split(r"(?<=[.:;?!])\s+|\n\n|\n(?=\s*[-*])", re.sub(r"`[^`]*`", "code", text))


@pytest.mark.parametrize(
    ("name", "participle"),
    [("joined", True), ("stored_as", True), ("_made", True), ("fuse_blocks", False), ("read", False), ("written_slots", False)],
)
def test_a_participle_is_known(name: str, participle: bool) -> None:
    assert is_participle(name) == participle
