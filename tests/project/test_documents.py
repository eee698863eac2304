"""The documents are readable: short sentences, rulings with their meaning, paths that exist, and a glossary of words in use."""

import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from uops.spec.rulings import RULINGS

ROOT = Path(__file__).parents[2]
#: Words in a sentence, at most. A code span, a link and a number are one word each.
MOST_WORDS = 25
#: Terms of the glossary, at most.
MOST_TERMS = 45
GLOSSARY = "docs/glossary.md"
#: First parts of a path of this repository, by which a code span is told from a command, an output or somebody else's file.
TOP = frozenset({"spec", "interp", "compiler", "backends", "fuzz", "tests", "src", "bench", "docs", "examples"})


def find_documents() -> list[str]:
    """Return the documents, as paths below the root."""
    paths = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


DOCUMENTS = find_documents()


def remove_code_blocks(text: str) -> str:
    """Return a Markdown text without fenced and indented blocks."""
    text = re.sub(r"^ *(`{3,})[^\n]*\n.*?^ *\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n)+", "\n", text)


def read_prose(text: str) -> list[str]:
    """Return the paragraphs and list items of a Markdown text, one line each, without code blocks, tables and headings."""
    text = re.sub(r"^(\||#)[^\n]*$", "", remove_code_blocks(text), flags=re.MULTILINE)
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text) if block.strip()]


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph after full stops, colons, and question and exclamation marks."""
    plain = re.sub(r"`[^`]*`", "code", paragraph)
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", "link", plain)
    return re.split(r"(?<=[.:?!])[*)_]*\s+", plain)


def count_words(sentence: str) -> int:
    return sum(any(c.isalnum() for c in word) for word in sentence.split())


def find_unexplained_rulings(text: str) -> list[str]:
    """Return the rulings whose first mention in prose has no gloss: `R27 (one value per node)` or `(R27, one value per node)`."""
    prose = re.sub(r"`[^`]*`", "code", "\n".join(read_prose(text)))
    first = {m[0]: m.end() for m in reversed(list(re.finditer(r"\bR\d{2,3}\b", prose)))}
    return sorted(name for name, end in first.items() if not re.match(r"(?: \(|, )[^\W\d]*[^\W\dR][^()]*\)", prose[end:]))


def find_paths(text: str) -> Iterator[str]:
    """Yield the code spans that look like paths of this repository."""
    for span in re.findall(r"`([^`\n]+)`", remove_code_blocks(text)):
        path = span.partition("::")[0]
        parts = path.split("/")
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", path) and (parts[0] in TOP if len(parts) > 1 else path.endswith((".py", ".md"))):
            yield path


@cache
def list_files() -> tuple[str, ...]:
    """Return every file and folder of the repository, as `/path`, without those of tools."""
    skipped = re.compile(r"(^|/)(\.[^/]+|__pycache__|build|dist|[^/]+\.egg-info)(/|$)")
    below = [path for top in sorted(TOP) for path in (ROOT / top, *(ROOT / top).rglob("*"))]
    names = [path.relative_to(ROOT).as_posix() for path in (*below, *ROOT.glob("*.*"))]
    return tuple(f"/{name}" for name in names if not skipped.search(name))


def exists(path: str) -> bool:
    """Return True if a path is one below the root, or the end of one."""
    return any(name.endswith(f"/{path.rstrip('/')}") for name in list_files())


def find_missing_names(text: str) -> list[str]:
    """Return the dotted names `uops....` in code spans that are neither a module nor a name in one."""
    names = re.findall(r"`(uops(?:\.\w+)+)[`(]", remove_code_blocks(text))
    return [name for name in names if not name_exists(name)]


def name_exists(name: str) -> bool:
    path = ROOT / "src" / "uops"
    for part in name.split(".")[1:]:
        if path.is_dir() and ((path / part).is_dir() or (path / f"{part}.py").exists()):
            path = path / part if (path / part).is_dir() else path / f"{part}.py"
        else:
            text = (path / "__init__.py" if path.is_dir() else path).read_text(encoding="utf-8")
            return re.search(rf"\b{part}\b", text) is not None
    return True


def read_terms() -> dict[str, str]:
    """Return the entries of the glossary by term, in its order."""
    entries = (re.fullmatch(r"- \*\*(.+?)\*\*: (.+)", entry) for entry in read_prose(read_document(GLOSSARY)))
    return {entry[1]: entry[2] for entry in entries if entry}


@cache
def read_sources() -> str:
    """Return the text of the package, the tests and the documents but the glossary and this module, in lower case."""
    paths = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    return " ".join(" ".join(path.read_text(encoding="utf-8") for path in paths if path != Path(__file__)).lower().split())


def read_document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_sentences_are_short(name: str) -> None:
    sentences = [s for paragraph in read_prose(read_document(name)) for s in split_sentences(paragraph)]
    assert [f"{count_words(s)}: {s}" for s in sentences if count_words(s) > MOST_WORDS] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_ruling_is_explained_where_it_is_first_cited(name: str) -> None:
    assert find_unexplained_rulings(read_document(name)) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_rulings_that_are_cited_exist(name: str) -> None:
    assert set(re.findall(r"\bR\d{2,3}\b", read_document(name))) - set(RULINGS) == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_exist(name: str) -> None:
    assert [path for path in find_paths(read_document(name)) if not exists(path)] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files(name: str) -> None:
    links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", remove_code_blocks(read_document(name)))
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_dotted_names_exist(name: str) -> None:
    assert find_missing_names(read_document(name)) == []


# The glossary


def test_the_glossary_is_short_and_in_order() -> None:
    terms = list(read_terms())
    assert terms == sorted(terms, key=str.lower)
    assert 0 < len(terms) <= MOST_TERMS
    assert len(terms) == len(re.findall(r"^- ", read_document(GLOSSARY), re.MULTILINE))


def test_an_entry_gives_a_meaning_and_a_reason() -> None:
    sentences = {term: re.findall(r"[^.]\.(?= |$)", entry) for term, entry in read_terms().items()}
    assert {term: len(found) for term, found in sentences.items() if not 2 <= len(found) <= 3} == {}


def test_terms_of_the_glossary_are_in_use() -> None:
    unused = [term for term in read_terms() if not re.search(rf"\b{re.escape(term.lower())}s?\b", read_sources())]
    assert unused == []


def test_the_glossary_can_be_found() -> None:
    assert all(f"({GLOSSARY})" in read_document(name) for name in ("README.md", "ARCHITECTURE.md"))


# Generated pages


def test_the_page_of_performance_has_the_words_of_its_generator() -> None:
    page, generator = read_document("docs/performance.md"), runpy.run_path(str(ROOT / "bench" / "document.py"))
    assert page.startswith(generator["HEAD"])
    assert [s.title for s in generator["SECTIONS"].values() if f"## {s.title}\n\n{s.text}\n\n" not in page] == []


# The tests of these tests


LONG = "one two three four five six seven eight nine ten " * 3


@pytest.mark.parametrize("text", [LONG, f"- {LONG}", f"Short.\n\n{LONG}", f"Short. {LONG}", f"| a |\n|---|\n\n{LONG}"])
def test_a_long_sentence_is_seen(text: str) -> None:
    assert max(count_words(s) for paragraph in read_prose(text) for s in split_sentences(paragraph)) == 30


@pytest.mark.parametrize(
    "text", [f"| {LONG} |", f"```\n{LONG}\n```", f"Text:\n\n    {LONG}\n", f"# {LONG}", f"`{LONG}`", "a. " * 30]
)
def test_what_is_no_long_sentence_is_not_counted(text: str) -> None:
    assert all(count_words(s) <= MOST_WORDS for paragraph in read_prose(text) for s in split_sentences(paragraph))


@pytest.mark.parametrize(
    ("text", "unexplained"),
    [
        ("R27 (one value per node) holds. So R27 does.", []),
        ("It holds (R27, one value per node).", []),
        ("It holds (R27).", ["R27"]),
        ("It holds (R27, R28).", ["R27", "R28"]),
        ("By R05 and R06 (shifts) it wraps.", ["R05"]),
        ("| R27 |\n\n`R28`", []),
    ],
)
def test_a_ruling_without_its_meaning_is_seen(text: str, unexplained: list[str]) -> None:
    assert find_unexplained_rulings(text) == unexplained


def test_a_path_that_does_not_exist_is_seen() -> None:
    text = (
        "`spec/rulings.md`, `spec/nothing.md`, `rulings.md`, `nothing.py`, `report/index.html`, `ir/`, `tests/nothing.py::test_x`"
    )
    paths = list(find_paths(text))
    assert [path for path in paths if not exists(path)] == ["spec/nothing.md", "nothing.py", "tests/nothing.py"]
    assert "report/index.html" not in paths


def test_a_dotted_name_that_does_not_exist_is_seen() -> None:
    text = "`uops.spec.rulings`, `uops.compile(graph)`, `uops.spec.rulings.RULINGS`, `uops.nothing`, `uops.spec.rulings.NOTHING`"
    assert find_missing_names(text) == ["uops.nothing", "uops.spec.rulings.NOTHING"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_bug_that_is_cited_has_an_entry(document: str) -> None:
    entries = set(re.findall(r"^\| ([A-Z]?\d{2,3}) ", (ROOT / "FOUND.md").read_text(), re.MULTILINE))
    text = " ".join((ROOT / document).read_text().split())
    assert len(entries) > 180
    assert {
        n
        for group in re.findall(r"FOUND ([A-Z]?\d{2,3}(?:(?:,| and| to) [A-Z]?\d{2,3})*)", text)
        for n in re.findall(r"[A-Z]?\d+", group)
    } <= entries
