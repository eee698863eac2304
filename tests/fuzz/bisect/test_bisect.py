"""A wrong transformation is planted behind each pass, in its steps, and in the machine code; bisection names exactly that one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_passes import (
    F32,
    I32,
    LLVM,
    PLANTED,
    PLANTED_RULE,
    Change,
    Inputs,
    Program,
    Wrong,
    behind,
    float_sums,
    floats,
    ints,
    logarithm,
    longer,
    maxima,
    nodes,
    p,
    row_sums,
    several,
    smaller_stride,
    transposed,
    unscheduled,
)

from uops.backends import npz
from uops.backends.arrays import STORAGE
from uops.backends.conformance import stage_judge as judges
from uops.backends.conformance.stage_judge import KEEPS, Preservation
from uops.compiler.config import Config
from uops.compiler.log import record_transforms
from uops.compiler.passes.rangeify import rangeify as ranges
from uops.compiler.passes.select import select as selection
from uops.compiler.pipeline import PIPELINE, Pass, run_pass_and_verify, stages
from uops.fuzz.bisect.bisect import BACKEND, bisect
from uops.fuzz.bisect.wrong_rule import find_wrong_step
from uops.fuzz.generate.graphs import case
from uops.interp import run
from uops.spec.errors import CompileError, SpecError, Trap, Unsound
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_transformation_is_named(what: str) -> None:
    name, planted = PLANTED[what]
    graph, inputs = planted.program()
    found = bisect(graph, inputs, LLVM, behind(name, planted.change))
    assert found is not None
    stage = next(q.stage for q in PIPELINE if q.name == name)
    assert (found.stage, found.pass_, found.step) == (stage, name, None)
    assert found.fault.kind == planted.kind, str(found)
    assert planted.text in found.fault.message
    assert (found.kernel or "").startswith(planted.kernel or "")
    assert planted.kernel is None or found.kernel
    assert found.before != found.after


def test_a_bug_is_planted_behind_every_pass() -> None:
    assert {name for name, _ in PLANTED.values()} == {q.name for q in PIPELINE}


@pytest.mark.parametrize("program", dict.fromkeys(x.program for _, x in PLANTED.values()), ids=lambda f: f.__name__)
@pytest.mark.parametrize("passes", [PIPELINE, unscheduled()], ids=["scheduled", "scalar"])
def test_the_clean_pipeline_has_no_finding(program: Callable[[], Program], passes: tuple[Pass, ...]) -> None:
    assert bisect(*program(), LLVM, passes, extra_orders=1) is None


# Steps


def with_change(name: str, change: Change) -> Callable[[pytest.MonkeyPatch], None]:
    """A change of what a function of instruction selection gives."""
    original = getattr(selection, name)
    return lambda patch: patch.setattr(selection, name, lambda *a: change(original(*a)))


def with_rule(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(selection, "VALUES", (*selection.VALUES, PLANTED_RULE))


def maximum_from_zero(u: UOp) -> UOp | None:
    return b.const(0.0, F32) if u.op is Op.CONST and u.dtype is F32 and u.arg.value == -np.inf else None


def other_factor(u: UOp) -> UOp | None:
    return u.replace(src=(u.src[0], u.src[0])) if u.op is Op.MUL and u.src[1].op is Op.CONST else None


def wrong_addend(u: UOp) -> UOp | None:
    return u.replace(src=(u.src[0], u.src[1], u.src[1])) if u.op is Op.MULACC else None


STEPS: dict[str, tuple[Callable[[], Program], Callable[[pytest.MonkeyPatch], None]]] = {
    "accumulate": (maxima, with_change("lower_reduces", nodes(maximum_from_zero))),
    "widths": (transposed, with_change("lower_index_arithmetic", nodes(other_factor))),
    "decompose": (logarithm, with_change("_decompose_ops_and_lower_floats_to_bits", nodes(wrong_addend))),
    "simplify": (transposed, with_rule),
}


@pytest.mark.parametrize("step", selection.STEPS)
def test_the_step_of_a_pass_is_named(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, plant = STEPS[step]
    plant(monkeypatch)
    found = bisect(*program(), LLVM, unscheduled())
    assert found is not None
    assert (found.stage, found.pass_, found.step) == ("select", "select", step)
    assert found.kernel is not None
    assert found.kernel.startswith("kernel 0 of 1 (")


@pytest.mark.parametrize(("module", "rules", "name"), [(selection, "VALUES", "select"), (ranges, "INDEXING", "rangeify")])
def test_the_rule_is_named(module: Any, rules: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, rules, (PLANTED_RULE, *getattr(module, rules)))
    graph = b.mul(b.permute(p(0, 5, 3, dtype=I32), (1, 0)), 3)
    found = bisect(graph, {"p0": ints(5, 3)}, LLVM, unscheduled())
    assert found is not None
    assert (found.pass_, found.rule) == (name, "planted")
    assert "rule planted" in str(found)


def test_rules_that_hold_are_not_blamed() -> None:
    found = bisect(*transposed(), LLVM, behind("rangeify", nodes(smaller_stride)))
    assert found is not None
    assert found.rule is None


@pytest.mark.parametrize("seed", range(4))
def test_no_step_of_the_rules_is_called_wrong(seed: int) -> None:
    """Every rule that fires on generated graphs keeps the value of all leaves that the judge tries."""
    steps = []
    for k in range(6):
        c = case(seed * 100 + k, max_elements=40)
        try:
            with record_transforms() as log:
                stages(c.graph, LLVM, Config(reuse=False))
        except CompileError:
            continue
        steps += [s for m in log.transforms for s in m.steps]
    assert len(steps) > 30
    assert find_wrong_step(steps, seed) is None


def test_the_kernel_of_several_is_named() -> None:
    """Only the second of three kernels adds 1."""
    graph, inputs = several()
    wrong = nodes(lambda u: b.const(2, I32) if u is b.const(1, I32) else None)
    found = bisect(graph, inputs, LLVM, behind("expand", wrong))
    assert found is not None
    assert found.kernel is not None
    assert found.kernel.startswith("kernel 1 of 3 (")
    assert "const 2 : i32" in found.after
    assert "const 2 : i32" not in found.before


# Machine code


@pytest.mark.parametrize(
    ("program", "right", "wrong", "kernel"),
    [(transposed, "mul ", "add ", 0), (float_sums, "fadd ", "fsub ", 0), (several, "icmp slt", "icmp sgt", 2)],
    ids=["product", "sum", "maximum"],
)
def test_wrong_machine_code_is_named(program: Callable[[], Program], right: str, wrong: str, kernel: int) -> None:
    found = bisect(*program(), Wrong(right, wrong))
    assert found is not None
    assert (found.stage, found.pass_) == (BACKEND, BACKEND)
    assert (found.kernel or "").startswith(f"kernel {kernel} of ")
    assert wrong in found.after


def test_a_kernel_that_gives_another_right_answer_is_not_named() -> None:
    """Which of two zeros is the greatest is free (R11), and LLVM chooses another one than the interpreter."""
    graph = b.add(b.contiguous(UOp(Op.MAX, (p(0, 2), p(1, 2)))), b.const(1.0, F32))
    zeros = np.array([0.0, -0.0], np.float32)
    inputs = {"p0": zeros, "p1": -zeros}
    assert bisect(graph, inputs, LLVM) is None
    found = bisect(graph, inputs, Wrong("fadd ", "fsub "))
    assert found is not None
    assert (found.kernel or "").startswith("kernel 1 of 2 ")
    assert "fsub " in found.after


def test_the_end_of_a_run_of_machine_code_is_a_finding() -> None:
    def execute(program: UOp, inputs: Any) -> Any:
        raise Unsound("ended by SIGSEGV")

    found = bisect(*transposed(), LLVM, execute=execute)
    assert found is not None
    assert (found.pass_, found.fault.kind, found.fault.message) == (BACKEND, "unsound", "ended by SIGSEGV")


# Other ways to be wrong


def test_a_pass_that_fails_is_a_finding() -> None:
    def fail(root: UOp) -> UOp:
        raise KeyError("no such node")

    found = bisect(*transposed(), LLVM, behind("linearize", fail))
    assert found is not None
    assert (found.pass_, found.fault.kind) == ("linearize", "keyerror")


def test_an_interpreter_that_fails_is_not_called_a_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*a: Any, **k: Any) -> Any:
        raise KeyError("no such node")

    monkeypatch.setattr(judges, "run", fail)
    found = bisect(*transposed(), LLVM)
    assert found is not None
    assert (found.pass_, found.fault.kind) == ("callify", "crash")
    assert "the interpreter failed" in found.fault.message


def test_a_program_that_the_compiler_refuses_has_no_finding() -> None:
    def refuse(root: UOp) -> UOp:
        raise CompileError("not this one")

    with pytest.raises(CompileError, match="not this one"):
        bisect(*transposed(), LLVM, behind("expand", refuse))


def test_a_program_that_traps_has_none_either() -> None:
    with pytest.raises(Trap):
        bisect(b.at(p(0, 4), b.cast(p(1, dtype=I32), dt.index)), {"p0": floats(4), "p1": np.int32(9)}, LLVM)
    with pytest.raises(SpecError):
        bisect(transposed()[0], {}, LLVM)


def test_an_output_that_is_not_written_is_wrong_even_where_it_is_zero() -> None:
    graph, inputs = b.mul(p(0, 4, dtype=I32), 0), {"p0": ints(4)}
    found = bisect(graph, inputs, LLVM, behind("rangeify", longer(AxisType.LOOP, -1)))
    assert found is not None
    assert (found.pass_, found.fault.element) == ("rangeify", 3)


def test_memory_that_keeps_its_contents_need_not_be_written() -> None:
    memory = b.buffer(1, I32, unique=7)
    graph = b.after(memory, b.store(memory, memory, p(0, 1, dtype=dt.bool_)))
    inputs = {"b7": ints(1), "p0": np.array([True])}
    assert bisect(graph, inputs, LLVM) is None


def test_memory_that_a_pass_forgets_to_write_is_wrong() -> None:
    memory = b.buffer(1, I32, unique=7)
    graph = b.after(memory, b.store(memory, b.add(memory, 1)))
    found = bisect(graph, {"b7": ints(1)}, LLVM, behind("rangeify", lambda u: u.replace(src=u.src[1:])))
    assert found is not None
    assert found.pass_ == "rangeify"


def test_memory_that_is_only_read_must_not_change() -> None:
    effect = b.store(b.at(b.param(1, (4,), I32), 0), b.const(7, I32))
    change = nodes(lambda u: u.replace(src=(*u.src, effect)) if u.op is Op.SINK else None)
    undeclared = nodes(lambda u: u.replace(arg=replace(u.arg, written=(0, 1))) if u.op is Op.CALL else None)
    wrong = behind("linearize", lambda root: root)
    wrong = tuple(
        replace(q, run=lambda u, s, q=q: undeclared(change(run_pass_and_verify(q, u, s))), per_kernel=False)
        if q.name == "optimize"
        else q
        for q in wrong
    )
    graph = b.contiguous(b.flip(b.add(p(0, 4, dtype=I32), 1), (True,)))
    found = bisect(graph, {"p0": ints(4)}, LLVM, wrong)
    assert found is not None
    assert found.pass_ == "optimize"


def backwards(u: UOp) -> UOp | None:
    """Element 2 - i of the input in the place of i."""
    if u.op is not Op.INDEX or u.src[0].op is not Op.PARAM or u.src[0].arg.slot != 1:
        return None
    return u.replace(src=(u.src[0], UOp(Op.SUB, (b.const(2, u.src[1].dtype), u.src[1]))))


@pytest.mark.parametrize(("name", "kept"), [("select", False), ("linearize", True)])
def test_a_sum_in_another_order_is_wrong_only_where_bits_are_kept(name: str, kept: bool) -> None:
    graph, inputs = b.reduce(p(0, 3), Op.ADD, (0,)), {"p0": np.array([1e8, 4.0, 4.0], np.float32)}
    change = nodes(backwards)
    right = next(q for q in PIPELINE if q.name == name)
    wrong = replace(right, run=lambda u, s: run_pass_and_verify(right, change(u), s), per_kernel=False)
    passes = tuple(wrong if q is right else q for q in PIPELINE)
    found = bisect(graph, inputs, LLVM, passes)
    assert (found is not None) == kept
    if found is not None:
        assert found.fault.message.startswith("output 0, element 0: got 100000008.0 (0x4cbebc21), allowed 100000000.0 (0x4cbebc20)")


def column_sums() -> Program:
    """Sums that are rounded. NumPy adds the numbers of a row eight side by side, and those of columns one after the other."""
    return b.reduce(p(0, 16, 3, dtype=dt.float64), Op.ADD, (0,)), {"p0": np.random.default_rng(0).standard_normal((16, 3))}


def test_the_interpreters_two_machines_may_add_floats_in_two_orders() -> None:
    """FOUND 079: the machine that schedules are for is compared with itself (R32)."""
    assert bisect(*column_sums(), LLVM, extra_orders=2) is None


@pytest.mark.parametrize(
    ("program", "how", "text"),
    [
        (column_sums, "schedule", "schedule 0 gives something else: output 0"),
        (row_sums, "schedule", "schedule 0 gives something else: output 0"),
        (column_sums, "lanes", "lane by lane: output 0"),
    ],
)
def test_the_machine_of_schedules_is_judged(
    program: Callable[[], Program], how: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(stage: UOp, inputs: Inputs, **options: Any) -> Any:
        found = run(stage, inputs, **options)
        return found._replace(buffers={k: x * 2 for k, x in found.buffers.items()}) if how in options else found

    monkeypatch.setattr(judges, "run", wrong)
    found = bisect(*program(), LLVM, extra_orders=2)
    assert found is not None
    assert text in found.fault.message


def test_the_bytes_of_a_nan_are_any_and_those_beside_it_are_kept() -> None:
    """FOUND 061: a NaN of arithmetic in memory of bytes is any NaN at every stage (R20)."""
    memory = p(9, 4, dtype=dt.uint8)
    nan = UOp(Op.RECIP, (b.const(float("nan"), dt.bfloat16),))
    graph = b.after(memory, b.store(b.bitcast(memory, dt.bfloat16), b.stack(nan, b.const(1.5, dt.bfloat16))))
    inputs = {"p9": np.zeros(4, np.uint8)}
    assert bisect(graph, inputs, LLVM) is None
    less = nodes(lambda u: b.const(1.25, u.dtype) if u is b.const(1.5, dt.bfloat16) else None)
    found = bisect(graph, inputs, LLVM, behind("callify", less))
    assert found is not None
    assert (found.pass_, found.fault.element) == ("callify", 2)


# Kernels written by hand


def copy_of_a_bare_kernel() -> Program:
    """A named Sink: it copies `b2` to `b1`."""
    to, source, i = b.buffer(4, I32, unique=1), b.buffer(4, I32, unique=2), b.range_(4, 0)
    kernel = b.sink(b.end(b.store(b.at(to, i), b.load(b.at(source, i))), i), name="copy")
    return kernel, {"b1": np.zeros(4, np.int32), "b2": ints(4)}


def copy_of_a_list_of_instructions(d: DType = I32) -> Program:
    """A launch of a list: it copies `b2` to `b1`."""
    to, source, i = b.param(0, (4,), d), b.param(1, (4,), d), b.range_(4, 0)
    place, at = b.at(to, i), b.at(source, i)
    x = b.load(at)
    store = b.store(place, x)
    body = UOp(Op.LINEAR, (to, source, i, place, at, x, store, b.end(store, i)))
    call = UOp(Op.CALL, (body, b.buffer(4, d, unique=1), b.buffer(4, d, unique=2)), CallArg(written=(0,)))
    return UOp(Op.LINEAR, (call,)), {"b1": np.zeros(4, np.int32), "b2": ints(4)}


HAND_WRITTEN = pytest.mark.parametrize(
    "program", [copy_of_a_bare_kernel, copy_of_a_list_of_instructions], ids=["bare", "instructions"]
)


@HAND_WRITTEN
def test_a_kernel_written_by_hand_has_no_finding(program: Callable[[], Program]) -> None:
    assert bisect(*program(), LLVM, extra_orders=1) is None


@HAND_WRITTEN
@pytest.mark.parametrize("name", ["optimize", "linearize", "plan"])
def test_a_wrong_pass_on_a_kernel_written_by_hand_is_named(program: Callable[[], Program], name: str) -> None:
    """The memory that the interpreter leaves is the only right answer, from the stage on that the kernel enters at (R166)."""
    found = bisect(*program(), LLVM, behind(name, longer(AxisType.LOOP, -1)))
    assert found is not None
    assert (found.pass_, found.fault.kind, found.fault.output) == (name, "value", "b1")


def test_a_list_of_instructions_may_have_dtypes_that_select_replaces() -> None:
    """Its dtypes are judged by the target only once select has replaced them."""
    graph, _ = copy_of_a_list_of_instructions(dt.bfloat16)
    data = np.arange(4).astype(STORAGE[dt.bfloat16])
    assert dt.bfloat16 not in LLVM.dtypes
    assert bisect(graph, {"b1": np.zeros_like(data), "b2": data}, LLVM) is None


def test_every_pass_says_what_it_keeps_and_why() -> None:
    assert KEEPS.keys() == {q.name for q in PIPELINE} | {BACKEND}
    assert all(reason and isinstance(keeps, Preservation) for keeps, reason in KEEPS.values())


def test_a_finding_can_be_written_down(tmp_path: Path) -> None:
    graph, inputs = transposed()
    found = bisect(graph, inputs, LLVM, behind("rangeify", nodes(smaller_stride)))
    assert found is not None
    files = found.write_to_directory(tmp_path / "out", graph, inputs)
    assert all(f.is_file() for f in files)
    assert parse((tmp_path / "out" / "program.uops").read_text()) is graph
    parse((tmp_path / "out" / "before.uops").read_text())
    parse((tmp_path / "out" / "after.uops").read_text())
    assert np.array_equal(npz.load(tmp_path / "out" / "inputs.npz")["p0"], inputs["p0"])
    assert json.loads((tmp_path / "out" / "finding.json").read_text()) == found.to_json()
    assert found.to_json()["pass"] == "rangeify"


@pytest.mark.parametrize("seed", range(20))
def test_generated_graphs_have_no_finding(seed: int) -> None:
    c = case(seed + 5000, max_elements=60)
    try:
        found = bisect(c.graph, c.inputs, LLVM)
    except CompileError as e:
        assert "devices" in str(e)
        return
    assert found is None, str(found)
