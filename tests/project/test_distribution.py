"""From the sources to an installation: sdist, the wheel made from it, and `pip install git+file://`. Run by `tox -e package`."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.package

#: Prints the file that was imported; touches data, a dependency, and each folder.
SMOKE = """
import uops, uops.spec, uops.interp, uops.compiler, uops.backends, uops.fuzz
import numpy, ml_dtypes, llvmlite, click, rich, jinja2
print(uops.__version__, uops.__file__)
"""


def call(*command: str | Path, cwd: Path) -> str:
    """Run a command to success, away from the checkout and from its environment variables."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(root: Path, tracked: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository whose one commit is the working tree as it is now, links as links."""
    copy = tmp_path_factory.mktemp("checkout")
    for path in tracked:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, copy / path, follow_symlinks=False)
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    for step in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "the working tree")):
        call("git", *identity, *step, cwd=copy)
    return copy


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from that sdist (not from the tree)."""
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", out, checkout, cwd=out)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The Python of a new virtual environment with nothing but pip in it."""
    venv.create(tmp_path / "venv", with_pip=True)
    return tmp_path / "venv" / "bin" / "python"


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename for info in archive.infolist() if info.filename.startswith("uops/")}


def test_the_wheel_of_the_sdist_holds_exactly_the_files_of_the_checkout(built: tuple[Path, Path], packaged: set[str]) -> None:
    assert contents(built[1]) == packaged


def test_the_wheel_holds_the_folders_as_real_files(built: tuple[Path, Path], folders: tuple[str, ...]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert all(mode & 0o170000 in (0, 0o100000) for mode in modes.values()), "a link in the wheel"
        assert all(archive.read(f"uops/{name}/__init__.py") for name in folders)
        assert "uops/py.typed" in modes
        assert {name.split("/")[0] for name in modes} == {"uops", f"{built[1].name.rsplit('-', 3)[0]}.dist-info"}


def test_the_sdist_holds_the_licence_and_the_readme_and_no_link(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        members = archive.getmembers()
    below = {member.name.partition("/")[2] for member in members}
    assert {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO"} <= below
    assert not any(member.issym() or member.islnk() for member in members)


def test_the_wheel_installs_with_its_dependencies_and_imports(built: tuple[Path, Path], environment: Path, tmp_path: Path) -> None:
    call(environment, "-m", "pip", "install", "--quiet", built[1], cwd=tmp_path)
    assert str(tmp_path / "venv") in call(environment, "-c", SMOKE, cwd=tmp_path)
    assert "conform" in call(tmp_path / "venv" / "bin" / "uops", "--help", cwd=tmp_path)
    assert "conform" in call(environment, "-m", "uops", "--help", cwd=tmp_path)
    call(environment, "-m", "pip", "check", cwd=tmp_path)


def test_pip_installs_from_git(checkout: Path, packaged: set[str], environment: Path, tmp_path: Path) -> None:
    call(environment, "-m", "pip", "install", "--quiet", "--no-deps", f"git+file://{checkout}", cwd=tmp_path)
    (package,) = (tmp_path / "venv").glob("lib/python*/site-packages/uops")
    files = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert files == packaged
    assert not any(path.is_symlink() for path in package.rglob("*"))
    assert str(package) in call(environment, "-c", "import uops; print(uops.__file__)", cwd=tmp_path)
