"""Elements of values as expressions of an index: which Reduces of a graph have a closed form, before anything is computed.

`closed_reduces(order, at)` gives, for each Reduce over axes that `closed.close` can do without (some of) its loops, its element at
a general index: an expression of Ranges that stand for the index, and of placeholders for the elements of other values. Only values
that are functions of their index - sequences, masks, triangles - and the choices and movements made with them are looked into;
everything else is a placeholder. Rangeify puts its own index in place of the general one. Spec: Reduce; R32, R49, R50.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from uops.compiler.ir.affine import number
from uops.compiler.ir.views import STEP, ZERO, Index, Indexing
from uops.compiler.passes.rangeify.closed_forms import close
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ParamArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, nodes_of, substitute, toposort
from uops.spec.ir.ops import ALU, COMPARE, Op

#: Ops of a function of an index that are looked into; of other values, those that choose or move elements.
_FUNCTIONS = ALU | STEP.keys() - {Op.AFTER, Op.REPLICATED}
_CHOICES = COMPARE | {Op.WHERE, Op.AND, Op.NOT, Op.CAST, Op.MUL} | (STEP.keys() - {Op.AFTER, Op.REPLICATED})
#: Nodes of an expression up to which it is worth a search.
_MOST = 400


class Leaf(NamedTuple):
    """The element of `node` at `coords`, where `gate` holds (None: always). Leaves of which `coords` are made come before."""

    node: UOp
    coords: Index
    gate: UOp | None


class Closed(NamedTuple):
    """The element `value` of a Reduce at the index `at`. `leaves` are its placeholders, and `left` the loops that remain, with the
    axis of each."""

    at: Index
    leaves: Mapping[UOp, Leaf]
    value: UOp
    left: Mapping[int, UOp]


def closed_reduces(order: Sequence[UOp], at: Indexing) -> dict[UOp, Closed]:
    """The closed forms of the Reduces among `order`, which is the topological order of a graph."""
    found: dict[UOp, Closed] = {}
    if not nodes_of(order[-1], Op.REDUCE):
        return found
    functions, mixed = _functions(order)
    for u in order:
        if u.op is Op.REDUCE and u.arg.axes and 0 not in u.src[0].shape and (u.src[0] in functions or u.src[0] in mixed):
            form = _Search(at, functions, mixed, found).close(u)
            if form is not None:
                found[u] = form
            if form is None or form.leaves or form.left:
                functions.discard(u)
    return found


def _functions(order: Sequence[UOp]) -> tuple[set[UOp], set[UOp]]:
    """The values that depend on their index and on no memory, and those that are made of such a value by a choice."""
    functions: set[UOp] = set()
    mixed: set[UOp] = set()
    for u in order:
        if u.op is Op.CONST or (u.op is Op.PARAM and u.arg.name is not None):
            functions.add(u)
        elif u.op in _FUNCTIONS or u.op is Op.REDUCE:
            own = u.src if u.op in ALU else u.src[:1]
            if all(s in functions for s in own):
                functions.add(u)
            elif u.op in _CHOICES and any(s in mixed or (s in functions and _varies(s)) for s in own):
                mixed.add(u)
    return functions, mixed


def _varies(u: UOp) -> bool:
    """Whether a function of its index may be another one than a constant."""
    while u.op in (Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.FLIP, Op.SHRINK):
        u = u.src[0]
    return u.op is not Op.CONST


class _Search:
    """The search for the closed form of one Reduce."""

    def __init__(self, at: Indexing, functions: set[UOp], mixed: set[UOp], closed: Mapping[UOp, Closed]) -> None:
        self.at, self.functions, self.mixed, self.closed = at, functions, mixed, closed
        self.leaves: dict[UOp, Leaf] = {}
        self.named: dict[Leaf, UOp] = {}
        self.elements: dict[tuple[UOp, Index], UOp] = {}

    def close(self, u: UOp) -> Closed | None:
        shape = u.src[0].shape
        coords = tuple(self.general(k, n) for k, n in enumerate(shape))
        value = self.at.simplify(self.element(u.src[0], coords))
        left = {k: coords[k] for k in u.arg.axes if coords[k] is not ZERO}
        if len(self.elements) > _MOST:
            return None
        for k, r in sorted(left.items(), reverse=True):
            found = close(u.arg.op, value, r, self.at.simplify, self.depends)
            if found is not None:
                value = found.value if found.at is None else self.moved(found.value, r, found.at)
                del left[k]
        if len(left) == sum(coords[k] is not ZERO for k in u.arg.axes):
            return None
        own = tuple(ZERO if k in u.arg.axes else i for k, i in enumerate(coords))
        return Closed(own, self.used(value), value, left)

    def general(self, axis: int, n: Dim) -> UOp:
        """A Range that stands for an index on that axis; the index 0 where there is one element. Its bound is in normal form, so
        that it is the Range which simplified expressions have."""
        bound = self.at.simplify(dim_node(n))
        return ZERO if bound is number(1) else UOp(Op.RANGE, (bound,), RangeArg(-1 - axis, AxisType.LOOP))

    def depends(self, e: UOp, r: UOp) -> bool:
        pending, seen = [e], set[UOp]()
        while pending:
            for u in toposort(pending.pop()):
                if u is r:
                    return True
                if u in self.leaves and u not in seen:
                    seen.add(u)
                    leaf = self.leaves[u]
                    pending += leaf.coords if leaf.gate is None else (*leaf.coords, leaf.gate)
        return False

    def moved(self, value: UOp, r: UOp, s: UOp) -> UOp:
        """`value` with its leaves at r = s, where s is an index of r's range."""
        inside = self.at.inside(s, ZERO, r.src[0])
        position = s if inside is None or _fits(s) else self.at.alu(Op.MOD, s, r.src[0])
        put: dict[UOp, UOp] = {}
        for u in toposort(value):
            if u in self.leaves and self.depends(u, r):
                node, coords, gate = self.leaves[u]
                there = tuple(self.at.simplify(substitute(i, {r: position})) for i in coords)
                own = None if gate is None else self.at.simplify(substitute(gate, {r: position}))
                put[u] = self.leaf(node, there, self.at.both(own, inside))
        return self.at.simplify(substitute(value, put)) if put else value

    def used(self, value: UOp) -> dict[UOp, Leaf]:
        """The leaves of an expression, those that their places depend on first."""
        found: dict[UOp, Leaf] = {}
        pending = [u for u in toposort(value) if u in self.leaves]
        while pending:
            u = pending[-1]
            _, coords, gate = self.leaves[u]
            below = toposort(*coords, *(() if gate is None else (gate,)))
            missing = [x for x in below if x in self.leaves and x not in found]
            if missing:
                pending += missing
            else:
                found[pending.pop()] = self.leaves[u]
        return found

    # Elements

    def leaf(self, u: UOp, coords: Index, gate: UOp | None = None) -> UOp:
        """A placeholder for an element, which is there where `coords` are inside of `u`: elsewhere nothing is read."""
        for i, n in zip(coords, u.shape, strict=True):
            gate = self.at.both(gate, self.at.inside(i, ZERO, dim_node(n)))
        found = Leaf(u, coords, gate)
        if found not in self.named:
            bounds = u.min_max if not u.dtype.is_float else None
            known = None if bounds is None or bounds[0] <= u.dtype.min else (int(bounds[0]), int(bounds[1]))
            arg = ParamArg(None, u.dtype, name=f"%element {len(self.named)}", bounds=known)
            made = self.named[found] = UOp(Op.PARAM, (B.SCALAR,), arg)
            self.leaves[made] = found
        return self.named[found]

    def element(self, u: UOp, coords: Index) -> UOp:
        """The element of `u` at `coords`; iterative, as chains are long."""
        stack = [(u, coords)]
        while stack:
            wanted = stack[-1]
            if wanted in self.elements:
                stack.pop()
                continue
            parts = self.parts(*wanted)
            missing = [p for p in parts if p not in self.elements]
            if missing and len(self.elements) <= _MOST:
                stack += missing
                continue
            stack.pop()
            v, i = wanted
            self.elements[wanted] = self.leaf(v, i) if missing else self.made(v, i, [self.elements[p] for p in parts])
        return self.elements[u, coords]

    def parts(self, u: UOp, coords: Index) -> list[tuple[UOp, Index]]:
        """The elements that one is made of; none of a leaf."""
        if u in self.closed or not self.enters(u):
            return []
        if u.op in ALU:
            return [(s, self.at.align(coords, s.shape)) for s in u.src]
        return [(u.src[0], STEP[u.op](self.at, u, coords).coords)]

    def enters(self, u: UOp) -> bool:
        if u in self.functions:
            return u.op in _FUNCTIONS
        return u.op in STEP.keys() - {Op.AFTER, Op.REPLICATED} or (u in self.mixed and u.op in _CHOICES)

    def made(self, u: UOp, coords: Index, parts: Sequence[UOp]) -> UOp:
        form = self.closed.get(u)
        if form is not None and not form.leaves and not form.left:
            return substitute(form.value, place_of(form, coords))
        if not parts:
            return u if not u.shape and u in self.functions else self.leaf(u, coords)
        if u.op is Op.PAD:
            gate = STEP[Op.PAD](self.at, u, coords).gate
            return parts[0] if gate is None else UOp(Op.WHERE, (gate, parts[0], B.const(0, u.dtype)))
        if u.op in STEP:
            return parts[0]
        if u.op is Op.WHERE:
            return UOp(Op.WHERE, (_truth(parts[0]), *parts[1:]))
        return UOp(u.op, tuple(parts), u.arg)


def _fits(value: UOp) -> bool:
    bounds = value.min_max
    return bounds is not None and dt.int32.min <= bounds[0] and bounds[1] <= dt.int32.max


def _truth(p: UOp) -> UOp:
    """A condition as a bool (R14)."""
    if p.dtype is dt.bool_:
        return p
    if p.op is Op.CAST and p.src[0].dtype is dt.bool_:
        return p.src[0]
    return UOp(Op.CMPNE, (p, B.const(0, p.dtype)))


def place_of(form: Closed, coords: Index) -> dict[UOp, UOp]:
    """What to put for the general index of a closed form."""
    return {r: i for r, i in zip(form.at, coords, strict=True) if r is not ZERO}
