"""Names and docstrings speak the field's language: one meaning per class name, verbs for functions, documented public names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDERS = ("spec", "interp", "compiler", "backends", "fuzz", "cli")
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
    "sent", "lent", "left", "lost", "told", "heard", "begun", "broken", "chosen", "hidden", "thrown", "grown", "run_by", "bound_by",
})  # fmt: skip


def definitions(package: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef, bool, bool]]:
    """Yield (place, definition, is it public, is it a method) for every function and class, nested ones too."""
    for folder in FOLDERS:
        for path in walk(package / folder):
            name = str(path.relative_to(package))
            yield from _definitions(ast.parse(path.read_text()), name, public=True, method=False)


def _definitions(
    node: ast.AST, place: str, *, public: bool, method: bool
) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            here, seen = f"{place}:{child.lineno} {child.name}", public and not child.name.startswith("_")
            yield here, child, seen, method
            inside = isinstance(child, ast.ClassDef)
            yield from _definitions(child, place, public=seen and inside, method=inside)
        else:
            yield from _definitions(child, place, public=public, method=method)


def walk(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, which may be a link."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from walk(path)
        elif path.suffix == ".py":
            yield path


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
def found(root: Path) -> list[tuple[str, ast.FunctionDef | ast.ClassDef, bool, bool]]:
    return list(definitions(root / "src" / "uops"))


Found = list[tuple[str, ast.FunctionDef | ast.ClassDef, bool, bool]]


def test_a_class_name_has_one_meaning(found: Found) -> None:
    """Private classes count: an underscore is no name."""
    places: dict[str, list[str]] = {}
    for place, node, _, _ in found:
        if isinstance(node, ast.ClassDef):
            places.setdefault(node.name.strip("_"), []).append(place)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_function_is_named_by_a_participle(found: Found) -> None:
    assert [place for place, node, _, _ in found if isinstance(node, ast.FunctionDef) and is_participle(node.name)] == []


def test_every_public_function_and_class_is_documented(found: Found) -> None:
    """Methods of public classes too, but for those with a name of Python's own."""
    assert [place for place, node, public, _ in found if public and not ast.get_docstring(node)] == []


def test_a_docstring_begins_with_a_verb_or_a_noun(found: Found) -> None:
    texts = ((place, ast.get_docstring(node) or "") for place, node, _, _ in found)
    assert [(place, text[:40]) for place, text in texts if RIDDLES.match(text)] == []


def test_sentences_of_docstrings_are_short(found: Found) -> None:
    texts = ((place, ast.get_docstring(node) or "") for place, node, public, _ in found if public)
    assert [(place, s) for place, text in texts for s in sentences(text) if len(s.split()) > MOST_WORDS] == []


def sentences(text: str) -> list[str]:
    """Split prose at full stops, colons, semicolons and empty lines; a code span is one word."""
    return re.split(r"(?<=[.:;?!])\s+|\n\n|\n(?=\s*[-*])", re.sub(r"`[^`]*`", "code", text))


@pytest.mark.parametrize(
    ("name", "participle"),
    [("joined", True), ("stored_as", True), ("_made", True), ("fuse_blocks", False), ("read", False), ("written_slots", False)],
)
def test_a_participle_is_known(name: str, participle: bool) -> None:
    assert is_participle(name) == participle
