"""Conversion of the tensor graph to one stateless Call.

Takes: TENSOR. Gives: CALLIFIED (one Call of a Sink of Stores; no Buffer, Function, Tuple or gradient marker in its body).
Spec: Lowering Pipeline/Callify; Function and Call rows; R48 (symbolic sizes), R51 (references and values), R54 (Store), R63 (Call),
R64 (Function).

Functions are replaced by their substituted bodies and Calls by the effects of theirs. The arguments and values of a Function with
`precompile` are memory of their own, so that its kernels are its own (R177, precompile).

Every Buffer, free Param and named variable becomes an argument, and the Param of that position in the body. A variable is an index
in the body, cast to its own dtype. Each value of the root is stored to a new Buffer, which is an argument too; `outputs` lists
them. An index value is stored as int64, because there is no Buffer of index (R29, index arithmetic).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from uops.compiler.ir.bodies import order_outside_kernels, substitute_outside_kernels
from uops.compiler.ir.buffers import highest_unique
from uops.compiler.ir.extents import max_elements
from uops.compiler.ir.views import WHOLE_VIEWS, strip_views_and_collect_dependencies, view_front_of_memory
from uops.compiler.log import log_transform
from uops.compiler.passes.callify.hazards import insert_hazard_copies
from uops.compiler.passes.callify.kernel_calls import convert_kernel_calls_to_launch_form
from uops.compiler.passes.callify.partition import partition_over_devices
from uops.spec.errors import SpecError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, CallArg, ParamArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, ops_below, substitute, toposort
from uops.spec.ir.ops import CALL_LIKE, EFFECT_GROUPS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, is_variable, root_items
from uops.spec.verify.infer import is_kernel_or_custom_function_body

#: Gradient markers, which mean nothing outside of the front end.
_GRADIENT_MARKERS = frozenset({Op.DETACH, Op.CONTIGUOUS_BACKWARD})
#: Ops that `inline_calls_and_drop_gradient_markers` replaces by bodies and elements.
_INLINED = frozenset({Op.FUNCTION, Op.CALL, Op.GETTUPLE})


class ProgramOutput(NamedTuple):
    """One value of the root: the Buffer that receives it, its shape (a dimension may be symbolic) and its dtype."""

    buffer: UOp
    shape: tuple[Dim, ...]
    dtype: DType


class CallifiedProgram(NamedTuple):
    """The one Call that stores the values of a root and performs its effects, and its outputs, one per value.

    `temporaries` are arguments that no caller sees.
    """

    call: UOp
    outputs: tuple[ProgramOutput, ...]
    temporaries: frozenset[UOp] = frozenset()


def callify(root: UOp) -> UOp:
    """Return the Call of `convert_graph_to_call`. Raises CompileError or SpecError."""
    return convert_graph_to_call(root).call


def convert_graph_to_call(root: UOp) -> CallifiedProgram:
    """Convert a graph to one Call, and return it with its outputs. Raises CompileError or SpecError."""
    inlined = inline_calls_and_drop_gradient_markers(root)
    allocated = _make_output_buffer_per_value(root, inlined)
    first_unique = (allocated[-1].buffer.arg.unique if allocated else highest_unique(toposort(root))) + 1
    partitioned, parts, reached_params = partition_over_devices(inlined, first_unique)
    resolved, temporaries = convert_kernel_calls_to_launch_form(partitioned, first_unique + len(parts))
    targets, items = iter(allocated), root_items(resolved)
    has_copies = any(v.op is Op.CONTIGUOUS for v in items)
    used = {s for v in items for u in toposort(v) for s in u.src} if has_copies else set()
    effects = [_build_output_store(next(targets), _skip_copy(v, used)) if v.dtype is not dt.void else v for v in items]
    body = B.sink(*effects)
    log_transform("store", resolved, body, {v: (v, effect) for v, effect in zip(items, effects)})
    params, arguments = _number_memory_and_variables_as_params(body, reached_params)
    stateless = substitute_outside_kernels(body, params)
    log_transform("arguments", body, stateless, params)
    has_stores = not ops_below(resolved).isdisjoint((Op.STORE, Op.CALL))
    body = insert_hazard_copies(stateless) if has_stores else stateless  # without Stores, no memory changes that is read
    called = UOp(Op.CALL, (body, *arguments), CallArg(written=find_slots_written_by_effects(body)))
    written = {v: base_memory(effect.buffer) for v, effect in zip(items, effects) if effect is not v}
    log_transform("store", root, called, written)
    return CallifiedProgram(called, allocated, temporaries | parts)


def outputs(root: UOp) -> tuple[ProgramOutput, ...]:
    """Return the values of `root` in order, each with the Buffer to which `callify(root)` stores it."""
    return _make_output_buffer_per_value(root, inline_calls_and_drop_gradient_markers(root))


def inline_calls_and_drop_gradient_markers(root: UOp) -> UOp:
    """Inline every Function, GetTuple and Call, innermost first (R64, Function), and drop gradient markers."""
    if (_INLINED | _GRADIENT_MARKERS).isdisjoint(ops_below(root)):
        return root
    done: dict[UOp, UOp] = {}  # node -> new node, for the nodes that change
    for u in _order_outside_opaque_bodies(root):
        if u.op in _INLINED or not done.keys().isdisjoint(u.src):
            done[u] = _inline_or_rebuild_node(u, tuple([done.get(s, s) for s in u.src]))
    inlined = done.get(root, root)
    markers = _replace_gradient_markers(inlined)
    resolved = markers.get(inlined, inlined)
    log_transform("resolve", root, resolved, {u: markers.get(v, v) for u, v in done.items()} | markers)
    return resolved


def _replace_gradient_markers(inlined: UOp) -> dict[UOp, UOp]:
    """Return the replacement of each gradient marker, its operand, and of each node above one.

    A marker that waits for effects becomes a copy: it is a value, which later Stores do not change (R51, references and values).
    """
    if _GRADIENT_MARKERS.isdisjoint(ops_below(inlined)):
        return {}
    order = _order_outside_opaque_bodies(inlined)
    waiting = {base_memory(u) for u in order if u.op is Op.AFTER}
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done.get(s, s) for s in u.src])
        if u.op in _GRADIENT_MARKERS:
            (operand,) = src
            done[u] = B.contiguous(operand) if u in waiting else operand
        elif src != u.src:
            done[u] = u.replace(src=src)
    return done


def _order_outside_opaque_bodies(root: UOp) -> list[UOp]:
    """Return the nodes in topological order, without what is below the bodies that are not inlined."""
    order = toposort(root)
    if Op.CALL not in ops_below(root):
        return order
    bodies = {u.body for u in order if u.op is Op.CALL and is_kernel_or_custom_function_body(u.body)}
    return order if not bodies else toposort(root, gate=lambda u: u not in bodies)


def _inline_or_rebuild_node(node: UOp, new_sources: tuple[UOp, ...]) -> UOp:
    if node.op in CALL_LIKE:
        return _inline_body_unless_kernel(node, new_sources)
    if node.op is Op.GETTUPLE:
        (packed,) = new_sources
        element: UOp = packed.src[node.arg.index]
        return element
    return node if new_sources == node.src else node.replace(src=new_sources)


def _inline_body_unless_kernel(function_or_call: UOp, new_sources: tuple[UOp, ...]) -> UOp:
    """Return the body of a Function or Call on its arguments; for a Call, the Group of its effects."""
    body, *arguments = new_sources
    if function_or_call.op is Op.CALL and is_kernel_or_custom_function_body(function_or_call.body):
        return function_or_call.replace(src=(function_or_call.body, *arguments))
    order = order_outside_kernels(body)
    slots = [p for p in order if p.op is Op.PARAM and p.arg.slot is not None]
    missing = [p.arg.slot for p in slots if p.arg.slot >= len(arguments)]
    if missing:
        raise SpecError(f"{function_or_call.op.name} has {len(arguments)} arguments but its body uses Param {missing[0]} (R64)")
    is_function = function_or_call.op is Op.FUNCTION
    opaque = is_function and function_or_call.arg is not None and function_or_call.arg.precompile and _returns_values_only(order)
    passed = {p: arguments[p.arg.slot] for p in slots if is_variable(p)}
    for p in slots:
        if not is_variable(p):
            argument = arguments[p.arg.slot] if is_function else _view_in_shape_of_param(arguments[p.arg.slot], p, passed)
            passed[p] = _make_memory(argument) if opaque else argument
    applied = substitute_outside_kernels(body, passed)
    if is_function:
        return applied.replace(src=tuple(map(_make_memory, applied.src))) if opaque else applied
    return B.group(*applied.src) if applied.op in EFFECT_GROUPS else B.group(applied)


def _view_in_shape_of_param(argument: UOp, param: UOp, variables: dict[UOp, UOp]) -> UOp:
    """Return the argument of a Call in the shape of its Param, which has as many elements (R86, Call arguments)."""
    if argument.shape == param.shape or not param.src:
        return argument
    return UOp(Op.RESHAPE, (argument, substitute(param.extents, variables)))


def _returns_values_only(body_order: Sequence[UOp]) -> bool:
    """Return True if the body of a Function has no effects, so that it can be opaque (R177, precompile)."""
    return all(u.op is not Op.STORE and u.op is not Op.CALL for u in body_order)


def _make_memory(u: UOp) -> UOp:
    """Return an argument or value of an opaque Function as memory of its own (R175, Contiguous); an index has none (R29)."""
    memory, _ = strip_views_and_collect_dependencies(u, WHOLE_VIEWS)
    return u if memory.op in MEMORY_ROOTS or u.dtype is dt.index else UOp(Op.CONTIGUOUS, (u,))


def _make_output_buffer_per_value(root_for_ids: UOp, inlined_root: UOp) -> tuple[ProgramOutput, ...]:
    """Return one output with a new Buffer per value.

    Ids are counted from the highest one in `root_for_ids`, unused nodes included. So one graph has one translation, and no key
    stands for two Buffers.
    """
    first = highest_unique(toposort(root_for_ids)) + 1
    values = [v for v in root_items(inlined_root) if v.dtype is not dt.void]
    return tuple([ProgramOutput(_output_buffer(v, first + k), v.shape, v.dtype) for k, v in enumerate(values)])


def _output_buffer(v: UOp, unique: int) -> UOp:
    device = v.device if isinstance(v.device, str) else "CPU"
    return UOp(Op.BUFFER, (), BufferArg(max_elements(v.shape), v.dtype.storage, device, AddrSpace.GLOBAL, unique))


def _skip_copy(v: UOp, used: set[UOp]) -> UOp:
    """Return the value to store for an output: the operand of a Contiguous that nothing else uses, since the Store copies it."""
    stored: UOp = v.operand if v.op is Op.CONTIGUOUS and v not in used else v
    return stored


def _build_output_store(out: ProgramOutput, v: UOp) -> UOp:
    """Store `v` to the front of its Buffer, in row-major order."""
    return B.store(view_front_of_memory(out.buffer, v.shape), B.cast(v, v.dtype.storage))


def _number_memory_and_variables_as_params(
    body: UOp, reached_params: Mapping[UOp, UOp]
) -> tuple[dict[UOp, UOp], tuple[UOp, ...]]:  # fmt: skip
    """Number the memory of `body`, then its named variables. One of the `reached_params` is passed as the caller's Param.

    Returns the replacement of each outer node, and the arguments in slot order.
    """
    outer = [u for u in order_outside_kernels(body) if u.op in MEMORY_ROOTS]
    memory = [u for u in outer if u.op is Op.BUFFER or u.arg.name is None]
    named = [u for u in outer if u.op is Op.PARAM and u.arg.name is not None]
    params: dict[UOp, UOp] = {}
    for k, u in enumerate(named, len(memory)):
        number = _index_variable(u, k)
        params[u] = number if u.dtype is dt.index else B.cast(number, u.dtype)  # arithmetic wraps as that dtype's does
    for k, u in enumerate(memory):
        shape = B.shape_vector(u.shape) if u.op is Op.BUFFER else substitute(u.extents, params) if u.src else B.SCALAR
        param = UOp(Op.PARAM, (shape,), ParamArg(k, u.dtype.storage, u.device))
        params[u] = param if u.dtype is not dt.index else B.cast(param, dt.index)
    given = [reached_params.get(u, u) for u in memory]
    passed = [u if u.dtype is not dt.index else u.replace(arg=ParamArg(u.arg.slot, u.dtype.storage, u.arg.device)) for u in given]
    return params, (*passed, *[u if u.dtype is dt.index else _index_variable(u, u.arg.slot) for u in named])


def _index_variable(u: UOp, slot: int | None) -> UOp:
    """Return a named variable as an index in this slot."""
    return u.replace(arg=ParamArg(slot, dt.index, name=u.arg.name, bounds=u.arg.bounds))


def find_slots_written_by_effects(body: UOp) -> tuple[int, ...]:
    """Return the slots of the Params to which the Stores of a body, and the Calls of kernels in it, write."""
    order = order_outside_kernels(body)
    targets = [u.buffer for u in order if u.op is Op.STORE]
    targets += [u.arguments[k] for u in order if u.op is Op.CALL for k in u.arg.written]
    return tuple(sorted({base_memory(t).arg.slot for t in targets}))
