"""Vectors across the contiguous axis of memory, as contiguous loads and a network of shuffles.

w vectors of w lanes are the rows of a square, and its columns are the pieces to load. For s = w/2, ..., 1, two rows at distance s
exchange the halves of their blocks of 2s lanes. After log2(w) steps rows are columns (Eklundh 1972). That takes w*log2(w) exchanges
instead of w*w accesses of one element.

w elements at stride 2 are the even lanes of two contiguous vectors, whose odd lanes are not read.

Spec: Lowering Pipeline/Instruction Selection; R45 (Index), R52 (Load).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uops.compiler.decompose.build import build_constant_or_stack_of_copies
from uops.compiler.passes.select.cuts import find_contiguous_runs
from uops.compiler.passes.select.positions import IndexSums, LanePositions, constant_vector, index_of, is_splat
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import LoadArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Fewest lanes of a vector for which shuffles pay; shorter pieces are loaded element by element.
MIN_LANES = 4


class TransposeSquare(NamedTuple):
    """Pieces to load, and the contiguous pieces that they are built from. Column k holds lane k of each row."""

    rows: tuple[LanePositions, ...]
    columns: tuple[LanePositions, ...]


def find_transpose_squares(index_sums: IndexSums, load: UOp, pieces: Iterable[LanePositions]) -> list[TransposeSquare]:
    """Return the squares that pieces of a Load form. Contiguous pieces and splats belong to none."""
    scattered = [p for p in pieces if len(p) >= MIN_LANES and not _is_contiguous_or_splat(index_sums, load, p)]
    squares: list[TransposeSquare] = []
    for w in sorted({len(p) for p in scattered}):
        squares += _find_squares_of_width(index_sums, load, [p for p in scattered if len(p) == w], w)
    return squares


def _is_contiguous_or_splat(index_sums: IndexSums, load: UOp, lane_positions: LanePositions) -> bool:
    lanes = index_sums.derive_index_lanes_if_affine(index_of(load), lane_positions)
    return lanes is not None and lanes.constant_lane_offsets in (
        tuple(range(len(lane_positions))),
        (0,) * len(lane_positions),
        (0,),
    )


def _find_squares_of_width(index_sums: IndexSums, load: UOp, pieces: Sequence[LanePositions], w: int) -> list[TransposeSquare]:
    """Return the squares that pieces of `w` lanes form."""
    positions = tuple(dict.fromkeys(p for piece in pieces for p in piece))
    lanes = index_sums.derive_index_lanes_if_affine(index_of(load), positions)
    if lanes is None or len(pieces) < w:
        return []
    row_and_lane: dict[int, tuple[int, int]] = {}
    rows: list[LanePositions] = []
    for run in find_contiguous_runs(lanes, len(positions)):
        for k in range(0, len(run) - w + 1, w):
            row = tuple([positions[n] for n in run[k : k + w]])
            row_and_lane.update({p: (len(rows), lane) for lane, p in enumerate(row)})
            rows.append(row)
    squares: dict[tuple[int, ...], dict[int, LanePositions]] = {}  # rows -> (lane -> column)
    for piece in pieces:
        places = [row_and_lane[p] for p in piece if p in row_and_lane]
        if len(places) == w and len({lane for _, lane in places}) == 1:
            squares.setdefault(tuple([row for row, _ in places]), {})[places[0][1]] = piece
    return [
        TransposeSquare(tuple([rows[r] for r in square_rows]), tuple([columns[k] for k in range(w)]))
        for square_rows, columns in squares.items()
        if len(columns) == w == len(set(square_rows))
    ]


def transpose_rows(rows: Sequence[UOp]) -> list[UOp]:
    """Return the columns of a square of vectors, built by shuffles."""
    v, w = list(rows), len(rows)
    s = w // 2
    while s:
        upper = UOp(Op.STACK, tuple([build_constant_or_stack_of_copies(bool(k & s), dt.bool_) for k in range(w)]))
        up, down = (constant_vector(tuple([(k + by) % w for k in range(w)])) for by in (-s, s))
        for i in range(w):
            if not i & s:
                a, b = v[i], v[i + s]
                v[i] = UOp(Op.WHERE, (upper, UOp(Op.INDEX, (b, up)), a))
                v[i + s] = UOp(Op.WHERE, (upper, b, UOp(Op.INDEX, (a, down))))
        s //= 2
    return v


def every_second_offset(w: int) -> tuple[int, ...]:
    """Return the offsets of `w` lanes at stride 2."""
    return tuple(range(0, 2 * w, 2))


def load_even_lanes_of_two_vectors(addresses: Sequence[UOp], alternative: UOp, gate: UOp, arg: LoadArg) -> UOp:
    """Load the even lanes of two adjacent vectors. `alternative` and `gate` are those of the lanes of the result."""
    w = int(gate.shape[0])
    even = UOp(Op.STACK, tuple([build_constant_or_stack_of_copies(k % 2 == 0, dt.bool_) for k in range(w)]))
    loads = []
    for n, address in enumerate(addresses):
        twice = constant_vector(tuple([(n * w + k) // 2 for k in range(w)]))
        other, inside = (x if is_splat(x) else UOp(Op.INDEX, (x, twice)) for x in (alternative, gate))
        loads.append(UOp(Op.LOAD, (address, other, even if _is_true_splat(gate) else UOp(Op.AND, (inside, even))), arg))
    return UOp(Op.STACK, tuple([UOp(Op.INDEX, (v, constant_vector((k,)))) for v in loads for k in range(0, w, 2)]))


def _is_true_splat(u: UOp) -> bool:
    return is_splat(u) and u.elements[0].op is Op.CONST and bool(u.elements[0].arg.value)
