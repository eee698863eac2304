"""`uops spec`, `check`, `run` and `compile`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import Result
from rich.console import Console

from uops.backends import npz
from uops.backends.answer import find_result_form_mismatch
from uops.cli.commands.compile import resolve_stage_or_dialect
from uops.cli.commands.spec import SpecMatches, _print_matches_and_cited_rulings, add_first_kind_of_match_or_raise_usage_error
from uops.cli.inputs import check_and_convert_inputs, random_inputs
from uops.compiler import PIPELINE
from uops.fuzz.generate.graphs import case
from uops.interp import run as interpret
from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.text import parse, show
from uops.spec.result import Result as Answer
from uops.spec.rows.named.base import NamedRow
from uops.spec.rows.rows import CLAIMS, NAMED_ROWS, ROWS
from uops.spec.rulings import RULINGS
from uops.spec.verify.dialects import Dialect

Uops = Callable[..., Result]


# ---------------------------------------------------------------------------------------------------------------- spec


def test_spec_lists_every_row(uops: Uops) -> None:
    result = uops("spec")
    assert result.exit_code == 0
    assert f"{len(ROWS)} rows of ops, {len(NAMED_ROWS)} other rows" in result.output
    for row in (*ROWS.values(), *NAMED_ROWS.values()):
        assert row.id in result.output


def test_spec_json_has_every_op_with_its_claims_and_all_rulings(uops: Uops) -> None:
    found = json.loads(uops("spec", "--json").output)
    assert {row["id"]: [c["id"] for c in row["claims"]] for row in found["ops"]} == {
        row.id: [c.id for c in row.claims] for row in ROWS.values()
    }
    assert {row["id"]: [c["id"] for c in row["claims"]] for row in found["rows"]} == {
        row.id: [c.id for c in row.claims] for row in NAMED_ROWS.values()
    }
    assert all(row["subject"] and row["executed_by"] for row in (*found["ops"], *found["rows"]))
    assert set(found["rulings"]) == set(RULINGS) and found["hash"].startswith("sha256:")


@pytest.mark.parametrize("name", ["Movement/Pad", "movement/pad", "PAD", "pad"])
def test_spec_finds_a_row_by_id_and_by_op(uops: Uops, name: str) -> None:
    result = uops("spec", name)
    assert result.exit_code == 0
    for text in ("Movement/Pad", "PAD.C1", "o + s <= s'", "T o s'", "R43", "fill is zero"):
        assert text in result.output
    assert [row["id"] for row in json.loads(uops("spec", name, "--json").output)["ops"]] == ["Movement/Pad"]


def test_spec_finds_rows_by_glob(uops: Uops) -> None:
    found = json.loads(uops("spec", "Movement/*", "--json").output)["ops"]
    assert [row["id"] for row in found] == [row.id for row in ROWS.values() if row.id.startswith("Movement/")]


@pytest.mark.parametrize("row", NAMED_ROWS.values(), ids=lambda row: row.id)
def test_spec_shows_a_row_that_is_no_op_with_its_claims_and_what_executes_it(row: NamedRow) -> None:
    out = io.StringIO()
    matches = SpecMatches()
    add_first_kind_of_match_or_raise_usage_error(row.id, matches)
    assert matches.rows == [row]
    _print_matches_and_cited_rulings(Console(file=out, width=200), matches)
    for text in (row.document, row.subject.value, *row.executed_by.interp, *row.executed_by.compiler, *(c.id for c in row.claims)):
        assert text in out.getvalue()


def test_spec_finds_every_row_that_a_printed_name_has(uops: Uops) -> None:
    found = json.loads(uops("spec", "gather", "assign", "wraps the body", "--json").output)
    assert [row["id"] for row in found["rows"]] == ["Composition/gather", "Collective/gather", "Function/WrapBody"]
    assert [row["id"] for row in found["ops"]] == ["Store/Store", "Ordering/After"]


def test_spec_shows_only_rulings_that_are_cited(uops: Uops) -> None:
    rulings = uops("spec", "TABLE.RANGEENDING.C1").output
    assert "R109" in rulings and "R10 " not in rulings


def test_spec_finds_a_claim_and_a_ruling_and_shows_the_ruling_of_the_claim(uops: Uops) -> None:
    result = uops("spec", "PAD.C2", "r03", "--json")
    found = json.loads(result.output)
    assert found["ops"] == []
    assert found["claims"] == [{"id": "PAD.C2", "text": CLAIMS["PAD.C2"].text, "ruling": "R43", "row": "Movement/Pad"}]
    assert found["rulings"]["R03"]["topic"] == "division by zero"
    assert "fill is zero" in uops("spec", "PAD.C2").output


def test_spec_shows_each_thing_once(uops: Uops) -> None:
    found = json.loads(uops("spec", "PAD", "pad", "PAD.C1", "pad.c1", "R43", "r43", "--json").output)
    assert (len(found["ops"]), len(found["claims"]), len(found["rulings"])) == (1, 1, 1)


def test_spec_of_an_unknown_id_suggests_a_known_one(uops: Uops) -> None:
    result = uops("spec", "Movement/Pda")
    assert result.exit_code == 2
    assert "nothing in the specification is called 'Movement/Pda'" in result.stderr and "Movement/Pad" in result.stderr


# --------------------------------------------------------------------------------------------------------------- check


def test_check_accepts_a_well_formed_program(uops: Uops, program: str) -> None:
    assert uops("check", program).exit_code == 0
    assert uops("check", program, "--dialect", "TENSOR").exit_code == 0


def test_check_shows_every_broken_claim(uops: Uops, tmp_path: Path) -> None:
    (tmp_path / "two.uops").write_text(
        "%0 = param (2, 3), slot=0 : f32\n%1 = pad %0, (0, 2), (4, 4)\n%2 = not %0\n%3 = tuple %1, %2\n"
    )
    result = uops("check", "two.uops")
    assert result.exit_code == 1
    assert "PAD.C2" in result.output and "NOT.C2" in result.output and "2 broken claims" in result.output
    found = json.loads(uops("check", "two.uops", "--json").output)
    assert found["ok"] is False
    assert [entry["claim"] for entry in found["broken"]] == ["PAD.C2", "NOT.C2"]
    assert found["broken"][0]["ruling"] == "R43" and "needs 5, got 4" in found["broken"][0]["message"].replace("2 + 3", "5")


def test_check_judges_a_dialect_only_when_asked(uops: Uops, tmp_path: Path) -> None:
    (tmp_path / "range.uops").write_text("%0 = range 4, axis_id=0, type=loop\n")
    assert uops("check", "range.uops").exit_code == 0
    result = uops("check", "range.uops", "--dialect", "tensor", "--json")
    assert result.exit_code == 1
    assert "TENSOR.D1" in {entry["claim"] for entry in json.loads(result.output)["broken"]}


def test_check_points_at_text_that_cannot_be_read(uops: Uops, tmp_path: Path) -> None:
    (tmp_path / "bad.uops").write_text("%0 = param (2, 3), slot=0 : f32\n%1 = frobnicate %0\n")
    result = uops("check", "bad.uops", "--json")
    assert result.exit_code == 1
    (entry,) = json.loads(result.output)["broken"]
    assert (entry["line"], entry["column"]) == (2, 6) and "frobnicate" in entry["message"]
    assert "line 2, column 6" in uops("check", "bad.uops").output


# ----------------------------------------------------------------------------------------------------------------- run


def test_run_gives_what_the_interpreter_gives(uops: Uops, program: str, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "in.npz", p0=x)
    found = json.loads(uops("run", program, "--inputs", "in.npz", "--json").output)
    assert found["values"] == [{"dtype": "float32", "shape": [2, 1], "data": [7.5, 16.5], "bits": ["0x40f00000", "0x41840000"]}]
    assert found["buffers"] == {} and found["seed"] is None and found["backend"] == "interp"
    text = uops("run", program, "-i", "in.npz").output
    assert "value  float32 (2, 1)" in text and "16.5" in text and "input" not in text
    assert "16.5 0x41840000" in uops("run", program, "-i", "in.npz", "--bits").output


def test_run_without_inputs_is_a_function_of_the_seed(uops: Uops, program: str) -> None:
    first, again, other = (uops("run", program, "--seed", s).output for s in ("1", "1", "2"))
    assert first == again != other
    assert "input p0  float32 (2, 3)" in first


def test_run_on_another_backend_runs_in_its_own_process(uops: Uops, program: str) -> None:
    backend = "uops.backends.conformance.controls:Zeros"
    result = uops("run", program, "--backend", backend, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["values"][0]["data"] == [0.0, 0.0]


def test_run_reports_what_a_backend_declines(uops: Uops, program: str) -> None:
    result = uops("run", program, "--backend", "uops.backends.conformance.controls:Refusing")
    assert result.exit_code == 2
    assert "control-refusing does not support REDUCE" in result.stderr


def test_run_shows_values_that_json_has_not(uops: Uops, tmp_path: Path) -> None:
    (tmp_path / "x.uops").write_text(show(b.tuple_(b.recip(b.param(0, (3,), dt.bfloat16)), b.param(1, (2,), dt.bool_))))
    npz.save(tmp_path / "x.npz", {"p0": np.array([0.0, -0.0, np.nan], ml_dtypes.bfloat16), "p1": np.array([True, False])})
    result = uops("run", "x.uops", "-i", "x.npz", "--json")
    first, second = json.loads(result.output)["values"]
    assert first["data"] == ["inf", "-inf", "nan"] and first["bits"][:2] == ["0x7f80", "0xff80"]
    assert second == {"dtype": "bool", "shape": [2], "data": [True, False]}
    assert uops("run", "x.uops", "-i", "x.npz", "--bits").exit_code == 0


def test_run_of_an_ill_formed_program_names_the_claim(uops: Uops, broken: str) -> None:
    result = uops("run", broken)
    assert result.exit_code == 2
    assert "PAD.C2" in result.stderr and result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "nobody"), "no backend is called 'nobody'; known: llvm, c,"),
        (("--backend", "nowhere:Nothing"), "cannot be loaded"),
        (("--inputs", "program.uops"), "is not an input file"),
        (("--dialect", "klingon"), "klingon"),
        (("--dialect", "kernel"), "KERNEL.D"),
    ],
)
def test_run_explains_a_wrong_question(uops: Uops, program: str, arguments: tuple[str, ...], message: str) -> None:
    result = uops("run", program, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr and "Traceback" not in result.stderr


ODD = """
import numpy as np
from uops.backends.conformance.controls import Interp
from uops.spec.result import Result

