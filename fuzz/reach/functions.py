"""The functions whose calls are counted: those of the kernel optimizer and of renderers, read off the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: The folder of this package, `uops`.
_ROOT = Path(__file__).parents[2]
#: The package of the kernel optimizer.
OPTIMIZER = "uops.compiler.passes.optimize"
#: The packages that renderers of several backends share.
_SHARED = ("uops.backends.cstyle",)
#: Modules that compile and load machine code, and choose nothing of a kernel.
_NOT_RENDERERS = frozenset({"uops.backends.llvm.binding", "uops.backends.llvm.executable"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def list_counted_modules(backend: str) -> dict[str, Path]:
    """Return module -> file of the kernel optimizer and of a backend's renderer.

    A renderer is the module `render` of the backend's package with what it imports of that package and of the shared ones. A
    backend elsewhere, or without that module, has none.
    """
    package = f"uops.backends.{backend.partition(':')[0]}"
    renderer = _follow_imports(f"{package}.render", (package, *_SHARED))
    return dict(sorted({**_list_package(OPTIMIZER), **renderer}.items()))


def locate_module(module: str) -> Path | None:
    """Return the file of a module of this package, None where there is none. Nothing is imported, not even its packages."""
    stem = _ROOT.joinpath(*module.split(".")[1:])
    return next((f for f in (stem.with_suffix(".py"), stem / "__init__.py") if f.is_file()), None)


def _list_package(package: str) -> dict[str, Path]:
    """Return the modules of a package and of those in it."""
    start = locate_module(package)
    assert start is not None, package
    files = {f.relative_to(start.parent): f for f in start.parent.rglob("*.py")}
    return {".".join((package, *f.with_suffix("").parts)).removesuffix(".__init__"): path for f, path in files.items()}


def _follow_imports(module: str, packages: tuple[str, ...]) -> dict[str, Path]:
    """Return a module and what it imports of some packages, directly or not."""
    found: dict[str, Path] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        path = None if name in found or name in _NOT_RENDERERS else locate_module(name)
        if path is None:
            continue
        found[name] = path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
                pending += [n for n in named if n.startswith(tuple(f"{p}." for p in packages))]
    return found


def list_functions(backend: str) -> dict[str, str]:
    """Return `module:qualified name` -> `file:line` of each counted function of a backend, those inside of functions among them."""
    return {
        f"{module}:{name}": f"{path.relative_to(_ROOT)}:{node.lineno}"
        for module, path in list_counted_modules(backend).items()
        for name, node in walk_functions(ast.parse(path.read_text()))
    }


def walk_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """Yield the functions of a module that have code, each with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Function):
            if not _is_declaration(node):
                yield f"{prefix}{node.name}", node
            yield from walk_functions(node, f"{prefix}{node.name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from walk_functions(node, f"{prefix}{node.name}.")
        else:
            yield from walk_functions(node, prefix)


def _is_declaration(function: _Function) -> bool:
    """Return True for a function without code: a method of a Protocol."""
    return all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in function.body)


__all__ = ["OPTIMIZER", "list_counted_modules", "list_functions", "locate_module", "walk_functions"]
