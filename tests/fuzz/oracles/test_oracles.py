"""What counts as judged, as refused and as a fault, whatever an oracle raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from uops.backends.c import target as c_target
from uops.backends.conformance.stage_judge import Fault
from uops.backends.native_entry import sharing
from uops.compiler.runtime.frame import ProgramFrame
from uops.fuzz.campaign.examine import MACHINE_CODE, TriagedFinding
from uops.fuzz.generate import kinds
from uops.fuzz.generate.bestiary import families
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.kinds import ProgramSample
from uops.fuzz.oracles import calls, oracles
from uops.fuzz.oracles.oracles import OracleContext
from uops.fuzz.oracles.subject import Subject, SubjectRefused
from uops.spec.errors import CompileError, Unsound
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt

X = b.param(0, (4,), dt.int32)


def context(graph: Any = None, backend: str = "llvm") -> OracleContext:
    return OracleContext(
        ProgramSample("tensor", b.add(X, X) if graph is None else graph, {"p0": np.arange(4, dtype=np.int32)}), Subject(backend)
    )


def raising(e: Exception) -> Callable[..., Any]:
    def fails(*arguments: Any, **named: Any) -> None:
        raise e

    return fails


@pytest.mark.parametrize(
    ("oracle", "module", "name"),
    [
        ("called", calls, "compile"),
        ("stages", oracles, "bisect"),
        ("validated", oracles.pipeline, "lower"),
        ("leaks", oracles, "Compiled"),
        ("illegal", oracles, "find_illegal_optop_not_rejected_citing_ruling"),
        ("twice", oracles, "run_passes_up_to"),
        ("scheduled", oracles, "run_passes_up_to"),
    ],
)
def test_a_compiler_that_refuses_what_it_takes_is_at_fault(
    monkeypatch: pytest.MonkeyPatch, oracle: str, module: Any, name: str
) -> None:
    c = context()
    _ = c.own_run
    monkeypatch.setattr(module, name, raising(CompileError("L01 (Load): planted")))
    found = oracles.find_first_objection(c, oracles.select_oracles_in_table_order([oracle]))
    assert found == (oracle, Fault("refused", "L01 (Load): planted"))
    assert c.counts[f"oracle:{oracle}"] == 1


#: The declaration of a backend that has no dtype.
NOTHING = SupportedOpDtypes((), (("*", "*"),))


def test_graphs_of_undeclared_cells_may_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    c = context()
    c.subject.declared = NOTHING
    monkeypatch.setattr(oracles, "run_passes_up_to", raising(CompileError("planted")))
    with pytest.raises(SubjectRefused, match="planted"):
        oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["twice"]))
    assert not c.counts["oracle:twice"]


def test_what_an_oracle_does_not_expect_is_a_fault_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "find_first_fault_of_user_calls", raising(AssertionError("planted words")))
    found = oracles.find_first_objection(context(), oracles.select_oracles_in_table_order(["called"]))
    assert found is not None
    assert found[1].kind == "assertionerror"
    assert found[1].message.startswith("planted words [")


def test_who_cannot_judge_a_case_has_not_judged_it() -> None:
    c = context(b.contiguous(X))
    assert oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["rule-off"])) is None
    assert not c.counts["oracle:rule-off"]
    assert c.counts["not asked:rule-off, no rule is applied"] == 1


def test_a_program_whose_index_has_no_width_without_a_rule_is_not_judged_without_it() -> None:
    """R08 (index dtype): the compiler refuses a width that it does not prove."""
    position = b.mod(b.cast(b.param(1, (), dt.uint64), dt.index), 3)
    sample = ProgramSample("tensor", b.at(X, position), {"p0": np.arange(4, dtype=np.int32), "p1": np.uint64(7)})
    for seed in range(12):
        c = OracleContext(sample, Subject("c"), seed=seed)
        assert oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["rule-off"])) is None
        if any("proves the width of an index" in what for what in c.counts):
            return
    pytest.fail("no drawn rule proves a width")


def test_the_end_of_a_process_is_like_no_other_fault() -> None:
    made = ("add:i32",)
    crash, value = (TriagedFinding("allowed", Fault(kind, ""), MACHINE_CODE, made) for kind in ("crash", "value"))
    assert crash.has_same_oracle_and_pass_or_fault(crash)
    assert value.has_same_oracle_and_pass_or_fault(value)
    assert not crash.has_same_oracle_and_pass_or_fault(value)
    assert not value.has_same_oracle_and_pass_or_fault(crash)


def test_drawn_cases_count_their_judges_once() -> None:
    subject = Subject("interp")
    for k in range(20):
        c = OracleContext(kinds.sample(2, k), subject, seed=k)
        assert oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["reference", "allowed"])) is None
        assert (c.counts["oracle:reference"], c.counts["oracle:allowed"]) == (1, 1)


@pytest.mark.usefixtures("frozen_heap")
def test_a_program_that_keeps_its_results_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    class Keeping(oracles.Compiled):
        def __call__(self, inputs: Any) -> Any:
            kept.append(super().__call__(inputs).values)
            return kept[-1]

    c = context()
    assert oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["leaks"])) is None
    monkeypatch.setattr(oracles, "Compiled", Keeping)
    found = oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["leaks"]))
    assert found is not None
    assert found[1].kind == "leak"


# Graphs of the second document on compiled targets


def judge_bestiary(family: str, seed: int) -> tuple[OracleContext, Any]:
    case = families.case(family, seed)
    c = OracleContext(ProgramSample("bestiary", case.graph, kinds.select_graph_inputs(*case)), Subject("c"))
    return c, oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["form", "compiled"]))


@pytest.mark.parametrize("family", ["call", "local", "special", "if_", "linear_if", "triangle", "register", "ptrcat"])
def test_legal_forms_are_compiled_and_give_what_the_second_document_says(family: str) -> None:
    for seed in range(4):
        c, found = judge_bestiary(family, seed)
        assert found is None
        assert c.counts["oracle:compiled"] == 1


def test_a_graph_that_the_compiler_refuses_is_refused_and_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    case = families.case("mselect", 0)
    c = OracleContext(ProgramSample("bestiary", case.graph, kinds.select_graph_inputs(*case)), Subject("c"))
    c.subject.declared = NOTHING
    monkeypatch.setattr(oracles, "GuardedProgram", raising(CompileError("planted")))
    with pytest.raises(SubjectRefused):
        oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["compiled"]))
    assert not c.counts["oracle:compiled"]


def test_a_wrong_result_of_a_legal_form_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(oracles.GuardedProgram):
        def __call__(self, inputs: Any = None, /) -> Any:
            result = super().__call__(inputs)
            return result._replace(values=tuple(v + 1 for v in result.values))

    monkeypatch.setattr(oracles, "GuardedProgram", Wrong)
    _, found = judge_bestiary("param", 0)
    assert found is not None and found[0] == "compiled" and found[1].kind == "value"


@pytest.mark.parametrize("name", ["again", "called"])
def test_a_fault_that_the_first_run_alone_shows_is_the_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject("llvm")
    compile_to_function, broken = subject.compile_to_function, iter([True])

    def compile_with_one_fault(*arguments: Any, **named: Any) -> Callable[..., Any]:
        f = compile_to_function(*arguments, **named)

        def call(inputs: Any) -> Any:
            if next(broken, False):
                raise Unsound("4 bytes outside a buffer of 16 bytes were written")
            return f(inputs)

        return call

    monkeypatch.setattr(subject, "compile_to_function", compile_with_one_fault)
    x = b.param(0, (4,), dt.int32)
    c = OracleContext(ProgramSample("tensor", b.add(x, x), {"p0": np.arange(4, dtype=np.int32)}), subject, seed=0)
    assert c.own_run[1] is not None
    objection = oracles.find_first_objection(c, oracles.select_oracles_in_table_order([name]))
    assert objection is not None and "4 bytes outside" in str(objection)


def test_threads_share_the_loops_of_some_programs_for_a_scaled_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of a shared loop adds once: a piece that ran all iterations would be found."""
    memory = b.buffer(64, dt.int64, unique=1)
    added = b.add(memory, b.expand(b.reshape(b.const(1, dt.int64), (1,)), (64,)))
    graph = b.after(memory, b.store(memory, added))
    shared = []
    asked = sharing.has_loop_worth_sharing

    def record(frame: ProgramFrame) -> bool:
        shared.append(asked(frame))
        return shared[-1]

    monkeypatch.setattr(sharing, "available_cores", lambda: 2)
    monkeypatch.setattr(c_target, "has_loop_worth_sharing", record)
    subject = Subject("c")
    monkeypatch.setattr(subject.target, "machine", replace(subject.target.machine, cores=2))
    for seed in range(60):
        sample = ProgramSample("programs", graph, {"b1": np.arange(64, dtype=np.int64)})
        assert oracles._check_on_scaled_machine(OracleContext(sample, subject, seed=seed)) is None
    assert any(shared)
    assert len(shared) < 40, "others are launched one by one, between guard pages"