class Odd(Interp):
    name = "odd"
    def run(self, graph, inputs):
        good = super().run(graph, inputs)
        return Result(*self.odd(good.values, good.buffers))

class Double(Odd):
    def odd(self, values, buffers):
        return [v.astype(np.float64) for v in values], buffers

class Flat(Odd):
    def odd(self, values, buffers):
        return [v.reshape(-1) for v in values], buffers

class Twice(Odd):
    def odd(self, values, buffers):
        return [*values, *values], buffers

class Silent(Odd):
    def odd(self, values, buffers):
        return values, {}

class Short(Odd):
    def odd(self, values, buffers):
        return values, {k: v[1:] for k, v in buffers.items()}

class Good(Odd):
    def odd(self, values, buffers):
        return values, buffers
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `odd` of backends, importable here and in worker processes."""
    (tmp_path / "odd.py").write_text(ODD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Double", "value 0: expected float32 of shape (2, 1), got float64 of shape (2, 1)"),
        ("Flat", "value 0: expected float32 of shape (2, 1), got float32 of shape (2,)"),
        ("Twice", "expected 1 value, got 2 values"),
        ("Silent", "expected the contents of b7, got those of no buffer"),
        ("Short", "buffer b7: expected int8 of shape (3,), got int8 of shape (2,)"),
        ("Good", None),
    ],
)
def test_run_checks_the_form_of_what_a_backend_gives(
    uops: Uops, program: str, tmp_path: Path, name: str, message: str | None
) -> None:
    if name in ("Silent", "Short"):
        buf = b.buffer(3, dt.int8, unique=7)
        (tmp_path / program).write_text(show(b.sink(b.store(buf, b.param(0, (3,), dt.int8)))))
    result = uops("run", program, "--backend", f"odd:{name}")
    assert result.exit_code == (1 if message else 0)
    assert message is None or f"odd:{name} gave a result of the wrong form: {message}" in result.stderr


def test_the_form_of_a_result_follows_variables() -> None:
    n = b.variable("n", 2, 9)
    root = b.neg(b.param(0, (n,), dt.float32))
    for extent, wrong in ((4, None), (5, "value 0: expected float32 of shape (4,), got float32 of shape (5,)")):
        assert find_result_form_mismatch(root, {"n": 4}, Answer((np.zeros(extent, np.float32),), {})) == wrong


def test_the_interpreter_gives_the_form_that_is_asked_of_backends() -> None:
    for seed in range(300):
        c = case(seed)
        assert find_result_form_mismatch(c.graph, c.inputs, interpret(c.graph, c.inputs)) is None, show(c.graph)


WRONG_INPUTS = {
    "unknown": ({"p1": np.zeros(3, np.int8)}, "the program has no input 'p1'; it has n, p0, p2, b7"),
    "missing": ({"p0": None}, "input 'p0' is missing: it needs float32 of shape (3,)"),
    "missing-variable": ({"n": None}, "input 'n' is missing: it needs an int"),
    "shape": ({"p0": np.zeros(4, np.float32)}, "input 'p0' needs float32 of shape (3,), got float32 of shape (4,)"),
    "dtype": ({"p0": np.zeros(3, np.float64)}, "input 'p0' needs float32 of shape (3,), got float64 of shape (3,)"),
    "buffer": ({"b7": np.zeros(3, np.int8)}, "input 'b7' needs int8 of shape (5,), got int8 of shape (3,)"),
    "bounds": ({"n": 10}, "input 'n' is 10, outside of its bounds [1, 9] (R48)"),
    "fraction": ({"n": np.array(1.5)}, "input 'n' needs an int, got float64 of shape ()"),
    "bool": ({"p2": np.array([2, 0], np.uint8).view(np.bool_)}, "input 'p2' has a bool byte other than 0 and 1 (R24)"),
}


@pytest.mark.parametrize("backend", ["interp", "llvm", "uops.backends.conformance.controls:Interp"])
@pytest.mark.parametrize("wrong", WRONG_INPUTS)
def test_a_wrong_input_is_the_same_message_and_status_for_every_backend(
    uops: Uops, tmp_path: Path, backend: str, wrong: str
) -> None:
    n = b.variable("n", 1, 9)
    memory = b.buffer(5, dt.int8, unique=7)
    (tmp_path / "x.uops").write_text(show(b.tuple_(b.neg(b.param(0, (n,), dt.float32)), b.param(2, (2,), dt.bool_), b.neg(memory))))
    right = {"n": 3, "p0": np.zeros(3, np.float32), "p2": np.zeros(2, np.bool_), "b7": np.zeros(5, np.int8)}
    given, message = WRONG_INPUTS[wrong]
    npz.save(tmp_path / "in.npz", {k: v for k, v in {**right, **given}.items() if v is not None})
    result = uops("run", "x.uops", "--inputs", "in.npz", "--backend", backend)
    assert (result.exit_code, result.stderr) == (2, f"Error: {message}\n")


def test_an_array_of_a_wrong_shape_is_refused_before_it_is_inflated(
    uops: Uops, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "in.npz", p0=np.zeros((1000, 1000), np.float32))
    monkeypatch.setattr(npz, "_fill_from_stream", lambda *_: pytest.fail("inflated"))
    result = uops("run", program, "--inputs", "in.npz")
    assert (result.exit_code, "got float32 of shape (1000, 1000)" in result.stderr) == (2, True)


def test_an_object_that_is_no_integer_is_refused_as_an_index() -> None:
    """It is not truncated."""
    g = parse('%0 = param (), slot=none, name="n", bounds=[1, 8] : index\n%1 = param (2), slot=0 : index\n%2 = add %0, %1\n')
    for wrong in ({"p0": np.array([1, 2.7], object), "n": 2}, {"p0": [1, 2], "n": np.array(2.7, object)}):
        with pytest.raises(SpecError, match="needs integers"):
            check_and_convert_inputs(g, wrong)
    right = check_and_convert_inputs(g, {"p0": np.array([1, 2**70], object), "n": np.array(2, object)})
    assert (right["p0"].tolist(), right["n"]) == ([1, 2**70], 2)


@pytest.mark.parametrize("backend", ["interp", "llvm"])
def test_an_index_input_may_be_any_integers(uops: Uops, tmp_path: Path, backend: str) -> None:
    (tmp_path / "x.uops").write_text(show(b.flip(b.param(0, (2,), dt.index), [True])))
    np.savez(tmp_path / "in.npz", p0=np.array([1, 200], np.uint8))
    found = json.loads(uops("run", "x.uops", "-i", "in.npz", "-b", backend, "--json").output)
    assert found["values"][0]["data"] == [200, 1]


@pytest.mark.parametrize("backend", ["interp", "llvm"])
@pytest.mark.parametrize("elements", [10**12, 10**30])
@pytest.mark.parametrize("op", ["expand %0, ({},)", "pad %0, (0,), ({},)"])
def test_a_value_that_no_memory_holds_is_refused_by_its_size(
    uops: Uops, tmp_path: Path, backend: str, elements: int, op: str
) -> None:
    (tmp_path / "x.uops").write_text(f"%0 = param (1,), slot=0 : f32\n%1 = {op.format(elements)}\n%2 = add %1, %1\n")
    result = uops("run", "x.uops", "--backend", backend)
    assert result.exit_code == 2
    assert f"{backend} does not support" in result.stderr
    assert f"it needs {4 * elements:,} bytes, more than the" in result.stderr


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (np.array([1, "x"], object), "member p0 holds Python objects"),
        (np.array([("a", 1)], [("name", "O"), ("n", "i4")]), "member p0 holds Python objects"),
    ],
)
def test_an_object_array_is_refused_in_our_words(uops: Uops, program: str, tmp_path: Path, member: Any, message: str) -> None:
    np.savez(tmp_path / "in.npz", p0=member)
    result = uops("run", program, "-i", "in.npz")
    assert result.exit_code == 2
    assert "in.npz" in result.stderr and message in result.stderr and "pickle" not in result.stderr


def test_a_file_of_one_pickled_object_is_refused_in_our_words(uops: Uops, program: str, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.array([None]), allow_pickle=True)
    for name in ("in.npy", program):
        result = uops("run", program, "-i", name)
        assert result.exit_code == 2
        assert f"{name} is not an input file" in result.stderr and "pickle" not in result.stderr


def test_run_with_missing_inputs_names_the_input(uops: Uops, program: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", p7=np.zeros(3))
    result = uops("run", program, "-i", "in.npz")
    assert result.exit_code == 2
    assert "p0" in result.stderr


# -------------------------------------------------------------------------------------------------------------- inputs


def test_random_inputs_cover_params_buffers_and_variables_but_no_bodies() -> None:
    n = b.variable("n", 2, 1000)
    body = b.tuple_(b.neg(b.param(0, (4,), dt.float32)))
    f = b.get(b.function(body, b.param(3, (4,), dt.float32)), 0)
    root = b.tuple_(f, b.param(1, (n,), dt.int8), b.buffer(5, dt.bfloat16, unique=9))
    inputs = random_inputs(root, 0)
    assert inputs.keys() == {"n", "p1", "p3", "b9"}
    assert 2 <= inputs["n"] <= 16 and inputs["p1"].shape == (inputs["n"],)
    assert inputs["b9"].dtype == ml_dtypes.bfloat16 and inputs["b9"].shape == (5,)
    assert len(interpret(root, inputs).values) == 3


def test_random_inputs_have_the_variables_of_bodies() -> None:
    n = b.variable("n", 2, 9)
    f = b.get(b.function(b.tuple_(b.mul(b.param(0, (), dt.int32), b.cast(n, dt.int32))), b.param(3, (), dt.int32)), 0)
    inputs = random_inputs(f, 0)
    assert inputs.keys() == {"n", "p3"}
    assert len(interpret(f, inputs).values) == 1


def test_random_inputs_are_not_made_up_without_limit() -> None:
    with pytest.raises(SpecError, match=r"p0 has shape .* too large"):
        random_inputs(b.neg(b.param(0, (1 << 40,), dt.int8)), 0)


# ------------------------------------------------------------------------------------------------------------- compile


def test_compile_prints_source_of_every_kernel(uops: Uops, program: str) -> None:
    result = uops("compile", program, "--backend", "llvm")
    assert result.exit_code == 0, result.output
    assert "define" in result.output


@pytest.mark.parametrize(("stage", "op"), [("callify", "call"), ("kernel", "reduce"), ("LINEAR", "linear"), ("tensor", "param")])
def test_compile_prints_a_stage_as_text_that_parses(uops: Uops, program: str, stage: str, op: str) -> None:
    result = uops("compile", program, "-b", "llvm", "--stage", stage)
    assert result.exit_code == 0, result.output
    assert f"= {op} " in result.output
    assert show(parse(result.output)) == "".join(line.partition("  ; ")[0].rstrip() + "\n" for line in result.output.splitlines())


@pytest.mark.parametrize("dialect", [d for d in Dialect if d not in (Dialect.TENSOR, Dialect.BESTIARY, Dialect.PROGRAM)])
def test_a_dialect_names_the_stage_that_gives_it(dialect: Dialect) -> None:
    """Not the last pass with it: one that plans a kernel's own memory gives LINEAR, and is part of the next stage."""
    stages = [p.stage for p in PIPELINE if p.gives is dialect]
    assert resolve_stage_or_dialect(dialect.value) == stages[0]


