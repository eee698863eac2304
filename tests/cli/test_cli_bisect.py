"""`uops bisect` and `uops stages`: what they print, what they write, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from uops.backends import npz
from uops.backends.testing.journal import encode_journal
from uops.backends.worker import client
from uops.compiler import pipeline
from uops.fuzz.bisect import bisect as search
from uops.fuzz.reduce.corpus import load_file_test
from uops.spec.errors import Crash, UopsError
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse
from uops.spec.verify.dialects import Dialect

Uops = Callable[..., Result]
DIALECTS = Path(__file__).parents[1] / "dialects"


@pytest.fixture
def wrong_rangeify(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are products."""

    def changed(root: UOp) -> UOp:
        done: dict[UOp, UOp] = {}
        for u in toposort(root):
            new = u.replace(src=tuple(done[s] for s in u.src))
            done[u] = UOp(Op.MUL, new.src) if u.op is Op.ADD and u.dtype.is_float else new
        return done[root]

    k = next(k for k, p in enumerate(pipeline.PIPELINE) if p.name == "rangeify")
    right = pipeline.PIPELINE[k]
    wrong = pipeline.Pass("rangeify", "rangeify", right.takes, right.gives, lambda u, s: changed(right.run(u, s)), right.after)
    passes = (*pipeline.PIPELINE[:k], wrong, *pipeline.PIPELINE[k + 1 :])
    monkeypatch.setattr(search.bisect, "__defaults__", (passes,))


def test_a_program_whose_stages_agree(uops: Uops, program: str) -> None:
    result = uops("bisect", program, "--backend", "llvm")
    assert (result.exit_code, result.output) == (0, "program.uops: all stages agree\n")


def test_the_answer_as_json(uops: Uops, program: str) -> None:
    result = uops("bisect", program, "--backend", "llvm", "--seed", "3", "--schedules", "2", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output) == {
        "file": "program.uops", "backend": "llvm", "seed": 3, "agree": True, "finding": None, "files": [],
    }  # fmt: skip


@pytest.mark.usefixtures("wrong_rangeify")
def test_a_finding_names_stage_pass_kernel_and_element(uops: Uops, program: str) -> None:
    result = uops("bisect", program, "--backend", "llvm")
    assert result.exit_code == 1
    lines = dict(line.split(maxsplit=1) for line in result.output.splitlines())
    assert lines["stage"] == lines["pass"] == "rangeify"
    assert lines["kernel"].startswith("kernel 0 of 1 (")
    assert lines["output"] == lines["element"] == "0"
    assert lines["got"] != lines["allowed"]


@pytest.mark.usefixtures("wrong_rangeify")
def test_a_finding_is_written_and_runs_again(uops: Uops, program: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", p0=np.arange(6, dtype=np.float32).reshape(2, 3))
    result = uops("bisect", program, "--backend", "llvm", "--inputs", "in.npz", "--out", "found", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.output)
    assert answer["finding"]["pass"] == "rangeify"
    assert answer["seed"] is None
    found = tmp_path / "found"
    assert {Path(f).name for f in answer["files"]} == {f.name for f in found.iterdir()}
    assert parse((found / "program.uops").read_text()) is parse((tmp_path / program).read_text())
    assert json.loads((found / "finding.json").read_text()) == answer["finding"]
    assert np.array_equal(npz.load(found / "inputs.npz")["p0"], np.arange(6, dtype=np.float32).reshape(2, 3))
    again = uops("bisect", "found/program.uops", "--backend", "llvm", "--inputs", "found/inputs.npz", "--json")
    assert json.loads(again.output)["finding"] == answer["finding"]


def test_a_backend_that_compiles_nothing_is_refused(uops: Uops, program: str) -> None:
    result = uops("bisect", program, "--backend", "interp")
    assert result.exit_code == 2
    assert "is not a target of the compiler" in result.output


def test_a_broken_program_is_refused(uops: Uops, broken: str) -> None:
    assert uops("bisect", broken, "--backend", "llvm").exit_code == 2


def test_an_end_of_the_worker_is_unsound(uops: Uops, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.BackendWorker, "run", lambda self, case: client.Outcome("crash", None, "ended by SIGSEGV"))
    result = uops("bisect", program, "--backend", "llvm")
    assert result.exit_code == 1
    assert "backend" in result.output
    assert "crash: ended by SIGSEGV" in result.output


def test_a_program_that_the_worker_refuses_is_no_finding(uops: Uops, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.BackendWorker, "run", lambda self, case: client.Outcome("unsupported", None, "no such memory"))
    result = uops("bisect", program, "--backend", "llvm")
    assert result.exit_code == 2
    assert "no such memory" in result.output


def test_the_suite_goes_on_from_a_journal(uops: Uops, tmp_path: Path) -> None:
    first = uops("stages", "--rows", "Movement/Flip", "--journal", "journal.jsonl", "--json")
    answer = json.loads(first.output)
    assert answer["findings"] == []
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)[1:]
    assert len(lines) == answer["programs"]["agree"] > 2
    told = [json.loads(line) for line in path.read_text().splitlines()]
    for line in told:
        del line["sum"]
    told[1]["answer"]["status"] = "refused"
    marked = encode_journal(told)
    path.write_bytes(encode_journal(told[:3]) + lines[2][:20])
    again = uops("stages", "--rows", "Movement/Flip", "--journal", "journal.jsonl")
    assert (again.exit_code, again.output) == (0, f"1 refused, {len(lines) - 1} agree\n")
    assert path.read_bytes() == marked


