"""Functions and Calls to be compiled by themselves: each becomes the Calls of the kernels of its body.

Takes: a program with such Functions and Calls only, and what lowers a body to a launch of scheduled kernels. Gives: the same
program without them. Spec: Function, Call; `CallArg.precompile`; R64 (Function), R181 (precompile).

Equal bodies have one launch, so their kernels are compiled once. No kernel joins what a body computes with anything around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.views import view_front_of_memory
from uops.spec.errors import SpecError
from uops.spec.ir import build as B
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import CALL_LIKE, Op
from uops.spec.ir.scope import base_memory, is_variable
from uops.spec.verify.infer import is_kernel_body


class ProgramOutput(NamedTuple):
    """One value of a root: the Buffer that receives it, its shape (a dimension may be symbolic) and its dtype."""

    buffer: UOp
    shape: tuple[Dim, ...]
    dtype: DType


class LoweredBody(NamedTuple):
    """The body of a Function or Call as a launch, whose arguments are the body's Params and Buffers, and its values."""

    launch: UOp
    outputs: tuple[ProgramOutput, ...]


class ProgramWithoutFunctions(NamedTuple):
    """A program without Functions, and the Buffers that the launches of bodies use."""

    root: UOp
    temporaries: tuple[UOp, ...]


def is_precompiled(u: UOp) -> bool:
    """Return True for a Function or Call that is to be compiled by itself; a kernel is so in any case."""
    return u.op in CALL_LIKE and u.arg is not None and u.arg.precompile and not is_kernel_body(u.body)


def call_precompiled_bodies(root: UOp, lower_body: Callable[[UOp], LoweredBody], first_unique: int) -> ProgramWithoutFunctions:
    """Replace each Function and Call that is compiled by itself. New Buffers are numbered from `first_unique`."""
    lowered: dict[UOp, LoweredBody] = {}
    done: dict[UOp, UOp] = {}
    temporaries: list[UOp] = []
    bodies = {u.body for u in toposort(root) if is_precompiled(u)}
    for u in toposort(root, gate=lambda u: u not in bodies):
        if u in bodies:
            continue
        src = tuple([done.get(s, s) for s in u.src])
        if is_precompiled(u):
            if u.body not in lowered:
                lowered[u.body] = lower_body(u.body)
            done[u] = _call_launch(lowered[u.body], src[1:], u, first_unique, temporaries)  # arguments
        elif u.op is Op.GETTUPLE and src != u.src:
            done[u] = src[0].src[u.arg.index]  # of the Tuple packed
        elif src != u.src:
            done[u] = u.replace(src=src)
    return ProgramWithoutFunctions(done.get(root, root), tuple(temporaries))


def _call_launch(body: LoweredBody, arguments: tuple[UOp, ...], node: UOp, first_unique: int, temporaries: list[UOp]) -> UOp:
    """Return the values of a body on arguments as a Tuple; of the body of a Call, its effects."""
    memory = _bind_memory(body.launch, arguments, node, first_unique, temporaries)
    written = {base_memory(c.arguments[k]) for c in body.launch.instructions for k in c.arg.written}
    previous: UOp | None = None
    for call in body.launch.instructions:
        passed = [substitute(a, memory) for a in call.arguments]
        if previous is not None:
            passed = [B.after(a, previous) if m in written else a for a, m in zip(passed, map(base_memory, call.arguments))]
        previous = call.replace(src=(call.body, *passed))
    if node.op is Op.CALL:
        return B.group() if previous is None else previous
    variables = {m: a for m, a in memory.items() if is_variable(m)}
    return B.tuple_(*[_read_output(o, memory[o.buffer], previous, variables) for o in body.outputs])


def _bind_memory(launch: UOp, arguments: tuple[UOp, ...], node: UOp, first_unique: int, temporaries: list[UOp]) -> dict[UOp, UOp]:
    """Return what each memory and variable of a launch is in the program: an argument, or a new Buffer."""
    bound: dict[UOp, UOp] = {}
    for m in dict.fromkeys(base_memory(a) for call in launch.instructions for a in call.arguments):
        if m.op is Op.BUFFER:
            bound[m] = m.replace(arg=replace(m.arg, unique=first_unique + len(temporaries)))
            temporaries.append(bound[m])
        elif m.op is Op.PARAM and m.arg.slot is not None:
            if m.arg.slot >= len(arguments):
                name = node.op.name
                raise SpecError(f"{name} has {len(arguments)} arguments but its body uses Param {m.arg.slot} (R64)")
            bound[m] = arguments[m.arg.slot]
        else:
            bound[m] = m  # a variable of the caller, or constant memory
    return bound


def _read_output(output: ProgramOutput, buffer: UOp, last_call: UOp | None, variables: dict[UOp, UOp]) -> UOp:
    """Return a value of a launch after its last Call, which holds its elements at the front of a Buffer."""
    value = buffer if last_call is None else B.after(buffer, last_call)
    shape = [substitute(n, variables) if isinstance(n, UOp) else n for n in output.shape]
    return B.cast(view_front_of_memory(value, shape), output.dtype)