def test_compile_of_the_tensor_stage_is_the_program(uops: Uops, program: str, tmp_path: Path) -> None:
    uops("compile", program, "-b", "llvm", "--stage", "tensor", "-o", "out.uops")
    assert parse((tmp_path / "out.uops").read_text()) is parse((tmp_path / program).read_text())


def test_compile_writes_object_code(uops: Uops, program: str, tmp_path: Path) -> None:
    result = uops("compile", program, "-b", "llvm", "--stage", "object", "-o", "out.o")
    assert result.exit_code == 0 and result.output == "out.o\n"
    assert (tmp_path / "out.o").read_bytes()[:4] == b"\x7fELF"
    result = uops("compile", program, "-b", "llvm", "--stage", "object")
    assert result.exit_code == 2 and "--output" in result.stderr


def test_compile_with_an_unknown_stage_lists_the_stages(uops: Uops, program: str) -> None:
    result = uops("compile", program, "-b", "llvm", "--stage", "fuse")
    assert result.exit_code == 2
    assert "tensor, callify, rangeify, optimize, expand, select, linearize, plan, render, source, object" in result.stderr


def test_compile_for_what_is_no_target_says_so(uops: Uops, program: str) -> None:
    result = uops("compile", program, "-b", "interp")
    assert result.exit_code == 2
    assert "interp evaluates graphs by itself" in result.stderr


