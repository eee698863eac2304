"""Standard streams that are closed change what is printed, and neither how a command ends nor what it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import uops as package

COMMANDS = {
    ("spec", "Movement/Pad"): 0,
    ("--help",): 0,
    ("nonsense",): 2,
    ("check", "program.uops"): 0,
    ("check", "broken.uops"): 1,
    ("run", "program.uops"): 0,
    ("run", "program.uops", "-b", "uops.backends.conformance.controls:Zeros"): 0,
    ("compile", "program.uops", "-b", "llvm"): 0,
    ("compile", "program.uops", "-b", "uops.backends.llvm.backend:LlvmBackend", "-o", "program.ll"): 0,
    ("view", "program.uops"): 0,
    ("search", "program.uops", "-b", "llvm", "--seconds", "1"): 0,
    ("bisect", "program.uops", "-b", "llvm"): 0,
    ("stages", "--rows", "Movement/Flip"): 0,
    ("conform", "-b", "interp", "--rows", "Movement/Flip"): 0,
    ("conform", "-b", "uops.backends.conformance.controls:Zeros", "--rows", "Movement/Flip"): 1,
    ("fuzz", "-b", "interp", "-n", "2", "-j", "1"): 0,
    ("mutants", "--list"): 0,
    ("prove", "--rules", "mul-one", "--no-write"): 0,
    ("check-certificate", "program.uops"): 2,
}
WRITTEN = {"view": "program.html", "conform": "report/index.html", "fuzz": "fuzz-report/index.html"}


def ended(arguments: tuple[str, ...], closed: tuple[int, ...], place: Path) -> subprocess.CompletedProcess[str]:
    shut = " ".join(f"{n}<&-" if n == 0 else f"{n}>&-" for n in closed)
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    command = ["sh", "-c", f'exec "$@" {shut}', "sh", sys.executable, "-m", "uops", *arguments]
    return subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.usefixtures("program", "broken")
def test_with_all_streams_closed_a_command_ends_as_it_does_else(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = ended(arguments, (0, 1, 2), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (COMMANDS[arguments], "", "")
    if arguments[0] in WRITTEN:
        text = (tmp_path / WRITTEN[arguments[0]]).read_text()
        assert text.lower().startswith("<!doctype html>") and text.rstrip().endswith("</html>")


@pytest.mark.parametrize("closed", [0, 1, 2])
@pytest.mark.parametrize(("arguments", "status"), [(("run", "program.uops"), 0), (("run", "broken.uops"), 2), (("--help",), 0)])
@pytest.mark.usefixtures("program", "broken")
def test_a_closed_stream_leaves_the_others_as_they_are(
    tmp_path: Path, closed: int, arguments: tuple[str, ...], status: int
) -> None:
    done, whole = ended(arguments, (closed,), tmp_path), ended(arguments, (), tmp_path)
    assert done.returncode == whole.returncode == status
    assert done.stdout == ("" if closed == 1 else whole.stdout) and done.stderr == ("" if closed == 2 else whole.stderr)


@pytest.mark.parametrize("arguments", ["--help", "--version", "check --help", "spec", "spec --json"])
def test_a_full_standard_output_is_one_line(arguments: str) -> None:
    full_output_is_one_line([*arguments.split()], {"PYTHONUNBUFFERED": ""})


@pytest.mark.parametrize("arguments", ["--help", "spec", "spec --json"])
def test_so_it_is_without_a_buffer(arguments: str) -> None:
    full_output_is_one_line([*arguments.split()], {"PYTHONUNBUFFERED": "1"})


def test_a_completion_for_a_full_standard_output_is_one_line() -> None:
    full_output_is_one_line(
        [], {"_UOPS_COMPLETE": "bash_source"}, "import sys; sys.argv[0] = 'uops'; import uops.cli; uops.cli.main()"
    )


def full_output_is_one_line(arguments: list[str], variables: dict[str, str], code: str = "") -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1]), **variables}
    command = [sys.executable, *(["-c", code] if code else ["-m", "uops"]), *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (2, "Error: [Errno 28] No space left on device: 'standard output'\n")
