"""The pass table is checked, stages are in order, every stage can be dumped, and the verifier stands between passes."""

from dataclasses import replace
from typing import Any

import pytest

from uops.backends.llvm.target import LlvmTarget, LlvmTier
from uops.compiler import PIPELINE, STAGES, Config, compile, lower, stages
from uops.compiler.passes.callify.callify import CallifiedProgram, convert_graph_to_call
from uops.compiler.passes.select.select import STEPS
from uops.compiler.pipeline import Pass, record_lowering_up_to_plan, require_legal_pass_order_and_dialects
from uops.spec.errors import CompileError, Crash, SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse, show
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

VERIFY = Config(verify=True)
GRAPH = b.reduce(b.mul(b.param(0, (3, 4), dt.float32), b.param(1, (4,), dt.float32)), Op.ADD, (1,))


def test_the_stages_are_the_specifications_in_its_order() -> None:
    assert STAGES == ("callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render")
    assert PIPELINE[0].takes is Dialect.TENSOR
    assert PIPELINE[-1].gives is Dialect.PROGRAM


@pytest.mark.parametrize("k", range(1, len(PIPELINE)))
def test_a_pass_out_of_order_is_rejected(k: int) -> None:
    swapped = list(PIPELINE)
    swapped[k - 1], swapped[k] = swapped[k], swapped[k - 1]
    with pytest.raises(Crash):
        require_legal_pass_order_and_dialects(swapped)


def test_a_missing_stage_a_missing_reason_and_a_late_dependency_are_rejected() -> None:
    with pytest.raises(Crash, match="takes CALLIFIED, but callify gives TENSOR"):
        require_legal_pass_order_and_dialects([replace(PIPELINE[0], gives=Dialect.TENSOR), *PIPELINE[1:]])
    with pytest.raises(Crash, match="gives no reason"):
        require_legal_pass_order_and_dialects([PIPELINE[0], replace(PIPELINE[1], after=(("callify", ""),)), *PIPELINE[2:]])
    with pytest.raises(Crash, match="must come after render: because"):
        require_legal_pass_order_and_dialects([PIPELINE[0], replace(PIPELINE[1], after=(("render", "because"),)), *PIPELINE[2:]])
    with pytest.raises(Crash, match="the stages must be"):
        require_legal_pass_order_and_dialects(PIPELINE[:-1])


_NUMBERS = b.cast(b.param(0, (6,), dt.float32), dt.index)


@pytest.mark.parametrize(
    "graph",
    [
        b.lt(b.add(b.mul(_NUMBERS, 2), b.mul(b.variable("i", 0, 5), 3)), 10),
        b.at(b.param(1, (6,), dt.float32), b.maximum(_NUMBERS, 0)),
    ],
    ids=["a comparison", "an address"],
)
def test_an_index_without_bounds_is_refused_by_name_R08(graph: UOp, pyref: Any) -> None:
    verify(graph)
    with pytest.raises(CompileError, match=r"R08 \(index dtype\) at .* anything in \[-inf, inf\]"):
        lower(graph, pyref)


def test_every_stage_is_text_that_parses_to_the_same_graph(pyref: object) -> None:
    found = stages(GRAPH, pyref, VERIFY)  # type: ignore[arg-type]
    assert tuple(found) == ("tensor", *STAGES)
    for graph in found.values():
        assert parse(show(graph)) is graph


@pytest.mark.parametrize("stage", STAGES)
def test_lower_stops_after_a_stage_and_gives_its_dialect(pyref: object, stage: str) -> None:
    graph = lower(GRAPH, pyref, upto=stage, config=VERIFY)  # type: ignore[arg-type]
    given = next(p.gives for p in PIPELINE if p.stage == stage)
    verify(graph, given)
    assert graph is stages(GRAPH, pyref, VERIFY)[stage]  # type: ignore[arg-type]


def test_an_unknown_stage_is_named_with_the_known_ones(pyref: object) -> None:
    with pytest.raises(SpecError, match="no stage 'lower'; the stages are callify"):
        lower(GRAPH, pyref, upto="lower")  # type: ignore[arg-type]


def test_an_ill_formed_input_is_the_callers_error_and_an_ill_formed_stage_ours(
    pyref: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    ill = UOp(Op.NOT, (b.param(0, (2,), dt.int32),))
    with pytest.raises(SpecError):
        lower(ill, pyref, config=VERIFY)  # type: ignore[arg-type]
    broken = tuple(replace(p, run=lambda u, s: u) if p.name == "select" else p for p in PIPELINE)
    monkeypatch.setattr("uops.compiler.pipeline.PIPELINE", broken)
    with pytest.raises(Crash, match="pass select gave no well-formed SELECTED"):
        lower(GRAPH, pyref, config=VERIFY)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [Config(reuse=False), VERIFY], ids=["kernel by kernel", "pass by pass"])
