"""Bodies: Function, Call, their Params and results, the stages of a Program, and opaque functions of a target."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.interp.bestiary import memory
from uops.interp.bestiary.access import get_or_make_named_memory_filled_if_input
from uops.interp.bestiary.frame import BestiaryCell, BestiaryFrame, BestiaryScope
from uops.interp.bestiary.lanes import BestiaryCoroutine
from uops.interp.bestiary.machine import BestiaryMachine, EvalStep
from uops.interp.bestiary.memory import BestiaryRef
from uops.interp.bestiary.plan import program_stage_to_run
from uops.interp.opaque import find_meaning, require_meaning
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import Array
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

# -------------------------------------------------------------------------------------------------------------------- Params


def find_param_dependencies(m: BestiaryMachine, frame: BestiaryFrame, u: UOp) -> Iterable[tuple[BestiaryFrame, UOp]]:
    """Return the argument of a Param in a body."""
    caller, slot = frame.scope.caller, u.arg.slot
    if caller is None:
        return ()
    if slot >= len(frame.scope.arguments):
        raise SpecError(f"Param {slot} has no argument: {len(frame.scope.arguments)} were given (R64)")
    return [(caller, frame.scope.arguments[slot])]


def eval_param(step: EvalStep) -> Any:
    """Return the memory or value of a Param.

    In a body it is the caller's: of a Function the argument itself (R64), of a Call as many elements of the same size (R86).
    """
    u, scope = step.node, step.frame.scope
    if scope.caller is None:
        key = f"p{u.arg.slot}"
        if key not in step.machine.inputs:
            raise SpecError(f"input {key!r} is missing: {u.arg.dtype} of shape {(u.arg.size,)}")
        return memory.whole_memory_ref(get_or_make_named_memory_filled_if_input(step.machine, key, u.arg.dtype, (u.arg.size,)))
    argument = scope.arguments[u.arg.slot]
    cell = step.depend_on_cell_of(argument, scope.caller)
    if scope.call is None:
        return _check_argument_dtype_and_shape(step, argument, cell)
    if not isinstance(cell.value, BestiaryRef):
        value = step.value_of(argument, scope.caller)
        _check_argument_count_and_itemsize(u, math.prod(value.shape), argument)
        return value.reshape(-1)
    _check_argument_count_and_itemsize(u, math.prod(cell.value.shape), argument)
    positions = cell.value.positions.reshape(-1)
    return BestiaryRef(cell.value.memory, positions, u.arg.dtype, None, (*cell.value.slots, (scope, u.arg.slot)))


def _check_argument_dtype_and_shape(step: EvalStep, argument: UOp, cell: BestiaryCell) -> BestiaryCell:
    """Return the argument's cell. Raises SpecError unless it has the Param's dtype and shape (R64)."""
    u = step.node
    expected = step.machine.shape(step.frame, u)
    shape = step.machine.shape(step.frame.scope.caller or step.frame, argument)
    if argument.dtype is not u.dtype or shape != expected:
        raise SpecError(f"argument {u.arg.slot} is {argument.dtype} {shape}, its Param {u.dtype} {expected} (R64)")
    return cell


def _check_argument_count_and_itemsize(u: UOp, element_count: int, argument: UOp) -> None:
    """Raise SpecError unless an argument has as many elements as its Param, of the same size (R86)."""
    if element_count != u.arg.size or argument.dtype.itemsize != u.arg.dtype.itemsize:
        got = f"{element_count} of {argument.dtype}"
        raise SpecError(f"argument {u.arg.slot} has {got}, its Param {u.arg.size} of {u.arg.dtype} (R86)")


# ----------------------------------------------------------------------------------------------------------------- Functions


def find_or_make_function_body_frame(m: BestiaryMachine, frame: BestiaryFrame, function: UOp) -> BestiaryFrame:
    """Return the frame of the body of a Function, made once per frame of the Function."""
    home = frame.frame_of_innermost_loop_around(function)
    body_frame = home.bodies.get(function)
    if body_frame is None:
        scope = BestiaryScope(m.plan_of(function.body), home, function.arguments)
        body_frame = home.bodies[function] = BestiaryFrame(scope, home.lane, home.events_before)
    return body_frame


def find_function_dependencies(m: BestiaryMachine, frame: BestiaryFrame, u: UOp) -> Iterable[tuple[BestiaryFrame, UOp]]:
    """Return the elements of a Function's body."""
    inner, body = find_or_make_function_body_frame(m, frame, u), u.body
    return [(inner, e) for e in (body.src if body.op is Op.TUPLE else (body,))]


def find_source_of_gettuple(m: BestiaryMachine, frame: BestiaryFrame, u: UOp) -> Iterable[tuple[BestiaryFrame, UOp]]:
    """Return the element that a GetTuple reads; the others are not evaluated (R64)."""
    packed = u.packed
    if packed.op is Op.TUPLE:
        return [(frame, packed.src[u.arg.index])]
    if packed.op is not Op.FUNCTION:
        raise SpecError(f"GetTuple of {packed.op.name}: only a Tuple or a Function has elements")
    return [(find_or_make_function_body_frame(m, frame, packed), packed.body.src[u.arg.index])]


