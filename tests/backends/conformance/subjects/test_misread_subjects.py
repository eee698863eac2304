"""Every claim of a row that judges no backend has a cell that fails when what the claim is about is broken, one claim at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uops.backends import registry
from uops.backends.conformance.kernel_controls import rebuild
from uops.backends.conformance.model import ConformanceTier
from uops.backends.conformance.subjects import properties, run, stages
from uops.backends.conformance.subjects.functions import generate_function_cases
from uops.backends.conformance.subjects.gradients import generate_float64_gradient_cases_per_op
from uops.backends.conformance.subjects.model import SubjectCase, claim_of_cell
from uops.backends.contract import CompilerBackend
from uops.backends.front import Tensor
from uops.compiler.config import Config
from uops.compiler.pipeline import STAGES, LoweringState, Pass, passes_from
from uops.compiler.tensor import trace
from uops.spec.ir import axes, node
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.gradients.base import Gradient
from uops.spec.rows.gradients.reverse import GRADIENTS
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.rows import ROWS, rows_of_subject

#: Breaks what one claim is about, for the time of a test.
Break = Callable[[pytest.MonkeyPatch], None]


def failing_claims(cases: Iterable[SubjectCase]) -> set[str]:
    """The claims of which a cell fails."""
    return {claim_of_cell(t.cell).id for case in cases for t in run._ask(case) if t.failed}


def claims_of(subject: RowSubject) -> list[str]:
    return [c.id for row in rows_of_subject(subject) for c in row.claims]


# ------------------------------------------------------------------------------------------------------------------- front end


def replace_builder(**builders: Any) -> Break:
    """Trace functions with other builders of nodes."""
    return lambda patch: patch.setattr(trace, "B", SimpleNamespace(**vars(b) | builders))


def skip_dicts(patch: pytest.MonkeyPatch) -> None:
    given = trace.map_tensors
    patch.setattr(trace, "map_tensors", lambda value, f: value if isinstance(value, dict) and "first" in value else given(value, f))


def forget_identity(patch: pytest.MonkeyPatch) -> None:
    """Take a Tensor that is given again for another one."""
    given = trace._trace_to_function_node

    def trace_copies(f: Any, args: Any, kwargs: Any, arg: Any) -> Any:
        seen: list[UOp] = []

        def copy_again(t: Tensor) -> Tensor:
            seen.append(t.uop)
            return Tensor.of(b.detach(t.uop)) if t.uop in seen[:-1] else t

        return given(f, trace.map_tensors(args, copy_again), kwargs, arg)

    patch.setattr(trace, "_trace_to_function_node", trace_copies)


def change_closed_values(change: Callable[[trace.ClosedValues, list[UOp]], trace.ClosedValues]) -> Break:
    """Change the bodies and captured Buffers of a function, given its inputs."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        given = trace._replace_inputs_and_captures_by_params
        patch.setattr(
            trace,
            "_replace_inputs_and_captures_by_params",
            lambda values, order, inputs: change(given(values, order, inputs), inputs),
        )

    return apply


def number_params_from_one(closed: trace.ClosedValues, inputs: list[UOp]) -> trace.ClosedValues:
    def renumber(u: UOp) -> UOp:
        return u.replace(arg=replace(u.arg, slot=u.arg.slot + 1)) if u.op is Op.PARAM else u

    return closed._replace(bodies=[rebuild(body, renumber) for body in closed.bodies])


def capture_first_input(closed: trace.ClosedValues, inputs: list[UOp]) -> trace.ClosedValues:
    return closed._replace(captured=[b.buffer(u.arg.size, u.dtype, unique=10**6) for u in closed.captured])


def leave_buffers(closed: trace.ClosedValues, inputs: list[UOp]) -> trace.ClosedValues:
    def restore(u: UOp) -> UOp:
        captured = u.op is Op.PARAM and u.arg.slot >= len(inputs)
        return b.reshape(closed.captured[u.arg.slot - len(inputs)], u.shape) if captured else u

    return closed._replace(bodies=[rebuild(body, restore) for body in closed.bodies])


def rename_keys(patch: pytest.MonkeyPatch) -> None:
    given = trace.map_tensors

    def rename(value: Any, f: Any) -> Any:
        return {"other": value["key"]} if isinstance(value, dict) and "key" in value else given(value, f)

    patch.setattr(trace, "map_tensors", rename)


def swap_arguments(body: UOp, *arguments: UOp) -> UOp:
    return b.function(body, *arguments[::-1]) if len({(u.shape, u.dtype) for u in arguments}) == 1 else b.function(body, *arguments)


