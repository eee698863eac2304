"""Programs that enter the compiler behind its first stage: kernels written by hand, and launches that another tool lowered.

Takes: a graph of any dialect. Gives: a launch, that is, a Linear of Calls of kernels, or a graph of TENSOR or CALLIFIED; and what
callers see of it. Spec: Call, Linear, Sink; R63 (Call), R120 (memory without a name), R125 (Special), R127 (loops of a node), R166
(kernels written by hand).

A graph that is one kernel becomes a launch of one Call. Its free Params, and its GLOBAL Buffers, become arguments. If it gives a
value, it becomes a Call in a graph of TENSOR instead, and so do the loops of a graph that is no kernel as a whole. A graph of the
second document is legalized first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.bodies import map_kernel_bodies, order_outside_kernels
from uops.compiler.ir.buffers import highest_unique
from uops.compiler.ir.equal_effects import chain_atomic_adds_per_memory_and_loops
from uops.compiler.ir.loops import bind_accesses_to_loops_and_split_ends
from uops.compiler.native import require_variables_within_program_bounds
from uops.compiler.passes.callify.callify import (
    CallifiedProgram,
    ProgramOutput,
    find_slots_written_by_effects,
    inline_calls_and_drop_gradient_markers,
)
from uops.compiler.passes.callify.hazards import insert_hazard_copies, map_base_memory
from uops.compiler.passes.callify.kernel_calls import (
    convert_kernel_calls_to_launch_form,
    find_written_slots,
    is_global_buffer,
    make_param_without_device,
)
from uops.compiler.passes.callify.loop_regions import (
    OutlinedProgram,
    bind_calls_to_loops,
    has_kernel_forms_or_named_sink,
    outline_kernel_storing_root_value,
    outline_loop_regions,
)
from uops.compiler.passes.optimize.schedule.parallel import find_race_free_loops_of_stores
from uops.compiler.place import untranslatable_error
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg
from uops.spec.ir.axes import SEQUENTIAL
from uops.spec.ir.node import UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import KERNEL_ACCESSES, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, is_variable, strip_afters
from uops.spec.verify.dialects import KERNEL_OPS, LAUNCH_DIALECTS, Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

#: What an argument of a launch may be, below its views.
_MEMORY = frozenset({Op.BUFFER, Op.PARAM, Op.BINARY})

#: Dialects of kernels that OptOps may still be applied to.
_BEFORE_EXPAND = frozenset({Dialect.KERNEL, Dialect.SCHEDULED})
#: Dialects of kernels that may have views of memory, which select no longer takes.
_BEFORE_SELECT = _BEFORE_EXPAND | {Dialect.EXPANDED}


class ProgramInterface(NamedTuple):
    """The interface of a program: its values, and the memory and variables that it takes; `written` are those that it writes."""

    outputs: tuple[ProgramOutput, ...]
    arguments: tuple[UOp, ...]
    written: frozenset[UOp]


class EnteringProgram(NamedTuple):
    """A program in the form in which it enters the pipeline, its dialect, and the Buffers in it that no caller sees."""

    graph: UOp
    dialect: Dialect
    private: frozenset[UOp] = frozenset()


def convert_to_launch_or_tensor_graph(graph: UOp, dialect: Dialect) -> EnteringProgram:
    """Return a graph of any dialect as a launch; one that gives values, or has kernels as loops alone, as a graph of TENSOR.

    A launch of KERNEL may be of a later dialect, as `infer_tensor_kernel_or_bestiary_dialect` does not tell them apart: it is of
    the first that it is legal in. Raises SpecError for what breaks a claim, CompileError for what has no such form.
    """
    private: frozenset[UOp] = frozenset()
    if dialect is Dialect.BESTIARY:
        from uops.spec.bestiary.legalize import legalize  # late: only this dialect needs it

        given, graph = graph, legalize(graph)
        private = find_unnamed_buffers(given, graph)
        dialect = infer_tensor_kernel_or_bestiary_dialect(graph)
    if dialect is Dialect.CALLIFIED:
        return EnteringProgram(_merge_params_and_make_hazards_explicit(graph), dialect, private)
    if dialect is Dialect.TENSOR and not _has_loops_but_is_no_single_kernel(graph):
        return EnteringProgram(graph, dialect, private)
    if is_launch(graph):
        return EnteringProgram(*_bind_flatten_and_mark_kernels(graph, dialect), private)
    if _has_loops_but_is_no_single_kernel(graph) or (
        graph.dtype is not dt.void and infer_tensor_kernel_or_bestiary_dialect(graph) is Dialect.KERNEL
    ):
        outlined = _outline_loop_regions_or_whole_kernel(graph)
        return EnteringProgram(outlined.root, Dialect.TENSOR, private | outlined.temporaries)
    return EnteringProgram(*_bind_flatten_and_mark_kernels(wrap_kernel_as_launch(graph), dialect), private)


def _merge_params_and_make_hazards_explicit(call: UOp) -> UOp:
    """Return the Call of a CALLIFIED program as callify gives it.

    Its hazards are explicit, one Param stands for each memory, and every Call declares what it writes. Kernels keep their loops.
    """
    order = order_outside_kernels(call.body)
    replacements: dict[UOp, UOp] = {}
    first: dict[UOp, UOp] = {}  # argument -> the Param that stands for it
    for u in order:
        if u.op is Op.PARAM and not is_variable(u):
            replacements[u] = first.setdefault(call.arguments[u.arg.slot], u)
        elif any(s in replacements for s in u.src) or u.op is Op.CALL:
            sources = tuple([replacements.get(s, s) for s in u.src])
            replacements[u] = _declare_writes_and_finalize_loops(u, sources) if u.op is Op.CALL else u.replace(src=sources)
    body = insert_hazard_copies(replacements.get(call.body, call.body))
    return call.replace(
        src=(body, *call.arguments), arg=replace(call.arg or CallArg(), written=find_slots_written_by_effects(body))
    )


def _declare_writes_and_finalize_loops(call: UOp, sources: tuple[UOp, ...]) -> UOp:
    """Return the Call of a kernel in a callified body, with new sources: what it writes is declared, and its loops are final."""
    body, *arguments = sources
    arg = call.arg or CallArg()
    if arg.written is None:
        written = find_written_slots(body)
        arg = replace(arg, written=tuple(range(len(arguments))) if written is None else written)
    if body.op is Op.SINK and not body.arg.scheduled:
        body = bind_accesses_to_loops_and_split_ends(body)
        body = body.replace(arg=replace(body.arg, scheduled=True))
    return call.replace(src=(body, *arguments), arg=arg)


def _has_loops_but_is_no_single_kernel(graph: UOp) -> bool:
    """Return True for a tensor graph with loops outside of its Calls, perhaps in a Function."""
    if not nodes_with_op(graph, Op.RANGE) or not any(u.op is Op.RANGE for u in order_outside_kernels(graph)):
        return False
    return not has_kernel_forms_or_named_sink(graph)


def _outline_loop_regions_or_whole_kernel(graph: UOp) -> OutlinedProgram:
    if not has_kernel_forms_or_named_sink(graph):
        return outline_loop_regions(inline_calls_and_drop_gradient_markers(bind_calls_to_loops(graph)))
    if any(u.op is Op.SPECIAL for u in toposort(graph)):
        detail = "every lane of a launch computes the root, expected a Sink: a launch gives results through memory"
        raise untranslatable_error("R123 (values of a launch)", graph, detail, graph)
    return outline_kernel_storing_root_value(graph)


def find_unnamed_buffers(bestiary: UOp, legal: UOp) -> frozenset[UOp]:
    """Return the Buffers of a legalized graph that have no name in the graph of the second document (R120)."""
    named = {u.unique.arg.id for u in nodes_with_op(bestiary, Op.B_BUFFER) if u.unique.op is Op.UNIQUE}
    return frozenset(u for u in nodes_with_op(legal, Op.BUFFER) if u.arg.unique not in named)


def _flatten_kernel_memory_accesses(launch: UOp) -> UOp:
    """Return a launch whose kernels access elements of flat memory that the launch passes to them.

    EXPANDED alone has views of memory, accesses of whole memory, and vectors of lanes of another vector; `select` has none of them.
    Params of one memory become one Param.
    """
    rewritten = {
        call
        for call in launch.src
        if call.body.op is Op.SINK and (_passes_memory_twice(call) or _has_unflattened_memory_accesses(call.body))
    }
    if not rewritten:
        return launch
    first_unique = highest_unique(toposort(launch)) + 1
    calls = [_clear_scheduled_flag_and_flatten_memory(call, first_unique) if call in rewritten else call for call in launch.src]
    return launch.replace(src=tuple(calls))


def _passes_memory_twice(call: UOp) -> bool:
    """Return True if two arguments are one memory. The passes take two Params for two memories."""
    memory = [base_memory(a) for a in call.arguments if not is_variable(a)]
    return len(set(memory)) < len(memory)


def _has_unflattened_memory_accesses(body: UOp) -> bool:
    order = toposort(body)
    memory = map_base_memory(order)
    views = [u for u in memory if u.op not in (Op.AFTER, Op.BITCAST, *MEMORY_ROOTS)]
    is_flat = all(u.op is Op.INDEX and len(u.positions) == len(u.operand.shape) == 1 for u in views)
    chooses_lanes = any(u.op is Op.INDEX and u not in memory and any(i.shape for i in u.positions) for u in order)
    addresses = [u.src[0] for u in order if u.op in KERNEL_ACCESSES]  # the buffer, or the index of an AtomicAdd
    takes_whole = any(strip_afters(a).op in MEMORY_ROOTS for a in addresses)
    return not is_flat or chooses_lanes or takes_whole or any(is_global_buffer(u) for u in order)


def _clear_scheduled_flag_and_flatten_memory(call: UOp, first_unique: int) -> UOp:
    """Return the Call of a launch with its body in the forms of a launch."""
    body = call.body
    unscheduled = body if body.arg is None else body.replace(arg=replace(body.arg, scheduled=False))
    return convert_kernel_calls_to_launch_form(call.replace(src=(unscheduled, *call.arguments)), first_unique).root


def _bind_flatten_and_mark_kernels(launch: UOp, dialect: Dialect) -> tuple[UOp, Dialect]:
    for call in launch.src:
        if call.body.op is Op.PROGRAM:
            require_variables_within_program_bounds(call, launch)
    launch = map_kernel_bodies(launch, bind_accesses_to_loops_and_split_ends)
    dialect = _find_first_legal_dialect_or_kernel(launch) if dialect is Dialect.KERNEL else dialect
    if dialect in _BEFORE_SELECT:  # no pass from select on simplifies a position
        launch = map_kernel_bodies(launch, chain_atomic_adds_per_memory_and_loops)
    if dialect in _BEFORE_SELECT and (flat := _flatten_kernel_memory_accesses(launch)) is not launch:
        launch, dialect = flat, _find_first_legal_dialect_or_kernel(flat)
    return mark_kernels_that_keep_their_loops(launch, dialect) if dialect in _BEFORE_EXPAND else launch, dialect


def _find_first_legal_dialect_or_kernel(launch: UOp) -> Dialect:
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
    memory = [u for u in order if u.op is Op.PARAM or is_global_buffer(u)]
    params = {u: make_param_without_device(u, k) for k, u in enumerate(memory)}
    call = UOp(Op.CALL, (substitute(kernel, params), *memory))
    return UOp(Op.LINEAR, (convert_kernel_calls_to_launch_form(call, highest_unique(order) + 1).root,))


def mark_kernels_that_keep_their_loops(launch: UOp, dialect: Dialect) -> UOp:
    """Return a launch in which every kernel that may not be scheduled says so (R166): in SCHEDULED, all of them."""
    calls = []
    for call in launch.src:
        body, *arguments = call.src
        if body.op is Op.SINK and body.arg is None:
            raise SpecError("the body of a Call of a launch is a Sink without a name, expected one with a name (R166)")
        if (
            body.op is Op.SINK
            and not body.arg.scheduled
            and (dialect is Dialect.SCHEDULED or not _has_form_of_rangeify_kernel(call))
        ):
            body = body.replace(arg=replace(body.arg, scheduled=True))
        calls.append(call.replace(src=(body, *arguments)))
    return launch.replace(src=tuple(calls))


def _has_form_of_rangeify_kernel(call: UOp) -> bool:
    """Return True if a kernel is one of those that rangeify makes: the iterations of its one Store may run in any order.

    Its loops are LOOP or REDUCE, and no bound depends on another loop. Of the memory that it writes, an iteration reads at most
    the element that it writes, and no other iteration writes that one.
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
    loads = [u for u in order if u.op is Op.LOAD and base_memory(u.buffer) is written]
    if _passes_memory_twice(call) or not all(u.buffer is store.buffer for u in loads):
        return False
    return not loads or find_race_free_loops_of_stores(store).issuperset(r for u in order if u.op is Op.END for r in u.ranges)


def describe_callified(callified: CallifiedProgram, private: frozenset[UOp] = frozenset()) -> ProgramInterface:
    """Return what callers see of a callified program: all but its temporaries and the Buffers that are `private`."""
    arguments, unseen = callified.call.arguments, callified.temporaries | private
    written = frozenset([arguments[k] for k in callified.call.arg.written]) - unseen
    return ProgramInterface(callified.outputs, tuple(dict.fromkeys([a for a in arguments if a not in unseen])), written)


def describe_entering_program(entering: UOp, private: frozenset[UOp] = frozenset()) -> ProgramInterface:
    """Return what callers see of a launch, or of the Call of a CALLIFIED program, which gives no values either."""
    if entering.op is Op.CALL:
        return describe_callified(CallifiedProgram(entering, ()), private)
    return describe_launch(entering, private)


def describe_launch(launch: UOp, private: frozenset[UOp] = frozenset()) -> ProgramInterface:
    """Return what callers see of a launch: every memory and variable among the arguments of its Calls, but for those `private`.

    It gives no values.

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
    return ProgramInterface((), tuple(a for a in arguments if a not in private), frozenset(written) - private)
