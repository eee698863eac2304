"""A command that runs again whenever source files of a backend change: `uops conform --watch`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

#: Seconds between two looks at the files.
POLL = 0.5


def list_source_files(module: str) -> list[Path]:
    """Return the Python files of a module's package, or beside the module; none if there is no such module. Nothing is imported."""
    path: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    spec = None
    for part in module.split("."):
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            return []
        path = spec.submodule_search_locations
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py") if origin.name == "__init__.py" else origin.parent.glob("*.py"))


def run_whenever_files_change(
    command: Sequence[str], list_files: Callable[[], Iterable[Path]], say: Callable[[str], None], poll: float = POLL
) -> int:
    """Run a command now and after each change of the files, until Ctrl-C. Return the status of the last run that ended."""
    status = 0
    try:
        while True:
            files = _list_modification_times(list_files())
            status = subprocess.run(command, check=False).returncode
            say(f"watching {len(files):,} file{'s' if len(files) != 1 else ''}; Ctrl-C ends")
            while (changed := _list_modification_times(list_files())) == files:
                time.sleep(poll)
            names = sorted(p.name for p in files.keys() | changed.keys() if files.get(p) != changed.get(p))
            say(f"changed: {', '.join(names)}")
    except KeyboardInterrupt:
        return status


def _list_modification_times(files: Iterable[Path]) -> Mapping[Path, int]:
    """Return nanoseconds by file; a file that is gone is left out."""
    found = {}
    for path in files:
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:
            continue
    return found


def replace_option(arguments: Sequence[str], option: str, other: str) -> list[str]:
    """Return the arguments of a command line with another option in place of one that is given once."""
    return [other + a[len(option) :] if a == option or a.startswith(f"{option}=") else a for a in arguments]


def this_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs `uops` with these arguments."""
    return [sys.executable, "-m", "uops", *arguments]
