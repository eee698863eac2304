"""An import hook that makes functions, or chosen lines, record that they ran.

Each counted function gets a first statement that adds its name to a set. Chosen lines get one before their statement. The rest of
the code is that of the file, with the same lines. It is compiled anew at each import, and never written to a bytecode cache.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

from uops.fuzz.reach.functions import list_counted_modules, locate_module, walk_functions
from uops.fuzz.reach.lines import insert_before_lines

#: The environment variable that names the backend to the process that records calls.
BACKEND_VARIABLE = "UOPS_REACH_BACKEND"
#: The name of the recording function, among the builtins.
_RECORD = "__uops_record_call__"
#: The sets that are being filled, outer ones first.
_active: list[set[str]] = []


#: Adds recording statements to the tree of a module, given its name.
_Instrument = Callable[[str, ast.Module], None]


def _make_recording_call(label: str) -> ast.Call:
    return ast.Call(ast.Name(_RECORD, ast.Load()), [ast.Constant(label)], [])


def _record_functions(module: str, tree: ast.Module) -> None:
    """Make every function of a module record its qualified name."""
    for name, node in walk_functions(tree):
        first = node.body[0]
        has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        record = ast.copy_location(ast.Expr(_make_recording_call(f"{module}:{name}")), first)
        node.body.insert(int(has_docstring), record)


class _RecordingLoader(SourceFileLoader):
    """A loader of one module with recording statements."""

    def __init__(self, module: str, path: str, instrument: _Instrument) -> None:
        super().__init__(module, path)
        self._instrument = instrument

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module with the recording statements."""
        tree = ast.parse(Path(self.path).read_text(), self.path)
        self._instrument(fullname, tree)
        code: CodeType = compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)
        return code


class _RecordingFinder:
    """A finder of the modules that record."""

    def __init__(self, modules: Mapping[str, Path], instrument: _Instrument) -> None:
        self._modules, self._instrument = modules, instrument

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module that records, None for any other."""
        file = self._modules.get(fullname)
        if file is None:
            return None
        is_package = file.name == "__init__.py"
        spec = ModuleSpec(
            fullname, _RecordingLoader(fullname, str(file), self._instrument), origin=str(file), is_package=is_package
        )
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [str(file.parent)]
        return spec


def install_recorder(backend: str) -> None:
    """Make the counted functions of a backend record their calls. Raises RuntimeError if one of their modules is imported."""
    _install(list_counted_modules(backend), _record_functions)


def install_line_recorder(lines_by_module: Mapping[str, frozenset[int]]) -> None:
    """Make lines of modules record that their statements run, as `module:line`.

    Statements outside of functions run once, at import, and record nothing. Raises RuntimeError if a module is imported, and
    LookupError if there is none of that name.
    """

    def record_lines(module: str, tree: ast.Module) -> None:
        insert_before_lines(tree, lines_by_module[module], lambda line: _make_recording_call(f"{module}:{line}"))

    paths = {module: locate_module(module) for module in lines_by_module}
    if missing := sorted(module for module, path in paths.items() if path is None):
        raise LookupError(f"expected a module of this package, got {missing[0]}")
    _install({module: path for module, path in paths.items() if path is not None}, record_lines)


def _install(modules: Mapping[str, Path], instrument: _Instrument) -> None:
    if early := sorted(modules.keys() & sys.modules.keys()):
        raise RuntimeError(f"the recorder must be installed before {early[0]} is imported")
    setattr(builtins, _RECORD, record)
    sys.meta_path.insert(0, _RecordingFinder(modules, instrument))


def record(name: str) -> None:
    """Add a name to each set that is being filled."""
    for reached in _active:
        reached.add(name)


@contextmanager
def collect_reached_functions(into: set[str]) -> Iterator[None]:
    """Add the functions or lines that run in the block, as `module:name` or `module:line`. Blocks nest."""
    _active.append(into)
    try:
        yield
    finally:
        _active.pop()


__all__ = ["BACKEND_VARIABLE", "collect_reached_functions", "install_line_recorder", "install_recorder", "record"]
