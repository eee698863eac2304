"""`uops new-backend` writes the package of the example, under another name; `uops conform --probe` says what it lacks."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import uops as package
from uops.cli.commands.new_backend import render_package
from uops.spec import extras

Uops = Callable[..., Result]
EXAMPLE = Path(__file__).parents[2] / "examples" / "backend-template"


def test_the_example_is_what_the_command_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_source_checkout", lambda: EXAMPLE.parents[1])
    files = {str(p.relative_to(EXAMPLE)): p.read_text() for p in EXAMPLE.rglob("*") if p.suffix in (".py", ".toml", ".ini")}
    assert render_package("template", EXAMPLE) == files


def test_the_package_bears_its_name_and_runs(uops: Uops, tmp_path: Path) -> None:
    shown = uops("new-backend", "my_device", "--directory", str(tmp_path / "here"))
    assert shown.exit_code == 0 and "uops conform --backend my_device" in shown.output
    text = (tmp_path / "here/src/uops_my_device/__init__.py").read_text()
    assert "class MyDevice(Backend)" in text and 'name = "my_device"' in text
    assert 'my_device = "uops_my_device:MyDevice"' in (tmp_path / "here/pyproject.toml").read_text()
    command = [sys.executable, "-m", "uops", "conform", "--backend", "uops_my_device:MyDevice", "--rows", "Movement/*"]
    paths = os.pathsep.join([str(tmp_path / "here/src"), str(Path(package.__file__).parents[1])])
    done = subprocess.run(
        [*command, "--report", str(tmp_path / "report")], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_tox_takes_uops_from_the_checkout_that_the_command_runs_from(
    uops: Uops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert uops("new-backend", "mine", "--directory", str(tmp_path / "a")).exit_code == 0
    assert f"{{env:UOPS_SOURCE:{extras.find_source_checkout() or 'PATH_OF_UOPS'}}}" in (tmp_path / "a/tox.ini").read_text()
    monkeypatch.setattr(extras, "find_source_checkout", lambda: None)
    assert uops("new-backend", "mine", "--directory", str(tmp_path / "b")).exit_code == 0
    assert "{env:UOPS_SOURCE:PATH_OF_UOPS}" in (tmp_path / "b/tox.ini").read_text()


@pytest.mark.parametrize(
    ("name", "says"),
    [*((n, "expected lower-case words") for n in ("Mine", "9", "../x", "a__b")), ("llvm", "is called llvm already")],
)
def test_a_name_that_cannot_be_is_refused(uops: Uops, tmp_path: Path, name: str, says: str) -> None:
    shown = uops("new-backend", name, "--directory", str(tmp_path / "new"))
    assert shown.exit_code == 2 and says in " ".join(shown.output.split())
    assert not (tmp_path / "new").exists()


def test_what_exists_stays_as_it_is(uops: Uops, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    shown = uops("new-backend", "mine", "--directory", str(tmp_path))
    assert shown.exit_code == 2 and "is not an empty directory" in " ".join(shown.output.split())
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


BACKEND = """
from uops.backends.conformance.controls import Interp
from uops.spec.errors import Unsupported
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op


class Refusing(Interp):
    name = "refusing"

    def run(self, graph, inputs):
        ops = {u.op for u in toposort(graph)}
        if Op.FLIP in ops:
            raise Unsupported("flips", self.name)
        if Op.PERMUTE in ops and graph.dtype.name == "uint8":
            raise Unsupported("uint8 is not permuted", self.name)
        if Op.PAD in ops:
            raise RuntimeError("no pad")
        return super().run(graph, inputs)
"""


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "refusing_backend.py").write_text(BACKEND)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


def probe(uops: Uops, place: Path, rows: str) -> Result:
    report = str(place / "report")
    return uops("conform", "--backend", "refusing_backend:Refusing", "--rows", rows, "--probe", "--report", report)


def test_refusals_become_a_declaration(uops: Uops, refusing: Path) -> None:
    shown = probe(uops, refusing, "Movement/[FPS]*")
    printed = shown.stdout[shown.stdout.index("unsupported=(") :]
    declared = ast.unparse(ast.parse(f"f({printed})"))
    assert "Missing('Movement/Flip', '*', 'refusing does not support flips')" in declared
    assert "Missing('Movement/Permute', 'uint8', 'refusing does not support uint8 is not permuted')" in declared
    assert "Pad" not in declared, "an exception is no gap"
    assert shown.exit_code == 1, "Pad fails"
    assert probe(uops, refusing, "Movement/Flip").exit_code == 0


def test_a_row_that_is_refused_in_part_cannot_be_declared(uops: Uops, refusing: Path) -> None:
    """Compositions of a row may flip in some cells alone."""
    shown = probe(uops, refusing, "Store/Store")
    assert shown.exit_code == 1 and "# Refused, though other cells of the same row and dtype run" in shown.stdout
    assert "x flipped" in shown.stdout


def test_a_time_limit_must_be_positive(uops: Uops, tmp_path: Path) -> None:
    shown = uops("conform", "--backend", "interp", "--timeout", "nan", "--report", str(tmp_path))
    assert shown.exit_code == 2 and "expected a positive number of seconds, got nan" in " ".join(shown.output.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tier", "exhaustive", "--probe"), "leave out --probe and --timeout"),
        (("--tier", "exhaustive", "--timeout", "5"), "leave out --probe and --timeout"),
        (("--probe", "--baseline", __file__), "leave out --baseline"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(uops: Uops, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    shown = uops("conform", "--backend", "interp", "--report", str(tmp_path), *options)
    assert shown.exit_code == 2 and says in " ".join(shown.output.split())


def test_a_program_that_takes_longer_fails(uops: Uops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = BACKEND.replace('raise Unsupported("flips", self.name)', "__import__('time').sleep(60)").replace("refusing", "slow")
    (tmp_path / "slow_backend.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    report = ("--report", str(tmp_path / "report"))
    rows = ("--rows", "Movement/Flip", "--sample", "1")
    shown = uops("conform", "--backend", "slow_backend:Refusing", "--timeout", "1", *rows, *report)
    assert shown.exit_code == 1 and "timeout" in shown.output
