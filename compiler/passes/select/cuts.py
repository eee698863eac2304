"""Cuts of shaped values into pieces, and the cost of computing a piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from uops.compiler.passes.select.positions import NOTHING, SCALAR, IndexLanes, IndexSums, LanePositions, index_of, size
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, ops_below
from uops.spec.ir.ops import ALU, Op

#: Greatest distance of the elements of interleaved runs: that of the phases of a loop (`optimize.heuristics.phases`).
_MOST_INTERLEAVED = 8


def cut_store_pieces(index_sums: IndexSums, u: UOp, width: int) -> list[LanePositions]:
    """Cut a Store into pieces of at most `width` lanes: contiguous in memory, or else the same distance apart.

    Of several distances, that of the cheapest pieces is taken. Otherwise the lanes are in row-major order.
    """
    n = size(u.value)
    if n == 1 or width == 1:
        return [(p,) for p in range(n)]
    lanes = index_sums.derive_index_lanes_if_affine(index_of(u), tuple(range(n)))
    runs = find_contiguous_runs(lanes, n) if lanes is not None else [list(range(n))]
    if lanes is not None and max(map(len, runs)) == 1:
        cuts = [find_contiguous_runs(lanes, n, distance) for distance in _list_distances_along_axes(lanes.constant)]
        if len(cuts) == 1:
            (runs,) = cuts
        elif cuts:
            runs = min(cuts, key=lambda runs: _estimate_cost_of_runs(index_sums, u.value, runs, width))
    elif lanes is not None:
        runs = _choose_interleaved_runs_if_cheaper(index_sums, u, lanes, runs, width)
    if max(map(len, runs)) == 1:
        runs = [list(range(n))]
    return [piece for run in runs for piece in split_run_into_vectors(run, width)]


def _choose_interleaved_runs_if_cheaper(
    index_sums: IndexSums, u: UOp, lanes: IndexLanes, contiguous: list[list[int]], width: int
) -> list[list[int]]:
    """Return the runs whose elements are a short distance apart, if these are cheaper than contiguous ones.

    They are if each of the interleaved runs reads contiguous memory. Their stores cost as much as scalar ones. Without a Reduce,
    loads in squares of a power of two are cheaper still (`vector_transpose`).
    """
    n = size(u.value)
    if len(lanes.constant) < n:
        return contiguous
    distance, step = n, 1
    for extent in reversed(u.value.shape):
        if extent > 1:
            along = lanes.constant[step] - lanes.constant[0]
            distance, step = along if 1 < along < distance else distance, step * extent
    if distance > _MOST_INTERLEAVED or (not distance & (distance - 1) and Op.REDUCE not in ops_below(u.value)):
        return contiguous
    interleaved = find_contiguous_runs(lanes, n, distance)
    costs = [
        _estimate_cost_of_runs(index_sums, u.value, runs, width) + store
        for runs, store in ((contiguous, 2 * -(-n // width)), (interleaved, 2 * n))
    ]
    return interleaved if costs[1] < costs[0] else contiguous


def split_run_into_vectors(run: Sequence[int], width: int) -> Iterator[LanePositions]:
    """Split a run into full vectors, and the remainder into powers of two."""
    k = 0
    while k < len(run):
        while width > len(run) - k:
            width //= 2
        yield tuple(run[k : k + width])
        k += width


def _list_distances_along_axes(addresses: Sequence[int]) -> list[int]:
    """List the distances of neighbours along each axis of elements in row-major order, least first.

    An axis that continues the one inside of it counts as part of that.
    """
    first, step, distances = addresses[0], 1, set[int]()
    while step < len(addresses):
        distance = addresses[step] - first
        along = addresses[::step]
        step *= next((k for k, x in enumerate(along) if x != first + k * distance), len(along))
        distances.add(abs(distance))
    return sorted(distances - {0})


def _estimate_cost_of_runs(index_sums: IndexSums, value: UOp, runs: Sequence[Sequence[int]], width: int) -> int:
    """Estimate the cost of computing a value in vectors of the elements of runs."""
    return sum(estimate_piece_cost(index_sums, value, piece) for run in runs for piece in split_run_into_vectors(run, width))


def find_contiguous_runs(lanes: IndexLanes, n: int, distance: int = 1) -> list[list[int]]:
    """Group `n` positions into runs of addresses that are `distance` apart, which are the lanes of `lanes`."""
    if lanes.constant_lane_offsets == tuple(range(n)):
        return [list(range(n))]
    by_terms: dict[tuple[int, ...], list[tuple[int, int]]] = {}  # coefficients -> (constant, position)
    varying = [k for k in lanes.terms.values() if isinstance(k, tuple)]
    addresses = list(zip(lanes.constant if len(lanes.constant) > 1 else lanes.constant * n, range(n)))
    if varying:
        for coefficients, access in zip(zip(*varying), addresses):
            by_terms.setdefault(coefficients, []).append(access)
    else:
        by_terms[()] = addresses
    runs: list[list[int]] = []
    for accesses in by_terms.values():
        if distance > 1 or len(dict(accesses)) < len(accesses):
            runs += _find_runs_of_fixed_distance_and_stride(accesses, distance)
            continue
        last = None
        for c, p in sorted(accesses):
            if last is None or c != last + distance:
                runs.append([])
            runs[-1].append(p)
            last = c
    return sorted(runs)


def _find_runs_of_fixed_distance_and_stride(address_position_pairs: Sequence[tuple[int, int]], distance: int) -> list[list[int]]:
    """Group (address, position) pairs into runs of one distance and of one stride in position. Addresses may be equal.

    Addresses are equal where a row is padded: its last positions, which are gated off, have the addresses of the next row's first.
    """
    address = {p: c for c, p in address_position_pairs}
    positions_at: dict[int, list[int]] = {}
    for c, p in address_position_pairs:
        positions_at.setdefault(c, []).append(p)
    runs: list[list[int]] = []
    remaining = dict.fromkeys(sorted(address))
    while remaining:
        p = next(iter(remaining))
        stride = min((q - p for q in positions_at.get(address[p] + distance, ()) if q > p and q in remaining), default=0)
        run = [p]
        while stride and address.get(run[-1] + stride) == address[run[-1]] + distance and run[-1] + stride in remaining:
            run.append(run[-1] + stride)
        runs.append(run)
        for q in run:
            del remaining[q]
    return runs


def estimate_piece_cost(index_sums: IndexSums, root: UOp, lane_positions: LanePositions) -> int:
    """Estimate the cost of computing a piece, in half vector operations.

    An access or operation of one vector costs 2, and a scalar to be splat costs 1. An access that is not contiguous costs 2 per
    lane.
    """
    total = 0
    pending, seen = [(root, lane_positions)], set[tuple[UOp, LanePositions]]()
    while pending:
        u, lane_positions = pending.pop()
        u, lane_positions = index_sums.trace_below_movement_except_pad(u, lane_positions)
        if (u, lane_positions) in seen or NOTHING in lane_positions:
            continue
        seen.add((u, lane_positions))
        if u.op is Op.LOAD:
            _, *operands = u.src  # alternative and gate, if there are any
            total += _estimate_access_cost_in_half_vector_ops(
                index_sums.derive_index_lanes_if_affine(index_of(u), lane_positions), len(lane_positions)
            )
            pending += [(s, lane_positions) for s in operands if s.shape != ()]
        elif u.op in ALU and not (u.dtype is dt.index and index_sums.derive_index_lanes_if_affine(u, lane_positions) is not None):
            total += 2 if len(lane_positions) > 1 else 1
            pending += [(s, lane_positions if s.shape else SCALAR) for s in u.src if u.shape]
        elif u.op is Op.REDUCE and u.operand.shape == u.shape:
            pending.append((u.operand, lane_positions))
    return total


def _estimate_access_cost_in_half_vector_ops(lanes: IndexLanes | None, width: int) -> int:
    if width == 1:
        return 1
    offsets = None if lanes is None else lanes.constant_lane_offsets
    if offsets is not None and not any(offsets):
        return 1
    return 2 if offsets == tuple(range(width)) else 2 * width