def eval_gettuple(step: EvalStep) -> Any:
    """Return the cell of the element."""
    ((frame, u),) = find_source_of_gettuple(step.machine, step.frame, step.node)
    packed = step.node.packed
    if packed.op is Op.TUPLE:
        step.machine.report_to_trace(packed, None)
    return step.depend_on_cell_of(u, frame)


# --------------------------------------------------------------------------------------------------------------------- Calls


def run_call_body_in_loops_it_closes(step: EvalStep) -> BestiaryCoroutine:
    """Run the body once, or in the loops of the Ranges among the arguments that nothing else closes (R121)."""
    u, plan = step.node, step.frame.scope.plan
    ranges = plan.ranges_ended_by(u)

    def run_iteration(frame: BestiaryFrame) -> BestiaryCoroutine:
        yield from step.machine.evaluate(frame, *plan.sources_in_scope(u))
        _run_call_body_as_launch(step, frame)

    if ranges:
        yield from step.run_loops(plan.loop_body_sources(u), ranges, run_iteration)
    else:
        _run_call_body_as_launch(step, step.frame)


def _run_call_body_as_launch(step: EvalStep, frame: BestiaryFrame) -> None:
    """Run the body as a launch; every access in it belongs to the Call (R63)."""
    m, u = step.machine, step.node
    base = frame.events_before
    for a in u.arguments:
        base |= step.depend_on_cell_of(a, frame).before
    body = u.body
    if body.op is Op.CUSTOM_FUNCTION:
        _call_custom_function_and_store_results(step, frame, body)
        return
    scope = BestiaryScope(m.plan_of(body), frame, u.arguments, u)
    for top in m.run_launch(scope, base, frame.lane, lambda f: m.evaluate(f, body)):
        step.before |= top.events
        frame.add_event_bits_to_this_and_outer_frames(top.events)


def eval_program(step: EvalStep) -> Any:
    """Run the stage of a PROGRAM that stands for it (R115)."""
    step.depend_on_cell_of(program_stage_to_run(step.node))


# ----------------------------------------------------------------------------------------- opaque code and functions


def _require_meaning(op: Op, name: str) -> Any:
    """Return the registered meaning; a CUSTOMI may have that of a Custom. Raises Trap where there is none."""
    is_custom = op is Op.CUSTOMI and find_meaning(op, name) is None and find_meaning(Op.CUSTOM, name) is not None
    return require_meaning(Op.CUSTOM if is_custom else op, name)


@dataclass(frozen=True, eq=False, slots=True)
class BestiaryMemoryOperand:
    """A reference as a registered meaning sees it."""

    step: EvalStep
    ref: BestiaryRef

    def load(self) -> Array:
        """Return the elements."""
        return self.step.load_and_log_event(self.ref, None)

    def store(self, value: Array) -> None:
        """Write the elements."""
        step = self.step
        step.before |= step.store_and_return_event_bit(step.node, step.frame, self.ref, np.asarray(value), None, step.before)


def call_meaning_on_values_and_memories(step: EvalStep) -> Any:
    """Evaluate a line of target code by its registered meaning, which gets references as memory operands."""
    u = step.node
    operands = [
        BestiaryMemoryOperand(step, cell.value)
        if isinstance((cell := step.depend_on_cell_of(x)).value, BestiaryRef)
        else step.value_of(x)
        for x in u.src
    ]
    value = _require_meaning(u.op, u.arg.fmt)(*operands)
    return None if u.dtype is dt.void else value


def eval_custom_function(step: EvalStep) -> Any:
    """Call a CustomFunction outside of a Call, where it has no memory to work on."""
    _require_meaning(step.node.op, step.node.arg.name)(*step.values_of(step.node.src))


def _call_custom_function_and_store_results(step: EvalStep, frame: BestiaryFrame, body: UOp) -> None:
    """Call a CustomFunction with the contents of all arguments, and store the new contents of those that are written."""
    u = step.node
    arguments = u.arguments
    written = range(len(arguments)) if u.arg is None or u.arg.written is None else sorted(u.arg.written)
    step.machine.report_to_trace(body, None)
    returned = _require_meaning(body.op, body.arg.name)(*[step.value_of(a, frame).reshape(-1) for a in arguments])
    results = returned if isinstance(returned, tuple) else (returned,)
    if len(results) != len(written):
        raise SpecError(f"{describe(body)} gave {len(results)} results for {len(written)} written arguments (R63)")
    before_stores = step.before
    for k, value in zip(written, results):
        ref = step.reference_of(arguments[k], frame)
        step.before |= step.store_and_return_event_bit(body, frame, ref, np.asarray(value).reshape(ref.shape), None, before_stores)
