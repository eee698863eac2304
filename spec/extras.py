"""The commands that install optional dependencies ("extras") of this package, for error messages.

This package is not published on any package index, so no message may tell users to install it by its bare name, which somebody else
could take. A source checkout is installed from its folder. For an installed package the command lists the extra's own requirements.
"""

from __future__ import annotations

import re
import shlex
from importlib import metadata
from pathlib import Path

#: Matches `extra == "prove"` in a requirement's marker, with the `and` in front of it.
_EXTRA = re.compile(r"""\s*(?:\band\s+)?extra\s*==\s*["']([\w-]+)["']""")


def install_command(extras: str) -> str:
    """Return the shell command that installs `extras`, a comma-separated list, into this installation."""
    sources = find_source_checkout()
    if sources is not None:
        return f"pip install {shlex.quote(f'{sources}[{extras}]')}"
    return " ".join(["pip install", *map(shlex.quote, list_extra_requirements(extras))])


def find_source_checkout() -> Path | None:
    """Return the root of the source checkout that this package is imported from; None for an installed package."""
    root = Path(__file__).absolute().parents[3]  # src/uops/spec
    project = root / "pyproject.toml"
    return root if (root / "src" / "uops").is_dir() and project.is_file() and 'name = "uops"' in project.read_text() else None


def list_extra_requirements(extras: str) -> list[str]:
    """Return the requirements of `extras`, a comma-separated list, as the installed package's metadata states them.

    Returns the placeholder `PATH_OF_UOPS[extras]` alone if the metadata states none.
    """
    try:
        declared = metadata.requires("uops") or []
    except metadata.PackageNotFoundError:
        declared = []
    return [r for name in extras.split(",") for line in declared if (r := _parse_requirement_if_of_extra(name, line))] or [
        f"PATH_OF_UOPS[{extras}]"
    ]


def _parse_requirement_if_of_extra(extra: str, metadata_line: str) -> str | None:
    """Return the requirement of one metadata line, or None if the line does not belong to `extra`."""
    requirement, _, marker = metadata_line.partition(";")
    match = _EXTRA.search(marker)
    if match is None or match[1] != extra:
        return None
    rest = _EXTRA.sub("", marker).strip()
    return f"{requirement.strip()}; {rest}" if rest else requirement.strip()
