"""A campaign draws what a backend declares: its dtypes and rows, and all of them where that is all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from uops.backends import registry
from uops.backends.contract import Capabilities, CompilerBackend, Missing
from uops.backends.llvm.target import LlvmTarget
from uops.backends.testing.journal import JournalMismatch
from uops.fuzz.campaign.campaign import Campaign, Summary
from uops.fuzz.campaign.examine import CaseRunner, Setup
from uops.fuzz.generate import kinds
from uops.fuzz.generate.declared import EVERYTHING, SupportedOpDtypes
from uops.fuzz.generate.kinds import KINDS
from uops.fuzz.generate.strategies import PrintableCase, PrintableSample, cases, samples
from uops.fuzz.oracles.subject import Subject, SubjectRefused, run_and_check_dtypes_and_shapes
from uops.spec.errors import Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import Dialect

HERE = str(Path(__file__).parents[1] / "planted")
ROWS_OF_FEW = ("Elementwise/Add", "Elementwise/Mul", "Elementwise/Max", "Source/", "Movement/")
FEW = Capabilities(
    (dt.float32, dt.int32), tuple(Missing(r.id, "*", "not there") for r in ROWS.values() if not r.id.startswith(ROWS_OF_FEW))
)  # fmt: skip
TENSOR = tuple(k.name for k in KINDS.values() if k.dialect is Dialect.TENSOR)
X = b.param(0, (4,), dt.float32)


def setup(**options: object) -> Setup:
    return Setup("planted_backends:Few", kinds=("tensor", "ops"), oracles=("allowed",), options=options, path=(HERE,))


def ran(place: Path, count: int, **options: object) -> Summary:
    return Campaign(setup(**options), place, cases=count, max_questions=100).run()


# What is declared


@pytest.mark.parametrize(
    ("missing", "graph", "holds"),
    [
        ((), b.add(X, X), True),
        ((("Elementwise/Add", "*"),), b.add(X, X), False),
        ((("Elementwise/Add", "float32"),), b.add(X, X), False),
        ((("Elementwise/Add", "float16"),), b.add(X, X), True),
        ((("Elementwise/CmpLt", "float32"),), UOp(Op.CMPLT, (X, X)), False),  # the operands', as in conformance
        ((("Elementwise/CmpLt", "bool"),), UOp(Op.CMPLT, (X, X)), True),
        ((("Elementwise/*", "*"),), b.permute(X, (0,)), True),
    ],
)
def test_a_program_is_of_what_is_declared(missing: tuple[tuple[str, str], ...], graph: UOp, holds: bool) -> None:
    declared = SupportedOpDtypes.from_capabilities(Capabilities(unsupported=tuple(Missing(*m, "") for m in missing)))
    assert declared.supports_graph(graph) == holds
    assert declared.supports_everything == (not missing)


def test_dtypes_are_declared_inside_and_of_several_values() -> None:
    declared = SupportedOpDtypes.from_capabilities(Capabilities(dtypes=(dt.int32, dt.float32)))
    assert declared.dtypes == (dt.int32, dt.float32)
    assert declared.supports_graph(b.tuple_(X, b.cast(X, dt.int32)))
    assert not declared.supports_graph(b.tuple_(X, b.cast(b.cast(X, dt.int64), dt.int32)))
    assert not declared.supports_graph(UOp(Op.CMPLT, (X, X)))  # bool
    assert not SupportedOpDtypes.from_capabilities(FEW).supports_graph(b.sink(b.store(b.buffer(4, dt.float32, unique=1), X)))


@pytest.mark.parametrize("capable", [Capabilities(), FEW, Capabilities((dt.int8,)), Capabilities(unsupported=FEW.unsupported)])
def test_it_comes_back_from_json(capable: Capabilities) -> None:
    declared = SupportedOpDtypes.from_capabilities(capable)
    assert SupportedOpDtypes.from_json(declared.to_json()) == declared
    assert (declared.to_json() is None) == declared.supports_everything == (capable == Capabilities())


def test_two_backends_are_asked_for_what_both_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    integers = SupportedOpDtypes.from_capabilities(Capabilities(dt.INTS, unsupported=(Missing("Elementwise/Mul", "*", ""),)))
    both = SupportedOpDtypes.from_capabilities(FEW).intersect(integers)
    x = b.param(0, (4,), dt.int32)
    assert both.dtypes == (dt.int32,)
    assert both.supports_graph(b.add(x, x))
    assert not both.supports_graph(b.mul(x, x))
    assert EVERYTHING.intersect(integers) == integers.intersect(EVERYTHING) == integers
    assert CaseRunner(Setup("llvm", against="c")).declared == replace(EVERYTHING, reads_inputs_in_place=True)
    monkeypatch.syspath_prepend(HERE)
    few = CaseRunner(Setup("interp", against="planted_backends:Few")).declared
    assert (few.dtypes, few.reads_inputs_in_place) == ((dt.int32, dt.float32), False)


def test_the_order_of_dtypes_is_no_matter() -> None:
    assert SupportedOpDtypes.from_capabilities(Capabilities(dtypes=dt.STORABLE[::-1])) == EVERYTHING


# What is drawn


#: Kinds whose every program needs what `FEW` has not: Stores, Functions, or several outputs.
BEYOND = ("programs", "rules", "calls", "sessions")


@pytest.mark.parametrize("kind", [k for k in TENSOR if k not in BEYOND])
def test_most_of_what_is_drawn_is_declared(kind: str) -> None:
    """Without it, next to nothing would be."""
    declared = SupportedOpDtypes.from_capabilities(FEW)
    found = [kinds.sample(3, k, (kind,), declared).graph for k in range(40)]
    assert sum(map(declared.supports_graph, found)) >= 32
    assert sum(declared.supports_graph(kinds.sample(3, k, (kind,)).graph) for k in range(40)) < 16
    assert {u.dtype for g in found if declared.supports_graph(g) for u in toposort(g)} <= {dt.float32, dt.int32, dt.index, dt.void}


def test_every_row_that_is_declared_is_drawn() -> None:
    declared = SupportedOpDtypes.from_capabilities(FEW)
    graphs = [kinds.sample(3, k, ("tensor", "ops"), declared).graph for k in range(300)]
    assert {Op.ADD, Op.MUL, Op.MAX, Op.PARAM, Op.CONST, Op.PERMUTE, Op.FLIP, Op.PAD, Op.SHRINK, Op.STACK} <= {
        u.op for g in graphs for u in toposort(g)
    }


@pytest.mark.parametrize(
    "capable",
    [
        Capabilities(unsupported=(Missing("*", "*", ""),)),
        Capabilities(unsupported=(Missing("Source/*", "*", ""),)),
        Capabilities(unsupported=(Missing("*", "bool", ""), Missing("*/Const", "*", ""))),
        *(Capabilities(dtypes=(d,)) for d in dt.STORABLE),
    ],
)
def test_whatever_is_declared_programs_can_be_drawn(capable: Capabilities) -> None:
    declared = SupportedOpDtypes.from_capabilities(capable)
    for name in (*TENSOR, "kernels"):
        for k in range(4):
            sample = kinds.sample(5, k, (name,), declared)
            assert sample.graph is kinds.sample(5, k, (name,), declared).graph


def test_what_is_not_of_the_first_document_is_drawn_as_ever() -> None:
    for k in range(20):
        assert (
            kinds.sample(1, k, ("bestiary",), SupportedOpDtypes.from_capabilities(FEW)).graph
            is kinds.sample(1, k, ("bestiary",)).graph
        )


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(cases(max_nodes=6, max_elements=32, capabilities=FEW), samples("reduces", capabilities=FEW))
def test_strategies_draw_what_is_declared(case: PrintableCase, sample: PrintableSample) -> None:
    assert SupportedOpDtypes.from_capabilities(FEW).supports_graph(case.graph)
    assert SupportedOpDtypes.from_capabilities(FEW).supports_graph(sample.graph)


# What a campaign makes of it


def test_a_bug_of_a_backend_that_has_little_is_found(tmp_path: Path) -> None:
    found = ran(tmp_path / "wrong", 256, wrong=True)
    assert found.raw
    assert found.findings
    assert not found.vanished
    assert all(f.nodes is not None and f.nodes <= 6 for f in found.findings)
    right = ran(tmp_path / "right", 256)
    assert not right.raw
    assert sum(n for name, n in right.counts.items() if name.startswith("refused:")) < 26
    rows = {name for name in right.counts if name.startswith("row:")}
    assert {"row:Elementwise/Max|float32", "row:Movement/Pad|int32"} <= rows


def test_another_declaration_is_another_campaign(tmp_path: Path) -> None:
    ran(tmp_path, 32)
    with pytest.raises(JournalMismatch, match=r"campaign\.declared .* use another --report"):
        Campaign(setup(dtypes=["int32"]), tmp_path)
    everything = Campaign(Setup("interp"), tmp_path / "all")._journal_heading()["campaign"]["declared"]
    assert SupportedOpDtypes.from_json(everything) == replace(EVERYTHING, reads_inputs_in_place=True)


class Narrow(CompilerBackend):
    """A target of the compiler that declares few dtypes, and takes none."""

    name = "narrow"

    def __init__(self, dtypes: tuple[DType, ...]) -> None:
        super().__init__(LlvmTarget())
        self.dtypes = dtypes

    def version(self) -> str:
        return "narrow"

    def capabilities(self) -> Capabilities:
        return Capabilities(dtypes=self.dtypes)


def test_a_target_may_refuse_what_it_does_not_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Result:
        raise Unsupported("no", "narrow")

    monkeypatch.setattr(registry, "create_backend", lambda name, dtypes: Narrow(dtypes))
    with pytest.raises(SubjectRefused):
        run_and_check_dtypes_and_shapes(Subject("narrow", {"dtypes": (dt.int32,)}), X, {}, refuse)
    fault = run_and_check_dtypes_and_shapes(Subject("narrow", {"dtypes": (dt.float32,)}), X, {}, refuse)[1]
    assert fault is not None
    assert fault.kind == "refused"