def test_compile_of_an_ill_formed_program_names_the_claim(uops: Uops, broken: str) -> None:
    result = uops("compile", broken, "-b", "llvm")
    assert result.exit_code == 2 and "PAD.C2" in result.stderr


def test_a_certificate_does_not_print_the_program_unless_asked(uops: Uops, program: str) -> None:
    certify = ("compile", program, "-b", "llvm", "--certificate", "c.json")
    result = uops(*certify)
    assert result.exit_code == 0 and result.stdout == "" and "claims proved" in result.stderr
    text = uops("compile", program, "-b", "llvm").stdout
    assert "define" in text
    assert uops(*certify, "-o", "-").stdout == text
    assert uops(*certify, "--stage", "source").stdout == text
    assert uops(*certify, "--pass", "expand").stdout == uops("compile", program, "-b", "llvm", "--pass", "expand").stdout
    assert uops(*certify, "-o", "k.ll").stdout == "" and Path("k.ll").read_text() == text


@pytest.mark.parametrize("instead", [("--log",), ("--pass", "expand")])
def test_a_log_or_a_pass_takes_the_place_of_every_stage(uops: Uops, program: str, instead: tuple[str, ...], tmp_path: Path) -> None:
    text = uops("compile", program, "-b", "llvm", *instead).output
    result = uops("compile", program, "-b", "llvm", *instead, "--stage", "object", "-o", "out.o")
    assert (result.exit_code, result.output, (tmp_path / "out.o").read_text().strip()) == (0, "", text.strip())