def enlarge_cotangents(op: Op) -> Break:
    """Let the gradient rule of an op give a sixteenth too much."""

    def break_rule(patch: pytest.MonkeyPatch) -> None:
        right = GRADIENTS[op].rule
        assert right is not None

        def wrong(u: UOp, g: Any, needed: Any) -> Any:
            for operand, c in right(u, g, needed):
                yield operand, tuple(x and b.mul(x, 1.0625) for x in c) if isinstance(c, tuple) else b.mul(c, 1.0625)

        patch.setitem(GRADIENTS, op, Gradient("planted", wrong))

    return break_rule


FRONT_END: dict[str, Break] = {
    f"GRADIENT.{row.name.upper()}.C1": enlarge_cotangents(row.op) for row in ROWS.values() if row.gradient.rule is not None
} | {
    "FUNCTION.EXTRACTINPUTS.C1": skip_dicts,
    "FUNCTION.EXTRACTINPUTS.C2": forget_identity,
    "FUNCTION.RUN.C1": lambda patch: patch.setattr(trace, "forbid_realization", lambda name: nullcontext()),
    "FUNCTION.PARAMETERIZE.C1": change_closed_values(number_params_from_one),
    "FUNCTION.PARAMETERIZE.C2": change_closed_values(capture_first_input),
    "FUNCTION.PARAMETERIZE.C3": change_closed_values(leave_buffers),
    "FUNCTION.WRAPBODY.C1": replace_builder(tuple_=lambda *values: b.tuple_(*values, values[-1])),
    "FUNCTION.WRAPBODY.C2": replace_builder(function=lambda body, *arguments: b.function(body, *arguments, arguments[0])),
    "FUNCTION.RETURN.C1": replace_builder(get=lambda packed, k: b.get(packed, 0)),
    "FUNCTION.RETURN.C2": rename_keys,
    "FUNCTION.RESOLVE.C1": replace_builder(function=swap_arguments),
}


