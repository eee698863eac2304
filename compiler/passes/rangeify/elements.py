"""Elements of values as expressions of an index, to find the Reduces that have a closed form before anything is computed.

`find_closed_forms_of_reduces(order, indexing)` finds the Reduces over axes that `closed_forms` can compute without some of their
loops. For each it gives the element at a general index, as an expression of Ranges that stand for the index, and of placeholders
for elements of other values. The search looks through values that are functions of their index, such as sequences, masks and
triangles, and through the choices and movement ops applied to them. Everything else is a placeholder. Rangeify substitutes its
own index for the general one. Spec: Reduce; R32 (Reduce value), R49 (listing helpers), R50 (gather).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.views import STEP, ZERO, Index, IndexArithmetic, fits_int32
from uops.compiler.passes.rangeify.closed_forms import find_closed_form
from uops.compiler.passes.rangeify.kernels import make_placeholder
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import ALU, COMPARE, RESHAPING, Op

#: Ops of a function of an index that the search looks through.
_FUNCTIONS = ALU | RESHAPING
#: Ops of other values that it looks through: those that choose or move elements.
_CHOICES = COMPARE | {Op.WHERE, Op.AND, Op.NOT, Op.CAST, Op.MUL} | RESHAPING
#: Most elements that one search builds.
_MAX_ELEMENTS = 400


class Leaf(NamedTuple):
    """The element of `node` at `coords`, where `gate` holds (None: always). Leaves used in `coords` precede it."""

    node: UOp
    coords: Index
    gate: UOp | None


class ClosedReduce(NamedTuple):
    """A Reduce with fewer loops: its element `value` at the general index.

    `leaves` maps placeholders in `value` to elements. `remaining_loops` maps each axis that still needs a loop to its Range.
    """

    general_index: Index
    leaves: Mapping[UOp, Leaf]
    value: UOp
    remaining_loops: Mapping[int, UOp]


def find_closed_forms_of_reduces(order: Sequence[UOp], indexing: IndexArithmetic) -> dict[UOp, ClosedReduce]:
    """Return the closed forms of the Reduces among `order`, which is the topological order of a graph."""
    closed: dict[UOp, ClosedReduce] = {}
    if not nodes_with_op(order[-1], Op.REDUCE):
        return closed
    functions, mixed = _find_index_functions_and_choices(order)
    for u in order:
        if u.op is not Op.REDUCE or not u.arg.axes or 0 in u.operand.shape:
            continue
        if u.operand in functions or u.operand in mixed:
            form = _ClosedFormSearch(indexing, functions, mixed, closed).eliminate_reduce_loops(u)
            if form is not None:
                closed[u] = form
            if form is None or form.leaves or form.remaining_loops:
                functions.discard(u)
    return closed


def _find_index_functions_and_choices(order: Sequence[UOp]) -> tuple[set[UOp], set[UOp]]:
    """Return the values that depend on their index and on no memory, and the values that a choice makes of such a value."""
    functions: set[UOp] = set()
    mixed: set[UOp] = set()
    for u in order:
        if u.op is Op.CONST or (u.op is Op.PARAM and u.arg.name is not None):
            functions.add(u)
        elif u.op in _FUNCTIONS or u.op is Op.REDUCE:
            operands = u.src if u.op in ALU else (u.operand,)
            if all(s in functions for s in operands):
                functions.add(u)
            elif u.op in _CHOICES and any(s in mixed or (s in functions and _is_more_than_moved_constant(s)) for s in operands):
                mixed.add(u)
    return functions, mixed


def _is_more_than_moved_constant(u: UOp) -> bool:
    """Return True unless a function of its index is a movement of a constant."""
    while u.op in RESHAPING and u.op is not Op.PAD:
        u = u.operand
    return u.op is not Op.CONST


class _ClosedFormSearch:
    """The search for the closed form of one Reduce."""

    def __init__(
        self, indexing: IndexArithmetic, functions: set[UOp], mixed: set[UOp], closed_reduces: Mapping[UOp, ClosedReduce]
    ) -> None:
        self.indexing, self.functions, self.mixed, self.closed_reduces = indexing, functions, mixed, closed_reduces
        self.leaves: dict[UOp, Leaf] = {}
        self.placeholders: dict[Leaf, UOp] = {}
        self.elements: dict[tuple[UOp, Index], UOp] = {}

    def eliminate_reduce_loops(self, u: UOp) -> ClosedReduce | None:
        """Return the element of a Reduce with as few loops as possible; None if every loop remains."""
        coords = tuple(self.make_general_index(k, n) for k, n in enumerate(u.operand.shape))
        value = self.indexing.simplify(self.build_element(u.operand, coords))
        loops = {k: coords[k] for k in u.arg.axes if coords[k] is not ZERO}
        remaining = dict(loops)
        if len(self.elements) > _MAX_ELEMENTS:
            return None
        for k, r in sorted(loops.items(), reverse=True):
            form = find_closed_form(u.arg.op, value, r, self.indexing.simplify, self.depends_on_through_leaves)
            if form is not None:
                value = (
                    form.value
                    if form.selected_index is None
                    else self.move_leaves_to_index_and_gate_them(form.value, r, form.selected_index)
                )
                del remaining[k]
        if len(remaining) == len(loops):
            return None
        general_index = tuple(ZERO if k in u.arg.axes else i for k, i in enumerate(coords))
        return ClosedReduce(general_index, self.collect_leaves_in_dependency_order(value), value, remaining)

    def make_general_index(self, axis: int, n: Dim) -> UOp:
        """Return a Range that stands for any index on an axis; the index 0 for an axis of one element.

        The bound is in normal form, so that the Range is the one in simplified expressions.
        """
        bound = self.indexing.simplify(dim_node(n))
        return ZERO if bound is index_constant(1) else UOp(Op.RANGE, (bound,), RangeArg(-1 - axis, AxisType.LOOP))

    def depends_on_through_leaves(self, expression: UOp, r: UOp) -> bool:
        """Return True if an expression depends on a range, also through index or gate of a leaf."""
        pending, seen = [expression], set[UOp]()
        while pending:
            for u in toposort(pending.pop()):
                if u is r:
                    return True
                if u in self.leaves and u not in seen:
                    seen.add(u)
                    leaf = self.leaves[u]
                    pending += leaf.coords if leaf.gate is None else (*leaf.coords, leaf.gate)
        return False

    def move_leaves_to_index_and_gate_them(self, value: UOp, r: UOp, index: UOp) -> UOp:
        """Substitute `index` for the range `r` in the leaves of an expression. Leaves are gated where it is out of range."""
        inside = self.indexing.in_range_gate(index, ZERO, r.bound)
        position = index if inside is None or fits_int32(index) else self.indexing.alu(Op.MOD, index, r.bound)
        replacements: dict[UOp, UOp] = {}
        for u, (node, coords, gate) in self.collect_leaves_in_dependency_order(value).items():
            if self.depends_on_through_leaves(u, r):
                inner = {r: position, **replacements}  # of the leaves that this one's index and gate depend on
                new_coords = tuple(self.indexing.simplify(substitute(i, inner)) for i in coords)
                new_gate = None if gate is None else self.indexing.simplify(substitute(gate, inner))
                replacements[u] = self.get_or_make_leaf_placeholder(node, new_coords, self.indexing.conjoin_gates(new_gate, inside))
        return self.indexing.simplify(substitute(value, replacements)) if replacements else value

    def collect_leaves_in_dependency_order(self, value: UOp) -> dict[UOp, Leaf]:
        """Return the leaves of an expression, each after those that its index and gate depend on."""
        ordered: dict[UOp, Leaf] = {}
        pending = [u for u in toposort(value) if u in self.leaves]
        while pending:
            u = pending[-1]
            _, coords, gate = self.leaves[u]
            below = toposort(*coords, *(() if gate is None else (gate,)))
            missing = [x for x in below if x in self.leaves and x not in ordered]
            if missing:
                pending += missing
            else:
                ordered[pending.pop()] = self.leaves[u]
        return ordered

    # Elements

    def get_or_make_leaf_placeholder(self, u: UOp, coords: Index, gate: UOp | None = None) -> UOp:
        """Return the placeholder for an element of `u`. Its gate requires that `coords` are in range; elsewhere nothing is read."""
        for i, n in zip(coords, u.shape, strict=True):
            gate = self.indexing.conjoin_gates(gate, self.indexing.in_range_gate(i, ZERO, dim_node(n)))
        leaf = Leaf(u, coords, gate)
        if leaf not in self.placeholders:
            placeholder = self.placeholders[leaf] = make_placeholder(f"%element {len(self.placeholders)}", u)
            self.leaves[placeholder] = leaf
        return self.placeholders[leaf]

    def build_element(self, u: UOp, coords: Index) -> UOp:
        """Build the element of `u` at `coords`; iterative, because chains of ops are long."""
        stack = [(u, coords)]
        while stack:
            element = stack[-1]
            if element in self.elements:
                stack.pop()
                continue
            sources = self.source_elements(*element)
            missing = [s for s in sources if s not in self.elements]
            if missing and len(self.elements) <= _MAX_ELEMENTS:
                stack += missing
                continue
            stack.pop()
            v, i = element
            self.elements[element] = (
                self.get_or_make_leaf_placeholder(v, i)
                if missing
                else self.build_element_from_sources(v, i, [self.elements[s] for s in sources])
            )
        return self.elements[u, coords]

    def source_elements(self, u: UOp, coords: Index) -> list[tuple[UOp, Index]]:
        """Return the elements that an element is computed from; none for a leaf."""
        if u in self.closed_reduces or not self.has_elements_built_from_sources(u):
            return []
        if u.op in ALU:
            return [(s, self.indexing.align_broadcast_index(coords, s.shape)) for s in u.src]
        return [(u.operand, STEP[u.op](self.indexing, u, coords).coords)]

    def has_elements_built_from_sources(self, u: UOp) -> bool:
        """Return True if elements of `u` are expressions of elements of its sources."""
        if u in self.functions:
            return u.op in _FUNCTIONS
        return u.op in RESHAPING or (u in self.mixed and u.op in _CHOICES)

    def build_element_from_sources(self, u: UOp, coords: Index, sources: Sequence[UOp]) -> UOp:
        """Build the element of `u` at `coords` from its source elements."""
        form = self.closed_reduces.get(u)
        if form is not None and not form.leaves and not form.remaining_loops:
            return substitute(form.value, bind_general_index(form, coords))
        if not sources:
            return u if not u.shape and u in self.functions else self.get_or_make_leaf_placeholder(u, coords)
        if u.op is Op.PAD:
            (element,) = sources
            gate = STEP[Op.PAD](self.indexing, u, coords).gate
            return element if gate is None else UOp(Op.WHERE, (gate, element, B.const(0, u.dtype)))
        if u.op in STEP:
            (element,) = sources
            return element
        if u.op is Op.WHERE:
            condition, if_true, if_false = sources
            return UOp(Op.WHERE, (_as_bool(condition), if_true, if_false))
        return UOp(u.op, tuple(sources), u.arg)


def _as_bool(p: UOp) -> UOp:
    """Return the condition of a Where as a bool (R14, Where condition)."""
    if p.dtype is dt.bool_:
        return p
    if p.op is Op.CAST and p.operand.dtype is dt.bool_:
        return p.operand
    return UOp(Op.CMPNE, (p, B.const(0, p.dtype)))


def bind_general_index(form: ClosedReduce, coords: Index) -> dict[UOp, UOp]:
    """Return the substitution of `coords` for the general index of a closed form."""
    return {r: i for r, i in zip(form.general_index, coords, strict=True) if r is not ZERO}