def test_object_code_of_no_kernel_is_refused(uops: Uops, tmp_path: Path) -> None:
    """A build step that asks for a file expects one."""
    (tmp_path / "x.uops").write_text('%0 = param (0), slot=0, device="CPU" : f32\n%1 = neg %0\n')
    result = uops("compile", "x.uops", "-b", "llvm", "--stage", "object", "-o", "out.o")
    assert result.exit_code == 2 and "the program has no kernel" in result.stderr and not (tmp_path / "out.o").exists()


def test_object_code_does_not_go_to_standard_output(uops: Uops, program: str) -> None:
    result = uops("compile", program, "-b", "llvm", "--stage", "object", "-o", "-")
    assert result.exit_code == 2 and "object code is binary" in result.stderr


@pytest.mark.parametrize(
    ("row", "dialect"),
    [("Movement/Pad", None), ("Call/Function", None), ("OptOp/Split", "kernel"), ("Bestiary/UNROLL", "bestiary")],
)
def test_an_example_of_a_row_is_a_program_that_run_takes(uops: Uops, tmp_path: Path, row: str, dialect: str | None) -> None:
    text = uops("spec", row, "--example").stdout
    assert text.startswith(f"; {row}/") and f"Missing('{row}', '*', reason)" in text
    assert f"; run it: uops run FILE{f' --dialect {dialect}' if dialect else ''} --backend NAME\n" in text
    (tmp_path / "example.uops").write_text(text)
    result = uops("run", "example.uops", *(("--dialect", dialect) if dialect else ()))
    assert result.exit_code == 0, result.output
    assert "input " in result.output and ("value" in result.output or "buffer" in result.output)