def test_the_journal_of_another_target_is_refused(uops: Uops) -> None:
    assert uops("stages", "--rows", "Movement/Flip", "--journal", "journal.jsonl").exit_code == 0
    result = uops("stages", "--backend", "c", "--rows", "Movement/Flip", "--journal", "journal.jsonl")
    assert result.exit_code == 2 and "differs in stages, target" in result.stderr


@pytest.mark.usefixtures("wrong_rangeify")
def test_a_wrong_pass_fails_the_suite(uops: Uops) -> None:
    result = uops("stages", "--rows", "Elementwise/Add", "--tier", "smoke")
    assert result.exit_code == 1
    assert "pass rangeify" in result.output


def test_rows_that_name_nothing_are_a_usage_error(uops: Uops) -> None:
    assert uops("stages", "--rows", "Nothing/*").exit_code == 2


def test_errors_keep_their_class() -> None:
    assert search.fault_of_failed_run(Crash("x")).kind == "crash"
    assert search.fault_of_failed_run(KeyError("x")).kind == "keyerror"
    assert search.fault_of_failed_run(type("Local", (UopsError,), {})("x")).kind == "uopserror"


# `uops run` on what the stages are


@pytest.mark.parametrize("dialect", [d for d in Dialect if d is not Dialect.BESTIARY], ids=lambda d: d.value)
def test_a_program_of_any_dialect_runs(dialect: Dialect, uops: Uops, tmp_path: Path) -> None:
    test = load_file_test(DIALECTS / f"{dialect.value}-elementwise.uops")
    npz.save(tmp_path / "in.npz", test.inputs)
    permission = ["--allow-native"] if dialect is Dialect.PROGRAM else []  # which has the kernel's binary (R167: native text)
    result = uops("run", str(test.path), "--dialect", dialect.value, "--inputs", "in.npz", "--json", *permission)
    assert result.exit_code == 0
    found = json.loads(result.output)
    first = found["values"][0] if dialect is Dialect.TENSOR else found["buffers"]["b1"]
    assert first["data"][:6] == [18, 8, 65, 5, -13, 2]


def test_a_schedule_is_for_the_interpreter_and_changes_nothing(uops: Uops) -> None:
    path = str(DIALECTS / "selected-workgroups.uops")
    outputs = {uops("run", path, "--dialect", "selected", "--schedule", str(k), "--json").output for k in range(3)}
    assert len(outputs) == 1
    result = uops("run", path, "--dialect", "selected", "--backend", "llvm", "--schedule", "1")
    assert result.exit_code == 2
    assert "--schedule" in result.output
    compiled = uops("run", path, "--dialect", "selected", "--backend", "llvm", "--json")
    assert compiled.exit_code == 0
    assert json.loads(compiled.output)["buffers"] == json.loads(outputs.pop())["buffers"]
