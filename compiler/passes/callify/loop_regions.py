"""Loops inside of a tensor graph, which become Calls of kernels.

Takes: a graph without Functions. Gives: the same graph, in which no Range is left outside of the bodies of Calls. Spec: Range, End,
Reduce; R57 (Range), R127 (loops of a node), R166 (kernels written by hand).

The loops that an End or a Reduce closes, outermost, are a kernel: a *loop region*. Its leaves are the nodes without an open Range.
Memory among them is an argument of the Call, in whatever views the loops use it. A variable is one, too. Any other leaf is a value
that is computed before. What a Reduce gives is stored to new memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uops.compiler.ir.bodies import SCALAR_OPS, order_outside_kernels, substitute_outside_kernels
from uops.compiler.ir.buffers import highest_unique
from uops.compiler.ir.extents import max_elements
from uops.compiler.ir.loops import combined_effects
from uops.compiler.ir.views import AFTERS, strip_views_and_collect_dependencies, view_front_of_memory
from uops.compiler.passes.callify.hazards import map_base_memory
from uops.compiler.passes.callify.kernel_calls import pass_global_buffers_as_call_arguments
from uops.compiler.place import untranslatable_error
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, CallArg, ParamArg, SinkArg
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import CALL_LIKE, KERNEL_FORMS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import VIEWS, is_private_buffer, is_variable, open_ranges, ranges_closed_by, scope_sources


class OutlinedProgram(NamedTuple):
    """A program without loops, and the Buffers that were made for what loops give."""

    root: UOp
    temporaries: frozenset[UOp]


def has_kernel_forms_or_named_sink(root: UOp) -> bool:
    """Return True if a graph has forms of kernels outside of its loop regions, or a Sink with a name on top."""
    if root.op is Op.SINK and root.arg is not None:
        return True
    analysis = _LoopAnalysis(order_outside_kernels(root))
    pending, seen = [root], {root}
    while pending:
        u = pending.pop()
        if u.op in KERNEL_FORMS or is_private_buffer(u):
            return True
        below = analysis.region_of(u).leaves if analysis.closes_region(u) else scope_sources(u)
        pending += [s for s in below if s not in seen]
        seen.update(below)
    return False


def bind_calls_to_loops(root: UOp) -> UOp:
    """Return a graph in which the memory of a Call depends on the loops that the Call does, in which its body runs (R121).

    Without that, what the body reads would be read once, after the body is put in place of the Call (R127).
    """
    order = order_outside_kernels(root)
    depended, memory = open_ranges(order), map_base_memory(order)
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done.get(s, s) for s in u.src])  # bodies of Calls are not in the order
        if u.op is Op.CALL and depended[u]:
            ranges = sorted(depended[u], key=order.index)
            call = pass_global_buffers_as_call_arguments(u.replace(src=src))
            own = call.arguments[len(u.arguments) :]
            inside = [B.after(a, *ranges) if given in memory else a for a, given in zip(call.arguments, u.arguments)]
            done[u] = call.replace(src=(call.body, *inside, *[B.after(x, *ranges) for x in own]))
        else:
            done[u] = u if src == u.src else u.replace(src=src)
    return done[root]


def outline_loop_regions(root: UOp) -> OutlinedProgram:
    """Replace each loop region of a graph by the Call of a kernel. Raises CompileError for a Call or Function inside of loops."""
    order = order_outside_kernels(root)
    if not any(u.op is Op.RANGE for u in order):
        return OutlinedProgram(root, frozenset())
    analysis, unique = _LoopAnalysis(order), highest_unique(order) + 1
    done: dict[UOp, UOp] = {}
    temporaries: list[UOp] = []
    for u in order:  # a region's leaves stand before it
        if analysis.closes_region(u):
            _refuse_calls_in_loops(analysis.region_of(u).inside, root)
            done[u] = _call_region(u, analysis.region_of(u), done, unique + len(temporaries), temporaries)
        elif not analysis.open_ranges[u] and not done.keys().isdisjoint(u.src):
            done[u] = u.replace(src=tuple([done.get(s, s) for s in u.src]))
    return OutlinedProgram(done.get(root, root), frozenset(temporaries))


def outline_kernel_storing_root_value(root: UOp) -> OutlinedProgram:
    """Replace a graph that is one kernel and gives a value by the Call of a kernel that stores the value."""
    order = order_outside_kernels(root)
    leaves = tuple(u for u in order if u.op in MEMORY_ROOTS and not is_private_buffer(u))
    temporaries: list[UOp] = []
    called = _call_region(root, _LoopRegion(leaves, tuple(order)), {}, highest_unique(order) + 1, temporaries)
    return OutlinedProgram(called, frozenset(temporaries))


class _LoopRegion(NamedTuple):
    """The leaves of a region, and the nodes inside of it, in no order."""

    leaves: tuple[UOp, ...]
    inside: tuple[UOp, ...]


class _LoopAnalysis:
    """The open Ranges of each node, and what stays inside of a region without depending on one."""

    def __init__(self, order: list[UOp]) -> None:
        self.open_ranges = open_ranges(order)
        self.memory_views = {u for u in map_base_memory(order) if u.op in VIEWS and u.op is not Op.AFTER}
        self.scalars: set[UOp] = set()
        self.regions: dict[UOp, _LoopRegion] = {}
        for u in order:
            if u.op in SCALAR_OPS and all(s in self.scalars or is_variable(s) for s in u.src):
                self.scalars.add(u)

    def closes_region(self, u: UOp) -> bool:
        """Return True for an End or Reduce around which no loop is open."""
        return u.op is not Op.WMMA and bool(ranges_closed_by(u)) and not self.open_ranges[u]

    def region_of(self, closer: UOp) -> _LoopRegion:
        """Return the region that a node closes."""
        if closer not in self.regions:
            self.regions[closer] = self._find_region(closer)
        return self.regions[closer]

    def _find_region(self, closer: UOp) -> _LoopRegion:
        leaves: dict[UOp, None] = {}
        inside, pending = {closer}, [closer]
        while pending:
            u = pending.pop()
            body = combined_effects(u)  # it runs in every iteration, whether it depends on the Range or not
            for s in scope_sources(u):
                if s in body or self.open_ranges.get(s) or s in self.memory_views or s in self.scalars or is_private_buffer(s):
                    pending += [s] if s not in inside else []
                    inside.add(s)
                else:
                    leaves[s] = None
        return _LoopRegion(tuple(s for s in leaves if s not in inside), tuple(inside))


def _refuse_calls_in_loops(inside: Iterable[UOp], error_root: UOp) -> None:
    nested = next((u for u in inside if u.op in CALL_LIKE), None)
    if nested is not None:
        detail = f"a {nested.op.name.capitalize()} stands in loops, which are a kernel, and a kernel has none"
        raise untranslatable_error("R127 (loops of a node)", nested, detail, error_root)


def _call_region(closer: UOp, region: _LoopRegion, done: dict[UOp, UOp], unique: int, temporaries: list[UOp]) -> UOp:
    """Return the Call of a region; of one that gives a value, the memory that holds it after the Call.

    `done` has the new nodes of what stands before the region. `temporaries` receives the memory.
    """
    inner, arguments, waits = _bind_leaves_to_params_arguments_and_waits(region.leaves, done)
    body = substitute_outside_kernels(closer, inner)
    if closer.dtype is not dt.void:
        shape = closer.shape
        device = closer.device if isinstance(closer.device, str) else "CPU"
        memory = UOp(Op.BUFFER, (), BufferArg(max_elements(shape), closer.dtype.storage, device, AddrSpace.GLOBAL, unique))
        temporaries.append(memory)
        p = B.param(len(arguments), memory.shape, memory.dtype)
        body = B.store(view_front_of_memory(p, body.shape) if shape else B.at(p, 0), B.cast(body, memory.dtype))
        arguments.append(memory)
    if waits:
        arguments = [B.after(a, *waits) if not is_variable(a) else a for a in arguments]
    call = UOp(Op.CALL, (UOp(Op.SINK, (body,), SinkArg("loops")), *arguments), CallArg())
    if closer.dtype is dt.void:
        return call
    return B.cast(view_front_of_memory(B.after(memory, call), shape), closer.dtype)


def _bind_leaves_to_params_arguments_and_waits(
    leaves: Iterable[UOp], done: dict[UOp, UOp]
) -> tuple[dict[UOp, UOp], list[UOp], list[UOp]]:
    """Return what stands for each leaf inside of a region, the arguments of its Call, and the effects that the Call waits for."""
    inner: dict[UOp, UOp] = {}
    waits: dict[UOp, None] = {}
    by_memory: dict[UOp, list[UOp]] = {}
    for leaf in leaves:
        memory, dependencies = strip_views_and_collect_dependencies(leaf, AFTERS)
        if leaf.dtype is dt.void:
            waits[done.get(leaf, leaf)] = None
            inner[leaf] = B.group()
        elif memory.op in MEMORY_ROOTS:
            by_memory.setdefault(memory, []).append(leaf)
            waits |= dict.fromkeys(done.get(d, d) for d in dependencies)
        else:
            by_memory[leaf] = [leaf]
    for variable in [u for leaf in by_memory for n in leaf.shape if isinstance(n, UOp) for u in toposort(n) if is_variable(u)]:
        by_memory.setdefault(variable, [variable])
    variables = {u: _variable_in_slot(u, slot) for slot, u in enumerate(by_memory) if is_variable(u)}
    inner |= variables
    for slot, (memory, uses) in enumerate(by_memory.items()):
        if memory not in variables:
            inner |= dict.fromkeys(uses, _param_for_leaf(memory, slot, variables))
    return inner, [_argument_for_leaf(done.get(leaf, leaf)) for leaf in by_memory], list(waits)


def _variable_in_slot(u: UOp, slot: int) -> UOp:
    return u.replace(arg=ParamArg(slot, u.dtype, name=u.arg.name, bounds=u.arg.bounds))


def _argument_for_leaf(leaf: UOp) -> UOp:
    """Return what is passed for a memory, a variable or a value: an index value as the int64 of its Param."""
    return leaf if leaf.dtype is not dt.index or is_variable(leaf) else B.cast(leaf, leaf.dtype.storage)


def _param_for_leaf(leaf: UOp, slot: int, variables: dict[UOp, UOp]) -> UOp:
    """Return what stands for a memory or a value inside of a region."""
    p = B.param(slot, [substitute(n, variables) if isinstance(n, UOp) else n for n in leaf.shape], leaf.dtype.storage)
    return p if leaf.dtype is p.dtype else B.cast(p, leaf.dtype)
