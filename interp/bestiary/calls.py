"""Bodies: Function, Call, their Params and results, the stages of a Program, and what only the target knows the meaning of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.interp.bestiary import memory
from uops.interp.bestiary.access import given
from uops.interp.bestiary.flow import loop_needs
from uops.interp.bestiary.frame import Cell, Frame, Scope
from uops.interp.bestiary.lanes import Run
from uops.interp.bestiary.machine import Machine, Step
from uops.interp.bestiary.memory import Ref
from uops.interp.bestiary.plan import stage
from uops.interp.opaque import meaning
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import Array
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

# -------------------------------------------------------------------------------------------------------------------- Params


def param_needs(m: Machine, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
    caller, slot = frame.scope.caller, u.arg.slot
    if caller is None:
        return ()
    if slot >= len(frame.scope.arguments):
        raise SpecError(f"Param {slot} has no argument: {len(frame.scope.arguments)} were given (R64)")
    return [(caller, frame.scope.arguments[slot])]


def param(s: Step) -> Any:
    """Memory of the caller; of a Function its argument itself (R64), of a Call as many elements of the same size (R86)."""
    u, scope = s.node, s.frame.scope
    if scope.caller is None:
        key = f"p{u.arg.slot}"
        if key not in s.machine.inputs:
            raise SpecError(f"input {key!r} is missing: {u.arg.dtype} of shape {(u.arg.size,)}")
        return memory.whole(given(s.machine, key, u.arg.dtype, (u.arg.size,)))
    argument = scope.arguments[u.arg.slot]
    cell = s.cell(argument, scope.caller)
    if scope.call is None:
        return _of_function(s, argument, cell)
    if not isinstance(cell.value, Ref):
        value = s.value(argument, scope.caller)
        _check_size(u, math.prod(value.shape), argument)
        return value.reshape(-1)
    _check_size(u, math.prod(cell.value.shape), argument)
    places = cell.value.places.reshape(-1)
    return Ref(cell.value.memory, places, u.arg.dtype, None, (*cell.value.slots, (scope, u.arg.slot)))


def _of_function(s: Step, argument: UOp, cell: Cell) -> Cell:
    u = s.node
    wanted = s.machine.shape(s.frame, u)
    shape = s.machine.shape(s.frame.scope.caller or s.frame, argument)
    if argument.dtype is not u.dtype or shape != wanted:
        raise SpecError(f"argument {u.arg.slot} is {argument.dtype} {shape}, its Param {u.dtype} {wanted} (R64)")
    return cell


def _check_size(u: UOp, elements: int, argument: UOp) -> None:
    if elements != u.arg.size or argument.dtype.itemsize != u.arg.dtype.itemsize:
        got = f"{elements} of {argument.dtype}"
        raise SpecError(f"argument {u.arg.slot} has {got}, its Param {u.arg.size} of {u.arg.dtype} (R86)")


# ----------------------------------------------------------------------------------------------------------------- Functions


def body_of(m: Machine, frame: Frame, u: UOp) -> Frame:
    """The frame of the body of a Function, made once per frame of the Function."""
    home = frame.home(u)
    found = home.bodies.get(u)
    if found is None:
        scope = Scope(m.plan(u.src[0]), home, u.src[1:])
        found = home.bodies[u] = Frame(scope, home.lane, home.base)
    return found


def function_needs(m: Machine, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
    inner, body = body_of(m, frame, u), u.src[0]
    return [(inner, e) for e in (body.src if body.op is Op.TUPLE else (body,))]


def element_needs(m: Machine, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
    """Only the element asked for is evaluated (R64)."""
    packed = u.src[0]
    if packed.op is Op.TUPLE:
        return [(frame, packed.src[u.arg.index])]
    if packed.op is not Op.FUNCTION:
        raise SpecError(f"GetTuple of {packed.op.name}: only a Tuple or a Function has elements")
    return [(body_of(m, frame, packed), packed.src[0].src[u.arg.index])]


def element(s: Step) -> Any:
    ((frame, u),) = element_needs(s.machine, s.frame, s.node)
    if s.node.src[0].op is Op.TUPLE:
        s.machine.met(s.node.src[0], None)
    return s.cell(u, frame)


# --------------------------------------------------------------------------------------------------------------------- Calls


def call(s: Step) -> Run:
    """The body, run once, or in the loops of the Ranges among the arguments that nothing else closes (R121)."""
    u, plan = s.node, s.frame.scope.plan
    ranges = plan.closes(u)

    def leaf(frame: Frame) -> Run:
        yield from s.machine.evaluate(frame, *plan.operands(u))
        _execute(s, frame)

    if ranges:
        yield from s.loops(plan.body(u), ranges, leaf)
    else:
        _execute(s, s.frame)


call_needs = loop_needs


def _execute(s: Step, frame: Frame) -> None:
    """A launch: every access in it belongs to the Call (R63)."""
    m, u = s.machine, s.node
    base = frame.base
    for a in u.src[1:]:
        base |= s.cell(a, frame).before
    body = u.src[0]
    if body.op is Op.CUSTOM_FUNCTION:
        _custom_function(s, frame, body)
        return
    scope = Scope(m.plan(body), frame, u.src[1:], u)
    for top in m.launch(scope, base, frame.lane, lambda f: m.evaluate(f, body)):
        s.before |= top.events
        frame.note(top.events)


def program(s: Step) -> Any:
    s.cell(stage(s.node))


# --------------------------------------------------------------------------------------------------- what the target defines


def _meaning(op: Op, name: str) -> Any:
    """The registered meaning; a CUSTOMI may have that of a Custom."""
    found = meaning(op, name)
    if found is None and op is Op.CUSTOMI:
        found = meaning(Op.CUSTOM, name)
    if found is None:
        raise Trap(f"Opaque({name}): no meaning is registered for this {op.name}")
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """Memory in the hands of a registered meaning."""

    step: Step
    ref: Ref

    def load(self) -> Array:
        return self.step.load(self.ref, None)

    def store(self, value: Array) -> None:
        s = self.step
        s.before |= s.store(s.node, s.frame, self.ref, np.asarray(value), None, s.before)


def custom(s: Step) -> Any:
    """A line of target code, by its registered meaning; it gets references as places."""
    u = s.node
    given = [Place(s, cell.value) if isinstance((cell := s.cell(x)).value, Ref) else s.value(x) for x in u.src]
    value = _meaning(u.op, u.arg.fmt)(*given)
    return None if u.dtype is dt.void else value


def custom_function(s: Step) -> Any:
    """Outside of a Call it has no memory to work on."""
    _meaning(s.node.op, s.node.arg.name)(*s.values(s.node.src))


def _custom_function(s: Step, frame: Frame, body: UOp) -> None:
    """The arguments' contents in, the written ones' new contents out, in order."""
    u = s.node
    arguments = u.src[1:]
    written = tuple(range(len(arguments))) if u.arg is None or u.arg.written is None else u.arg.written
    before = s.before
    s.machine.met(body, None)
    found = _meaning(body.op, body.arg.name)(*[s.value(a, frame).reshape(-1) for a in arguments])
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(written):
        raise SpecError(f"{describe(body)} gave {len(results)} results for {len(written)} written arguments (R63)")
    for k, value in zip(written, results):
        ref = s.reference(arguments[k], frame)
        s.store(body, frame, ref, np.asarray(value).reshape(ref.shape), None, before | s.before)
