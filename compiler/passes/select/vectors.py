"""Lowering of shaped values to native vectors and scalars, the first step of instruction selection for kernels with shape.

Takes: a body of EXPANDED. Gives: the same with values of shape () or (w,) only, without Reduce and movement ops, and with index
values in the machine integer that holds them all (`index_widths`).
Spec: Lowering Pipeline/Instruction Selection; R08 (index dtype), R27 (one node, one value), R32 (Reduce value), R45 (Index), R52
(Load), R61 (fresh buffers).

Consumers first, each value learns which of its elements are needed together, as *pieces* (`positions`). A Store is cut into pieces
that are contiguous in memory, and pieces pass through movement ops as tables of positions. Sources first, each piece is then built
once. A value that all lanes share stays a scalar, and a Stack splats it where it meets a vector. Index arithmetic is computed as a
scalar + constants per lane. The lowered kernel has these forms, with w a power of two:

    splat                 Stack(x, ..., x)
    lane numbers          Stack(0, 1, ..., w-1)
    contiguous access     Index(buf, Add(Stack(b, ..., b), Stack(0, 1, ..., w-1))), b a scalar
    other access          Index(buf, any other (w,) index): one access per lane
    lanes of a vector     Index(v, Const) or Index(v, Stack(Consts))
    lanes of two vectors  Where(Stack(Consts), a, b)
    vector of lanes       Stack(Index(v, Const), ...), or of any scalars
    accumulator           a REG Buffer of w elements, accessed whole
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from uops.compiler.decompose.build import build_constant_or_stack_of_copies
from uops.compiler.ir.views import AFTERS, strip_views_and_collect_dependencies
from uops.compiler.passes.select.cuts import cut_store_pieces
from uops.compiler.passes.select.index_widths import as_integer, choose_index_dtype
from uops.compiler.passes.select.positions import (
    NOTHING,
    SCALAR,
    IndexLanes,
    IndexSums,
    LanePositions,
    Term,
    constant_vector,
    index_of,
    is_splat,
    size,
)
from uops.compiler.passes.select.vector_transpose import (
    MIN_LANES,
    TransposeSquare,
    every_second_offset,
    find_transpose_squares,
    load_even_lanes_of_two_vectors,
    transpose_rows,
)
from uops.compiler.place import untranslatable_error
from uops.compiler.target import MachineModel
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, LoadArg
from uops.spec.ir.node import UOp, collect_users, ops_below, toposort
from uops.spec.ir.ops import ACCESSES, ALU, KERNEL_VIEWS, MEMORY_ROOTS, RESHAPING, Op
from uops.spec.ir.scope import open_ranges, strip_afters

#: A lane of a built vector, as (vector, number of the lane), or (scalar, 0).
Lane = tuple[UOp, int]


def has_shaped_values(body: UOp) -> bool:
    """Return True if a kernel has values that are not scalars."""
    return not RESHAPING.isdisjoint(ops_below(body)) or any(u.buffer.shape for u in [u for u in toposort(body) if u.op in ACCESSES])


class AccumulatorGroup(NamedTuple):
    """One piece of a result, and the terms that `accumulators` accumulators side by side combine into it."""

    piece: LanePositions
    terms: list[LanePositions]
    accumulators: int


class ReducePlan(NamedTuple):
    """The terms of a Reduce. `folded_lanes` is the number of lanes of a term that are combined; 0 if lanes lie across."""

    value: UOp
    ranges: tuple[UOp, ...]
    groups: list[AccumulatorGroup]
    folded_lanes: int


class VectorSelector:
    """The lowering of one kernel. `wanted_pieces` are the pieces of each value that are needed, `values` the nodes built for them.

    `plan_reduce` requests the terms of a Reduce, and `build_reduce` builds it (`vector_reduce`).
    """

    def __init__(
        self, kernel: UOp, machine: MachineModel, uniques: Iterator[int], plan_reduce: PlanReduce, build_reduce: BuildReduce
    ) -> None:
        self.order = toposort(kernel)
        self.root, self.machine, self.uniques = kernel, machine, uniques
        self.plan_reduce, self.build_reduce = plan_reduce, build_reduce
        self.index_dtype = choose_index_dtype(self.order, kernel)
        self.index_sums = IndexSums(self.index_dtype)
        self.memory = _find_memory_and_its_views(self.order)
        self.width = max(1, machine.vector_bytes // _widest_element(self.order))
        self.access_bytes = machine.access_bytes
        self.wanted_pieces: dict[UOp, dict[LanePositions, None]] = {}
        self.store_pieces: dict[UOp, list[LanePositions]] = {}  # by Store
        self.transposes: dict[UOp, list[TransposeSquare]] = {}  # by Load
        self.reduce_plans: dict[UOp, ReducePlan] = {}
        self.absorbed_nodes: set[UOp] = set()  # nodes that a reduction replaces
        self.values: dict[tuple[UOp, LanePositions], UOp] = {}
        self.lane_of_element: dict[UOp, dict[int, Lane]] = {}  # lanes of built pieces, by value and position
        self.done: dict[UOp, UOp] = {}

    @functools.cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """Users of each node; only reductions need them."""
        return collect_users(self.order)

    @functools.cached_property
    def enclosing_loops(self) -> dict[UOp, frozenset[UOp]]:
        """Loops around each node; only reductions need them."""
        return open_ranges(self.order)

    # Consumers first: the elements that are needed together.

    def request_needed_pieces(self) -> None:
        """Find the pieces of each value that are needed."""
        wanted, memory, absorbed = self.wanted_pieces, self.memory, self.absorbed_nodes
        for u in reversed(self.order):
            op = u.op
            if op is Op.STORE:
                self._cut_store(u)
            elif op not in _GIVEN and u not in memory and u not in absorbed:
                if not u.shape:
                    wanted.setdefault(u, {})[SCALAR] = None
                if u in wanted:
                    self._request_sources(u, wanted[u])

    def request_piece_below_movement_ops(self, u: UOp, lane_positions: LanePositions) -> None:
        """Request a piece of a value, looking through movement ops.

        Of a value of shape () every lane takes the one element (R162, scalar operands in EXPANDED).
        """
        if not u.shape:
            lane_positions = SCALAR
        while u.op in RESHAPING:
            if u.op is not Op.RESHAPE:
                lane_positions = self.index_sums.map_positions_to_operand(u, lane_positions)
            u = u.src[0]  # operand
            if NOTHING in lane_positions:
                for p in set(lane_positions) - {NOTHING}:
                    self.request_piece_below_movement_ops(u, (p,))
                return
        self.wanted_pieces.setdefault(u, {})[lane_positions] = None

    def request_index_terms_or_piece(self, u: UOp, lane_positions: LanePositions) -> None:
        """Request the terms of an index vector, or the vector itself if it is no sum."""
        lanes = self.index_sums.derive_index_lanes_if_affine(u, lane_positions)
        if lanes is None:
            self.request_piece_below_movement_ops(u, lane_positions)
            return
        for t, p in lanes.terms:
            if t.shape != ():
                self.wanted_pieces.setdefault(t, {})[(p,)] = None

    def _request_sources(self, u: UOp, pieces: dict[LanePositions, None]) -> None:
        """Request the pieces of the sources of `u` from which its pieces are built."""
        if u.op is Op.REDUCE:
            self.reduce_plans[u] = self.plan_reduce(self, u, pieces)
            return
        for piece in self._record_transposes_and_replace_columns_by_rows(u, pieces) if u.op is Op.LOAD else pieces:
            if u.dtype is dt.index and self._is_index_sum(u, piece):
                self.request_index_terms_or_piece(u, piece)
            elif u.op is Op.LOAD:
                self._request_access_operands(u, piece)
            elif u.op is Op.STACK:
                elements = u.elements
                inner = size(elements[0]) if elements else 1
                for p in piece:
                    self.request_piece_below_movement_ops(elements[p // inner], (p % inner,))
            elif u.op in ALU or u.op is Op.BITCAST or u.op is Op.SPECIAL:
                for s in u.src:
                    self.request_piece_below_movement_ops(s, piece)
            elif u.op is Op.AFTER:
                self.request_piece_below_movement_ops(u.buffer, piece)
            elif u.op is Op.INDEX and (lanes := _map_positions_to_operand_of_constant_index(u, piece)) is not None:
                self.request_piece_below_movement_ops(u.operand, lanes)
            elif u.op is Op.WMMA:  # whole fragments, whichever elements of the product are needed
                for s in u.src:
                    self.request_piece_below_movement_ops(s, tuple(range(size(s))))
            elif u.op in RESHAPING:
                self.request_piece_below_movement_ops(u, piece)
            elif u.op not in _SCALARS:
                raise untranslatable_error("Lowering Pipeline/Instruction Selection", u, f"no vectors of {u.op.name}", self.root)

    def _record_transposes_and_replace_columns_by_rows(self, u: UOp, pieces: dict[LanePositions, None]) -> Iterable[LanePositions]:
        """Return the pieces of a Load that are accessed: the given ones, but rows in place of the columns of squares."""
        squares = find_transpose_squares(self.index_sums, u, pieces)
        if not squares:
            return pieces
        self.transposes[u] = squares
        columns = {p for square in squares for p in square.columns}
        return (*(p for p in pieces if p not in columns), *(p for square in squares for p in square.rows))

    def _is_index_sum(self, u: UOp, lane_positions: LanePositions) -> bool:
        """Return True if an index value is a sum of other terms, rather than a term that is computed."""
        lanes = self.index_sums.derive_index_lanes_if_affine(u, lane_positions)
        return lanes is not None and (u, lane_positions[0]) not in lanes.terms

    def _request_access_operands(self, u: UOp, lane_positions: LanePositions) -> None:
        self.request_index_terms_or_piece(index_of(u), lane_positions)
        _, *operands = u.src  # value or alternative, then the gate
        for k, s in enumerate(operands):
            if s.shape != ():
                self.request_piece_below_movement_ops(s, lane_positions)
            elif k == 0:
                self.request_piece_below_movement_ops(s, SCALAR)

    def _cut_store(self, u: UOp) -> None:
        width = self.access_bytes // u.value.dtype.itemsize if self.access_bytes else self.width
        self.store_pieces[u] = cut_store_pieces(self.index_sums, u, width)
        for piece in self.store_pieces[u]:
            self._request_access_operands(u, piece)

    # Sources first: the nodes.

    def build_nodes(self) -> UOp:
        """Build every node for the pieces that are needed, and return the new root."""
        for u in self.order:
            op = u.op
            if op is Op.CONST or op in RESHAPING or u in self.absorbed_nodes:  # a constant is built where it is used
                continue
            if op in MEMORY_ROOTS:
                self.done[u] = u
                self.values[u, SCALAR] = self._cast_index_leaf_to_integer(u) if u.dtype is dt.index else u
            elif op is Op.STORE:
                stores = [self._build_store(u, piece) for piece in self.store_pieces[u]]
                self.done[u] = stores[0] if len(stores) == 1 else UOp(Op.GROUP, tuple(stores))
            elif op in _EFFECTS or u in self.memory:
                if op is not Op.INDEX and strip_afters(u).op is not Op.INDEX:  # the Index of an access is built with the access
                    self._rebuild_effect(u)
            elif u in self.reduce_plans:
                self.build_reduce(self, u, self.reduce_plans[u])
            elif op is Op.RANGE:
                self.done[u] = self._cast_computed_range_bound_to_int64(u)
                self.values[u, SCALAR] = self._cast_index_leaf_to_integer(self.done[u])
            else:
                for square in self.transposes.get(u, ()):
                    rows = [self.values.setdefault((u, p), self._build_load(u, p)) for p in square.rows]
                    self.values.update({(u, p): x for p, x in zip(square.columns, transpose_rows(rows), strict=True)})
                for piece in self.wanted_pieces.get(u, ()):
                    if (u, piece) not in self.values:
                        self.values[u, piece] = self._build_piece(u, piece)
                if not u.shape:
                    self.done[u] = self.values[u, SCALAR]
        return self.done[self.root]

    def _cast_computed_range_bound_to_int64(self, u: UOp) -> UOp:
        bound = u.bound
        if bound.op is Op.CONST or bound.op is Op.PARAM:
            return u
        return u.replace(src=(B.cast(self.get_piece_or_compose_from_lanes(bound, SCALAR), dt.int64),))

    def collect_built_nodes(self) -> dict[UOp, tuple[UOp, ...]]:
        """Return the nodes built for each value, effect or view."""
        nodes: dict[UOp, tuple[UOp, ...]] = {u: (node,) for u, node in self.done.items()}
        for (u, _), node in self.values.items():
            nodes[u] = (*nodes.get(u, ()), node)
        return nodes

    def _cast_index_leaf_to_integer(self, u: UOp) -> UOp:
        """Return the value of a constant, variable or loop counter of dtype index as a machine integer."""
        if u.op is Op.CONST:
            return constant_vector((u.arg.value,), self.index_dtype)
        return UOp(Op.CAST, (u,), CastArg(self.index_dtype))

    def _rebuild_effect(self, u: UOp) -> None:
        src = tuple([self.done[s] if s in self.done else self.get_piece_or_compose_from_lanes(s, SCALAR) for s in u.src])
        self.done[u] = u if src == u.src else u.replace(src=src)

    def get_piece_or_compose_from_lanes(self, u: UOp, lane_positions: LanePositions) -> UOp:
        """Return the node of a piece: of shape () for one lane or a value of shape (), else (w,)."""
        if not u.shape:
            lane_positions = SCALAR
        while u.op in RESHAPING:
            if u.op is not Op.RESHAPE:
                lane_positions = self.index_sums.map_positions_to_operand(u, lane_positions)
            u = u.src[0]  # operand
            if NOTHING in lane_positions:
                zero = (build_constant_or_stack_of_copies(0, self.index_dtype if u.dtype is dt.index else u.dtype), 0)
                return compose_lanes(
                    [zero if p == NOTHING else (self.get_piece_or_compose_from_lanes(u, (p,)), 0) for p in lane_positions]
                )
        node = self.values.get((u, lane_positions))
        if node is None:
            node = self.values[u, lane_positions] = self._compose_lanes_or_build_constant_or_index(u, lane_positions)
        return node

    def build_splat_piece(self, u: UOp, lane_positions: LanePositions, lane_count: int) -> UOp:
        """Return the node of a piece with `lane_count` lanes; a scalar is splat."""
        return splat(self.get_piece_or_compose_from_lanes(u, lane_positions), lane_count)

    def _compose_lanes_or_build_constant_or_index(self, u: UOp, lane_positions: LanePositions) -> UOp:
        """Build a piece from lanes of other pieces of the value."""
        if u.op is Op.CONST:
            return self._cast_index_leaf_to_integer(u) if u.dtype is dt.index else u
        if u.dtype is dt.index:
            lanes = self.index_sums.derive_index_lanes_if_affine(u, lane_positions)
            if lanes is not None and (u, lane_positions[0]) not in lanes.terms:
                return self.build_index_value(lanes, len(lane_positions))
        lane_of = self.lane_of_element.get(u)
        if lane_of is None:
            lane_of = self.lane_of_element[u] = {}
            for (v, built_piece), node in self.values.items():
                if v is u:
                    lane_of.update({p: (node, k) for k, p in enumerate(built_piece)})
        return compose_lanes([lane_of[p] for p in lane_positions])

    def _build_piece(self, u: UOp, lane_positions: LanePositions) -> UOp:
        """Build a piece of a value from pieces of its sources."""
        if u.dtype is dt.index and self._is_index_sum(u, lane_positions):
            lanes = self.index_sums.derive_index_lanes_if_affine(u, lane_positions)
            assert lanes is not None
            return self.build_index_value(lanes, len(lane_positions))
        if u.op in ALU and u.op is not Op.CAST:
            return self._build_elementwise(u, lane_positions)
        if u.op is Op.LOAD:
            return self._build_load(u, lane_positions)
        if u.op is Op.STACK:
            elements = u.elements
            inner = size(elements[0]) if elements else 1
            return compose_lanes(
                [(self.get_piece_or_compose_from_lanes(elements[p // inner], (p % inner,)), 0) for p in lane_positions]
            )
        if u.op in RESHAPING:
            return self.get_piece_or_compose_from_lanes(u, lane_positions)
        if u.op is Op.INDEX and (constant_lanes := _map_positions_to_operand_of_constant_index(u, lane_positions)) is not None:
            return self.get_piece_or_compose_from_lanes(u.operand, constant_lanes)
        if u.op is Op.WMMA:
            fragments = [self.get_piece_or_compose_from_lanes(s, tuple(range(size(s)))) for s in u.src]
            # A scalar fragment is one element, or several that are all the same.
            node = u.replace(src=tuple([f if f.shape else UOp(Op.STACK, (f,) * size(s)) for f, s in zip(fragments, u.src)]))
            if len(lane_positions) == 1:
                return UOp(Op.INDEX, (node, constant_vector(lane_positions)))
            return compose_lanes([(node, p) for p in lane_positions])
        if u.op is Op.AFTER:
            return u.replace(
                src=(self.get_piece_or_compose_from_lanes(u.buffer, lane_positions), *(self.done[d] for d in u.dependencies))
            )
        if u.op is Op.CAST and u.dtype is dt.index:
            return as_integer(self.get_piece_or_compose_from_lanes(u.operand, lane_positions), self.index_dtype)
        return self._build_elementwise(u, lane_positions)

    def _build_elementwise(self, u: UOp, lane_positions: LanePositions) -> UOp:
        """Build an elementwise op; on scalars if all lanes share its operands."""
        src = [self.get_piece_or_compose_from_lanes(s, lane_positions) for s in u.src]
        for s in src:
            if s.shape:
                w = len(lane_positions)
                return UOp(u.op, tuple([s if s.shape else UOp(Op.STACK, (s,) * w) for s in src]), u.arg, u.tag)
        return UOp(u.op, tuple(src), u.arg, u.tag)

    # Index vectors.

    def build_index_value(self, lanes: IndexLanes, lane_count: int) -> UOp:
        """Build an integer value of `lane_count` lanes, with the values that `lanes` describes."""
        offsets = lanes.constant_lane_offsets
        if offsets is None:
            return UOp(Op.STACK, tuple([self._build_lane_sum(lanes, k) for k in range(lane_count)]))
        if lane_count == 1:
            return self._build_lane_sum(lanes, 0)
        if len(offsets) == 1 or not any(offsets):
            return splat(self._build_lane_sum(lanes, 0), lane_count)
        if not lanes.terms:
            return constant_vector(lanes.constant, self.index_dtype)
        return UOp(Op.ADD, (splat(self._build_lane_sum(lanes, 0), lane_count), constant_vector(offsets, self.index_dtype)))

    def _build_lane_sum(self, lanes: IndexLanes, lane: int) -> UOp:
        """Build lane k as a scalar. The constant comes last, so that lanes and neighbouring pieces share the other terms."""
        total: UOp | None = None
        for term, factor in lanes.terms.items():
            by = factor if isinstance(factor, int) else factor[lane if len(factor) > 1 else 0]
            if by:
                node = self._build_term(term)
                node = node if by == 1 else UOp(Op.MUL, (node, constant_vector((by,), self.index_dtype)))
                total = node if total is None else UOp(Op.ADD, (total, node))
        c = lanes.constant[lane if len(lanes.constant) > 1 else 0]
        if total is None:
            return constant_vector((c,), self.index_dtype)
        return total if c == 0 else UOp(Op.ADD, (total, constant_vector((c,), self.index_dtype)))

    def _build_term(self, term: Term) -> UOp:
        u, position = term
        return self.get_piece_or_compose_from_lanes(u, (position,))

    # Memory.

    def _build_access_reference(self, access: UOp, index: UOp) -> UOp:
        """Build the Index of an access. The dependencies of its Afters are moved to the memory."""
        view, dependencies = strip_views_and_collect_dependencies(access.buffer, AFTERS)
        orders = [self.done[d] for d in dependencies]
        base = self.done[view.operand]
        return UOp(Op.INDEX, (UOp(Op.AFTER, (base, *orders)) if orders else base, index))

    def _build_access_positions(self, access: UOp, lane_positions: LanePositions) -> UOp:
        """Build the positions of an access of this piece, in the form of a contiguous access if they are contiguous."""
        index, w = index_of(access), len(lane_positions)
        lanes = self.index_sums.derive_index_lanes_if_affine(index, lane_positions)
        if lanes is None:
            return self.get_piece_or_compose_from_lanes(index, lane_positions)
        offsets = lanes.constant_lane_offsets
        if w > 1 and offsets == tuple(range(w)):
            return UOp(Op.ADD, (splat(self._build_lane_sum(lanes, 0), w), constant_vector(offsets, self.index_dtype)))
        return self.build_index_value(lanes, w)

    def _build_load(self, u: UOp, lane_positions: LanePositions) -> UOp:
        """Build the Load of a piece. One address for all lanes is loaded once, and w elements at stride 2 by two vectors."""
        w = len(lane_positions)
        operands = self._access_operands(u, lane_positions)
        if self.machine.masks and w >= MIN_LANES:
            lanes = self.index_sums.derive_index_lanes_if_affine(index_of(u), lane_positions)
            if lanes and lanes.constant_lane_offsets == every_second_offset(w):
                return self._load_stride_two_by_two_vectors(u, lanes, operands, w)
        positions = self._build_access_positions(u, lane_positions)
        if w > 1 and is_splat(positions) and all(o.shape == () for o in operands):
            positions, w = positions.elements[0], 1
        extra = (splat(operands[0], w), *operands[1:]) if operands else ()
        return UOp(Op.LOAD, (self._build_access_reference(u, positions), *extra), LoadArg())

    def _load_stride_two_by_two_vectors(self, load: UOp, lanes: IndexLanes, operands: Sequence[UOp], lane_count: int) -> UOp:
        """Load `lane_count` elements at stride 2 by two contiguous Loads."""
        alternative, gate = operands or (
            build_constant_or_stack_of_copies(0, load.dtype),
            build_constant_or_stack_of_copies(True, dt.bool_),
        )
        firsts = [self._build_lane_sum(lanes, k) for k in (0, lane_count // 2)]
        numbers = constant_vector(tuple(range(lane_count)), self.index_dtype)
        addresses = [self._build_access_reference(load, UOp(Op.ADD, (splat(b, lane_count), numbers))) for b in firsts]
        return load_even_lanes_of_two_vectors(addresses, splat(alternative, lane_count), splat(gate, lane_count), load.arg)

    def _access_operands(self, u: UOp, lane_positions: LanePositions) -> list[UOp]:
        """Return the built value or alternative of an access, and its gate."""
        _, *operands = u.src  # the buffer or operand, then the rest
        return [self.get_piece_or_compose_from_lanes(s, lane_positions if s.shape != () else SCALAR) for s in operands]

    def _build_store(self, u: UOp, lane_positions: LanePositions) -> UOp:
        value, *gate = self._access_operands(u, lane_positions)
        positions = self._build_access_positions(u, lane_positions)
        return UOp(Op.STORE, (self._build_access_reference(u, positions), splat(value, len(lane_positions)), *gate))


def splat(x: UOp, lane_count: int) -> UOp:
    """Splat a scalar to `lane_count` lanes; return a vector as it is."""
    return x if lane_count == 1 or x.shape != () else UOp(Op.STACK, (x,) * lane_count)


def compose_lanes(lanes: Sequence[Lane]) -> UOp:
    """Return the vector of these lanes; the scalar for one lane."""
    node, _ = lanes[0]
    if node.shape != () and all(v is node for v, _ in lanes):
        if len(lanes) == node.shape[0] and all(k == at for k, (_, at) in enumerate(lanes)):
            return node
        if len(lanes) > 1:
            return UOp(Op.INDEX, (node, constant_vector(tuple([k for _, k in lanes]))))
    scalars = [v if v.shape == () else UOp(Op.INDEX, (v, constant_vector((k,)))) for v, k in lanes]
    return scalars[0] if len(scalars) == 1 else UOp(Op.STACK, tuple(scalars))


#: Effects and the loops that they close.
_EFFECTS = frozenset({Op.SINK, Op.GROUP, Op.END, Op.BARRIER})
#: Scalars that are built without sources.
_SCALARS = frozenset({Op.CONST, Op.RANGE, Op.PARAM})
#: Nodes that request nothing of their sources.
_GIVEN = _EFFECTS | MEMORY_ROOTS | {Op.CONST, Op.RANGE}


def _find_memory_and_its_views(order: Iterable[UOp]) -> set[UOp]:
    """Return the memory among `order`, its views, and Afters of effects."""
    references: set[UOp] = set()
    for u in [u for u in order if u.op in _REFERRING]:
        op = u.op
        if op in KERNEL_VIEWS:
            viewed = u.src[0]  # operand, or buffer of an After
            if viewed in references or (op is Op.AFTER and viewed.dtype is dt.void):
                references.add(u)
        elif op is Op.BUFFER or u.arg.name is None:
            references.add(u)
    return references


def _map_positions_to_operand_of_constant_index(u: UOp, lane_positions: LanePositions) -> LanePositions | None:
    """Return the elements of the operand that the elements of an Index of a value are; None for a position that is computed."""
    first, inner = 0, math.prod(int(n) for n in u.shape)
    for position, extent in zip(u.positions, u.operand.shape):
        if position.op is not Op.CONST:
            return None
        first = first * int(extent) + int(position.const)
    return tuple(first * inner + p for p in lane_positions)


def _widest_element(order: Iterable[UOp]) -> int:
    """Return the size in bytes of the widest element that a kernel computes with in lanes."""
    kinds = {(u.dtype, u.op in _WIDENED) for u in order if u.op in _COMPUTED and u.shape}
    return max([1, *[(d.wide if widened else d).itemsize for d, widened in kinds if d is not dt.index]])


#: Ops whose results are vectors of elements.
_COMPUTED = ALU | {Op.LOAD, Op.REDUCE, Op.BITCAST}
#: Ops that compute small floats in float32.
_WIDENED = ALU - {Op.WHERE}
_REFERRING = KERNEL_VIEWS | MEMORY_ROOTS
PlanReduce = Callable[[VectorSelector, UOp, dict[LanePositions, None]], ReducePlan]
BuildReduce = Callable[[VectorSelector, UOp, ReducePlan], None]
