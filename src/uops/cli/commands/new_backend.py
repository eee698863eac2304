"""`uops new-backend`: write a package of a backend to start from."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template

import click

from uops.cli.common import echo
from uops.spec.untrusted import describe_path, escape_to_one_line

#: What a name may be: part of the names of a distribution, a module and an entry point.
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
#: File of the package, as a template -> its template.
_FILES = {
    "pyproject.toml": "pyproject.toml.in",
    "tox.ini": "tox.ini.in",
    "src/{package}/__init__.py": "backend.py.in",
}


@click.command("new-backend", short_help="Write a package of a backend to start from.")
@click.argument("name")
@click.option(
    "--directory", type=click.Path(path_type=Path), metavar="DIR", help="Where it is written.  [default: NAME, which is new]"
)
def new_backend(name: str, directory: Path | None) -> None:
    """Write a package with a backend called NAME, which evaluates a dozen rows with NumPy, and says what comes next.

    The package registers the backend and has a tox environment that judges it. Nothing that exists is changed.
    """
    from uops.backends import registry

    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"expected lower-case words such as mine or my_device, got {escape_to_one_line(name)}", param_hint="NAME"
        )
    if name in registry.names():
        raise click.BadParameter(f"a backend is called {name} already", param_hint="NAME")
    place = directory or Path(name)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise click.BadParameter(f"{describe_path(place)} exists and is not an empty directory", param_hint="--directory")
    for path, text in render_package(name, place).items():
        target = place / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        except OSError as e:
            raise click.ClickException(f"{describe_path(target)} cannot be written: {e.strerror or e}") from e
    echo(f"{describe_path(place)} has the package uops-{name}. To install and judge it:\n")
    echo(f"  pip install -e {describe_path(place)}\n  uops conform --backend {name}\n")
    echo("docs/writing-a-backend.md says what to change, and how to declare what you lack (uops conform --probe).")


def render_package(name: str, place: Path) -> dict[str, str]:
    """Return the files of the package at a place, by path."""
    folder = resources.files("uops.cli") / "template"
    class_name = "".join(word.capitalize() for word in name.split("_"))
    words = {"name": name, "package": f"uops_{name}", "class_name": class_name, "source": _tox_path_of_checkout(place)}
    return {path.format(**words): Template((folder / file).read_text()).substitute(words) for path, file in _FILES.items()}


def _tox_path_of_checkout(place: Path) -> str:
    """Return where tox finds the checkout that this package is imported from; a placeholder for an installed package."""
    from uops.spec.extras import find_source_checkout

    checkout, folder = find_source_checkout(), place.absolute()
    if checkout is None:
        return "PATH_OF_UOPS"
    if folder.is_relative_to(checkout):
        return "{tox_root}" + "/.." * len(folder.relative_to(checkout).parts)
    return str(checkout)
