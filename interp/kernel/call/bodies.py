"""Static facts about a kernel in a tensor graph: its structure, what it needs and its effects on each memory.

Takes the body of a Call, a whole graph, the End or Reduce that closes loops in a tensor graph, or a Call. All of it depends on
nodes alone and is memoized. Raises SpecError as `build_kernel_structure` does, and for a Call whose arguments do not fit its
body (R63, R64).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from uops.interp.kernel.call.effects import MemoryEffects, summarize_memory_effects
from uops.interp.kernel.lane_machine.memory import VIEWS
from uops.interp.kernel.structure.blocks import KernelStructure, build_kernel_structure
from uops.interp.ops.movement import SHAPED
from uops.interp.tensor.scope import VOID
from uops.spec.errors import SpecError, Unsupported
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import CALL_LIKE, KERNEL_FORMS, WHOLE_MEMORY, Op
from uops.spec.ir.scope import is_private_buffer, open_ranges, ranges_closed_by, scope_nodes, scope_sources

#: Entries of each cache below, in nodes.
_CACHE_SIZE = 256


@lru_cache(_CACHE_SIZE)
def has_kernel_forms_outside_loop_regions(root: UOp) -> bool:
    """Return True if a graph is one kernel: it has forms of kernels outside of the loops that an End or Reduce closes."""
    nodes = scope_nodes(root)
    ranges_of, views = open_ranges(nodes), _find_memory_views(nodes)
    seen, pending = set[tuple[UOp, bool]](), [(root, False)]
    while pending:
        u, is_in_loop = pending.pop()
        if (u, is_in_loop) in seen:
            continue
        seen.add((u, is_in_loop))
        is_in_loop = is_in_loop and bool(ranges_of[u] or u in views or is_private_buffer(u))
        if not is_in_loop and (u.op in KERNEL_FORMS or is_private_buffer(u)):
            return True
        pending += [(s, is_in_loop or bool(ranges_closed_by(u))) for s in scope_sources(u)]
    return False


def is_linear_of_calls(root: UOp) -> bool:
    """Return True for a Linear of Calls."""
    return root.op is Op.LINEAR and all(s.op is Op.CALL for s in root.instructions)


@dataclass(eq=False, slots=True)
class KernelBody:
    """A kernel and what it needs.

    `required_leaves` are the leaves, and the variables in their shapes (R48). `sizes` has their number of elements, None where
    it is symbolic, and their item size in bytes. `void_cells` has a void cell for each node that leaves no value after a run.
    """

    kernel: KernelStructure
    effects: MemoryEffects
    required_leaves: tuple[UOp, ...]
    sizes: dict[UOp, tuple[int | None, int]]
    void_cells: dict[UOp, None]


def _summarize_leaves_and_effects(kernel: KernelStructure) -> KernelBody:
    """Return the facts about a kernel."""
    leaves = frozenset(kernel.leaves)
    required = (*kernel.leaves, *_shape_variables(kernel.leaves))
    counts = {u: math.prod(u.shape) if all(isinstance(n, int) for n in u.shape) else None for u in required}
    sizes = {u: (n, u.dtype.itemsize) for u, n in counts.items()}
    body_nodes = [u for u in toposort(kernel.root, gate=lambda u: u not in leaves) if u not in leaves]
    return KernelBody(kernel, summarize_memory_effects(kernel), required, sizes, dict.fromkeys(body_nodes, VOID))


def _shape_variables(leaves: tuple[UOp, ...]) -> list[UOp]:
    """Return the variables in the shapes of the leaves that are no leaves themselves."""
    symbolic = [n for u in leaves for n in u.shape if isinstance(n, UOp)]
    return [u for u in toposort(*symbolic) if u.op is Op.PARAM and u not in leaves] if symbolic else []


@lru_cache(_CACHE_SIZE)
def analyze_whole_kernel(root: UOp) -> KernelBody:
    """Return the kernel that is a whole graph or body; memory and variables are its leaves."""
    return _summarize_leaves_and_effects(
        build_kernel_structure(root, lambda u: u.op in (Op.PARAM, Op.BINARY) or (u.op is Op.BUFFER and not is_private_buffer(u)))
    )


@lru_cache(_CACHE_SIZE)
def analyze_loop_region(closer: UOp) -> KernelBody:
    """Return the kernel of the loops that an End or Reduce closes in a tensor graph.

    Its leaves are the nodes without an open Range below them. Of a symbolic shape operand, the entries are leaves.
    """
    nodes = scope_nodes(closer)
    ranges_of, inner = open_ranges(nodes), _find_memory_views(nodes) | _find_symbolic_shape_operands(nodes)
    for n in nodes:
        if n.op in CALL_LIKE and ranges_of[n]:
            _reject_call_or_function_in_loop(n)
    return _summarize_leaves_and_effects(
        build_kernel_structure(
            closer, lambda n: n is not closer and not ranges_of[n] and n not in inner and not is_private_buffer(n)
        )
    )


def _reject_call_or_function_in_loop(u: UOp) -> NoReturn:
    """Raise the error for a Call or Function that stands in loops."""
    if u.op is Op.CALL:
        raise SpecError("a Call in a loop of a tensor graph: the loops are a kernel, which has no Call (R127)")
    raise Unsupported("a Function of what varies in a loop of a tensor graph (R64, R127)", "interp")


def _find_memory_views(nodes: Iterable[UOp]) -> frozenset[UOp]:
    """Return the views of a Buffer or Param among `nodes` (sources first), as which they are no leaves but parts of one memory."""
    views: set[UOp] = set()
    for u in nodes:
        if u.op in VIEWS:
            source = u.src[0]  # operand or buffer
            if source in views or source.op in WHOLE_MEMORY:
                views.add(u)
    return frozenset(views)


def _find_symbolic_shape_operands(nodes: Iterable[UOp]) -> frozenset[UOp]:
    """Return the offsets and extents of movement ops that are no constants; a kernel evaluates their entries, not the vectors."""
    return frozenset(
        s
        for u in nodes
        if u.op in SHAPED
        for s in u.src[1:]  # offset, extents
        if s.constants_of_stack is None
    )


@dataclass(eq=False, slots=True)
class KernelCall:
    """A Call of a kernel.

    `arguments` has the argument of each Param, `unbound_leaves` the other leaves of the body. `void_cells` has a void cell for
    each node of the body's scope.
    """

    body: KernelBody
    arguments: dict[UOp, UOp]
    unbound_leaves: tuple[UOp, ...]
    void_cells: dict[UOp, None]


@lru_cache(_CACHE_SIZE)
def analyze_kernel_call_or_reject_undeclared_writes(u: UOp) -> KernelCall:
    """Return the facts about a Call and its body."""
    body = analyze_whole_kernel(u.body)
    _reject_undeclared_writes(u, body.effects)
    arguments = {
        p: _argument_of_param_or_reject_missing(u, p) for p in body.required_leaves if p.op is Op.PARAM and p.arg.slot is not None
    }
    unbound_leaves = tuple(s for s in body.required_leaves if s not in arguments)
    return KernelCall(body, arguments, unbound_leaves, dict.fromkeys(body.required_leaves, VOID) | body.void_cells)


def _argument_of_param_or_reject_missing(call: UOp, param: UOp) -> UOp:
    """Return the argument of `call` for `param`."""
    arguments: tuple[UOp, ...] = call.arguments
    if param.arg.slot >= len(arguments):
        raise SpecError(f"Param {param.arg.slot} has no argument: {len(arguments)} were given (R64)")
    argument: UOp = arguments[param.arg.slot]
    return argument


def _reject_undeclared_writes(u: UOp, effects: MemoryEffects) -> None:
    """Raise SpecError if a Call that declares what it writes writes something else (R63)."""
    declared = u.arg.written if u.arg is not None else None
    if declared is None:
        return
    for p in effects.stored_bases:
        if p.op is Op.PARAM and p.arg.slot not in declared:
            raise SpecError(f"the Call writes argument {p.arg.slot}, but declares {declared} (R63)")


@lru_cache(_CACHE_SIZE)
def find_sliced_arenas(root: UOp) -> tuple[UOp, ...]:
    """Return the Buffers whose Slices a Linear of Calls passes as arguments (R126: arenas)."""
    arguments = (a for call in root.instructions for a in call.arguments)
    return tuple(dict.fromkeys(a.operand for a in arguments if a.op is Op.SLICE and a.operand.op is Op.BUFFER))
