"""What to type to get an extra of this package: where it lies as sources, those; else the packages that the extra stands for.

This package is on no index of packages. A command that asks an index for its name would install whatever somebody puts there, so
every message that says what to install takes its words from here.
"""

from __future__ import annotations

import re
import shlex
from importlib import metadata
from pathlib import Path

#: `extra == "prove"` in a requirement's marker, with what joins it to the rest.
_EXTRA = re.compile(r"""\s*(?:\band\s+)?extra\s*==\s*["']([\w-]+)["']""")


def how_to_install(extras: str) -> str:
    """The command that installs extras, named with commas between them, for this installation."""
    sources = checkout()
    if sources is not None:
        return f"pip install {shlex.quote(f'{sources}[{extras}]')}"
    return " ".join(["pip install", *map(shlex.quote, requirements(extras))])


def checkout() -> Path | None:
    """The folder of sources that this package is imported from; None of an installed one."""
    root = Path(__file__).absolute().parents[3]  # src/uops/spec
    project = root / "pyproject.toml"
    return root if (root / "src" / "uops").is_dir() and project.is_file() and 'name = "uops"' in project.read_text() else None


def requirements(extras: str) -> list[str]:
    """The requirements that extras of the installed package stand for, without its own name."""
    try:
        declared = metadata.requires("uops") or []
    except metadata.PackageNotFoundError:
        declared = []
    return [r for name in extras.split(",") for line in declared if (r := _of(name, line))] or [f"PATH_OF_UOPS[{extras}]"]


def _of(extra: str, line: str) -> str | None:
    """The requirement of a line of the metadata if it is one of the extra."""
    requirement, _, marker = line.partition(";")
    found = _EXTRA.search(marker)
    if found is None or found[1] != extra:
        return None
    rest = _EXTRA.sub("", marker).strip()
    return f"{requirement.strip()}; {rest}" if rest else requirement.strip()
