"""What a file test says of inputs and checks is read, or refused with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from uops.cli.inputs import check_and_convert_inputs, random_inputs
from uops.fuzz.reduce.corpus import load_file_test, read_inputs
from uops.spec.errors import SpecError
from uops.spec.ir.text import parse_file

PROGRAM = """
%0 = param (), slot=none, name="n", bounds=[1, 3] : index
%1 = param (%0), slot=0 : i32
%2 = add %1, 1
"""


def _written(folder: Path, lines: str) -> Path:
    path = folder / "x.uops"
    path.write_text(lines + PROGRAM, encoding="utf-8")
    return path


def test_inputs_are_read_with_the_variables_that_they_need(tmp_path: Path) -> None:
    found = read_inputs(_written(tmp_path, "; input p0: 5 0xffffffff\n; input n: 2\n"))
    assert found["n"] == 2
    assert found["p0"].tolist() == [5, -1]


def test_runs_stand_at_their_positions_among_zeros(tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    path.write_text("; input p0: at 4 -1 at 1 2 3\n%0 = param (5), slot=0 : i8\n%1 = neg %0\n", encoding="utf-8")
    assert read_inputs(path)["p0"].tolist() == [0, 2, 3, 0, -1]


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ("at", "stands before the position of a run"),
        ("at 0 1 at", "stands before the position of a run"),
        ("at x", "invalid literal"),
        ("at 4 1 2", "elements 4 to 6 lie outside of 5 elements"),
        ("at -1 2", "lie outside"),
        ("1 at 2", "got 3 elements"),
    ],
)
def test_malformed_runs_are_refused_with_their_line(runs: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    path.write_text(f"; input p0: {runs}\n%0 = param (5), slot=0 : i8\n%1 = neg %0\n", encoding="utf-8")
    with pytest.raises(SpecError, match=f"line 1: .*{reason}"):
        read_inputs(path)


OF_SIZE = """
%0 = param (), slot=none, name="n", bounds=[0, 12] : index
%1 = const 1 : index
%2 = {} %0, %1
%3 = param (%2), slot=0 : i8
%4 = neg %3
"""


@pytest.mark.parametrize(("op", "n", "wanted"), [("and", 3, 1), ("and", 2, 0), ("xor", 1, 0), ("xor", 4, 5)])
def test_sizes_are_those_that_the_interpreter_computes(tmp_path: Path, op: str, n: int, wanted: int) -> None:
    """The bounds of an And or Xor of two constants may be further apart than its value."""
    elements = list(range(wanted))
    path = tmp_path / "x.uops"
    path.write_text(f"; input p0: {' '.join(map(str, elements))}\n; input n: {n}\n{OF_SIZE.format(op)}", encoding="utf-8")
    test = load_file_test(path)
    assert test.inputs["p0"].tolist() == elements
    assert check_and_convert_inputs(test.graph, test.inputs)["p0"].tolist() == elements
    made = random_inputs(test.graph, n)
    assert made["p0"].shape == (made["n"] & 1 if op == "and" else made["n"] ^ 1,)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("; input n: x", "line 1: input n cannot be read: invalid literal"),
        ("; input n:", "line 1: n is one integer, got 0 words"),
        ("; input n: 1 2", "line 1: n is one integer, got 2 words"),
        ("; input n: " + "9" * 5000, "line 1: input n cannot be read: Exceeds the limit"),
        ("; input n: 1\n; input p0: 0x1ffffffffffffffff", "line 2: input p0 cannot be read"),
        ("; input n: 1\n; input p0: 1.5", "line 2: input p0 cannot be read"),
        ("; input n: 1\n; input p0: 1 2", "line 2: p0 has shape (1,), got 2 elements"),
        ("; input p0: 1", "line 1: the shape of p0 is not known: variable 'n' is missing"),
        ("; input m: 1", "line 1: the program has no input m"),
        ("; check " + "1" * 5000 + ": 1", "line 1: check 1111"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        load_file_test(_written(tmp_path, line + "\n"))


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    path.write_bytes(b"\xff\xfe")
    for reads in (load_file_test, read_inputs):
        with pytest.raises(SpecError, match=r"x.uops:1 is not UTF-8 text: .* \(byte 0xff\)"):
            reads(path)


@pytest.mark.parametrize("text", ["; input \x1b[31m: 1\n%0 = const 1 : i32\n", "%0 = const 1 : i32\n\x1b\n", "%0 = \ufeff\u202e\n"])
def test_what_an_error_quotes_of_a_file_does_not_act_on_a_terminal(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.uops").write_text(text)
    for reads in (load_file_test, parse_file):
        try:
            reads(tmp_path / "x.uops")
        except SpecError as e:
            assert str(e).isprintable() and "x.uops" in str(e)
        else:
            assert reads is parse_file and text.startswith("; input")


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "x.uops").write_bytes(b"\xef\xbb\xbf%0 = const 1 : i32\r\n; check 0: 1\r\n")
    assert load_file_test(tmp_path / "x.uops").graph is parse_file(tmp_path / "x.uops")
    assert load_file_test(tmp_path / "x.uops").checks == {0: ["1"]}
