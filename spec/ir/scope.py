"""What a claim may ask about the graph around its node: scopes, closed ranges, references, names.

A *scope* is the whole graph without the bodies of its Functions and Calls, or one such body without the bodies inside it: Params
and Ranges belong to a scope (R64). Everything here is computed once, on first use, iteratively.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.arg_types import arg_fault
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import MANY, UOp, orders, toposort, users
from uops.spec.ir.operands import positions_of
from uops.spec.ir.ops import ALU, Op

BODIED = frozenset({Op.FUNCTION, Op.CALL})

#: Ops that close ranges -> position of their first range: tinyspec's, then the bestiary's table (R109).
RANGE_ENDING: dict[Op, int] = positions_of("ranges", "...", "+") | {Op.WMMA: 3}
RANGES = frozenset({Op.RANGE, Op.B_RANGE})

#: Injective views: a reference if their first source is one (R51).
VIEWS = frozenset(
    {Op.INDEX, Op.SLICE, Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.BITCAST, Op.AFTER}
    | {Op.B_INDEX, Op.POINTER_INDEX, Op.BUFFER_VIEW, Op.B_SHRINK, Op.B_BARRIER, Op.PTRCAT}
)
BASES = frozenset({Op.BUFFER, Op.PARAM, Op.B_BUFFER, Op.B_PARAM, Op.DEFINE_LOCAL, Op.DEFINE_REG, Op.BUFFERIZE})
_SIZE_OPS = frozenset(ALU | {Op.CONST})


@dataclass(eq=False)
class Scope:
    """`root` without the bodies it holds; `owners` are the Functions or Calls whose body it is.

    `outer` and `inner`: whether it is reached without and with a Call around it.
    """

    root: UOp
    nodes: list[UOp]
    owners: list[UOp] = field(default_factory=list)
    outer: bool = False
    inner: bool = False

    @cached_property
    def params(self) -> dict[int, list[UOp]]:
        """slot -> the Params of this scope with it."""
        found: dict[int, list[UOp]] = {}
        for u in self.nodes:
            if u.op is Op.PARAM and well_argued(u) and u.arg.slot is not None:
                found.setdefault(u.arg.slot, []).append(u)
        return found

    @cached_property
    def closers(self) -> dict[UOp, list[UOp]]:
        """Range -> the nodes that close it."""
        found: dict[UOp, list[UOp]] = {}
        for u in self.nodes:
            for r in dict.fromkeys(closed_by(u)):
                found.setdefault(r, []).append(u)
        return found

    @cached_property
    def open_ranges(self) -> frozenset[UOp]:
        """The ranges that are used at the root of the scope and not closed below it."""
        return open_ranges(self.nodes)[self.root]


def closed_by(u: UOp) -> tuple[UOp, ...]:
    """The ranges that this node closes."""
    start = RANGE_ENDING.get(u.op)
    return () if start is None else tuple(s for s in u.src[start:] if s.op in RANGES)


_NONE: frozenset[UOp] = frozenset()
_SCOPING = frozenset({Op.LINEAR, *BODIED, *RANGE_ENDING, *RANGES})


def open_ranges(nodes: Iterable[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For each of `nodes` (sources first) the ranges in whose loops it stands; bodies are not entered. While orders are kept, the
    table is theirs too, and holds other nodes besides."""
    found = orders.opened
    if found is None:
        found = {}
    for u in nodes:
        if u in found:
            continue
        src: Iterable[UOp] = u.src
        op, opened = u.op, _NONE
        if len(u.src) >= MANY:
            src = set(u.src) if u.spelt is None else ()
        if op not in _SCOPING:
            for s in src:
                below = found[s]
                if below is not opened and below:
                    opened = below if opened <= below else opened | below
        elif op is not Op.LINEAR:  # a sequence opens and closes its own blocks
            opened = opened.union(*[found[s] for s in (u.src[1:] if op in BODIED else src)])
            if op in RANGE_ENDING:
                opened = opened.difference(closed_by(u))
            if op in RANGES:
                opened = opened | {u}
        found[u] = opened
    return found


def operands(u: UOp) -> tuple[UOp, ...]:
    """The sources in the node's own scope: all but a body."""
    return u.src[1:] if u.op in BODIED else u.src


def scope_nodes(root: UOp) -> list[UOp]:
    """Every node of the scope of `root`, sources first."""
    seen: set[UOp] = set()
    order: list[UOp] = []
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        u, ready = stack.pop()
        if ready:
            order.append(u)
        elif u not in seen:
            seen.add(u)
            stack.append((u, True))
            stack.extend((s, False) for s in reversed(operands(u)) if s not in seen)
    return order


class Target(Protocol):
    """What a graph after instruction selection may use."""

    @property
    def name(self) -> str: ...

    @property
    def ops(self) -> frozenset[Op]: ...

    @property
    def dtypes(self) -> frozenset[DType]: ...


