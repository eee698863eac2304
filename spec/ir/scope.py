"""Scopes, closed ranges, references and names: the analyses of a graph that claims rely on.

A *scope* is the graph without the bodies of its Functions and Calls, or one such body without the bodies inside it. Params and
Ranges belong to a scope (R64, Function). `VerifyContext` computes each analysis once, on first use, without recursion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.arg_types import arg_fault
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import GRID, WORKGROUP
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import MANY, UOp, collect_users, toposort, traversals
from uops.spec.ir.operands import positions_of
from uops.spec.ir.ops import ALU, CALL_LIKE, MEMORY_ROOTS, RESULT_ROOTS, Op

#: Ops that close ranges -> position of their first range: tinyspec's, then the bestiary's (R109).
RANGE_ENDING: dict[Op, int] = positions_of("ranges", "...", "+")
#: The loop variables of both documents.
RANGES = frozenset({Op.RANGE, Op.B_RANGE})

#: Injective views: their result is a reference if their first source is one (R51, references and values).
VIEWS = frozenset(
    {Op.INDEX, Op.SLICE, Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.BITCAST, Op.AFTER}
    | {Op.B_INDEX, Op.POINTER_INDEX, Op.BUFFER_VIEW, Op.B_SHRINK, Op.B_BARRIER, Op.PTRCAT}
)
#: Ops at which a chain of views of memory ends, in both documents.
BASES = frozenset({Op.BUFFER, Op.PARAM, Op.B_BUFFER, Op.B_PARAM, Op.DEFINE_LOCAL, Op.DEFINE_REG, Op.BUFFERIZE})
#: The memory of a program, of both documents, and the ops that stand for arguments.
BUFFERS = frozenset({Op.BUFFER, Op.B_BUFFER})
PARAMS = frozenset({Op.PARAM, Op.B_PARAM})
#: Ops that the interior of a size expression may have (R48, symbolic sizes).
_SIZE_OPS = frozenset(ALU | {Op.CONST})


@dataclass(eq=False)
class GraphScope:
    """A graph, or the body of a Function or Call, without the bodies inside it.

    `owners` are the Functions and Calls whose body it is. `outer` states that no Call is around one of its uses, `inner` that a
    Call is around one.
    """

    root: UOp
    nodes: list[UOp]
    owners: list[UOp] = field(default_factory=list)
    outer: bool = False
    inner: bool = False

    @cached_property
    def params_by_slot(self) -> dict[int, list[UOp]]:
        """Slot -> the Params of this scope with that slot."""
        params: dict[int, list[UOp]] = {}
        for u in self.nodes:
            if u.op is Op.PARAM and has_valid_arg(u) and u.arg.slot is not None:
                params.setdefault(u.arg.slot, []).append(u)
        return params

    @cached_property
    def range_closers(self) -> dict[UOp, list[UOp]]:
        """Range -> the nodes of this scope that close it."""
        closers: dict[UOp, list[UOp]] = {}
        for u in self.nodes:
            for r in dict.fromkeys(ranges_closed_by(u)):
                closers.setdefault(r, []).append(u)
        return closers

    @cached_property
    def open_ranges(self) -> frozenset[UOp]:
        """The ranges that the root of the scope depends on and that no node below closes."""
        return open_ranges(self.nodes)[self.root]


def ranges_closed_by(u: UOp) -> tuple[UOp, ...]:
    """Return the ranges that `u` closes."""
    start = RANGE_ENDING.get(u.op)
    return () if start is None else tuple([s for s in u.src[start:] if s.op in RANGES])


_NO_RANGES: frozenset[UOp] = frozenset()
#: Ops whose open ranges are not simply the union over their sources.
_SCOPING = frozenset({Op.LINEAR, *CALL_LIKE, *RANGE_ENDING, *RANGES})


def _distinct_sources_with_ranges(u: UOp) -> Collection[UOp]:
    return set(u.src) if u.constants_of_stack is None else ()


def open_ranges(nodes: Iterable[UOp]) -> dict[UOp, frozenset[UOp]]:
    """Return node -> the ranges in whose loops it is, for each of `nodes`, which are in topological order.

    Bodies are not entered. With memoized traversals the table is shared and may hold other nodes, too.
    """
    table = {} if traversals.cache is None else traversals.cache.open_ranges
    get_ranges = table.__getitem__
    for u in nodes:
        if u in table:
            continue
        op, src, ranges = u.op, u.src, _NO_RANGES
        if op not in _SCOPING:
            for below in map(get_ranges, src if len(src) < MANY else _distinct_sources_with_ranges(u)):
                if below is not ranges and below:
                    ranges = below if ranges <= below else ranges | below
        elif op is not Op.LINEAR:  # a list of instructions opens and closes its own blocks
            ranges = ranges.union(*[table[s] for s in (u.arguments if op in CALL_LIKE else src)])
            if op in RANGE_ENDING:
                ranges = ranges.difference(ranges_closed_by(u))
            if op in RANGES:
                ranges = ranges | {u}
        table[u] = ranges
    return table


def is_instruction(u: UOp) -> bool:
    """Return True if a Linear lists `u` before its users. Consts, Stacks of Consts, Params and Buffers need not be listed."""
    return u.op is not Op.CONST and u.op not in MEMORY_ROOTS and u.constants_of_stack is None


def base_memory(reference: UOp) -> UOp:
    """Return the node whose memory a reference views (R51, references and values); the node itself if it is no view."""
    while reference.op in VIEWS:
        reference = reference.src[0]  # the viewed operand, index or buffer
    return reference


def is_private_buffer(u: UOp) -> bool:
    """Return True for a Buffer of a kernel itself: LOCAL or REG (R61, fresh buffers)."""
    return u.op is Op.BUFFER and u.arg.addrspace is not AddrSpace.GLOBAL


def has_memory_per_iteration(buffer: UOp, loop: UOp) -> bool:
    """Return True if each iteration of a Range has its own memory for a LOCAL or REG Buffer (R128, private memory)."""
    return loop.arg.type in (GRID if buffer.arg.addrspace is AddrSpace.LOCAL else GRID | WORKGROUP)


#: Beginnings of the names of Specials that number workgroups; all others number lanes (R125, Special).
_WORKGROUP_NAMES = ("gidx", "blockIdx", "tidx", "threadpool")


def numbers_workgroups(special: UOp) -> bool:
    """Return True if a Special numbers workgroups, False if it numbers lanes (R125, Special)."""
    return str(special.arg.name).startswith(_WORKGROUP_NAMES)


def root_items(root: UOp) -> tuple[UOp, ...]:
    """Return the values and effects of a graph: the sources of a Tuple, Sink or Group, or the root itself."""
    return root.src if root.op in RESULT_ROOTS else (root,)


def strip_afters(reference: UOp) -> UOp:
    """Return a reference without the Afters that order it."""
    while reference.op is Op.AFTER:
        reference = reference.buffer
    return reference


def scope_sources(u: UOp) -> tuple[UOp, ...]:
    """Return the sources that belong to the scope of `u`: all but a body."""
    return u.arguments if u.op in CALL_LIKE else u.src


def scope_nodes(root: UOp) -> list[UOp]:
    """Return the nodes of the scope of `root` in topological order, sources first."""
    seen: set[UOp] = set()
    order: list[UOp] = []
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        u, sources_visited = stack.pop()
        if sources_visited:
            order.append(u)
        elif u not in seen:
            seen.add(u)
            stack.append((u, True))
            stack.extend((s, False) for s in reversed(scope_sources(u)) if s not in seen)
    return order


class SelectionTarget(Protocol):
    """The ops and dtypes that a graph may use after instruction selection."""

    @property
    def name(self) -> str:
        """The name of the target, for messages."""
        ...

    @property
    def ops(self) -> frozenset[Op]:
        """The ops that the target has."""
        ...

    @property
    def dtypes(self) -> frozenset[DType]:
        """The dtypes that the target has."""
        ...


class VerifyContext:
    """The analyses of one graph under verification; `order` holds all its nodes, sources first."""

    def __init__(self, root: UOp, order: list[UOp], target: SelectionTarget | None = None) -> None:
        self.root = root
        self.order = order
        self.target = target
        #: Root of a body -> the dialect that it is written in, where that is a later one than the graph's (R166).
        self.later_bodies: dict[UOp, str] = {}
        self._underlying_buffers: dict[UOp, UOp | None] = {}
        self._is_size_memo: dict[UOp, bool] = {}

    @cached_property
    def scopes(self) -> dict[UOp, GraphScope]:
        """Scope root -> scope; the first one is the graph's own."""
        scopes: dict[UOp, GraphScope] = {}
        pending: list[tuple[UOp, UOp | None, bool]] = [(self.root, None, False)]
        for body, owner, inner in pending:
            scope = scopes.get(body)
            if scope is None:
                scope = scopes[body] = GraphScope(body, scope_nodes(body) if self.has_bodies else self.order)
            if owner is not None and owner not in scope.owners:
                scope.owners.append(owner)
            if not (scope.inner if inner else scope.outer):
                scope.inner, scope.outer = scope.inner or inner, scope.outer or not inner
                pending += [(u.body, u, inner or u.op is Op.CALL) for u in scope.nodes if u.op in CALL_LIKE and u.src]
        return scopes

    @cached_property
    def has_bodies(self) -> bool:
        """True if the graph has more than one scope."""
        return any(u.op in CALL_LIKE for u in self.order)

    @cached_property
    def outer(self) -> frozenset[UOp]:
        """The nodes outside of all Call bodies."""
        return frozenset().union(*(s.nodes for s in self.scopes.values() if s.outer))

    @cached_property
    def inner(self) -> frozenset[UOp]:
        """The nodes inside Call bodies, but for those that are written in a later dialect."""
        return frozenset().union(*(s.nodes for body, s in self.scopes.items() if s.inner and body not in self.later_bodies))

    @cached_property
    def later_body_nodes_by_dialect(self) -> dict[str, frozenset[UOp]]:
        """Dialect -> the nodes of the bodies in `later_bodies` that are written in it."""
        nodes: dict[str, frozenset[UOp]] = {}
        for body, dialect in self.later_bodies.items():
            nodes[dialect] = nodes.get(dialect, frozenset()).union(self.scopes[body].nodes)
        return nodes

    def users_in_kernels(self, u: UOp) -> list[UOp]:
        """Return the users of a node of a kernel that are in kernels, too."""
        if not self.later_bodies:
            return self.users[u]
        kernels = frozenset().union(*self.later_body_nodes_by_dialect.values(), self.inner if self.is_launch else ())
        return [x for x in self.users[u] if x in kernels]

    @cached_property
    def is_launch(self) -> bool:
        """True if the graph is a Linear of Calls, whose bodies are kernels."""
        return self.root.op is Op.LINEAR

    @cached_property
    def size_nodes(self) -> frozenset[UOp]:
        """The nodes that compute the extents of Params."""
        return frozenset(toposort(*(u.extents for u in self.order if u.op is Op.PARAM and u.src)))

    @cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """Node -> its users in the whole graph."""
        return collect_users(self.order)

    @cached_property
    def range_closer_clashes(self) -> dict[UOp, list[UOp]]:
        """Range -> the nodes that close it, for each Range that more than one node of a scope closes."""
        return {r: c for s in self.scopes.values() for r, c in s.range_closers.items() if len(c) > 1}

    @cached_property
    def axis_id_clashes(self) -> dict[UOp, UOp]:
        """Range -> an earlier Range of its scope with the same identity but another bound or type (R62)."""
        clashes: dict[UOp, UOp] = {}
        for scope in self.scopes.values():
            first: dict[tuple[int, bool], UOp] = {}
            for u in scope.nodes:
                if u.op in RANGES and has_valid_arg(u):
                    other = first.setdefault((u.arg.axis_id, u.arg.renumbered), u)
                    if other is not u:
                        clashes[u] = other
        return clashes

    @cached_property
    def buffer_id_clashes(self) -> dict[UOp, UOp]:
        """BUFFER of either document -> an earlier one with the same identity (R62, R130).

        That one is of its scope. It may be of any other where the identity is that of the whole graph.
        """
        clashes: dict[UOp, UOp] = {}
        first_in_graph: dict[tuple[Op, int], UOp] = {}
        for scope in self.scopes.values():
            first_in_scope: dict[tuple[Op, int], UOp] = {}
            for u in scope.nodes:
                identity = buffer_identity(u) if u.op in BUFFERS else None
                if identity is not None:
                    for first in (first_in_scope, first_in_graph) if _is_told_apart_in_graph(u) else (first_in_scope,):
                        other = first.setdefault(identity, u)
                        if other is not u:
                            clashes[u] = other
        return clashes

    @cached_property
    def variable_bounds_clashes(self) -> dict[UOp, UOp]:
        """Named Param -> an earlier one with the same name but other bounds (R48, symbolic sizes)."""
        first: dict[str, UOp] = {}
        named = (u for u in self.order if is_variable(u) and has_valid_arg(u))
        return {u: o for u in named for o in [first.setdefault(u.arg.name, u)] if o.arg.bounds != u.arg.bounds}

    @cached_property
    def param_slot_clashes(self) -> dict[UOp, UOp]:
        """PARAM of either document -> the first one of its scope with the same slot, if that is another node."""
        clashes: dict[UOp, UOp] = {}
        for scope in self.scopes.values():
            first: dict[tuple[Op, int], UOp] = {}
            for u in scope.nodes:
                if u.op in PARAMS and has_valid_arg(u) and u.arg.slot is not None:
                    other = first.setdefault((u.op, u.arg.slot), u)
                    if other is not u:
                        clashes[u] = other
        return clashes

    def pair_params_with_arguments(self, call: UOp) -> list[tuple[int, UOp, UOp]]:
        """Return (slot, Param, argument) for each argument of a Function or Call whose body has a Param of that slot."""
        params = self.scopes[call.body].params_by_slot
        return [(slot, params[slot][0], a) for slot, a in enumerate(call.arguments) if slot in params]

    def underlying_buffer(self, u: UOp) -> UOp | None:
        """Return the Buffer or Param that a reference leads to; None for a value (R51, references and values)."""
        path = []
        while u not in self._underlying_buffers:
            path.append(u)
            if u.op in BASES:
                self._underlying_buffers[u] = None if is_variable(u) or u.dtype is dt.index else u
            elif u.op in VIEWS and u.src:
                u = u.src[0]  # the viewed memory
            else:
                self._underlying_buffers[u] = None
        buffer = self._underlying_buffers[u]
        self._underlying_buffers.update(dict.fromkeys(path, buffer))
        return buffer

    def describe_end_of_view_chain(self, u: UOp) -> str:
        """Return in words what a chain of views ends at, for a message about a value that is no reference."""
        while u.op in VIEWS and u.src:
            u = u.src[0]  # the viewed memory
        return "a named variable" if is_variable(u) else f"a view of {u.op.name.lower()}"

    def is_size_expression(self, u: UOp) -> bool:
        """Return True if `u` is an expression over constants and named variables only (R48, symbolic sizes)."""
        stack = [u]
        while stack:
            n = stack[-1]
            if n in self._is_size_memo:
                stack.pop()
            elif n.op not in _SIZE_OPS:
                self._is_size_memo[n] = is_variable(n) or n.op in (Op.DEFINE_VAR, Op.BIND)
            else:
                missing = [s for s in n.src if s not in self._is_size_memo]
                if missing:
                    stack.extend(missing)
                else:
                    self._is_size_memo[n] = all(self._is_size_memo[s] for s in n.src)
        return self._is_size_memo[u]


