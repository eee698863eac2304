"""The lines of the package that differ from a revision of its repository.

Takes: a revision, in a checkout. Gives: module -> lines, of the files that git knows. The package's folders are links into the
checkout, so that git names their files by other paths.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from uops.backends.testing.journal import PACKAGE
from uops.spec.errors import UopsError

#: The line of a diff that names the new file, and the one that begins a changed place: its first line and the number of lines.
_FILE, _PLACE = re.compile(r"\+\+\+ b/(.+\.py)\t?$"), re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


class NoChanges(UopsError):
    """A revision with which the package cannot be compared, or from which no line of its modules differs."""


def find_lines_changed_since(revision: str) -> dict[str, list[int]]:
    """Return module -> lines that differ from a revision, in the working tree. Raises NoChanges.

    Where lines were only removed, the line before them counts.
    """
    root = PACKAGE.parent
    command = [
        "git",
        "-C",
        str(root),
        "diff",
        "--unified=0",
        "--no-color",
        "--no-ext-diff",
        "--no-relative",
        revision,
        "--",
        ":/*.py",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as e:
        raise NoChanges(f"expected git, to compare with {revision!r}: {e}") from e
    if done.returncode:
        raise NoChanges(f"git cannot compare {root} with {revision!r}: {done.stderr.strip()}")
    top = subprocess.run(["git", "-C", str(root), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True)
    lines = _parse_changed_lines(done.stdout)
    modules = {module: lines[path] for path, module in _map_paths_to_modules(Path(top.stdout.strip())).items() if path in lines}
    if not modules:
        raise NoChanges(f"no line of a module of the package differs from {revision!r}")
    return dict(sorted(modules.items()))


def _parse_changed_lines(diff: str) -> dict[str, list[int]]:
    """Return path -> new lines of a diff without context."""
    changed: dict[str, list[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            match = _FILE.match(line)
            path = match[1] if match else ""
        elif path and (place := _PLACE.match(line)):
            first, count = int(place[1]), int(place[2] or 1)
            changed.setdefault(path, []).extend(range(first, first + count) if count else [max(1, first)])
    return changed


def _map_paths_to_modules(checkout: Path) -> dict[str, str]:
    """Return path below the checkout -> module, for each file of the package."""
    modules = {}
    for part in PACKAGE.iterdir():
        files = part.resolve().rglob("*.py") if part.is_dir() else [part.resolve()] if part.suffix == ".py" else []
        for file in files:
            inside = () if part.is_file() else (part.name, *file.relative_to(part.resolve()).parts)
            names = (PACKAGE.name, *(inside or (part.name,)))
            if file.is_relative_to(checkout):
                modules[str(file.relative_to(checkout))] = ".".join(names).removesuffix(".py").removesuffix(".__init__")
    return modules


__all__ = ["NoChanges", "find_lines_changed_since"]