class Context:
    """The verification of one graph: `order` holds all its nodes, sources first."""

    def __init__(self, root: UOp, order: list[UOp], target: Target | None = None) -> None:
        self.root = root
        self.order = order
        self.target = target
        self._bases: dict[UOp, UOp | None] = {}
        self._sizes: dict[UOp, bool] = {}

    @cached_property
    def scopes(self) -> dict[UOp, Scope]:
        """Scope root -> scope; the first is the graph's own."""
        found: dict[UOp, Scope] = {}
        pending: list[tuple[UOp, UOp | None, bool]] = [(self.root, None, False)]
        for body, owner, inner in pending:
            scope = found.get(body)
            if scope is None:
                scope = found[body] = Scope(body, scope_nodes(body) if self.has_bodies else self.order)
            if owner is not None and owner not in scope.owners:
                scope.owners.append(owner)
            if not (scope.inner if inner else scope.outer):
                scope.inner, scope.outer = scope.inner or inner, scope.outer or not inner
                pending += [(u.src[0], u, inner or u.op is Op.CALL) for u in scope.nodes if u.op in BODIED and u.src]
        return found

    @cached_property
    def has_bodies(self) -> bool:
        """True if the graph has more than one scope."""
        return any(u.op in BODIED for u in self.order)

    @cached_property
    def outer(self) -> frozenset[UOp]:
        """Nodes outside of every Call's body."""
        return frozenset().union(*(s.nodes for s in self.scopes.values() if s.outer))

    @cached_property
    def inner(self) -> frozenset[UOp]:
        """Nodes inside the body of a Call."""
        return frozenset().union(*(s.nodes for s in self.scopes.values() if s.inner))

    @cached_property
    def sizes(self) -> frozenset[UOp]:
        """Nodes that spell the shape of a Param."""
        return frozenset(toposort(*(u.src[0] for u in self.order if u.op is Op.PARAM and u.src)))

    @cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """Users of each node, over the whole graph."""
        return users(self.order)

    @cached_property
    def closed_twice(self) -> dict[UOp, list[UOp]]:
        """Ranges that more than one node of a scope closes."""
        return {r: c for s in self.scopes.values() for r, c in s.closers.items() if len(c) > 1}

    @cached_property
    def axis_ids(self) -> dict[UOp, UOp]:
        """Range -> an earlier Range of its scope with the same identity, another bound or type (R62)."""
        clashes: dict[UOp, UOp] = {}
        for scope in self.scopes.values():
            first: dict[tuple[int, bool], UOp] = {}
            for u in scope.nodes:
                if u.op in RANGES and well_argued(u):
                    other = first.setdefault((u.arg.axis_id, u.arg.renumbered), u)
                    if other is not u:
                        clashes[u] = other
        return clashes

    @cached_property
    def buffer_ids(self) -> dict[UOp, UOp]:
        """Buffer -> an earlier Buffer with the same `unique`, of its scope or, where both are GLOBAL, of another (R62, R130)."""
        clashes: dict[UOp, UOp] = {}
        everywhere: dict[object, UOp] = {}
        for scope in self.scopes.values():
            here: dict[object, UOp] = {}
            for u in scope.nodes:
                if u.op is Op.BUFFER and well_argued(u):
                    for first in (here, everywhere) if u.arg.addrspace is AddrSpace.GLOBAL else (here,):
                        other = first.setdefault(u.arg.unique, u)
                        if other is not u:
                            clashes[u] = other
        return clashes

    @cached_property
    def variables(self) -> dict[UOp, UOp]:
        """Named Param -> an earlier one with its name and other bounds (R48)."""
        first: dict[str, UOp] = {}
        named = (u for u in self.order if is_variable(u) and well_argued(u))
        return {u: o for u in named for o in [first.setdefault(u.arg.name, u)] if o.arg.bounds != u.arg.bounds}

    @cached_property
    def slots(self) -> dict[UOp, UOp]:
        """Param -> an earlier Param of its scope with the same slot and another shape or arg."""
        found: dict[UOp, UOp] = {}
        for scope in self.scopes.values():
            for same in scope.params.values():
                found.update((p, same[0]) for p in same[1:])
        return found

    def base(self, u: UOp) -> UOp | None:
        """The Buffer or Param that a reference leads to, None for a value (R51)."""
        path = []
        while u not in self._bases:
            path.append(u)
            if u.op in BASES:
                self._bases[u] = None if is_variable(u) or u.dtype is dt.index else u
            elif u.op in VIEWS and u.src:
                u = u.src[0]
            else:
                self._bases[u] = None
        found = self._bases[u]
        self._bases.update(dict.fromkeys(path, found))
        return found

    def not_a_reference(self, u: UOp) -> str:
        """The op at which a chain of views ends."""
        while u.op in VIEWS and u.src:
            u = u.src[0]
        return "a named variable" if is_variable(u) else f"a view of {u.op.name.lower()}"

    def is_size(self, u: UOp) -> bool:
        """Whether a node is an expression over constants and named variables only (R48)."""
        stack = [u]
        while stack:
            n = stack[-1]
            if n in self._sizes:
                stack.pop()
            elif n.op not in _SIZE_OPS:
                self._sizes[n] = is_variable(n) or n.op in (Op.DEFINE_VAR, Op.BIND)
            else:
                missing = [s for s in n.src if s not in self._sizes]
                if missing:
                    stack.extend(missing)
                else:
                    self._sizes[n] = all(self._sizes[s] for s in n.src)
        return self._sizes[u]


def well_argued(u: UOp) -> bool:
    """Whether a node's arg can be read: what this module asks of nodes that may be ill-formed."""
    return u.arg is not None and arg_fault(u.op, u.arg) is None


def is_variable(u: UOp) -> bool:
    """Whether a Param is a named variable (R48)."""
    return u.op is Op.PARAM and getattr(u.arg, "name", None) is not None


def derivable(u: UOp) -> str | None:
    """Why one of dtype, shape, device or axis cannot be derived, or None."""
    try:
        _ = u.dtype, u.shape
        if type(u.device) is tuple:
            _ = u.axis
    except SpecError as e:
        return str(e)
    return None