def test_examples_of_several_rows_are_json(uops: Uops) -> None:
    examples = json.loads(uops("spec", "Movement/P*", "--example", "--json").stdout)
    assert set(examples) == {"Movement/Pad", "Movement/Permute"} and all("param" in text for text in examples.values())


def test_what_has_no_example_is_a_usage_error(uops: Uops) -> None:
    for arguments, words in ((("R43",), "needs the ID of a row"), (("Stage/expand",), "no program for Stage/expand")):
        result = uops("spec", *arguments, "--example")
        assert result.exit_code == 2 and words in result.output


def test_a_row_shows_the_fields_of_its_arg(uops: Uops) -> None:
    assert "ReduceArg(op: Op, axes: tuple[int, ...] = ())" in uops("spec", "Reduce/Reduce").stdout


@pytest.mark.parametrize(
    ("row", "dialect"), [("Movement/Pad", "tensor"), ("OptOp/Split", "kernel"), ("Bestiary/UNROLL", "bestiary")]
)
def test_a_right_result_is_judged_to_be_allowed(uops: Uops, tmp_path: Path, row: str, dialect: str) -> None:
    (tmp_path / "example.uops").write_text(uops("spec", row, "--example").stdout)
    result = uops("run", "example.uops", "--dialect", dialect, "--backend", "llvm", "--judge")
    assert result.exit_code == 0 and "judged at level strict: all" in result.output, result.output


