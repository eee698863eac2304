"""Scripts of a library alone: they compute what the judge saw, and end with status 1 if it is not allowed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from uops.backends.registry import create_backend
from uops.backends.subjects.scripts.recording import write_argument
from uops.backends.subjects.scripts.script import NoScript, list_search_words, write_script, write_script_in_own_process
from uops.backends.subjects.scripts.values import write_array
from uops.cli import main
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import show
from uops.spec.rows.optional import OPTIONAL

Inputs = dict[str, Any]
#: Libraries whose adapters write scripts; those that are not installed are skipped.
LIBRARIES = ("numpy", "jax", "jax:jit", "torch", "mlx", "numba", "onnxruntime", "openvino", "xla")


def make_program() -> tuple[UOp, Inputs]:
    """A program with movement, arithmetic, a Reduce, a gather, a constant and an optional row."""
    x, y = b.param(0, (2, 3), dt.float32), b.param(1, (), dt.float32)
    quotient = b.div(x, b.expand(b.reshape(y, (1, 1)), (2, 3)))
    sums = b.reduce(OPTIONAL["floor"].build(b.permute(quotient, (1, 0))), Op.ADD, (1,))
    window = b.shrink(b.pad_by(b.flip(b.add(sums, 0.5), (True, False)), (1, 1), (0, 2)), (1, 0), (3, 1))
    inputs = {"p0": np.array([[49, 98, 7], [-49, 20, -0.0]], np.float32), "p1": np.array(49, np.float32)}
    return b.at(b.reshape(window, (3,)), b.param(2, (2,), dt.int64)), {**inputs, "p2": np.array([2, 0])}


def run_text(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(text, encoding="utf-8")
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_script_computes_what_the_program_does(name: str, tmp_path: Path) -> None:
    pytest.importorskip({"jax:jit": "jax", "xla": "jax", "mlx": "mlx.core"}.get(name, name))
    graph, inputs = make_program()
    for element, value in enumerate(np.asarray(run(graph, inputs).values[0]).tolist()):
        text = write_script(create_backend(name), graph, inputs, 0, element, str(value), ["floor"])  # type: ignore[arg-type]
        assert "uops" not in text
        done = run_text(text, tmp_path)
        assert (done.returncode, done.stdout) == (0, f"expected {value}, got {value}\n"), done.stderr
    wrong = run_text(text.replace(f"('{value}',)", "('7.25',)"), tmp_path)
    assert wrong.returncode == 1


@pytest.mark.parametrize(
    ("expected", "status"),
    [("2.0", 0), ("one of 1.0, 2.0", 0), ("[1.5, 2.5] around 2.0", 0), ("[3.0, 4.0] around 3.5 or 2.0", 0),
     ("2.5", 1), ("one of 1.0, 3.0", 1), ("[2.5, 3.0] around 3.0", 1), ("[3.0, 4.0] around 3.5 or nan", 1), ("-0.0", 1)],
)  # fmt: skip
def test_the_status_says_whether_the_element_is_in_the_set(expected: str, status: int, tmp_path: Path) -> None:
    inputs = {"p0": np.array([1.0], np.float32)}
    graph = b.add(b.param(0, (1,), dt.float32), 1.0)
    text = write_script(create_backend("numpy"), graph, inputs, 0, 0, expected, [])  # type: ignore[arg-type]
    assert run_text(text, tmp_path).returncode == status


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, -2.25], np.float32), np.array(3), np.array([[1, 2]], np.int8), np.array([True, False]), np.zeros((0, 2)),
        np.array([np.nan, -np.inf, -0.0], np.float16), np.array([0x7F800001, 0x80000000], np.uint32).view(np.float32),
        np.array([1.5, np.nan], ml_dtypes.bfloat16), np.array([448, 0.5], ml_dtypes.float8_e4m3fn), np.array([2**63], np.uint64),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)  # fmt: skip
def test_an_array_is_written_with_all_its_bits(array: Any) -> None:
    again = eval(write_array(array), {"np": np, "ml_dtypes": ml_dtypes})
    assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize(
    "value",
    [slice(1, 3), (slice(None), 2), (1,), [1, (2, 3)], float("inf"), np.float32(1.5), np.dtype(np.int16), None, "x", (True, -0.0)],
    ids=repr,
)
def test_an_argument_is_written_as_an_expression(value: Any) -> None:
    is_key = isinstance(value, slice) or (isinstance(value, tuple) and any(isinstance(v, slice) for v in value))
    a = np.arange(12).reshape(4, 3)
    written = write_argument(value, is_key)
    if is_key:
        assert eval(f"a[{written}]", {"a": a}).tolist() == a[value].tolist()
    else:
        assert eval(written, {"np": np, "inf": np.inf}) == value


def test_the_command_writes_and_runs_the_script(tmp_path: Path) -> None:
    """NumPy does not sort bfloat16 arrays with a NaN."""
    program, script = tmp_path / "sort.uops", tmp_path / "peer.py"
    graph = OPTIONAL["sort"].build(b.param(0, (3,), dt.bfloat16))
    program.write_text(f"; input p0: 2 nan 1\n{show(graph)}", encoding="utf-8")
    result = CliRunner().invoke(main, ["run", str(program), "--backend", "numpy", "--judge", "--script", str(script)])
    assert result.exit_code == 1
    assert "shows it, with status 1: expected 1.0, got 2.0" in result.output
    assert "np.sort(p0)" in script.read_text(encoding="utf-8")
    alone = CliRunner().invoke(main, ["run", str(program), "--backend", "numpy", "--script", str(script)])
    assert alone.exit_code == 2
    assert "add --judge" in alone.output


def test_the_expected_set_is_that_of_the_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)  # for the process of the backend
    program, script = tmp_path / "div.uops", tmp_path / "peer.py"
    graph = b.div(b.param(0, (1,), dt.float32), b.param(1, (1,), dt.float32))
    program.write_text(f"; input p0: 1\n; input p1: 3\n{show(graph)}", encoding="utf-8")
    for level, expected in (("strict", "expected 0.3333333432674408, got"), ("core", "around 0.3333333432674408, got")):
        options = ["--backend", "script_backends:Adding", "--judge", "--level", level, "--script", str(script)]
        result = CliRunner().invoke(main, ["run", str(program), *options])
        assert "shows it, with status 1" in result.output
        assert expected in script.read_text(encoding="utf-8")


def test_a_target_of_the_compiler_has_no_script() -> None:
    graph, inputs = make_program()
    with pytest.raises(NoScript, match="llvm is no library with an adapter"):
        write_script_in_own_process("llvm", graph, inputs, 0, 0, "1", [])


def test_a_library_that_refuses_or_ends_the_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    graph, inputs = make_program()
    for name, reason in (("Refusing", "RuntimeError: no floor"), ("Ending", "ended the process")):
        with pytest.raises(NoScript, match=reason):
            write_script_in_own_process(f"script_backends:{name}", graph, inputs, 0, 0, "1", [])


def test_search_words_name_the_functions_and_dtypes() -> None:
    assert list_search_words(make_program()[0]) == ["floor", "div", "reduce", "add", "float32", "int64", "wrong", "result"]
