"""An import hook that makes functions record that they ran.

Each counted function gets a first statement that adds its name to a set. The rest of the code is that of the file, with the same
lines. It is compiled anew at each import, and never written to a bytecode cache.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

from uops.fuzz.reach.functions import list_counted_modules, walk_functions

#: The environment variable that names the backend to the process that records calls.
BACKEND_VARIABLE = "UOPS_REACH_BACKEND"
#: The name of the recording function, among the builtins.
_RECORD = "__uops_record_call__"
_reached: set[str] = set()


class _RecordingLoader(SourceFileLoader):
    """A loader of one module whose functions record their calls."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module with the recording statements."""
        tree = ast.parse(Path(self.path).read_text(), self.path)
        for name, node in walk_functions(tree):
            call = ast.Call(ast.Name(_RECORD, ast.Load()), [ast.Constant(f"{fullname}:{name}")], [])
            first = node.body[0]
            has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            node.body.insert(int(has_docstring), ast.copy_location(ast.Expr(call), first))
        code: CodeType = compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)
        return code


class _RecordingFinder:
    """A finder of the counted modules."""

    def __init__(self, modules: dict[str, Path]) -> None:
        self.modules = modules

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a counted module, None for any other."""
        file = self.modules.get(fullname)
        if file is None:
            return None
        is_package = file.name == "__init__.py"
        spec = ModuleSpec(fullname, _RecordingLoader(fullname, str(file)), origin=str(file), is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [str(file.parent)]
        return spec


def install_recorder(backend: str) -> None:
    """Make the counted functions of a backend record their calls. Raises RuntimeError if one of their modules is imported."""
    modules = list_counted_modules(backend)
    if early := sorted(modules.keys() & sys.modules.keys()):
        raise RuntimeError(f"the recorder must be installed before {early[0]} is imported")
    setattr(builtins, _RECORD, _reached.add)
    sys.meta_path.insert(0, _RecordingFinder(modules))


@contextmanager
def collect_reached_functions(into: set[str]) -> Iterator[None]:
    """Add the functions that run inside of the block, and none that ran before, as `module:qualified name`."""
    _reached.clear()
    try:
        yield
    finally:
        into |= _reached
        _reached.clear()


__all__ = ["BACKEND_VARIABLE", "collect_reached_functions", "install_recorder"]