def test_a_wrong_result_is_judged_and_explained(uops: Uops, tmp_path: Path) -> None:
    program = "; input p0: 5 7 9\n; input p1: 0 4 0\n%0 = param (3), slot=0 : u8\n%1 = param (3), slot=1 : u8\n%2 = mod %0, %1\n"
    (tmp_path / "mod.uops").write_text(program)
    result = uops("run", "mod.uops", "--backend", "numpy", "--judge")
    assert result.exit_code == 1
    assert "judged at level strict: 2 of 3 elements are wrong" in result.output
    assert "2 of output 0: a remainder by zero is zero, where Mod gives the dividend" in result.output
    assert "element 0: p0 = 5 (0x05), p1 = 0 (0x00): got 0 (0x00), allowed 5" in result.output
    judged = json.loads(uops("run", "mod.uops", "--backend", "numpy", "--judge", "--json").stdout)["judged"]
    assert judged["wrong"] == 2 and judged["outputs"][0]["causes"] == {"remainder-by-zero": 2}
    assert uops("run", "mod.uops", "--backend", "numpy", "--judge", "--level", "core").exit_code == 0
    assert uops("run", "mod.uops", "--backend", "numpy").exit_code == 0


@pytest.mark.parametrize(("row", "dialect"), [("OptOp/Split", "kernel"), ("Bestiary/UNROLL", "bestiary")])
def test_a_program_of_another_dialect_is_named(uops: Uops, tmp_path: Path, row: str, dialect: str) -> None:
    (tmp_path / "example.uops").write_text(uops("spec", row, "--example").stdout)
    result = uops("run", "example.uops")
    assert result.exit_code == 2 and f"as in --dialect {dialect}" in result.output and "TENSOR.D1" in result.output