def has_valid_arg(u: UOp) -> bool:
    """Return True if `u` has an arg with fields of the declared types; the verifier also analyzes ill-formed nodes."""
    return u.arg is not None and arg_fault(u.op, u.arg) is None


def buffer_identity(u: UOp) -> tuple[Op, int] | None:
    """Return the op and number that name a BUFFER of either document: its own, or its UNIQUE's or LUNIQUE's (R62, identity).

    None if it is ill-formed.
    """
    if u.op is Op.BUFFER:
        return (u.op, u.arg.unique) if has_valid_arg(u) else None
    named = [s for s in u.src[:1] if s.op in (Op.UNIQUE, Op.LUNIQUE) and has_valid_arg(s)]  # unique
    return (named[0].op, named[0].arg.id) if named else None


def _is_told_apart_in_graph(buffer: UOp) -> bool:
    """Return True if the identity of a BUFFER is one in the whole graph, False if it is one in its scope (R130)."""
    if buffer.op is Op.BUFFER:
        return bool(buffer.arg.addrspace is AddrSpace.GLOBAL)
    return buffer.unique.op is Op.UNIQUE


def is_variable(u: UOp) -> bool:
    """Return True if `u` is a Param that is a named variable (R48, symbolic sizes)."""
    return u.op is Op.PARAM and getattr(u.arg, "name", None) is not None


def derivation_fault(u: UOp) -> str | None:
    """Return why one of dtype, shape, device and axis cannot be derived, or None."""
    try:
        _ = u.dtype, u.shape
        if type(u.device) is tuple:
            _ = u.axis
    except SpecError as e:
        return str(e)
    return None
