"""Reductions of shaped values, by accumulators over loops and by reducing lanes.

A Reduce over ranges of a Reduce over axes is one reduction. Each piece of the result that is needed combines *terms*, which are
pieces of the operand. Lanes may lie across, along the result; then a term is one element of each result. Or they lie along the
reduced axes of one result, and are reduced after the loop. R32 (Reduce value) allows any order; here it is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from uops.compiler.decompose.build import build_constant_or_stack_of_copies
from uops.compiler.ir.accumulators import accumulator_dtype, reduction_identity
from uops.compiler.passes.select.cuts import estimate_piece_cost
from uops.compiler.passes.select.positions import (
    SCALAR,
    LanePositions,
    constant_vector,
    group_reduced_positions,
    merge_equal_lanes,
    whole_buffer_index,
)
from uops.compiler.passes.select.vectors import AccumulatorGroup, ReducePlan, VectorSelector
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Accumulators that keep the arithmetic units busy: latency times units.
IN_FLIGHT = 8


def plan_reduce_and_request_terms(state: VectorSelector, u: UOp, needed_pieces: dict[LanePositions, None]) -> ReducePlan:
    """Choose the terms whose sums are the `needed_pieces` of a Reduce. Request these terms, and return the plan."""
    value, reduced = _find_reduced_value_and_position_groups(state, u)
    outs = _cover_elements_once_longest_first(needed_pieces)
    if u.ranges and reduced is None:
        outs = _concatenate_short_pieces_if_cheaper(state, value, outs)
    lanes = 0
    if reduced is None:
        terms = [[piece] for piece in outs]
    else:
        n = len(reduced[0])
        lanes = math.gcd(n, state.width) if _prefers_lanes_along_reduce(state, value, reduced, outs) else 0
        if lanes:
            outs = [(p,) for p in dict.fromkeys(p for piece in outs for p in piece)]
            terms = [[merge_equal_lanes(tuple(reduced[p][j : j + lanes])) for j in range(0, n, lanes)] for (p,) in outs]
        else:
            terms = [[merge_equal_lanes(tuple([reduced[p][j] for p in piece])) for j in range(n)] for piece in outs]
    accumulators = max(1, min(state.machine.registers // 2, IN_FLIGHT) // len(outs)) if u.ranges else 1
    groups = [AccumulatorGroup(p, ts, min(accumulators, len(ts))) for p, ts in zip(outs, terms, strict=True)]
    for node in _match_fma_operands(state, u, value) or (value,):
        for ts in terms:
            for piece in ts:
                state.request_piece_below_movement_ops(node, piece)
    return ReducePlan(value, u.ranges, groups, lanes)


def _find_reduced_value_and_position_groups(state: VectorSelector, u: UOp) -> tuple[UOp, list[list[int]] | None]:
    """Return the value that a Reduce, with one over axes right below it, combines.

    The second part is the positions that the axes reduce, for each position of the result; None if there are no axes.
    """
    if u.arg.axes:
        return u.operand, group_reduced_positions(u)
    below, passed = u.operand, list[UOp]()
    while below.op is Op.RESHAPE:
        passed.append(below)
        below = below.operand
    is_axis_reduce = below.op is Op.REDUCE and not below.ranges and below.arg.op is u.arg.op and below.arg.axes
    if not is_axis_reduce or not u.ranges or any(len(state.users[x]) > 1 for x in (*passed, below)):
        return u.operand, None
    state.absorbed_nodes.update((*passed, below))
    return below.operand, group_reduced_positions(below)


def _cover_elements_once_longest_first(pieces: dict[LanePositions, None]) -> list[LanePositions]:
    """Return pieces that contain every element of `pieces` once, the longest first."""
    cover: list[LanePositions] = []
    covered: set[int] = set()
    for piece in sorted(pieces, key=lambda p: -len(p)):
        new = [p for p in dict.fromkeys(piece) if p not in covered]
        if len(new) == len(piece):
            cover.append(piece)
        else:
            cover += [(p,) for p in new]
        covered.update(new)
    return cover


def _concatenate_short_pieces_if_cheaper(state: VectorSelector, value: UOp, pieces: Sequence[LanePositions]) -> list[LanePositions]:
    """Fuse pieces shorter than a vector in pairs where one accumulator costs less than two.

    That holds for short rows of an output whose operands follow each other in a panel.
    """
    short = sorted((p for p in pieces if 1 < len(p) < state.width), key=lambda p: p[0])
    fused: list[LanePositions] = []
    for piece in short:
        while fused and len(fused[-1]) == len(piece) < state.width and _is_cheaper_fused(state, value, fused[-1], piece):
            piece = fused.pop() + piece
        fused.append(piece)
    rank = {q: k for k, p in enumerate(pieces) for q in p}
    return sorted((*(p for p in pieces if p not in short), *fused), key=lambda p: rank[p[0]])


def _is_cheaper_fused(state: VectorSelector, value: UOp, a: LanePositions, b: LanePositions) -> bool:
    sums = state.index_sums
    return estimate_piece_cost(sums, value, a + b) < estimate_piece_cost(sums, value, a) + estimate_piece_cost(sums, value, b)


def _prefers_lanes_along_reduce(
    state: VectorSelector, value: UOp, reduced_positions_by_result: list[list[int]], pieces: Sequence[LanePositions]
) -> bool:
    """Return True if lanes along the reduced axes cost less than lanes along the result."""
    n, sums = len(reduced_positions_by_result[0]), state.index_sums
    lanes = math.gcd(n, state.width)
    if lanes == 1:
        return False
    first_terms = [merge_equal_lanes(tuple([reduced_positions_by_result[p][0] for p in piece])) for piece in pieces]
    across = sum(n * estimate_piece_cost(sums, value, term) for term in first_terms)
    results = dict.fromkeys(p for piece in pieces for p in piece)
    along = sum(
        n // lanes * estimate_piece_cost(sums, value, merge_equal_lanes(tuple(reduced_positions_by_result[p][:lanes])))
        for p in results
    )
    return along < across


def _match_fma_operands(state: VectorSelector, reduce: UOp, reduced_value: UOp) -> tuple[UOp, UOp] | None:
    """Return the operands of a product that a sum may take in without rounding it first (R32, Reduce value)."""
    if reduce.arg.op is Op.ADD and reduced_value.op is Op.MUL and reduce.dtype.is_float and state.machine.fma:
        return reduced_value.lhs, reduced_value.rhs
    return None


class _ReduceBuilder:
    """The nodes of one Reduce, in the dtype and op of its accumulators."""

    def __init__(self, state: VectorSelector, u: UOp, plan: ReducePlan) -> None:
        self.state, self.u, self.plan = state, u, plan
        self.op: Op = u.arg.op
        self.wide = accumulator_dtype(u.dtype)
        self.fma_operands = _match_fma_operands(state, u, plan.value)
        self.identities: dict[int, UOp] = {}

    def combine_term(self, accumulated: UOp, term_positions: LanePositions, lane_count: int) -> UOp:
        """Combine `accumulated` with one more term."""
        if self.fma_operands is not None:
            a, b = (B.cast(self.state.build_splat_piece(f, term_positions, lane_count), self.wide) for f in self.fma_operands)
            return UOp(Op.MULACC, (a, b, accumulated))
        return UOp(self.op, (accumulated, self.build_term(term_positions, lane_count)))

    def build_term(self, term_positions: LanePositions, lane_count: int) -> UOp:
        """Build one term of `lane_count` lanes."""
        if self.fma_operands is not None:
            a, b = (B.cast(self.state.build_splat_piece(f, term_positions, lane_count), self.wide) for f in self.fma_operands)
            return UOp(Op.MUL, (a, b))
        return B.cast(self.state.build_splat_piece(self.plan.value, term_positions, lane_count), self.wide)

    def identity_vector(self, lane_count: int) -> UOp:
        """Return the identity of the value's own dtype, in the accumulator's: a finite-only dtype has no -inf."""
        if lane_count not in self.identities:
            identity = B.const(reduction_identity(self.op, self.u.dtype).const, self.wide)
            self.identities[lane_count] = build_constant_or_stack_of_copies(
                identity.const, self.wide, (lane_count,) if lane_count > 1 else ()
            )
        return self.identities[lane_count]

    def combine_parts_in_balanced_tree(self, parts: list[UOp]) -> UOp:
        """Combine all parts in a balanced tree."""
        while len(parts) > 1:
            parts = [UOp(self.op, tuple(parts[k : k + 2])) if k + 1 < len(parts) else parts[k] for k in range(0, len(parts), 2)]
        return parts[0]

    def reduce_lanes(self, vector: UOp) -> UOp:
        """Combine all lanes of a vector, half with half."""
        while vector.shape != ():
            w = int(vector.shape[0])
            low, high = (UOp(Op.INDEX, (vector, constant_vector(tuple(range(k, k + w // 2))))) for k in (0, w // 2))
            vector = UOp(self.op, (low, high))
        return vector


def build_needed_reduce_pieces(state: VectorSelector, u: UOp, plan: ReducePlan) -> None:
    """Build the pieces of a Reduce that are needed."""
    builder = _ReduceBuilder(state, u, plan)
    parts = (
        _accumulate_groups_in_loop_and_load(builder)
        if plan.ranges
        else [[_combine_group_terms_lane_by_lane(builder, g)] for g in plan.groups]
    )
    for group, group_parts in zip(plan.groups, parts, strict=True):
        total = builder.combine_parts_in_balanced_tree(group_parts)
        state.values[u, group.piece] = B.cast(builder.reduce_lanes(total) if plan.folded_lanes else total, u.dtype)
    if u.shape == ():
        state.done[u] = state.values[u, SCALAR]


def _combine_group_terms_lane_by_lane(builder: _ReduceBuilder, group: AccumulatorGroup) -> UOp:
    """Combine all terms of a group in one expression."""
    w = builder.plan.folded_lanes or len(group.piece)
    if builder.fma_operands is None:
        return builder.combine_parts_in_balanced_tree([builder.build_term(t, w) for t in group.terms])
    running = builder.build_term(group.terms[0], w)
    for t in group.terms[1:]:
        running = builder.combine_term(running, t, w)
    return running


def _accumulate_groups_in_loop_and_load(builder: _ReduceBuilder) -> list[list[UOp]]:
    """Combine the terms of all groups in one loop; return the accumulators of each group, loaded after it."""
    state, plan = builder.state, builder.plan
    ranges = tuple([state.done[r] for r in plan.ranges])
    outer = tuple([state.done[r] for r in sorted(state.enclosing_loops[builder.u], key=lambda r: int(r.arg.axis_id))])
    steps, registers = list[UOp](), list[list[UOp]]()
    for group in plan.groups:
        registers.append([])
        w = plan.folded_lanes or len(group.piece)
        for k in range(group.accumulators):
            register = UOp(Op.BUFFER, (), BufferArg(w, builder.wide, "CPU", AddrSpace.REG, next(state.uniques)))
            before = UOp(Op.AFTER, (register, *outer)) if outer else register
            cleared = UOp(Op.STORE, (UOp(Op.INDEX, (before, whole_buffer_index(w))), builder.identity_vector(w)))
            running = UOp(Op.INDEX, (UOp(Op.AFTER, (register, cleared, *ranges)), whole_buffer_index(w)))
            value = UOp(Op.LOAD, (running,), LoadArg())
            for t in group.terms[k :: group.accumulators]:
                value = builder.combine_term(value, t, w)
            steps.append(UOp(Op.STORE, (running, value)))
            registers[-1].append(register)
    body = B.wrap_in_one_end_per_loop(steps[0] if len(steps) == 1 else UOp(Op.GROUP, tuple(steps)), ranges)
    return [[_load_accumulator(register, body) for register in group] for group in registers]


def _load_accumulator(register: UOp, loop_end: UOp) -> UOp:
    address = UOp(Op.INDEX, (UOp(Op.AFTER, (register, loop_end)), whole_buffer_index(register.arg.size)))
    return UOp(Op.LOAD, (address,), LoadArg())
