"""What the checkout consists of: links, words, texts and one version."""

import ast
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import uops

#: Paths of somebody's machine. In two parts each, so that this file is not its own finding.
HOMES = ("wo" + "rk", "home/" + r"\w+", "ro" + "ot", "tmp/" + "team", "tmp/" + "venv")
MACHINE_PATH = re.compile(rf"(?<![\w.~-])/(?:{'|'.join(HOMES)})/".encode())


def test_each_folder_is_a_relative_link_below_src(root: Path, folders: tuple[str, ...]) -> None:
    for name in folders:
        link = root / "src" / "uops" / name
        assert link.is_symlink(), f"{link} was checked out as a file: git needs core.symlinks"
        assert os.readlink(link) == f"../../{name}"
        assert link.resolve() == (root / name).resolve()
        assert (root / name).is_dir()
        assert not (root / name).is_symlink()


def test_the_tree_has_no_other_links(root: Path, tracked: list[Path], folders: tuple[str, ...]) -> None:
    links = {path.as_posix() for path in tracked if (root / path).is_symlink()}
    assert links == {f"src/uops/{name}" for name in folders}


@pytest.mark.parametrize("line", ["/wo" + "rk/main/x", "in /ro" + "ot/.cache", "'/home/" + "me/x'", "(/tmp/" + "venv/bin)"])
def test_a_machine_path_is_recognised(line: str) -> None:
    assert MACHINE_PATH.search(line.encode())


@pytest.mark.parametrize("line", ["net" + "work/main", "https://a.org/wo" + "rks", "~/home/x", "a/ro" + "ot/b"])
def test_other_paths_are_no_machine_paths(line: str) -> None:
    assert not MACHINE_PATH.search(line.encode())


def test_no_file_names_a_path_of_a_machine(root: Path, tracked: list[Path]) -> None:
    files = [path for path in tracked if (root / path).is_file() and not (root / path).is_symlink()]
    assert files
    assert [str(path) for path in files if MACHINE_PATH.search((root / path).read_bytes())] == []


def test_the_version_is_written_once(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "uops.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+(?:\.?(?:dev|a|b|rc)\d+)?", uops.__version__)
    text = (root / "src" / "uops" / "__init__.py").read_text()
    assert f'__version__ = "{uops.__version__}"' in text


def test_the_changelog_keeps_its_form(root: Path) -> None:
    headings = re.findall(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:])
    kinds = set(re.findall(r"^### (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_every_pin_is_exact_and_within_the_declared_range(root: Path) -> None:
    requirements = pytest.importorskip("packaging.requirements")
    lines = [line for line in (root / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert len(pins) == len(lines)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    optional = (line for lines in extras.values() for line in lines)
    for requirement in map(requirements.Requirement, (*project["dependencies"], *optional)):
        assert requirement.specifier.contains(pins[requirement.name]), requirement


def test_the_ci_script_runs_tox_and_can_be_executed(root: Path) -> None:
    script = root / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in script.read_text()
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_every_reason_stands_beside_its_lint_ignore(root: Path) -> None:
    """A rule switched off in the configuration says why on its line."""
    text = (root / "pyproject.toml").read_text()
    block = re.search(r"^ignore = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    lines = block.group(1).splitlines()
    assert lines
    assert all(re.fullmatch(r'    "\w+", +# .{20,}', line) for line in lines), lines


def test_every_source_parses_as_the_oldest_supported_python(root: Path, tracked: list[Path]) -> None:
    sources = [path for path in tracked if path.suffix == ".py"]
    assert sources
    for path in sources:
        ast.parse((root / path).read_text(), filename=str(path), feature_version=(3, 11))


def test_the_package_environment_collects_all_of_its_tests(root: Path, tracked: list[Path]) -> None:
    """It looks into tests/project alone, which is quicker than all tests by half a minute."""
    marked = {p for p in tracked if p.parts[0] == "tests" and p.suffix == ".py" and "mark.package" in (root / p).read_text()}
    marked.discard(Path(__file__).relative_to(root))
    assert marked and {p.parent for p in marked} == {Path("tests/project")}
    assert "-m package {posargs:{tox_root}/tests/project}" in (root / "tox.ini").read_text()
