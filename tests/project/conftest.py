"""What the tests of the project itself share: the checkout, the files it consists of, and a Python that imports the same `uops`."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import uops

ROOT = Path(__file__).parents[2]
FOLDERS = ("spec", "interp", "compiler", "backends", "fuzz")

Python = Callable[..., str]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def folders() -> tuple[str, ...]:
    """The folders of the root that are packages below `uops`."""
    return FOLDERS


@pytest.fixture(scope="session")
def modules() -> dict[str, Path]:
    """The modules of the package by dotted name; a package is named as its folder is."""
    package = ROOT / "src" / "uops"
    paths = [path for folder in (*FOLDERS, "cli") for path in _walk(package / folder)]
    return {".".join(("uops", *p.relative_to(package).with_suffix("").parts)).removesuffix(".__init__"): p for p in paths}


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, which may be a link."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _walk(path)
        elif path.suffix == ".py":
            yield path


@pytest.fixture(scope="session")
def tracked() -> list[Path]:
    """Paths, relative to the root, of all files that are or would be committed (a link to a folder is one of them)."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [Path(name) for name in sorted(set(filter(None, listing.split("\0")))) if os.path.lexists(ROOT / name)]


@pytest.fixture(scope="session")
def packaged(tracked: list[Path]) -> set[str]:
    """The files that an installation must hold, as paths below `site-packages`."""
    ours = {"uops" / path for path in tracked if path.parts[0] in FOLDERS}
    top = {path.relative_to("src") for path in tracked if path.parts[0] == "src" and not (ROOT / path).is_symlink()}
    return {path.as_posix() for path in ours | top}


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run a program in a new process, away from the checkout, and give what it prints."""

    def run(program: str, *arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1])}
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
