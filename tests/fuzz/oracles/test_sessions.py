"""The oracle of sessions finds wrong statements of the front end that are planted, and its findings can be asked again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uops.backends.front import Tensor
from uops.compiler.tensor import compiled_calls, nn
from uops.fuzz.campaign.examine import CaseRunner, Setup
from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import RecordingDraw, SeededDraw
from uops.fuzz.generate.methods import sessions
from uops.fuzz.oracles import oracles
from uops.fuzz.oracles.oracles import OracleContext
from uops.fuzz.oracles.subject import Subject
from uops.fuzz.reduce.reproducer import Reproducer, read_reproducer, write_reproducer
from uops.spec.ir import build as b

#: Cases within which each planted fault is found.
CASES = 300


def keep_values_that_are_written_through_views(patch: pytest.MonkeyPatch) -> None:
    """Let an assignment to a view leave the Tensors that it was made from as they are."""
    right = Tensor.assign

    def assign(t: Tensor, value: Any) -> Tensor:
        owners = [owner for owner in (r() for r, _ in t._links) if owner is not None]
        nodes = [owner.uop for owner in owners]
        out = right(t, value)
        for owner, node in zip(owners, nodes):
            owner._set_node(node)
        return out

    patch.setattr(Tensor, "assign", assign)


def step_all_parameters(patch: pytest.MonkeyPatch) -> None:
    """Let SGD move a parameter by twice its gradient."""
    right = nn.SGD._compute_new_value_and_state

    def step(o: nn.SGD, p: Tensor, g: Tensor, state: list[Tensor]) -> Any:
        return right(o, p, g * 2, state)

    patch.setattr(nn.SGD, "_compute_new_value_and_state", step)


def forget_one_realized_value(patch: pytest.MonkeyPatch) -> None:
    """Let a realization of several Tensors exchange the first two of equal shape."""
    right = Tensor.realize

    def realize(t: Tensor, *others: Tensor) -> Tensor:
        out = right(t, *others)
        if others and t.shape == others[0].shape and t.dtype is others[0].dtype:
            mine, its = t.uop, others[0].uop
            t._set_node(its)
            others[0]._set_node(mine)
        return out

    patch.setattr(Tensor, "realize", realize)


def find_first_fault(backend: str = "interp") -> tuple[kinds.ProgramSample, Any] | None:
    for k in range(CASES):
        sample = kinds.sample(5, k, ("sessions",))
        c = OracleContext(sample, Subject(backend))
        fault = oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["sessions"]))
        assert c.counts["oracle:sessions"] == 1 or fault is not None
        if fault is not None:
            return sample, fault
    return None


@pytest.mark.parametrize("backend", ["interp", "llvm"])
def test_sessions_agree_with_numpy(backend: str) -> None:
    for k in range(CASES if backend == "interp" else 30):
        recorded = RecordingDraw(SeededDraw(k))
        sessions.generate_session(recorded, kinds.EVERYTHING)
        assert sessions.find_fault_of_session(recorded.choices, backend) is None


@pytest.mark.parametrize("plant", [keep_values_that_are_written_through_views, step_all_parameters, forget_one_realized_value])
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert find_first_fault() is not None


def test_arguments_of_a_compiled_function_are_not_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    right = compiled_calls.JitFunction._run_compiled_unless_traced_or_differentiated

    def call(f: Any, args: Any, kwargs: Any) -> Any:
        result = right(f, args, dict(zip(sorted(kwargs), kwargs.values())))
        f.again = compiled_calls.decline_call
        return result

    monkeypatch.setattr(compiled_calls.JitFunction, "_run_compiled_unless_traced_or_differentiated", call)
    assert find_first_fault() is not None


def test_every_statement_is_executed() -> None:
    executed = set()
    for k in range(200):
        recorded = RecordingDraw(SeededDraw(k))
        session = sessions.Session(recorded, sessions._DTYPES, is_lazy=True)
        session.execute()
        executed |= {s.split(" ")[-1] if s.startswith("realize") else s for s in session.statements}
    text = "\n".join(executed)
    for word in ("Tensor(", "clamp", "which changes", "viewed by", ":=", "number", "a parameter"):
        assert word in text


def test_a_finding_can_be_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        step_all_parameters(patch)
        found = find_first_fault()
        assert found is not None
        sample, _ = found
        about = {"oracle": "sessions", "seed": 1, "setup": Setup("interp").to_json()}
        write_reproducer(tmp_path / "found.uops", Reproducer(sample, about))
        again = read_reproducer(tmp_path / "found.uops")
        assert again.sample.choices == sample.choices and again.sample.graph is sample.graph
        assert CaseRunner(Setup("interp")).judge_sample(again.sample, 1, "sessions") is not None
    assert CaseRunner(Setup("interp")).judge_sample(again.sample, 1, "sessions") is None


def test_a_reduced_program_is_not_that_of_its_session() -> None:
    sample = kinds.sample(5, 0, ("sessions",))._replace(graph=b.const(1))
    c = OracleContext(sample, Subject("interp"))
    assert oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["sessions"])) is None
    assert c.counts["oracle:sessions"] == 0


def test_a_wrong_session_beside_a_case_becomes_a_case_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CaseRunner(Setup("interp", 3, ("sessions",), ("beside",)))
    with monkeypatch.context() as patch:
        step_all_parameters(patch)
        k = next(k for k in range(CASES) if runner.generate_and_judge_case(k).oracle == "beside")
        sample, oracle = runner.freeze_oracle_choices(runner.draw_sample(k), runner.case_seed(k), "beside")
        assert oracle == "sessions"
        assert runner.judge_sample(sample, 1, "sessions") is not None
    assert runner.judge_sample(sample, 1, "sessions") is None
    assert runner.freeze_oracle_choices(runner.draw_sample(k), runner.case_seed(k), "beside")[1] == "beside"
