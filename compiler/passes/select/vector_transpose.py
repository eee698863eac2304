"""Crossings: vectors along another axis than memory's, made of contiguous loads by a network of shuffles.

w vectors of w lanes are the rows of a square; its columns are what is wanted. Two rows at distance s exchange the halves of their
blocks of 2s lanes, for s = w/2, ..., 1: after log2(w) steps rows are columns (Eklundh 1972), by w*log2(w) exchanges instead of w*w
accesses of one element.

Every second element, of w, stands in the even lanes of two contiguous vectors, whose odd lanes are not read.

Spec: Lowering Pipeline/Instruction Selection; R45, R52.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uops.compiler.decompose.build import constant
from uops.compiler.passes.select.cuts import runs
from uops.compiler.passes.select.positions import Piece, Sums, constants, index_of
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import LoadArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Fewer lanes are loaded one by one.
LEAST = 4


class Crossing(NamedTuple):
    """Pieces that are contiguous in memory, and as many that hold lane k of each of them, for every k in order."""

    rows: tuple[Piece, ...]
    columns: tuple[Piece, ...]


def crossings(sums: Sums, load: UOp, pieces: Iterable[Piece]) -> list[Crossing]:
    """The squares that the wanted pieces of a Load form; pieces that memory holds in order belong to none."""
    scattered = [p for p in pieces if len(p) >= LEAST and not _is_walk(sums, load, p)]
    found: list[Crossing] = []
    for w in sorted({len(p) for p in scattered}):
        found += _squares(sums, load, [p for p in scattered if len(p) == w], w)
    return found


def _is_walk(sums: Sums, load: UOp, piece: Piece) -> bool:
    lanes = sums.of(index_of(load), piece)
    return lanes is not None and lanes.steps in (tuple(range(len(piece))), (0,) * len(piece), (0,))


def _squares(sums: Sums, load: UOp, pieces: Sequence[Piece], w: int) -> list[Crossing]:
    positions = tuple(dict.fromkeys(p for piece in pieces for p in piece))
    lanes = sums.of(index_of(load), positions)
    if lanes is None or len(pieces) < w:
        return []
    place: dict[int, tuple[int, int]] = {}  # position -> (row, lane)
    rows: list[Piece] = []
    for run in runs(lanes, len(positions)):
        for k in range(0, len(run) - w + 1, w):
            row = tuple([positions[n] for n in run[k : k + w]])
            place.update({p: (len(rows), at) for at, p in enumerate(row)})
            rows.append(row)
    squares: dict[tuple[int, ...], dict[int, Piece]] = {}
    for piece in pieces:
        at = [place.get(p) for p in piece]
        known = [a for a in at if a is not None]
        if len(known) == w and len({lane for _, lane in known}) == 1:
            squares.setdefault(tuple([row for row, _ in known]), {})[known[0][1]] = piece
    return [
        Crossing(tuple([rows[r] for r in held]), tuple([columns[k] for k in range(w)]))
        for held, columns in squares.items()
        if len(columns) == w == len(set(held))
    ]


def transposed(rows: Sequence[UOp]) -> list[UOp]:
    """The columns of a square of vectors."""
    v, w = list(rows), len(rows)
    s = w // 2
    while s:
        upper = UOp(Op.STACK, tuple([constant(bool(k & s), dt.bool_) for k in range(w)]))
        up, down = (constants(tuple([(k + by) % w for k in range(w)])) for by in (-s, s))
        for i in range(w):
            if not i & s:
                a, b = v[i], v[i + s]
                v[i] = UOp(Op.WHERE, (upper, UOp(Op.INDEX, (b, up)), a))
                v[i + s] = UOp(Op.WHERE, (upper, b, UOp(Op.INDEX, (a, down))))
        s //= 2
    return v


def every_second(w: int) -> tuple[int, ...]:
    """How far the lanes of such an access are from the first."""
    return tuple(range(0, 2 * w, 2))


def halves(places: Sequence[UOp], alt: UOp, gate: UOp, arg: LoadArg) -> UOp:
    """The even lanes of the vectors at two places, which follow each other; `alt` and `gate` are those of the lanes wanted."""
    w = int(gate.shape[0])
    even = UOp(Op.STACK, tuple([constant(k % 2 == 0, dt.bool_) for k in range(w)]))
    found = []
    for n, place in enumerate(places):
        twice = constants(tuple([(n * w + k) // 2 for k in range(w)]))
        other, inside = (x if _is_one(x) else UOp(Op.INDEX, (x, twice)) for x in (alt, gate))
        found.append(UOp(Op.LOAD, (place, other, even if _is_true(gate) else UOp(Op.AND, (inside, even))), arg))
    return UOp(Op.STACK, tuple([UOp(Op.INDEX, (v, constants((k,)))) for v in found for k in range(0, w, 2)]))


def _is_one(u: UOp) -> bool:
    return u.op is Op.STACK and all(s is u.src[0] for s in u.src)


def _is_true(u: UOp) -> bool:
    return _is_one(u) and u.src[0].op is Op.CONST and bool(u.src[0].arg.value)
