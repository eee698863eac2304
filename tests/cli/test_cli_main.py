"""The command as a whole: help, errors without tracebacks, interruption, and what it loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import uops as package
from uops.cli import CommandGroup, error_message_with_claim_id, main
from uops.cli.common import DIALECTS
from uops.spec.errors import Crash, SpecError, Trap
from uops.spec.verify.dialects import Dialect

Uops = Callable[..., Result]
COMMANDS = (
    "spec",
    "check",
    "run",
    "compile",
    "view",
    "prove",
    "search",
    "site",
    "bisect",
    "stages",
    "backends",
    "conform",
    "fuzz",
    "mutants",
    "check-certificate",
    "new-backend",
)


def test_help_names_every_command_completion_and_the_exit_status(uops: Uops) -> None:
    result = uops("--help")
    assert result.exit_code == 0
    assert set(main.commands) == set(COMMANDS)
    for name in COMMANDS:
        assert f"\n  {name} " in result.output
    assert "_UOPS_COMPLETE=bash_source" in result.output and "130" in result.output


def test_help_describes_every_command_on_one_line_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(main, ["--help"], terminal_width=80)
    listed = result.output.partition("Commands:")[2].split("\n\n")[0].strip().splitlines()
    assert [x.split()[0] for x in listed] == sorted(COMMANDS)
    assert all(x.endswith(".") and not x.endswith("...") and len(x) <= 80 for x in listed), listed


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_no_help_is_cut(name: str | None, width: int) -> None:
    result = CliRunner().invoke(main, [*([name] if name else []), "--help"], terminal_width=width)
    assert result.exit_code == 0 and not [x for x in result.output.splitlines()[1:] if x.rstrip().endswith("...")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_each_of_its_options(uops: Uops, name: str) -> None:
    result = uops(name, "--help")
    assert result.exit_code == 0
    for parameter in main.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.opts[0] in result.output
    assert "..." not in main.commands[name].get_short_help_str(limit=70)


def test_version(uops: Uops) -> None:
    assert uops("--version").output == f"uops, version {package.__version__}\n"


def test_the_dialects_of_the_options_are_those_of_the_specification() -> None:
    assert tuple(d.value for d in Dialect) == DIALECTS


def test_help_loads_neither_arrays_nor_the_specification() -> None:
    code = "import json, sys, uops.cli; print(json.dumps(sorted(sys.modules)))"
    environment = {"PYTHONPATH": str(Path(package.__file__).parents[1]), "PATH": ""}
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout))
    ours = {name for name in loaded if name.startswith("uops.") and not name.startswith("uops.cli")}
    assert {name for name in ours if not name.startswith("uops.spec.untrusted")} == {"uops.spec", "uops.spec.errors"}
    assert not {"numpy", "ml_dtypes", "rich", "jinja2", "llvmlite"} & loaded


def test_an_error_is_one_message_and_status_2(uops: Uops) -> None:
    for arguments in (("frobnicate",), ("check", "missing.uops"), ("run", "--seed", "x", "y"), ("spec", "--nope")):
        result = uops(*arguments)
        assert result.exit_code == 2, arguments
        assert "Error:" in result.stderr and "Traceback" not in result.output
        assert result.stdout == ""


def test_a_message_names_the_claim_once() -> None:
    assert error_message_with_claim_id(SpecError("axis 1 needs 5", claim="PAD.C2")) == "PAD.C2: axis 1 needs 5"
    assert error_message_with_claim_id(SpecError("PAD.C2 (o + s <= s') broken", claim="PAD.C2")) == "PAD.C2 (o + s <= s') broken"
    assert error_message_with_claim_id(Trap("R24: a bool of 7")) == "R24: a bool of 7"
    assert error_message_with_claim_id(Crash("unreachable")).startswith("internal error")


def test_ctrl_c_is_status_130_without_a_traceback() -> None:
    @click.group(cls=CommandGroup)
    def group() -> None: ...

    @group.command()
    def wait() -> None:
        raise KeyboardInterrupt

    result = CliRunner().invoke(group, ["wait"])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n" and result.stdout == ""


def test_python_m_uops_is_the_command() -> None:
    environment = {"PYTHONPATH": str(Path(package.__file__).parents[1]), "PATH": ""}
    done = subprocess.run([sys.executable, "-m", "uops", "--version"], env=environment, capture_output=True, text=True, check=True)
    assert package.__version__ in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("spec",), 0),
        (("spec", "--json"), 0),
        (("--help",), 0),
        (("spec", "--help"), 0),
        (("run", "program.uops"), 0),
        (("compile", "program.uops", "-b", "llvm"), 0),
        (("check", "program.uops"), 0),
        (("check", "broken.uops"), 1),
        (("check", "broken.uops", "--json"), 1),
    ],
)
@pytest.mark.usefixtures("program", "broken")
def test_a_reader_that_leaves_changes_nothing_but_what_is_read(tmp_path: Path, arguments: tuple[str, ...], status: int) -> None:
    """As in `uops spec | head`: the end that reads the pipe is closed before the first write."""
    environment = {"PYTHONPATH": str(Path(package.__file__).parents[1]), "PATH": "", "HOME": str(tmp_path)}
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "uops", *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (status, "")


def test_nested_json_is_no_certificate(uops: Uops, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 50_000)
    result = uops("check-certificate", "x.json")
    assert result.exit_code == 2
    assert "x.json is no JSON" in result.stderr
