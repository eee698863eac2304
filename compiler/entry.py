"""Programs that enter the compiler behind its first stage: kernels written by hand, and launches that another tool lowered.

Takes: a graph of any dialect. Gives: a launch, that is, a Linear of Calls of kernels, and what its callers see of it. Spec: Call,
Linear, Sink; R63 (Call), R125 (Special), R166 (kernels written by hand).

A graph that is one kernel becomes a launch of one Call. Its free Params, and its GLOBAL Buffers, become arguments. A graph of the
second document is legalized first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.buffers import highest_unique
from uops.compiler.passes.callify.callify import CallifiedProgram, ProgramOutput
from uops.compiler.passes.callify.kernel_calls import find_written_slots, pass_memory_to_kernel_calls
from uops.compiler.place import untranslatable_error
from uops.spec.errors import SpecError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ParamArg
from uops.spec.ir.axes import SEQUENTIAL
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory
from uops.spec.verify.dialects import KERNEL_OPS, LAUNCH_DIALECTS, Dialect
from uops.spec.verify.infer import infer_dialect

#: What an argument of a launch may be, below its views.
_MEMORY = frozenset({Op.BUFFER, Op.PARAM, Op.BINARY})

#: Dialects of kernels that OptOps may still be applied to.
_BEFORE_EXPAND = frozenset({Dialect.KERNEL, Dialect.SCHEDULED})


class ProgramInterface(NamedTuple):
    """What the caller of a program sees: its values, and the memory and variables that it takes; `written` are those it writes."""

    outputs: tuple[ProgramOutput, ...]
    arguments: tuple[UOp, ...]
    written: frozenset[UOp]


def convert_to_launch(graph: UOp, dialect: Dialect) -> tuple[UOp, Dialect]:
    """Return a graph of a kernel dialect as a launch, with its dialect; a graph of TENSOR, or one that legalizes to it, as it is.

    A launch of KERNEL may be of a later dialect, as `infer_dialect` does not tell them apart: it is of the first that it is legal
    in. Raises SpecError for a kernel that gives a value, since a launch has results in memory alone.
    """
    if dialect is Dialect.BESTIARY:
        from uops.spec.bestiary.legalize import legalize  # late: only this dialect needs it

        graph = legalize(graph)
        dialect = infer_dialect(graph)
    if dialect in (Dialect.TENSOR, Dialect.CALLIFIED):
        return graph, dialect
    launch = graph if is_launch(graph) else wrap_kernel_as_launch(graph)
    dialect = _find_first_legal_dialect(launch) if dialect is Dialect.KERNEL else dialect
    return mark_kernels_that_keep_their_loops(launch, dialect) if dialect in _BEFORE_EXPAND else launch, dialect


def _find_first_legal_dialect(launch: UOp) -> Dialect:
    """Return the first dialect of launches in which a launch is well-formed; KERNEL for one that is in none."""
    from uops.spec.verify.verifier import find_broken_claims  # late: programs of TENSOR do not need it

    return next((d for d in LAUNCH_DIALECTS if not find_broken_claims(launch, d)), Dialect.KERNEL)


def is_launch(graph: UOp) -> bool:
    """Return True for a Linear of Calls."""
    return graph.op is Op.LINEAR and all(u.op is Op.CALL for u in graph.src)


def wrap_kernel_as_launch(kernel: UOp) -> UOp:
    """Return a launch of one Call of `kernel`, whose free Params and GLOBAL Buffers become its arguments.

    Raises SpecError if the root of the kernel is a value, or if it breaks a claim of its dialect.
    """
    if kernel.dtype is not dt.void:
        raise SpecError(f"a launch has results in memory alone, but the root is {kernel.op.name.lower()}: put a Sink on top (R166)")
    order = toposort(kernel)
    memory = [u for u in order if u.op is Op.PARAM or (u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.GLOBAL)]
    params = {u: _param_for_argument(u, k) for k, u in enumerate(memory)}
    call = UOp(Op.CALL, (substitute(kernel, params), *memory))
    return UOp(Op.LINEAR, (pass_memory_to_kernel_calls(call, highest_unique(order) + 1).root,))


def _param_for_argument(argument: UOp, slot: int) -> UOp:
    if argument.op is Op.PARAM:
        return argument.replace(arg=replace(argument.arg, slot=slot, device=None))
    return UOp(Op.PARAM, (B.shape_vector(argument.shape),), ParamArg(slot, argument.dtype))


def mark_kernels_that_keep_their_loops(launch: UOp, dialect: Dialect) -> UOp:
    """Return a launch in which every kernel that may not be scheduled says so (R166): in SCHEDULED, all of them."""
    calls = []
    for call in launch.src:
        body, *arguments = call.src
        if body.op is Op.SINK and not body.arg.scheduled and (dialect is Dialect.SCHEDULED or not _may_be_scheduled(call)):
            body = body.replace(arg=replace(body.arg, scheduled=True))
        calls.append(call.replace(src=(body, *arguments)))
    return launch.replace(src=tuple(calls))


def _may_be_scheduled(call: UOp) -> bool:
    """Return True if a kernel is one of those that rangeify makes: the iterations of its one Store may run in any order.

    Its loops are LOOP or REDUCE, and no bound depends on another loop. Of the memory that it writes, an iteration reads at most
    the element that it writes.
    """
    order = toposort(call.body)
    ranges = [u for u in order if u.op is Op.RANGE]
    types = {u.arg.type for u in ranges}
    if any(u.op is Op.RANGE for r in ranges for u in toposort(r.bound)):
        return False
    stores = [u for u in order if u.op is Op.STORE]
    if not {u.op for u in order} <= KERNEL_OPS - {Op.AFTER} or not types <= SEQUENTIAL or len(stores) != 1:
        return False
    (store,) = stores
    written = base_memory(store.buffer)
    memory = base_memory(call.arguments[written.arg.slot])
    is_shared = any(base_memory(a) is memory for k, a in enumerate(call.arguments) if k != written.arg.slot)
    loads = [u for u in order if u.op is Op.LOAD and base_memory(u.buffer) is written]
    return not is_shared and all(u.buffer is store.buffer for u in loads)


def describe_callified(callified: CallifiedProgram) -> ProgramInterface:
    """Return what callers see of a callified program."""
    arguments = callified.call.arguments
    written = frozenset(arguments[k] for k in callified.call.arg.written) - callified.temporaries
    return ProgramInterface(callified.outputs, tuple([a for a in arguments if a not in callified.temporaries]), written)


def describe_launch(launch: UOp) -> ProgramInterface:
    """Return what callers see of a launch: every memory and variable among the arguments of its Calls. It gives no values.

    Raises CompileError for an argument that is neither.
    """
    arguments: dict[UOp, None] = {}
    written: set[UOp] = set()
    for call in launch.src:
        memory = [base_memory(a) for a in call.arguments]
        wrong = next((m for m in memory if m.op not in _MEMORY), None)
        if wrong is not None:
            detail = f"an argument is {wrong.op.name.lower()}, expected memory or a variable"
            raise untranslatable_error("R63 (Call)", call, detail, launch)
        arguments |= dict.fromkeys(m for m in memory if m.op is not Op.BINARY)
        declared = find_written_slots(call.body) if call.arg is None or call.arg.written is None else call.arg.written
        written.update(memory if declared is None else [memory[k] for k in declared])
    return ProgramInterface((), tuple(arguments), frozenset(written))