def test_every_pass_of_the_table_runs_and_a_pass_on_kernels_once_per_kernel(
    pyref: object, monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    runs: list[str] = []

    def counted(p: Pass) -> Pass:
        return replace(p, run=lambda u, s: runs.append(p.name) or p.run(u, s))  # type: ignore[func-returns-value]

    monkeypatch.setattr("uops.compiler.pipeline.PIPELINE", tuple(map(counted, PIPELINE)))
    x, y = (b.contiguous(b.neg(b.param(k, (4,), dt.float32))) for k in (0, 1))
    graph = b.tuple_(x, y, b.contiguous(b.mul(x, 3.0)))
    launch = lower(graph, pyref, config=replace(config, optimize=False))  # type: ignore[arg-type]
    kernels = len({call.body for call in launch.instructions})
    assert 1 < kernels < len(launch.instructions)
    assert {p.name: runs.count(p.name) for p in PIPELINE} == {p.name: kernels if p.per_kernel else 1 for p in PIPELINE}


def test_settings_are_read_from_an_environment() -> None:
    assert Config.from_environment({}) == Config(verify=False, reuse=True)
    assert Config.from_environment({"UOPS_OPTIMIZE": "", "UOPS_REUSE": "", "UOPS_VERIFY": ""}) == Config()
    assert Config.from_environment({"UOPS_VERIFY": "1", "UOPS_REUSE": "0"}) == Config(verify=True, reuse=False)
    with pytest.raises(SpecError, match="UOPS_VERIFY must be 0 or 1, got 'yes'"):
        Config.from_environment({"UOPS_VERIFY": "yes"})
    searching = {"UOPS_FORCED": "0", "UOPS_BEAM": "3", "UOPS_BEAM_SECONDS": "20"}
    assert Config.from_environment(searching) == Config(forced=0, beam=3, beam_seconds=20)
    with pytest.raises(SpecError, match="UOPS_BEAM must be a number from 0 to 9223372036854775807, got '-1'"):
        Config.from_environment({"UOPS_BEAM": "-1"})


def test_a_program_is_made_stateless_once(pyref: object, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[UOp] = []

    def counted(root: UOp, *lower_body: Any) -> CallifiedProgram:
        calls.append(root)
        return convert_graph_to_call(root, *lower_body)

    monkeypatch.setattr("uops.compiler.pipeline.convert_graph_to_call", counted)
    program = compile(GRAPH, pyref, Config(reuse=False))  # type: ignore[arg-type]
    assert calls == [GRAPH]
    assert program.outputs == convert_graph_to_call(GRAPH).outputs


def test_a_program_without_kernels_has_every_step_too(pyref: object) -> None:
    empty = b.neg(b.param(0, (0,), dt.float32))
    _, steps, _ = record_lowering_up_to_plan(empty, pyref, Config())  # type: ignore[arg-type]
    assert tuple(steps) == STEPS and not lower(empty, pyref).src  # type: ignore[arg-type]


@pytest.mark.parametrize("d", [dt.bfloat16, dt.int32], ids=str)
def test_a_program_compiled_before_may_have_a_list_of_dtypes_that_its_target_lacks(d: dt.DType) -> None:
    """No pass lowers it, so the verifier asks nothing of its dtypes (R169, functions and programs)."""
    source, to, i = b.param(0, (4,), d), b.param(1, (4,), d), b.range_(4, 0)
    load = b.load(b.at(source, i))
    store = b.store(b.at(to, i), load)
    instructions = UOp(Op.LINEAR, (source, to, i, load.buffer, load, store.buffer, store, b.end(store, i)))
    memory = [b.buffer(4, d, unique=k) for k in (0, 1)]
    launch = UOp(Op.LINEAR, (b.call(instructions, *memory, written=(1,)),))
    target = LlvmTarget(LlvmTier.FAST)
    (call,) = lower(launch, target, dialect=Dialect.KERNEL).src
    _, *code = call.body.src
    given = launch.replace(src=(b.call(UOp(Op.PROGRAM, (instructions, *code)), *memory, written=(1,)), launch.src[0]))
    for entry in (given, given.replace(src=given.src[:1])):
        assert lower(entry, target, config=VERIFY, dialect=Dialect.KERNEL).src[0].body.src[1:] == tuple(code)