@pytest.mark.parametrize("claim", claims_of(RowSubject.FRONT_END))
def test_a_broken_row_of_the_front_end_fails_its_cell(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FRONT_END[claim](monkeypatch)
    of_claim = [case for case in generate_float64_gradient_cases_per_op() if claim_of_cell(case.cells[0]).id == claim]
    assert claim in failing_claims(of_claim or generate_function_cases((dt.int32,)))


# --------------------------------------------------------------------------------------------------------------- specification


def change_rule(name: str, op: Op, rule: Callable[[UOp], Any]) -> Break:
    """Derive a property of an op by another rule."""
    return lambda patch: patch.setitem(node.RULES[f"_{name}"], op, rule)


def change_values_of_programs(change: Callable[[Any], Any]) -> Break:
    """Have the interpreter give other values of programs than their nodes say."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        given = properties.run

        def run_and_change(graph: UOp, inputs: Any) -> Any:
            return SimpleNamespace(values=[change(np.asarray(v)) for v in given(graph, inputs).values])

        patch.setattr(properties, "run", run_and_change)

    return apply


def raise_priority(name: str) -> Break:
    def apply(patch: pytest.MonkeyPatch) -> None:
        row = axes.AXIS_TABLE[properties.AXIS_NAMES[name]]
        patch.setitem(axes.AXIS_TABLE, properties.AXIS_NAMES[name], replace(row, priority=row.priority + 4))

    return apply


def bound_exactly(u: UOp) -> tuple[Any, Any]:
    """Bounds of a sum that are rounded to nearest."""
    (lo, hi), (other_lo, other_hi) = u.src[0].min_max or (0, 0), u.src[1].min_max or (0, 0)
    return lo + other_lo, hi + other_hi


SPECIFICATION: dict[str, Break] = {
    "PROPERTY.DTYPE.C1": change_values_of_programs(lambda value: value.astype(np.uint16)),
    "PROPERTY.DTYPE.C2": change_rule("dtype", Op.CMPLT, lambda u: u.src[0].dtype),
    "PROPERTY.DTYPE.C3": change_rule("dtype", Op.STORE, lambda u: u.src[1].dtype),
    "PROPERTY.SHAPE.C1": change_values_of_programs(lambda value: value[..., None]),
    "PROPERTY.SHAPE.C2": change_rule("shape", Op.CMPNE, lambda u: u.src[0].shape),
    "PROPERTY.SHAPE.C3": lambda patch: patch.setattr(node, "MOST_AXES", 99),
    "PROPERTY.DEVICE.C1": change_rule("device", Op.CMPNE, lambda u: u.src[0].device),
    "PROPERTY.DEVICE.C2": change_rule("device", Op.CONTIGUOUS, lambda u: "D7"),
    "PROPERTY.DEVICE.C3": change_rule("device", Op.CONST, lambda u: "D0"),
    "PROPERTY.MIN_MAX.C1": change_values_of_programs(lambda value: np.full_like(value, 77)),
    "PROPERTY.MIN_MAX.C2": change_rule("min_max", Op.ADD, bound_exactly),
    "PROPERTY.AXIS.C1": change_rule("axis", Op.BUFFER, lambda u: None),
    "PROPERTY.AXIS.C2": change_rule("axis", Op.LOAD, lambda u: None),
    "PROPERTY.AXIS.C3": change_rule("axis", Op.PERMUTE, lambda u: u.src[0].axis),
    "PROPERTY.AXIS.C4": change_rule("axis", Op.REDUCE, lambda u: u.src[0].axis),
    "PROPERTY.AXIS.C5": change_rule("axis", Op.CMPNE, lambda u: u.src[-1].axis),
    **{f"TABLE.PRIORITY.C{k}": raise_priority(name) for k, name in enumerate(properties.PRIORITY, 1)},
}


@cache
def list_property_cases() -> tuple[SubjectCase, ...]:
    return tuple(properties.generate_property_cases(ConformanceTier.SMOKE))


@pytest.mark.parametrize("claim", claims_of(RowSubject.SPECIFICATION))
def test_a_broken_property_fails_its_cell(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [c for c in list_property_cases() if claim in {claim_of_cell(x).id for x in c.cells}]
    SPECIFICATION[claim](monkeypatch)
    assert any(claim in failing_claims([c]) for c in cases)


# -------------------------------------------------------------------------------------------------------------------- compiler

#: Changes the graph after a pass, given the graph before it.
Change = Callable[[UOp, UOp, LoweringState], UOp]
#: Programs whose stages are broken: they have sums, effects in order, memory between kernels, loops in parallel and in order.
PROGRAMS = (
    "Reduce/Reduce/int32/add-rows", "Reduce/Reduce/int32/add-product", "Ordering/After/int64/chain", "Load/Load/float32/copy",
    "Store/Store/float32/reversed", "Call/Call/float32/one-output", "Movement/Permute/float32/transpose",
    "Bestiary/VECTORIZE/int64/scalars", "AxisType/LOOP/int64/in-order",
)  # fmt: skip


@cache
def list_programs() -> tuple[Any, ...]:
    programs = [c for c in stages.list_programs_every_target_compiles(ConformanceTier.FULL) if c.id in PROGRAMS]
    assert {c.id for c in programs} == set(PROGRAMS)
    return tuple(programs)


def change_bodies(change: Callable[[UOp], UOp]) -> Change:
    """Change every node of the kernels, or of the function that is not split into kernels."""

    def apply(before: UOp, after: UOp, state: LoweringState) -> UOp:
        if after.op is Op.CALL:
            return after.replace(src=(rebuild(after.body, change), *after.arguments))
        return after.replace(src=tuple([c.replace(src=(rebuild(c.body, change), *c.arguments)) for c in after.src]))

    return apply


def store_another_value(u: UOp) -> UOp:
    if u.op is not Op.STORE:
        return u
    value = b.neg(u.value) if u.value.dtype.is_float else b.xor(u.value, b.const(1, u.value.dtype))
    return u.replace(src=(u.src[0], value, *u.src[2:]))


def list_instructions_again(change: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """Change instructions, and list those that the change made before the instruction that takes them."""

    def apply(u: UOp) -> UOp:
        if u.op is not Op.LINEAR:
            return change(u)
        listed: dict[UOp, None] = {}
        for x in u.src:
            for s in x.src:
                if s.op in (Op.XOR, Op.NEG, Op.CONST) and s not in listed:
                    listed.update(dict.fromkeys([*(t for t in s.src if t.op is Op.CONST), s]))
            listed[x] = None
        return u.replace(src=tuple(listed))

    return apply


def vectorize_values(u: UOp) -> UOp:
    return u.replace(src=(u.src[0], b.stack(u.value, u.value), *u.src[2:])) if u.op is Op.STORE and not u.value.shape else u


def run_loops_in_parallel(u: UOp) -> UOp:
    sequential = u.op is Op.RANGE and u.arg.type in (AxisType.LOOP, AxisType.REDUCE)
    return u.replace(arg=replace(u.arg, type=AxisType.GLOBAL)) if sequential else u


def reverse_instructions(u: UOp) -> UOp:
    return u.replace(src=(*u.src[-2::-1], u.src[-1])) if u.op is Op.LINEAR else u


def keep_memory_in_function(before: UOp, after: UOp, state: LoweringState) -> UOp:
    memory = after.arguments

    def restore(u: UOp) -> UOp:
        if u.op is not Op.PARAM or u.arg.slot is None or u.arg.slot >= len(memory) or u.arg.name is not None:
            return u
        argument = memory[u.arg.slot]
        return argument if argument.shape == u.shape and argument.dtype is u.dtype else u

    return after.replace(src=(rebuild(after.body, restore), *memory))


def replace_arguments(new: Callable[[UOp, LoweringState], UOp]) -> Change:
    def apply(before: UOp, after: UOp, state: LoweringState) -> UOp:
        return after.replace(src=tuple([c.replace(src=(c.body, *[new(a, state) for a in c.arguments])) for c in after.src]))

    return apply


def merge_temporaries(argument: UOp, state: LoweringState) -> UOp:
    """Place all memory that no caller sees at the first byte of its arena."""
    is_planned = argument.op is Op.SLICE and stages.base_memory(argument) not in state.external
    return argument.replace(src=(argument.operand, b.index(0))) if is_planned else argument


def move_outputs(argument: UOp, state: LoweringState) -> UOp:
    is_seen = argument in state.external and argument.op is Op.BUFFER
    return b.buffer(argument.arg.size, argument.dtype, unique=argument.arg.unique + 10**6) if is_seen else argument


def do_nothing(before: UOp, after: UOp, state: LoweringState) -> UOp:
    return before


def change_values(before: UOp, after: UOp, state: LoweringState) -> UOp:
    return change_bodies(list_instructions_again(store_another_value))(before, after, state)


def tag_root(before: UOp, after: UOp, state: LoweringState) -> UOp:
    """A tag is legal in no dialect behind TENSOR."""
    return after.replace(tag="left over")


COMPILER: dict[str, Change] = {
    **{f"STAGE.{stage.upper()}.C1": tag_root for stage in STAGES},
    **{f"STAGE.{stage.upper()}.C2": change_values for stage in STAGES},
    "STAGE.CALLIFY.C3": keep_memory_in_function,
    "STAGE.RANGEIFY.C3": change_bodies(vectorize_values),
    "STAGE.OPTIMIZE.C3": change_bodies(run_loops_in_parallel),
    "STAGE.EXPAND.C3": do_nothing,
    "STAGE.SELECT.C3": do_nothing,
    "STAGE.SELECT.C4": do_nothing,
    "STAGE.LINEARIZE.C3": change_bodies(reverse_instructions),
    "STAGE.PLAN.C3": replace_arguments(merge_temporaries),
    "STAGE.PLAN.C4": replace_arguments(move_outputs),
    "STAGE.RENDER.C3": do_nothing,
}


def change_last_pass(stage: str, change: Change) -> Callable[..., tuple[Pass, ...]]:
    """The passes of a lowering, of which the last of a stage is followed by a change of the whole launch."""

    def passes(entry: Any) -> tuple[Pass, ...]:
        given = passes_from(entry)
        last = max((k for k, p in enumerate(given) if p.stage == stage), default=None)
        return tuple(_Changed(p, change) if k == last else p for k, p in enumerate(given))  # type: ignore[misc]

    return passes


class _Changed:
    """A pass with a change after it, which the tests' `run_pass` applies."""

    def __init__(self, given: Pass, change: Change) -> None:
        self.given, self.change = given, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.given, name)


@pytest.mark.parametrize("claim", claims_of(RowSubject.COMPILER))
def test_a_broken_stage_fails_its_cell(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_pass = stages.run_pass_and_verify

    def run_changed(p: Any, graph: UOp, state: LoweringState) -> UOp:
        if not isinstance(p, _Changed):
            return run_pass(p, graph, state)
        return p.change(graph, run_pass(p.given, graph, state), state)

    monkeypatch.setattr(stages, "passes_from", change_last_pass(claim.split(".")[1].lower(), COMPILER[claim]))
    monkeypatch.setattr(stages, "run_pass_and_verify", run_changed)
    backend = registry.create_backend("llvm")
    assert isinstance(backend, CompilerBackend)
    cases = [stages._make_case(c, backend.target, Config()) for c in list_programs()]
    assert any(claim in failing_claims([c]) for c in cases)


def test_the_programs_pass_where_nothing_is_broken() -> None:
    backend = registry.create_backend("llvm")
    assert isinstance(backend, CompilerBackend)
    assert failing_claims(stages._make_case(c, backend.target, Config()) for c in list_programs()) == set()
