"""No command runs, compiles or reads native code of a file unless it is told to: a row per command and op."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import uops
from uops.cli import main
from uops.compiler.validate.certificate import _certificate_digest
from uops.spec.ir.native import NativeTextError

#: Op -> a TENSOR program that holds one of it, and the line where it stands.
PROGRAMS: dict[str, tuple[str, int]] = {
    "custom_function": (
        '%0 = buffer size=4, device="CPU", addrspace=global, unique=1 : f32\n'
        '%1 = buffer size=4, device="CPU", addrspace=global, unique=2 : f32\n'
        '%2 = custom_function name="sort"\n'
        "%3 = call %2, %0, %1, written=[0]\n"
        "%4 = after %0, %3\n",
        3,
    ),
    "program": (
        '%0 = buffer size=4, device="CPU", addrspace=global, unique=1 : f32\n'
        "%1 = param (4), slot=0 : f32\n"
        "%2 = linear %1\n"
        '%3 = source code="void kernel(void) {}"\n'
        "%4 = binary data=0x00\n"
        "%5 = program %2, %3, %4\n"
        "%6 = call %5, %0, written=[0]\n"
        "%7 = after %0, %6\n",
        6,
    ),
    **{
        op: (
            '%0 = buffer size=4, device="CPU", addrspace=global, unique=1 : u32\n'
            "%1 = param (4), slot=0 : u32\n"
            "%2 = range 4, axis_id=1, type=loop\n"
            "%3 = index %1, %2\n"
            "%4 = load %3\n"
            f"%5 = {op} %4, {field} : u32\n"
            "%6 = store %3, %5\n"
            "%7 = end %6, %2\n"
            '%8 = sink %7, name="k"\n'
            "%9 = call %8, %0, written=[0]\n"
            "%10 = after %0, %9\n",
            6,
        )
        for op, field in (("ins", 'name="popcnt"'), ("custom", 'fmt="(0 * {0})"'), ("customi", 'fmt="(0 * {0})"'))
    },
}
COMMANDS = {
    "run": "run FILE",
    "run on a backend": "run FILE -b c",
    "run a dialect": "run FILE -b c --dialect kernel",
    "compile": "compile FILE -b c",
    "compile to an object": "compile FILE -b c --stage object -o OUT",
    "compile with a certificate": "compile FILE -b c --certificate OUT",
    "check": "check FILE",
    "bisect": "bisect FILE -b c",
    "search": "search FILE -b c",
    "view": "view FILE -b c -o OUT",
    "fuzz": "fuzz FILE -b c",
}


@pytest.mark.parametrize("op", PROGRAMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_native_code_and_names_it(op: str, command: str, tmp_path: Path) -> None:
    text, line = PROGRAMS[op]
    (tmp_path / "foreign.uops").write_text(text)
    words = {"FILE": str(tmp_path / "foreign.uops"), "OUT": str(tmp_path / "out")}
    result = CliRunner().invoke(main, [words.get(w, w) for w in COMMANDS[command].split()])
    assert result.exit_code == 2, result.output
    assert f"foreign.uops: line {line}: %{line - 1} is native code ({op}" in result.output
    assert "give --allow-native if you trust the file" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["run FILE", "run FILE -b c", "check FILE", "compile FILE -b c"])
def test_what_is_allowed_is_read(command: str, tmp_path: Path) -> None:
    file = tmp_path / "trusted.uops"
    file.write_text(PROGRAMS["custom_function"][0])
    result = CliRunner().invoke(main, [*command.replace("FILE", str(file)).split(), "--allow-native"])
    assert result.exit_code == 0, result.output


def test_a_certificate_of_native_code_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("z3")
    program, certificate = tmp_path / "p.uops", tmp_path / "certificate.json"
    program.write_text(PROGRAMS["custom_function"][0])
    made = CliRunner().invoke(main, ["compile", str(program), "-b", "c", "--allow-native", "--certificate", str(certificate)])
    assert made.exit_code == 0, made.output
    assert "order with other accesses: custom_function sort" in made.output
    refused = CliRunner().invoke(main, ["check-certificate", str(certificate)])
    assert refused.exit_code == 2
    assert "is native code (custom_function sort)" in refused.output
    allowed = CliRunner().invoke(main, ["check-certificate", str(certificate), "--allow-native"])
    assert allowed.exit_code == 0, allowed.output
    assert "order with other accesses: custom_function sort" in allowed.output
    hidden = json.loads(certificate.read_text())
    del hidden["digest"]
    hidden["trusted"] = [line for line in hidden["trusted"] if "native" not in line]
    certificate.write_text(json.dumps(hidden | {"digest": _certificate_digest(hidden)}))
    assert CliRunner().invoke(main, ["check-certificate", str(certificate), "--allow-native"]).exit_code == 1


@pytest.mark.parametrize("op", PROGRAMS)
def test_the_api_refuses_a_file_but_no_graph(op: str, tmp_path: Path) -> None:
    text, line = PROGRAMS[op]
    path = tmp_path / "foreign.uops"
    path.write_text(text)
    with pytest.raises(NativeTextError, match=rf"foreign\.uops: line {line}: .*; pass allow_native=True if you trust the file"):
        uops.compile(path, "c")


def test_the_api_takes_a_file_that_is_allowed_and_any_graph(tmp_path: Path) -> None:
    text, _ = PROGRAMS["custom_function"]
    path = tmp_path / "trusted.uops"
    path.write_text(text)
    inputs = {"b2": np.array([3, 1, 2, 0], np.float32)}
    for program in (uops.compile(path, "c", allow_native=True), uops.compile(uops.parse(text), "c")):
        assert program(inputs).values[0].tolist() == [0, 1, 2, 3]
