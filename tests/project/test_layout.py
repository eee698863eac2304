"""The layout holds: small folders that say what they are, and no imports in a circle."""

import ast
from itertools import count, groupby
from pathlib import Path

import pytest

#: Modules of a folder, beside its `__init__`, at most.
MOST_MODULES = 16

Imports = dict[str, set[str]]


def imports_of(name: str, text: str, known: set[str]) -> set[str]:
    """The modules that a text imports, at its top, late or for types alone, and the packages around these, which load first."""
    wanted = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            wanted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            wanted |= whole & known or {node.module}
            wanted |= {node.module} if whole - known else set()
    around = {other.rsplit(".", n)[0] for other in wanted for n in range(1, other.count("."))}
    return {other for other in (wanted | around) & known if other != name and not name.startswith(f"{other}.")}


def find_cycles(imports: Imports) -> list[list[str]]:
    """The strongly connected components of more than one module, after Tarjan, 1972."""
    index, low, stack, cycles, numbers = dict[str, int](), dict[str, int](), list[str](), list[list[str]](), count()

    def visit(name: str) -> None:
        index[name] = low[name] = next(numbers)
        stack.append(name)
        for other in sorted(imports[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                cycles.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(imports):
        if name not in index:
            visit(name)
    return cycles


def test_a_folder_has_few_modules(modules: dict[str, Path]) -> None:
    sizes: dict[Path, int] = {}
    for path in modules.values():
        sizes[path.parent] = sizes.get(path.parent, 0) + (path.name != "__init__.py")
    assert {str(folder): n for folder, n in sizes.items() if n > MOST_MODULES} == {}


def test_a_folder_says_what_it_holds(modules: dict[str, Path]) -> None:
    folders = {path.parent for path in modules.values()}
    texts = {str(folder): folder / "__init__.py" for folder in folders}
    assert [name for name, path in texts.items() if not path.exists() or not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_modules_import_each_other(modules: dict[str, Path]) -> None:
    """Imports within functions and imports for types count, too."""
    known = set(modules)
    assert find_cycles({name: imports_of(name, path.read_text(), known) for name, path in modules.items()}) == []


@pytest.mark.parametrize(
    "text",
    [
        "import uops.b",
        "from uops import b",
        "from uops.b import thing",
        "def f():\n    from uops.b import thing",
        "if X:\n    import uops.b",
    ],
)
def test_an_import_in_a_circle_is_seen(text: str) -> None:
    known = {"uops.a", "uops.b", "uops.c"}
    imports = {"uops.a": imports_of("uops.a", text, known), "uops.b": imports_of("uops.b", "from uops.c import x", known)}
    imports["uops.c"] = imports_of("uops.c", "import uops.a", known)
    assert find_cycles(imports) == [["uops.a", "uops.b", "uops.c"]]


def test_tests_stand_at_mirrored_paths(root: Path, folders: tuple[str, ...]) -> None:
    """A folder below `tests/compiler` is the folder of that name below `compiler`."""
    mirrored = (path for folder in folders for path in (root / "tests" / folder).rglob("test_*.py"))
    assert sorted({str(path.parent) for path in mirrored if not (root / path.parent.relative_to(root / "tests")).is_dir()}) == []


def test_a_folder_of_tests_has_few_modules(root: Path) -> None:
    sizes = {folder: len([*folder.glob("*.py")]) for folder in (root / "tests").rglob("*") if folder.is_dir()}
    assert {str(folder): n for folder, n in sizes.items() if n > MOST_MODULES + 2} == {}


def find_late_imports_without_reason(text: str) -> list[int]:
    """Return the lines of imports within functions that no comment explains, beside them or above.

    Imports in a row share a reason. The handler of an `except ImportError` is the reason of those that it guards.
    """
    tree, lines = ast.parse(text), text.splitlines()
    guarded = {
        id(one)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and any("ImportError" in ast.unparse(h.type) for h in node.handlers if h.type)
        for part in node.body
        for one in ast.walk(part)
    }
    unexplained = []
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        for block in (
            b for n in ast.walk(function) for b in (getattr(n, "body", []), getattr(n, "orelse", [])) if isinstance(b, list)
        ):
            for imports, row in groupby(block, lambda n: isinstance(n, (ast.Import, ast.ImportFrom))):
                late = [*row] if imports else []
                text_of_row = lines[late[0].lineno - 2 : late[-1].end_lineno] if late else []
                if late and id(late[0]) not in guarded and not any("#" in line for line in text_of_row):
                    unexplained.append(late[0].lineno)
    return sorted({*unexplained})


def test_a_late_import_has_a_reason(modules: dict[str, Path]) -> None:
    """The reason of those of the command line stands in the docstring of its package: `uops --help` answers at once."""
    assert "so that `uops --help` answers at once" in " ".join(
        (ast.get_docstring(ast.parse(modules["uops.cli"].read_text())) or "").split()
    )
    late = {
        name: find_late_imports_without_reason(path.read_text())
        for name, path in modules.items()
        if not name.startswith("uops.cli")
    }
    assert {name: found for name, found in late.items() if found} == {}


def test_a_late_import_without_a_reason_is_seen() -> None:
    text = """
def f():
    import a

def g():
    # it is optional
    import a
    import b

def h():
    try:
        import a
    except ImportError:
        from b import c
"""
    assert find_late_imports_without_reason(text) == [3, 14]
